"""Rows of `jaxiou.detection.voc`."""

import numpy as np

from catalogue.row import HOST, Row, box_pair, box_set
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images
from jaxiou.detection.voc import Curves


def sides(rng):
    """Two images of four detections and three truths, some of them alike."""
    boxes = [box_set(rng, 4) for _ in range(2)]
    found = Detections(
        np.stack(boxes),
        rng.permutation(8).reshape(2, 4) / 8,
        rng.integers(0, 2, (2, 4)).astype(np.int32),
        rng.random((2, 4)) < 0.9,
    )
    truths = GroundTruth(
        np.stack(boxes)[:, :3],
        rng.integers(0, 2, (2, 3)).astype(np.int32),
        rng.random((2, 3)) < 0.9,
        ignored=rng.random((2, 3)) < 0.3,
    )
    return found, truths


def batches(rng):
    return ([Images(*sides(rng), np.arange(2, dtype=np.int32))],)


def _matches(rng):
    """Bits of two thresholds."""
    words = rng.integers(0, 4, (2, 2, 4, 1)).astype(np.uint32)
    return (
        Matches(
            rng.permutation(8).reshape(2, 4) / 8,
            rng.integers(0, 2, (2, 4)).astype(np.int32),
            np.tile(np.arange(4, dtype=np.int32), (2, 1)),
            rng.random((2, 4)) < 0.9,
            *words,
            rng.integers(0, 2, (2, 3)).astype(np.int32),
            np.ones((2, 3, 1), bool),
        ),
    )


def curves(rng):
    true = np.cumsum(rng.integers(0, 2, (2, 2, 4)), axis=2, dtype=np.int32).reshape(2, 8)
    return (
        Curves(
            np.tile(np.arange(4)[::-1], 2) / 4,
            np.repeat(np.arange(2, dtype=np.int32), 4),
            true,
            np.tile(np.arange(1, 5, dtype=np.int32), (2, 2)) - true,
            np.array([4, 5], np.int32),
        ),
    )


KEPT = {"grad": "what it gives are counts, flags, and scores as they are"}
KEPT["debug_nans"] = "scores are -inf where not valid, as stated"
KEPT |= dict.fromkeys(("bfloat16", "float16", "uint8", "int32", "x64"), "scores keep their type")
RATIOS = {
    "grad": "ratios of counts",
    "debug_nans": "a class without truths is NaN, as stated",
    "x64": "ratios are float64 if x64 is on, which tests/test_voc.py shows",
}
RATIOS |= dict.fromkeys(("bfloat16", "float16", "uint8", "int32"), "scores keep their type")

ROWS = [
    Row("detection.voc.inclusive_iou", box_pair, (0, 1)),
    Row("partial(detection.voc.evaluate, thresholds=(0.25, 0.5))", sides, exempt=KEPT),
    Row(
        "partial(detection.voc.accumulate, num_classes=2, num_thresholds=2)",
        _matches,
        leading=False,
        exempt=KEPT,
    ),
    Row("detection.voc.summarize", curves, leading=False, exempt=RATIOS),
    Row(
        "partial(detection.voc.summarize, points=11)",
        curves,
        leading=False,
        exempt=RATIOS | {"eager": "operation by operation in the row above"},
    ),
    Row("partial(detection.voc.average_precision, num_classes=2)", batches, exempt=HOST),
]
