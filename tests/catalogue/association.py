"""Rows of `jaxiou.tracking.association`."""

import numpy as np

from catalogue.assignment import IN_OPTAX
from catalogue.row import Row, box_set


def _near(rng):
    """Five detections, and three tracks a little off the first three of them."""
    detections = box_set(rng, 5)
    return detections, detections[:3] + np.array([0.5, 0.25, 0.25, 0.5])


def _scored(rng):
    detections, tracks = _near(rng)
    return detections, (17 + rng.permutation(10)[:5]) / 32, tracks


def _moving(rng):
    """Four frames of three boxes, each moving on."""
    steps = rng.choice([-0.25, 0.25], (3, 2))
    return (box_set(rng, 3) + np.arange(4)[:, None, None] * np.tile(steps, 2),)


def _detections_that_count(rng):
    keep = rng.random(5) < 0.7
    return keep, (keep, None)


def _scores_that_count(rng):
    keep = rng.random(5) < 0.7
    return keep, (keep, keep, None)


def _boxes_that_count(rng):
    keep = rng.random((4, 3)) < 0.7
    return keep, (keep,)


ROWS = [
    Row(
        "tracking.association.sort_association",
        _near,
        (0, 1),
        leading=False,
        where=_detections_that_count,
        exempt=IN_OPTAX,
    ),
    Row(
        "tracking.association.byte_association",
        _scored,
        (0, 2),
        leading=False,
        where=_scores_that_count,
        exempt=IN_OPTAX,
    ),
    Row(
        "partial(tracking.association.sort_tracker, capacity=4)",
        _moving,
        (0,),
        leading=False,
        where=_boxes_that_count,
        exempt=IN_OPTAX,
    ),
]
