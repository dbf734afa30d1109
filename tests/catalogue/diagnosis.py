"""Rows of `jaxiou.detection.diagnosis` and `jaxiou.detection.tide`."""

import numpy as np

from catalogue.row import HOST, Row, box_set
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images
from jaxiou.detection.tide import Errors


def _images(rng):
    """Five detections, three of them near truths, and four truths, one a crowd, one ignored."""
    boxes = box_set(rng, 4)
    near = np.array([[0.25, 0, 0.25, 0], [4, 0, 4, 0], [0.5, 0, 0.5, 0]])
    found = np.concatenate([boxes[:3] + near, box_set(rng, 2)])
    kinds = rng.permutation(4)
    detections = Detections(
        found,
        (17 + rng.permutation(10)[:5]) / 32,
        rng.integers(0, 2, 5).astype("int32"),
        np.arange(5) < 4,
    )
    labels = rng.integers(0, 2, 4).astype("int32")
    truths = GroundTruth(boxes, labels, kinds >= 0, crowd=kinds == 0, ignored=kinds == 1)
    return detections, truths


def _matches(rng):
    words = rng.integers(0, 2, (2, 6, 1)).astype("uint32")
    return (
        Matches(
            rng.integers(1, 5, 6) / 8,
            rng.integers(0, 2, 6).astype("int32"),
            np.zeros(6, "int32"),
            np.arange(6) < 5,
            words[0],
            words[0] & words[1],
            np.array([0, 1, 1, -1], "int32"),
            np.arange(4)[:, None] < 3,
        ),
    )


def _errors(rng):
    kinds = np.array([0, 0, 1, 2, 3, 5, -1], "int32")
    scores = (17 + rng.permutation(10)[:7]) / 32
    return (
        Errors(
            scores,
            rng.integers(0, 2, 7).astype("int32"),
            kinds,
            kinds >= 0,
            np.where((kinds == 1) | (kinds == 2), 1, -1).astype("int32"),
            np.array([0, 1, 1, 1, 0], "int32"),
            np.array([1, 1, 0, 0, 0], bool),
            np.array([0, 0, 0, 0, 1], bool),
        ),
    )


def _batches(rng):
    side = [type(x)(*(None if f is None else f[None] for f in x)) for x in _images(rng)]
    return ([Images(*side, np.zeros(1, "int32"))],)


NAN = {"debug_nans": "a ratio of nothing is NaN, as stated"}
COUNTS = {"grad": "what it gives is counted"}

SLOW = {"eager": "takes seconds; tests/test_diagnosis.py has it against loops"}

ROWS = [
    Row("partial(detection.diagnosis.confusion_matrix, num_classes=2)", _images, leading=False),
    Row(
        "partial(detection.diagnosis.at_score, num_classes=2, score=0.3)",
        _matches,
        leading=False,
        exempt=NAN | COUNTS,
    ),
    Row(
        "partial(detection.diagnosis.best_f1, num_classes=2)",
        _matches,
        leading=False,
        exempt=NAN | COUNTS | SLOW,
    ),
    Row("partial(detection.tide.breakdown, num_classes=2)", _batches, exempt=HOST),
    Row(
        "detection.tide.evaluate",
        _images,
        exempt=COUNTS | {"debug_nans": "rows that take no part score -inf, as stated"},
    ),
    Row(
        "partial(detection.tide.summarize, num_classes=2)",
        _errors,
        leading=False,
        exempt=NAN | COUNTS | SLOW,
    ),
]
