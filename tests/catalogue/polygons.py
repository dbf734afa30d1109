"""Rows of `jaxiou.polygons`."""

import numpy as np

from catalogue.row import HOST, Row, whole_item


def polygon(rng, vertices=4):
    """Near a regular one, on a grid of eighths in [0, 32), which bfloat16 holds."""
    turns = (np.arange(vertices) + rng.uniform(-0.2, 0.2, vertices)) / vertices + rng.random()
    rim = np.stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)], axis=1)
    centre = rng.uniform(13, 18, 2)
    return (np.round(8 * (centre + rng.uniform(5, 10) * rim)) / 8,)


def polygon_pair(rng):
    return *polygon(rng, 4), *polygon(rng, 3)


def _points(rng):
    return (rng.integers(0, 256, (5, 2)) / 8,)


def _polygon_and_count(rng):
    return *polygon(rng), np.array(rng.integers(1, 5), np.int32)


def _few(rng):
    return (polygon(rng),)


_OVERLAPS = ["intersection", "union", "iou", "ioa"]

ROWS = [
    Row("polygons.area", polygon, (0,)),
    *(Row(f"polygons.{name}", polygon_pair, (0, 1)) for name in _OVERLAPS),
    Row("polygons.pad", _polygon_and_count, (0,)),
    Row("polygons.pack", _few, exempt=HOST),
    Row("polygons.check_values", polygon, where=whole_item(1), exempt=HOST),
]
