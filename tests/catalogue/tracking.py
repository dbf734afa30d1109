"""Rows of `jaxiou.tracking.clear`, `identity`, `hota` and `combine`."""

import numpy as np

from catalogue.assignment import IN_OPTAX
from catalogue.row import Row
from jaxiou.tracking import clear, hota, identity
from jaxiou.tracking.packing import Sequence

FRAMES, TRACKS, TARGETS = 2, 3, 2


def _sequence(rng):
    """Two targets, each with a track of their own that is mostly right, on a grid, and away
    from the thresholds 0.5 and 0.05, 0.1, ...; no two matchings of a frame are equal.
    """
    p_valid, t_valid = rng.random((FRAMES, TRACKS)) < 0.8, rng.random((FRAMES, TARGETS)) < 0.8
    p_valid[0], t_valid[0] = True, True
    # Of 1/64, and away from the multiples of 1/20 by 1/400.
    likely = np.array([37, 39, 41, 43, 47, 49, 53, 55, 57, 59, 62]) / 64
    table = rng.integers(0, 6, (FRAMES, TRACKS, TARGETS)) / 64
    for frame in table:
        frame[np.arange(TARGETS), np.arange(TARGETS)] = rng.choice(likely, TARGETS, replace=False)
    ids = np.broadcast_to(np.arange(TRACKS, dtype=np.int32), (FRAMES, TRACKS))
    sequence = Sequence(ids, ids[:, :TARGETS], p_valid, t_valid, table)
    return (Sequence(*map(np.ascontiguousarray, sequence)),)


def _clear_counts(rng):
    numbers = rng.integers(1, 9, 9).astype(np.int32)
    return (clear.Counts(*numbers, motp_sum=numbers[0] * rng.integers(40, 64) / 64),)


def _identity_counts(rng):
    return (identity.Counts(*rng.integers(1, 9, 3).astype(np.int32)),)


def _hota_counts(rng):
    numbers = rng.integers(1, 9, (3, len(hota.ALPHAS))).astype(np.int32)
    shares = rng.integers(20, 64, (4, len(hota.ALPHAS))) / 64
    return (hota.Counts(*numbers, *(numbers[0] * shares)),)


def _scores(rng):
    """Of two classes."""
    counts = rng.integers(0, 9, (3, 2)).astype(np.int32)
    return (identity.Scores(*rng.integers(1, 64, (3, 2)) / 64, *counts),)


A_TUPLE = {"grad": "its argument is a tuple with integers; tests/test_tracking.py has the slope"}
COUNT = IN_OPTAX | A_TUPLE
INTEGERS = {"x64": "counts are integers; the ratios are float64 where x64 is on"} | A_TUPLE
COUNTS = dict.fromkeys(("uint8", "int32", "x64"), "integers are counts, which are added")
CLASSES = (
    {"where": "its argument is a tuple; tests/test_tracking.py leaves classes out"}
    | A_TUPLE
    | COUNTS
)

ROWS = [
    Row("partial(tracking.clear.count, num_targets=2)", _sequence, leading=False, exempt=COUNT),
    Row("tracking.clear.summarize", _clear_counts, exempt=A_TUPLE),
    Row(
        "partial(tracking.identity.count, num_predictions=3, num_targets=2)",
        _sequence,
        leading=False,
        exempt=IN_OPTAX,
    ),
    Row("tracking.identity.summarize", _identity_counts, exempt=INTEGERS),
    Row(
        "partial(tracking.hota.count, num_predictions=3, num_targets=2)",
        _sequence,
        leading=False,
        exempt=COUNT,
    ),
    Row("tracking.hota.summarize", _hota_counts, exempt=A_TUPLE),
    Row("tracking.combine.class_averaged", _scores, leading=False, exempt=CLASSES),
]
