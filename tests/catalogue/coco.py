"""Rows of `jaxiou.detection.coco`, `lvis`, `matching`, `precision`, `packing` and `COCOeval`."""

import contextlib
import io

import numpy as np

from catalogue.row import HOST, TRANSFORMATIONS, Row, box_pair, box_set
from jaxiou.detection import COCOeval
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table
from jaxiou.detection.precision import Curves

CLASSES = 2


def _sides(rng):
    """Four detections near truths, and three truths of which one is a crowd."""
    boxes = box_set(rng, 4)
    boxes[:, 2:] -= boxes[:, :2]
    found = Detections(
        boxes,
        rng.permutation(8)[:4] / 8,
        rng.integers(0, CLASSES, 4).astype(np.int32),
        np.arange(4) < 3,
        rng.integers(1, 99, 4) / 8,
    )
    truths = GroundTruth(
        boxes[:3] + np.array([0.25, 0, 0.5, 0]),
        rng.integers(0, CLASSES, 3).astype(np.int32),
        np.arange(3) < 3,
        rng.integers(1, 99, 3) / 8,
        rng.random(3) < 0.3,
    )
    return found, truths


def _table(rng):
    found, truths = _sides(rng)
    overlaps = rng.permutation(12).reshape(4, 3) / 16
    same = found.labels[:, None] == truths.labels[None]
    ignored = rng.random((3, 2)) < 0.3
    return np.where(same, overlaps, -1.0), found, truths, ignored, rng.random((4, 2)) < 0.3


def _greedy(rng):
    return _table(rng)[:3]


def _matches(rng, images=2, areas=4):
    """Of ten thresholds."""
    words = rng.integers(0, 2**10, (2, images, 4, areas)).astype(np.uint32)
    return (
        Matches(
            rng.permutation(4 * images).reshape(images, 4) / 16,
            rng.integers(0, CLASSES, (images, 4)).astype(np.int32),
            np.tile(np.arange(4, dtype=np.int32), (images, 1)),
            rng.random((images, 4)) < 0.9,
            words[0],
            words[1] & words[0],
            rng.integers(0, CLASSES, (images, 3)).astype(np.int32),
            np.ones((images, 3, areas), bool),
        ),
    )


def _curves(rng, limits=3):
    shape = 10, 4, CLASSES, 4, limits
    precision, scores = rng.integers(0, 64, (2, *shape)) / 64
    return (Curves(precision, rng.integers(0, 64, shape[:1] + shape[2:]) / 64, scores),)


def _federated(rng):
    return _sides(rng)


def _batches(rng):
    found, truths = _sides(rng)
    batch = Images(found, truths, np.array(0, np.int32))
    return ([Images(*_add_axis(batch[:2]), np.zeros(1, np.int32))],)


def _add_axis(tree):
    import jax

    return jax.tree.map(lambda x: np.asarray(x)[None], tree)


def _flat(rng):
    found, truths = _sides(rng)
    place = np.zeros(4, np.int32)
    return (Table(found, place, truths, place[:3], 1),)


class _Known:
    """What pycocotools' `COCO` is to an evaluator: its `dataset`."""

    def __init__(self, annotations):
        names = [{"id": 1, "name": "cat"}]
        self.dataset = {"images": [{"id": 1}], "categories": names, "annotations": annotations}


def _evaluator(rng, calls):
    box = [0.0, 0.0, 8.0, 8.0]
    one = {"image_id": 1, "category_id": 1, "bbox": box, "area": 64.0, "iscrowd": 0, "id": 1}
    run = COCOeval(_Known([one]), _Known([{**one, "score": 0.5}]), "bbox")
    with contextlib.redirect_stdout(io.StringIO()):
        for call in calls:
            getattr(run, call)()
    return (run,)


KEPT = {"grad": "what it gives are flags, and scores as they are"}
KEPT |= dict.fromkeys(("bfloat16", "float16", "uint8", "int32", "x64"), "scores keep their type")
KEPT["debug_nans"] = "scores are -inf where not valid, as stated"
RATIOS = {"grad": "ratios of counts", "x64": "as wide as x64 has it: tests/test_coco.py"}
RATIOS |= dict.fromkeys(("bfloat16", "float16", "uint8", "int32"), "scores keep their type")
ONCE = dict.fromkeys(set(TRANSFORMATIONS) - {"jit", "retrace"}, "by the row of what it calls")
FLAT = {"explicit mesh": "what all images have is sorted and scattered along one axis"}
LOOPS = {"eager": "loops, operation by operation; tests/test_coco.py has them against plain ones"}
TABLE = {"grad": "by `coco.box_iou`, whose table it is"}
TABLE |= dict.fromkeys(("bfloat16", "float16", "uint8", "int32", "x64"), "its parts are rows")

ROWS = [
    Row("partial(detection.coco.average_precision, num_classes=2)", _batches, exempt=HOST),
    Row("partial(detection.coco.keypoint_average_precision, num_classes=2)", _batches, exempt=HOST),
    Row("detection.coco.evaluate", _sides, exempt=KEPT | LOOPS),
    Row(
        "partial(detection.coco.accumulate, num_classes=2, recalls=(0.0, 0.5, 1.0))",
        _matches,
        leading=False,
        exempt=ONCE,
    ),
    Row("detection.coco.summarize", _curves, leading=False, exempt=RATIOS),
    Row("detection.coco.box_iou", box_pair, (0, 1)),
    Row("detection.coco.box_ioa", box_pair, (0, 1)),
    Row(
        "partial(detection.lvis.average_precision, num_classes=2, frequencies=('r', 'f'))",
        _batches,
        exempt=HOST,
    ),
    Row(
        "partial(detection.lvis.pack, negative=np.zeros((1, 2), bool),"
        " not_exhaustive=np.zeros((1, 2), bool))",
        _flat,
        exempt=HOST,
    ),
    Row(
        "partial(detection.lvis.federate, negative=np.eye(2, dtype=bool)[0],"
        " not_exhaustive=np.eye(2, dtype=bool)[1])",
        _federated,
        leading=False,
        exempt=KEPT | {"explicit mesh": "the class of each is looked up in a table of classes"},
    ),
    Row("detection.lvis.evaluate", _sides, exempt=ONCE),
    Row(
        "partial(detection.lvis.accumulate, num_classes=2, recalls=(0.0, 0.5, 1.0))",
        _matches,
        leading=False,
        exempt=ONCE,
    ),
    Row(
        "partial(detection.lvis.summarize, frequencies=('r', 'f'))",
        lambda rng: _curves(rng, 1),
        leading=False,
        exempt=RATIOS,
    ),
    Row("detection.packing.pack", _flat, exempt=HOST),
    Row("partial(detection.matching.overlap_table, overlap=boxes.iou)", _sides, exempt=TABLE),
    Row(
        "detection.matching.ranks_by_score",
        lambda rng: (rng.permutation(8)[:5] / 8, rng.random(5) < 0.8),
    ),
    Row(
        "partial(detection.matching.greedy, thresholds=(0.25, 0.5),"
        " truth_ignored=np.zeros((3, 1), bool), unmatched_ignored=np.zeros((4, 1), bool))",
        _greedy,
        leading=False,
        exempt=KEPT | LOOPS,
    ),
    Row(
        "partial(detection.precision.accumulate, num_classes=2, num_thresholds=2,"
        " recalls=(0.0, 0.5, 1.0))",
        _matches,
        leading=False,
        exempt=RATIOS | FLAT | LOOPS,
    ),
    Row(
        "partial(detection.precision.accumulate_exactly, num_classes=2, num_thresholds=10)",
        _matches,
        exempt=HOST,
    ),
    Row("detection.COCOeval.evaluate", lambda rng: _evaluator(rng, ()), exempt=HOST),
    Row(
        "detection.COCOeval.accumulate",
        lambda rng: _evaluator(rng, ("evaluate",)),
        exempt=HOST,
    ),
    Row(
        "detection.COCOeval.summarize",
        lambda rng: _evaluator(rng, ("evaluate", "accumulate")),
        exempt=HOST,
    ),
]
