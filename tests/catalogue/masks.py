"""Rows of `jaxiou.masks`."""

from catalogue.row import Row

COUNTS = {"grad": "it counts pixels: the gradient is 0, which tests/test_masks.py shows"}


def _mask_set(rng, count):
    """Masks of numbers, half of them 0, that every type holds."""
    return rng.integers(1, 4, (count, 6, 7)) * (rng.random((count, 6, 7)) < 0.5) * 1.0


def _mask(rng):
    return (_mask_set(rng, 1)[0],)


def _pair(rng):
    return tuple(_mask_set(rng, 2))


def _sets(rng):
    masks = _mask_set(rng, 8)
    return masks[:5], masks[5:]


def _label_map(rng):
    return (rng.integers(0, 2, (6, 7)).astype("uint8"),)


ROWS = [
    Row("masks.area", _mask),
    *(Row(f"masks.{name}", _pair) for name in ("intersection", "union")),
    *(Row(f"masks.{name}", _pair, exempt=COUNTS) for name in ("iou", "ioa", "dice")),
    Row("masks.to_boxes", _mask, exempt=COUNTS),
    Row("masks.boundary", _mask),
    Row("masks.boundary_iou(ratio=0.01)", _pair, exempt=COUNTS),
    Row("partial(masks.label_boundary, ratio=0.01)", _label_map),
    Row("pairing.pairwise(masks.iou)", _sets, exempt=COUNTS),
]
