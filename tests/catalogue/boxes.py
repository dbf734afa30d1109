"""Rows of `jaxiou.boxes`."""

import functools

import numpy as np
import reference

from catalogue.row import HOST, Row, box, box_pair, whole_item


def ciou_with_alpha_held(a, b):
    return functools.partial(reference.ciou, weight=reference.alpha(a, b))


def _box_and_image(rng):
    return *box(rng), np.array(10.0625), np.array(12.5625)  # between two lines of the boxes' grid


_OVERLAPS = ["intersection", "union", "enclosing", "iou", "giou", "diou", "ioa", "dice"]
_FORMATS = ["xywh", "cxcywh", "yxyx", "inclusive"]

ROWS = [
    Row("boxes.area", box, (0,)),
    *(Row(f"boxes.{name}", box_pair, (0, 1)) for name in _OVERLAPS),
    Row("boxes.ciou", box_pair, (0, 1), frozen=ciou_with_alpha_held),
    *(Row(f"boxes.from_{name}", box, (0,)) for name in _FORMATS),
    *(Row(f"boxes.to_{name}", box, (0,)) for name in _FORMATS),
    Row("partial(boxes.clip, height=10.0625, width=12.5625)", box, (0,)),
    Row("boxes.clip", _box_and_image, (0, 1, 2), leading=False),
    Row("partial(boxes.is_valid, min_size=4.5)", box),
    Row("boxes.check_values", box, where=whole_item(1), exempt=HOST),
]
