"""Rows of `jaxiou.cuboids`."""

import numpy as np

from catalogue.row import Row


def _upright(rng, odd=0):
    """One cuboid on a grid of eighths, with sizes of 3 to 6."""
    center, sizes = 2 * rng.integers(32, 40, 3), rng.permutation([24, 34, 44])
    return np.concatenate([center + odd, sizes + odd, [rng.integers(1, 4) + 6 * odd]]) / 8


def _upright_pair(rng):
    """Even and odd eighths, so that no two edges, faces or angles coincide. Some do not meet."""
    a, b = _upright(rng), _upright(rng, odd=1)
    b[0] += 16 * (rng.random() < 0.3)
    return a, b


def _upright_one(rng):
    return (_upright(rng),)


def _turned(rng, odd=0):
    return np.concatenate([_upright(rng, odd)[:6], rng.permutation([5, 2, 3, 7 + odd])])


def _turned_pair(rng):
    return _turned(rng), _turned(rng, odd=1)


def _turned_one(rng):
    return (_turned(rng),)


def _with_matrix(rng):
    """A matrix that is no rotation, to look at all nine numbers."""
    matrix = np.eye(3) + rng.integers(-2, 3, (3, 3)) / 8
    return (np.concatenate([_upright(rng)[:6], matrix.ravel()]),)


def _eight_corners(rng):
    """Near those of a cuboid along the axes."""
    signs = np.array([(x, y, z) for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))])
    return (10 + signs * np.array([2, 3, 5]) + rng.integers(-2, 3, (8, 3)) / 8,)


_OVERLAPS = ["intersection", "iou", "bev_iou", "ioa", "giou", "diou"]

ROWS = [
    Row("cuboids.volume", _upright_one, (0,)),
    Row("cuboids.corners", _upright_one, (0,)),
    *(Row(f"cuboids.{name}", _upright_pair, (0, 1)) for name in _OVERLAPS),
    Row("cuboids.oriented_corners", _turned_one, (0,)),
    *(Row(f"cuboids.oriented_{name}", _turned_pair, (0, 1)) for name in ("intersection", "iou")),
    *(Row(f"cuboids.from_{x}", _upright_one, (0,)) for x in ("kitti", "waymo", "bottom_center")),
    Row("cuboids.from_nuscenes", _turned_one, (0,)),
    Row("cuboids.to_oriented", _upright_one, (0,)),
    Row("cuboids.from_oriented", _turned_one, (0,)),
    Row("cuboids.from_matrix", _with_matrix, (0,)),
    Row("cuboids.from_corners", _eight_corners, (0,)),
]
