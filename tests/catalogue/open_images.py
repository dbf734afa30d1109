"""Rows of `jaxiou.detection.open_images`; what it shares with `voc` is there."""

import numpy as np

from catalogue.row import HOST, Row
from catalogue.voc import KEPT, batches, sides
from jaxiou.detection.packing import Table


def _sides(rng):
    """Some of the truths are groups."""
    found, truths = sides(rng)
    return found, truths._replace(crowd=rng.random((2, 3)) < 0.4)


def _table(rng):
    found, truths = (type(side)(*(x if x is None else x[0] for x in side)) for side in sides(rng))
    places = np.zeros(4, np.int32)
    return (Table(found, places, truths, places[:3], 1),)


def _flags(rng):
    return tuple(rng.random((2, 2, 3)) < 0.3)


ABOVE = "ancestors=np.eye(3, k=-1, dtype=bool)"

ROWS = [
    Row(f"partial(detection.open_images.expand_hierarchy, {ABOVE})", _table, exempt=HOST),
    Row(f"partial(detection.open_images.verified_classes, {ABOVE})", _flags, exempt=HOST),
    Row(
        "partial(detection.open_images.keep_verified, verified=np.eye(2, dtype=bool))",
        sides,
        leading=False,
        exempt=KEPT,
    ),
    Row(
        "partial(detection.open_images.evaluate, thresholds=(0.25, 0.5), group_weight=1)",
        _sides,
        exempt=KEPT | {"eager": "operation by operation in `voc.evaluate`, of the same parts"},
    ),
    Row("partial(detection.open_images.average_precision, num_classes=2)", batches, exempt=HOST),
]
