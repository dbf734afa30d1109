"""Rows of `jaxiou.segmentation`."""

import numpy as np

from catalogue.row import HOST, Row

LABELS = np.array([0, 1, 2, 3, 4, -1, 255], np.int32)


def maps(rng):
    """Two label maps of five classes, with an ignored and an invalid label."""
    targets = rng.choice(LABELS, (6, 7))
    return np.where(rng.random(targets.shape) < 0.6, targets, rng.choice(LABELS, (6, 7))), targets


def one_map(rng):
    return maps(rng)[1:]


def which_pixels_count(arguments):
    def make(rng):
        return rng.random((6, 7)) < 0.5, (None,) * arguments

    return make


def matrix(rng):
    """Counts of five classes with a column for no class; soft ones, on a grid of eighths."""
    return (rng.integers(8, 128, (5, 6)) / 8,)


EMPTY_IS_NAN = {"debug_nans": "the score of no pixels is NaN, unless `absent` says otherwise"}


def _maps(name, arguments=2, make=maps, exempt=None):
    where = which_pixels_count(arguments)
    return Row(name, make, leading=False, where=where, exempt=exempt or {})


def _score(name, make=matrix, exempt=EMPTY_IS_NAN):
    return Row(name, make, (0,), exempt=exempt)


SCORES = ["class_iou", "mean_iou", "class_dice", "mean_dice", "mean_accuracy"]
SCORES += ["precision", "recall"]

ROWS = [
    _maps("partial(segmentation.confusion_matrix, num_classes=5, ignore=(3, 255))"),
    _maps("partial(segmentation.boundary_confusion_matrix, num_classes=5, ratio=0.1, ignore=255)"),
    _maps("partial(segmentation.target_counts, num_classes=5, ignore=(3, 255))", 1, one_map),
    Row(
        "partial(segmentation.check_values, num_classes=5, ignore=(-1, 255))", one_map, exempt=HOST
    ),
    *(_score(f"segmentation.{name}") for name in SCORES),
    _score("partial(segmentation.mean_iou, absent='one', classes=(2, 0))", exempt={}),
    _score("segmentation.pixel_accuracy"),
    _score("segmentation.frequency_weighted_iou"),
    _score(
        "partial(segmentation.category_iou, categories=((0, 3), (2,)), absent='zero')", exempt={}
    ),
    _score("segmentation.class_counts", exempt={}),
]
