"""Rows of `jaxiou.detection.kitti` and `jaxiou.readers.kitti`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from catalogue.row import HOST, Row
from jaxiou.detection.kitti import Counts, Detections, GroundTruth, Table

_FOLDER = TemporaryDirectory()  # until the tests end
_TRUTHS, _FOUND = (Path(_FOLDER.name, name) for name in ("label_2", "found"))
_LINE = "Car 0 0 -1.5 10 20 90 80 1.5 1.6 4 0 1.65 20 1.57"
for _place, _text in ((_TRUTHS, _LINE), (_FOUND, f"{_LINE} 0.9")):
    _place.mkdir()
    (_place / "000000.txt").write_text(_text)


def _images(rng):
    """Three cars and a DontCare region, and four detections, of which three are near cars."""
    corner = rng.integers(0, 60, (4, 2)) * [2, 1] + [[0, 0], [128, 0], [0, 64], [128, 64]]
    size = rng.integers(30, 60, (4, 2))
    truths = np.concatenate([corner, corner + size], axis=1).astype(float)
    found = truths + rng.integers(0, 3, (4, 4))
    alphas = rng.integers(-64, 64, (2, 4)) / 32
    return (
        Detections(
            regions=found,
            scores=rng.permutation(np.arange(1, 5)) / 4,
            labels=np.array([0, 0, 0, 1], np.int32),
            valid=np.array([True, True, True, rng.random() < 0.5]),
            alphas=alphas[0],
        ),
        GroundTruth(
            regions=truths,
            labels=np.array([0, 0, 3, 5], np.int32),
            valid=np.ones(4, bool),
            occlusions=rng.integers(0, 3, 4).astype(float),
            truncations=rng.integers(0, 2, 4) / 4,
            alphas=alphas[1],
        ),
    )


def _scores(rng):
    return rng.permutation(np.arange(1, 7)) / 8, np.array(rng.integers(6, 9), np.int32)


def _counts(rng):
    tp, fp, fn = rng.integers(1, 9, (3, 41)).astype(np.int32)
    return (Counts(tp, fp, fn, similarity=tp * rng.integers(32, 64, 41) / 64),)


def _frames(rng):
    found, truths = _images(rng)
    place = np.zeros(4, np.int32)
    return (Table(found, place, truths, place, 1),)


A_TUPLE = {"grad": "its arguments are tuples with integers, and counts have no slope"}
INFINITE = {"debug_nans": "what is not there has an infinite score"}
THRESHOLDS = "np.linspace(0, 1, 123, dtype='float32').reshape(3, 41)"

ROWS = [
    Row("partial(detection.kitti.evaluate, label=0)", _images, exempt=A_TUPLE | INFINITE),
    Row(
        "detection.kitti.choose_thresholds",
        _scores,
        exempt={"grad": "thresholds are compared, and have no slope"} | INFINITE,
    ),
    Row(
        f"partial(detection.kitti.accumulate, label=0, thresholds={THRESHOLDS})",
        _images,
        exempt=A_TUPLE,
    ),
    Row("detection.kitti.summarize", _counts, exempt=A_TUPLE),
    Row("partial(detection.kitti.average_precision, measures=('image',))", _frames, exempt=HOST),
    Row("readers.kitti.read", lambda rng: (_TRUTHS / "000000.txt",), exempt=HOST),
    Row("readers.kitti.find", lambda rng: (_TRUTHS, _FOUND), exempt=HOST),
    Row("readers.kitti.pack", lambda rng: ([], []), exempt=HOST),
    Row("readers.kitti.load", lambda rng: (_TRUTHS, _FOUND), exempt=HOST),
]
