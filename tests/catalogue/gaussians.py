"""Rows of `jaxiou.gaussians`."""

import numpy as np

from catalogue.row import Row


def _oriented_pair(rng):
    """Two boxes of unequal sides on a grid of eighths, 0.5 to 2 apart in angle."""
    sides = rng.permutation([12, 20, 28, 36])[:, None] / 8
    return tuple(
        np.concatenate([rng.integers(8, 64, 2) / 8, sides[2 * i : 2 * i + 2, 0], [angle]])
        for i, angle in enumerate(rng.permutation([3, 9]) / 8)
    )


_OVERLAPS = ["prob_iou", "kf_iou", "mgiou", "bhattacharyya", "gwd", "normalized_gwd"]
_OVERLAPS += ["kld", "jd", "kld_max", "kld_min", "likeness()"]

ROWS = [Row(f"gaussians.{name}", _oriented_pair, (0, 1)) for name in _OVERLAPS]
