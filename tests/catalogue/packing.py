"""Rows of `jaxiou.tracking.packing`."""

import numpy as np

from catalogue.row import HOST, Row, box_pair, box_set
from jaxiou.tracking.packing import Trajectories


def _rows(rng):
    return rng.integers(0, 3, 4), np.arange(4), box_set(rng, 4)


def _side(rng, count):
    """Three frames of `count` boxes."""
    boxes = box_set(rng, 3 * count).reshape(3, count, 4)
    return Trajectories(
        np.tile(np.arange(count, dtype=np.int32), (3, 1)), boxes, rng.random((3, count)) < 0.8
    )


ROWS = [
    Row("partial(tracking.packing.pack, num_frames=3)", _rows, leading=False, exempt=HOST),
    Row(
        "tracking.packing.compare",
        lambda rng: (_side(rng, 3), _side(rng, 2)),
        leading=False,
        exempt={"grad": "by `box_iou`, below", "jvp": "by `box_iou`, below"},
    ),
    Row("tracking.packing.box_iou", box_pair, (0, 1)),
]
