"""Rows of `jaxiou.panoptic`."""

import numpy as np

from catalogue.row import HOST, Row
from jaxiou.panoptic import PanopticCounts


def _maps(rng):
    """Segments of which some match, void on both sides, and a padded segment on both."""
    targets = np.repeat(rng.integers(-1, 3, (6, 1)), 7, axis=1)
    predictions = np.where(rng.random((6, 7)) < 0.8, targets, rng.integers(-1, 4, (6, 7)))
    return predictions, targets, np.array([0, 1, 1, -1]), np.array([0, 1, 0, -1])


def _counts(rng):
    matches = rng.integers(1, 9, 5)
    iou = matches * rng.integers(33, 64, 5) / 64
    return (PanopticCounts(iou, matches, *rng.integers(0, 5, (2, 5))),)


def _ids(rng):
    return (rng.choice([0, 7003, 7004, 9000], (6, 7)).astype("int32"),)


def _colors(rng):
    return (rng.integers(0, 256, (6, 7, 3)).astype("uint8"),)


def _annotation(rng):
    ids = rng.choice([0, 26, 9], (6, 7))
    ids[0, :2] = 26, 9
    return ids, [{"id": 26, "category_id": 17, "area": 5}, {"id": 9, "category_id": 1}]


IOU_SUMS = {
    "grad": "what matches is decided on integers",
    "x64": "sums of IoU are float64 if x64 is on, which tests/test_panoptic.py shows",
}
QUALITY = {
    "grad": "its argument is a tuple with integers; tests/test_panoptic.py has the slope",
    "debug_nans": "a class that does not occur is NaN, as stated",
}

ROWS = [
    Row(
        "partial(panoptic.panoptic_counts, num_classes=3, boundary_ratio=0.01, stuff=(1,))",
        _maps,
        leading=False,
        exempt=IOU_SUMS,
    ),
    Row("panoptic.panoptic_quality", _counts, exempt=QUALITY),
    Row(
        "partial(panoptic.relabel, max_segments=5)",
        _ids,
        leading=False,
    ),
    Row("panoptic.from_rgb", _colors),
    Row("partial(panoptic.pack, category_ids=(1, 17), max_segments=3)", _annotation, exempt=HOST),
]
