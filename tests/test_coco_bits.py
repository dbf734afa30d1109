"""Every bit of pycocotools, by the exact mode of COCO's average precision as users compile it."""

import contextlib
import hashlib
import io

import jax
import numpy as np
import pytest
from coco_reference import (
    CLASSES,
    NEEDS_DATA,
    as_dicts,
    assert_same,
    ours,
    random_set,
    real,
    reference,
    small,
)
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from jaxiou.detection import coco

pytestmark = pytest.mark.usefixtures("compiled_as_users_have_it")
"""Fused multiply-adds would change them."""


@pytest.mark.parametrize("seed", range(0, 220, 20))
def test_random_sets_have_every_bit_of_pycocotools(seed):
    """220 sets with ties, crowds, empty images and classes, and areas on the limits."""
    for one in range(seed, seed + 20):
        truths, detections = random_set(one)
        assert_same(ours(truths, detections), reference(truths, detections))


@pytest.mark.parametrize("seed", range(300, 320))
def test_random_sets_without_classes_have_every_bit_of_pycocotools(seed):
    truths, detections = random_set(seed)
    run = reference(truths, detections, use_classes=False)
    result = ours(truths, detections, class_agnostic=True)
    assert_same(result, run)
    np.testing.assert_array_equal(result.curves.precision.shape[2], 1)


@NEEDS_DATA
@pytest.mark.parametrize("kind", ["bbox", "segm"])
def test_real_images_have_every_bit_of_pycocotools(kind):
    expected, loaded, batches = real(kind)
    result = coco.average_precision(batches, num_classes=loaded.num_classes)
    wanted = [float.fromhex(x) for x in expected["stats_hex"].values()]
    np.testing.assert_array_equal(np.array(result.summary), wanted)
    for name in ("precision", "recall"):
        bits = np.ascontiguousarray(getattr(result.curves, name)).tobytes()
        assert hashlib.sha256(bits).hexdigest() == expected[f"{name}_sha256"]
    by_class = [expected["ap_per_class"][str(x)] for x in loaded.category_ids]
    np.testing.assert_allclose(result.per_class, np.where(np.array(by_class) < 0, np.nan, by_class))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_custom_settings_have_every_bit_of_pycocotools(seed):
    truths, detections = random_set(seed)
    thresholds, limits = (0.1, 0.35, 0.5, 0.77), (2, 3, 5)
    areas, recalls = ((0.0, 1e10), (500.0, 1024.0)), (0.0, 0.123456789, 1 / 3, 0.5, 0.99)
    targets, results = as_dicts(truths, detections)
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO()
        known.dataset = targets
        known.createIndex()
        run = COCOeval(known, known.loadRes(results), "bbox")
        run.params.iouThrs, run.params.recThrs = np.array(thresholds), np.array(recalls)
        run.params.maxDets, run.params.areaRng = list(limits), [list(x) for x in areas]
        run.params.areaRngLbl = ["all", "some"]
        run.evaluate()
        run.accumulate()
    result = ours(
        truths,
        detections,
        thresholds=thresholds,
        area_ranges=areas,
        max_detections=limits,
        recalls=recalls,
    )
    for name in ("precision", "recall", "scores"):
        np.testing.assert_array_equal(getattr(result.curves, name), run.eval[name])


def test_jit_in_float64_has_the_curves_of_the_exact_mode(x64):
    truths, detections = random_set(2)
    batch = small(truths, detections)

    @jax.jit
    def curves(batch):
        matches = coco.evaluate(batch.detections, batch.truths)
        return coco.accumulate(matches, num_classes=CLASSES)

    got = jax.device_get(curves(batch))
    wanted = ours(truths, detections).curves
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(x, y)
