"""Rows of `jaxiou.segmentation_losses`."""

from catalogue.row import Row

PIXELS, CLASSES = (2, 3), 3


def _scores(rng):
    """Distinct numbers above 0, of which none is 1, the kink of a hinge."""
    return (2 * rng.permutation(32)[:18].reshape(*PIXELS, CLASSES) + 1) / 16


def _labelled(rng):
    return _scores(rng), rng.integers(0, CLASSES, PIXELS, "int32")


def _softly_labelled(rng):
    return _scores(rng), rng.integers(0, 9, (*PIXELS, CLASSES)) / 8


def _masked(rng):
    return _scores(rng)[..., 0], rng.integers(0, 2, PIXELS, "int32")


def _pixels(rng):
    keep = rng.random(PIXELS) < 0.7
    return keep, (keep, None)


def _pixels_of_both(rng):
    keep = rng.random(PIXELS) < 0.7
    return keep, (keep, keep)


def _of_labels(name, item=_labelled):
    return Row(name, item, (0,), where=_pixels)


def _of_soft_labels(name):
    return Row(name, _softly_labelled, (0, 1), where=_pixels_of_both)


ROWS = [
    _of_labels("segmentation_losses.soft_jaccard_loss"),
    _of_soft_labels("partial(segmentation_losses.soft_jaccard_loss, activation='sigmoid')"),
    _of_labels(
        "partial(segmentation_losses.dice_loss, activation='sigmoid', classes='all', smooth=1.0)"
    ),
    _of_labels("partial(segmentation_losses.generalized_dice_loss, ignore=(1, 255))"),
    _of_soft_labels("segmentation_losses.generalized_dice_loss"),
    _of_labels("segmentation_losses.tversky_loss"),
    _of_labels("segmentation_losses.focal_tversky_loss"),
    _of_labels("segmentation_losses.lovasz_softmax_loss"),
    _of_labels("segmentation_losses.lovasz_hinge_loss", item=_masked),
]
