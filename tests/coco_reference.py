"""Small sets for COCO's average precision, and pycocotools to run on them."""

import contextlib
import functools
import io
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from jaxiou.detection import coco, packing
from jaxiou.detection.packing import Images
from jaxiou.readers import coco as files

DATA = Path(__file__).parents[2] / "shared" / "data" / "ap" / "coco_val2014_100"
NEEDS_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not here")

IMAGES, ROWS, TRUTHS, CLASSES = 6, 24, 12, 3
"""The padded shape of every small set, so that one program serves all."""

B = [0.0, 0.0, 100.0, 100.0]


def truth(box=B, image=0, label=0, **more):
    area = more.pop("area", box[2] * box[3])
    return {
        "image_id": image,
        "category_id": label,
        "bbox": box,
        "area": area,
        "iscrowd": 0,
        **more,
    }


def found(box=B, score=1.0, image=0, label=0):
    return {"image_id": image, "category_id": label, "bbox": box, "score": score}


def as_dicts(truths, detections, images=IMAGES, classes=CLASSES):
    truths = [{"id": n + 1, **x} for n, x in enumerate(truths)]
    names = [{"id": n, "name": str(n)} for n in range(classes)]
    targets = {"images": [{"id": n} for n in range(images)], "categories": names}
    return {**targets, "annotations": truths}, detections


def small(truths, detections):
    """One batch of the shape of all small sets."""
    full, results = as_dicts(truths, detections)
    table = files.from_dicts(full, results).table
    sides = []
    for rows, images, size in (
        (table.detections, table.detection_images, ROWS),
        (table.truths, table.truth_images, TRUTHS),
    ):
        places = np.array([np.sum(images[:n] == image) for n, image in enumerate(images)], int)

        def padded(x, images=images, places=places, size=size):
            out = np.zeros((IMAGES, size, *x.shape[1:]), x.dtype)
            out[images, places] = x
            return out

        sides.append(jax.tree.map(padded, rows))
    return Images(*sides, np.arange(IMAGES, dtype=np.int32))


def ours(truths, detections, **options):
    return coco.average_precision([small(truths, detections)], num_classes=CLASSES, **options)


def reference(truths, detections, kind="bbox", images=IMAGES, use_classes=True, evaluator=COCOeval):
    """pycocotools, run."""
    targets, results = as_dicts(truths, detections, images)
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = targets
        known.createIndex()
        if results:
            theirs = known.loadRes(json.loads(json.dumps(results)))
        else:
            theirs = COCO()
            theirs.dataset = {**targets, "annotations": []}
            theirs.createIndex()
        run = evaluator(known, theirs, kind)
        run.params.useCats = int(use_classes)
        run.evaluate()
        run.accumulate()
        run.summarize()
    return run


def assert_same(result, run):
    """Every bit."""
    np.testing.assert_array_equal(result.curves.precision, run.eval["precision"])
    np.testing.assert_array_equal(result.curves.recall, run.eval["recall"])
    np.testing.assert_array_equal(result.curves.scores, run.eval["scores"])
    np.testing.assert_array_equal(np.array(result.summary), run.stats)


def random_set(seed):
    """Boxes on a coarse grid, so that overlaps, scores and areas tie and lie on limits."""
    rng = np.random.default_rng(seed)
    truths, detections = [], []
    fine = seed % 3 == 2

    def box():
        corner = rng.integers(0, 4, 2) * 8.0
        size = rng.choice([4.0, 8.0, 16.0, 32.0, 96.0], 2)
        b = np.concatenate([corner, size])
        return (b + rng.normal(0, 0.7, 4).round(2) if fine else b).clip(0).tolist()

    for image in range(IMAGES):
        if rng.random() < 0.15:
            continue
        here = [
            truth(
                box(),
                image,
                int(rng.integers(0, CLASSES - (seed % 2))),
                area=float(rng.choice([0, 512, 1024, 4000, 9216, 20000])),
                iscrowd=int(rng.random() < 0.15),
            )
            for _ in range(rng.integers(0, 8))
        ]
        truths += here
        for _ in range(rng.integers(0, 14)):
            like = here[rng.integers(len(here))] if here and rng.random() < 0.7 else truth(box())
            moved = np.array(like["bbox"]) + rng.integers(-1, 2, 4) * (2.0 if not fine else 1.37)
            score = float(rng.integers(0, 6) / 5)
            label = like["category_id"] if rng.random() < 0.8 else int(rng.integers(0, CLASSES))
            detections.append(found(moved.clip(0).round(2).tolist(), score, image, label))
    rng.shuffle(truths)
    rng.shuffle(detections)
    return truths, detections


@functools.cache
def real(kind):
    expected = json.loads((DATA / "expected.json").read_text())
    name = {"bbox": "instances_val2014_fakebbox100_results.json"}
    name["segm"] = "instances_val2014_fakesegm100_results.json"
    loaded = files.load(DATA / "instances_val2014_100.json", DATA / name[kind], kind=kind)
    batches = packing.pack(loaded.table, overlaps=loaded.overlaps, batch_size=100)
    return expected[f"{name[kind]}|{kind}"], loaded, batches
