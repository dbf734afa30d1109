"""Rows of `jaxiou.rotated`."""

import numpy as np

from catalogue.row import HOST, Row, box, whole_item
from jaxiou import rotated


def rotated_box(rng):
    """On grids that bfloat16 holds: eighths in [0, 32), and angles in 64ths of [0, 4)."""
    x, y = rng.integers(96, 160, 2) / 8
    w, h = rng.integers(56, 100, 2) / 8
    return (np.array([x, y, w, h, rng.integers(6, 250) / 64]),)


def rotated_pair(rng):
    return *rotated_box(rng), *rotated_box(rng)


def _four_corners(rng):
    w, h = rng.integers(20, 60, 2) / 8
    x, y = rng.integers(80, 160, 2) / 8
    skew = rng.integers(3, 8, 3) / 8
    return (
        np.array([[x, y], [x + w, y + skew[0]], [x + w - skew[1], y + h], [x - skew[2], y + h]]),
    )


def ciou_with_alpha_held(a, b):
    def v(a, b):
        first, second = (np.arctan2(x[..., 2], x[..., 3]) for x in (a, b))
        return 4 / np.pi**2 * (second - first) ** 2

    overlap = np.asarray(rotated.iou(a, b))
    alpha = v(a, b) / (1 - overlap + v(a, b))

    def held(a, b):
        return np.asarray(rotated.diou(a, b)) - alpha * v(a, b)

    return held


_OVERLAPS = [
    "intersection",
    "union",
    "iou",
    "giou",
    "diou",
    "ioa",
    "generalized_iou(enclosing='rectangle')",
    "distance_iou(enclosing='box')",
]

ROWS = [
    Row("rotated.area", rotated_box, (0,)),
    *(Row(f"rotated.{name}", rotated_pair, (0, 1)) for name in _OVERLAPS),
    Row("rotated.ciou", rotated_pair, (0, 1), frozen=ciou_with_alpha_held),
    Row("rotated.complete_iou()", rotated_pair, (0, 1), frozen=ciou_with_alpha_held),
    Row("rotated.corners", rotated_box, (0,)),
    Row("rotated.from_corners", _four_corners, (0,)),
    Row("rotated.from_degrees_ccw", rotated_box, (0,)),
    Row("rotated.to_degrees_ccw", rotated_box, (0,)),
    Row("rotated.to_long_edge", rotated_box, (0,)),
    Row("rotated.from_boxes", box, (0,)),
    Row("rotated.to_boxes", rotated_box, (0,)),
    Row("rotated.is_valid", rotated_box),
    Row("rotated.check_values", rotated_box, where=whole_item(1), exempt=HOST),
]
