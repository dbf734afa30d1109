"""Protocols: against loops written from their definitions, and the annotations of ADE20K."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxiou import _scores, protocols, segmentation
from jaxiou.protocols import ADE20K, CITYSCAPES, VOC, instance_counts, instance_iou, mmseg, scores
from jaxiou.segmentation import confusion_matrix

NAN = float("nan")
DATA = Path(__file__).parents[2] / "shared" / "data" / "seg"
EVERY = [VOC, CITYSCAPES, ADE20K, mmseg(19), mmseg(4, ignore=(0, 255))]

needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared data is not there")


def count(p, t, protocol):
    return confusion_matrix(p, t, protocol.num_classes, ignore=protocol.ignore)


def random_maps(rng, shape, values, agreement=0.5):
    t = rng.choice(np.asarray(values, np.int32), shape)
    return np.where(rng.random(shape) < agreement, t, rng.choice(t.ravel(), shape)), t


# The rules ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", EVERY, ids=lambda p: p.name)
def test_rules_are_consistent_and_hashable(protocol):
    assert len(set(protocol.names)) == protocol.num_classes
    assert set(protocol.classes) == set(range(protocol.num_classes)) - set(protocol.ignore)
    hash(protocol)
    members = [label for _, group in protocol.categories for label in group]
    assert not members or sorted(members) == sorted(protocol.classes)
    groups = dict(protocol.instance_categories)
    for label, _ in protocol.instance_sizes:
        assert label in protocol.classes
        assert any(label in group for group in groups.values())


def test_sizes_are_those_of_the_data_sets():
    assert (VOC.num_classes, len(VOC.classes)) == (21, 21)
    assert (CITYSCAPES.num_classes, len(CITYSCAPES.classes)) == (34, 19)
    assert [CITYSCAPES.names[c] for c in (7, 24, 26, 33)] == ["road", "person", "car", "bicycle"]
    assert (ADE20K.num_classes, len(ADE20K.classes)) == (151, 150)
    assert [ADE20K.names[c] for c in (1, 13, 150)] == ["wall", "person", "flag"]
    assert VOC.names[15] == "person"
    assert mmseg(19) is mmseg(19)
    assert repr(CITYSCAPES) == "<protocol cityscapes: 19 of 34 labels>"


@pytest.mark.parametrize("protocol", EVERY, ids=lambda p: p.name)
def test_scores_are_those_of_the_definition(protocol):
    """Absent classes are 0 and count for VOC and ADE20K, and are skipped by the others."""
    rng = np.random.default_rng(0)
    p, t = random_maps(rng, (40, 50), [*range(0, protocol.num_classes, 3), 255, -1])
    valid = np.isin(t, protocol.classes)
    iou, accuracy = [], []
    for c in protocol.classes:
        hits = (valid & (t == c) & (p == c)).sum()
        union = (valid & ((t == c) | (p == c))).sum()
        empty = 0 if protocol.absent == "zero" else NAN
        iou.append(hits / union if union else empty)
        accuracy.append(hits / (t == c).sum() if (t == c).any() else empty)
    got = scores(count(p, t, protocol), protocol)
    np.testing.assert_allclose(got.class_iou, iou, rtol=1e-6)
    np.testing.assert_allclose(got.mean_iou, np.nanmean(iou), rtol=1e-6)
    np.testing.assert_allclose(got.mean_accuracy, np.nanmean(accuracy), rtol=1e-6)
    pixel_accuracy = (valid & (p == t)).sum() / valid.sum()
    np.testing.assert_allclose(got.pixel_accuracy, pixel_accuracy, rtol=1e-6)
    is_ade = protocol is ADE20K
    final = (pixel_accuracy + np.nanmean(iou)) / 2 if is_ade else np.nanmean(iou)
    np.testing.assert_allclose(got.final, final, rtol=1e-6)
    assert got.category_iou.shape == (len(protocol.categories),)
    for (_, group), value in zip(protocol.categories, got.category_iou, strict=True):
        is_target, is_predicted = np.isin(t, group), np.isin(p, group)
        union = (valid & (is_target | is_predicted)).sum()
        hits = (valid & is_target & is_predicted).sum()
        np.testing.assert_allclose(value, hits / union if union else NAN, rtol=1e-6)


def test_images_are_scored_apart_and_limbs_as_the_counts_that_they_hold():
    rng = np.random.default_rng(0)
    p, t = random_maps(rng, (3, 40, 50), range(21))
    each = jax.vmap(functools.partial(count, protocol=VOC))(p, t)
    got = scores(each, VOC)
    for i in range(3):
        for x, y in zip(got, scores(each[i], VOC), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=4 * np.finfo(np.float32).eps)
    limbs = _scores.from_array(each[0]).cells
    held = protocols.scores_of(_scores.from_limbs(limbs, np.dtype(np.float32)), VOC)
    for x, y in zip(held, scores(each[0], VOC), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_matrix_of_another_size_raises():
    with pytest.raises(ValueError, match="matrix must have the 21 rows of protocol voc, got 3"):
        scores(np.eye(3, dtype=np.int32), VOC)
    with pytest.raises(ValueError, match="num_classes must be 1 or more, got 0"):
        mmseg(0)


# ADE20K's own annotations ------------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize("shift", [None, (4, 6)])
def test_ade20k_scores_are_those_of_the_annotations(shift):
    expected = json.loads((DATA / "ade_sample" / "expected.json").read_text())
    matrix = np.zeros((151, 152), np.int64)
    for path in sorted((DATA / "ade_sample").glob("ADE_val_*.png")):
        with Image.open(path) as opened:
            target = np.asarray(opened)
        prediction = target if shift is None else np.roll(target, shift, (0, 1))
        matrix += np.asarray(count(prediction, target, ADE20K))
    with jax.enable_x64(True):
        got = jax.device_get(scores(matrix, ADE20K))
        skipped = float(segmentation.mean_iou(matrix, classes=ADE20K.classes))
    if shift is None:
        assert got.mean_iou == expected["identity"]["official_mean_iou_over_150"]
        assert skipped == got.pixel_accuracy == 1
        assert (got.class_iou == 1).sum() == expected["identity"]["n_present"]
        return
    expected = expected["roll_4_6"]
    present = np.array(expected["present"])
    iou = np.array([expected["iou_present"][str(c)] for c in present])
    for x, y in [
        (got.mean_iou, expected["official_mean_iou_over_150"]),
        (skipped, expected["nanmean_iou"]),
        (got.pixel_accuracy, expected["pixel_accuracy"]),
        (got.final, expected["final_score"]),
        (got.class_iou[present - 1], iou),
    ]:
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=0)
    hits, _, misses = (np.asarray(x) for x in segmentation.class_counts(matrix))
    assert hits[present].tolist() == [expected["intersection"][str(c)] for c in present]
    assert (misses >= 0).all()


# Instances ---------------------------------------------------------------------------------------


def loop_instance_iou(images):
    """Cityscapes' iIoU, instance by instance, from its definition."""
    sizes = dict(CITYSCAPES.instance_sizes)
    groups = dict(CITYSCAPES.instance_categories)
    right, missed = dict.fromkeys([*sizes, *groups], 0.0), dict.fromkeys([*sizes, *groups], 0.0)
    wrong = dict.fromkeys([*sizes, *groups], 0)
    for p, t, instances in images:
        evaluated = np.isin(t, CITYSCAPES.classes)
        for c in sizes:
            wrong[c] += (evaluated & (t != c) & (p == c)).sum()
        for name, group in groups.items():
            wrong[name] += (evaluated & ~np.isin(t, group) & np.isin(p, group)).sum()
        for i in np.unique(instances[instances > 1000]):
            c = i // 1000
            if c not in sizes:  # an ignored class
                continue
            mask = instances == i
            name = next(name for name, group in groups.items() if c in group)
            weight = sizes[c] / mask.sum()
            for key, hit in [(c, p == c), (name, np.isin(p, groups[name]))]:
                right[key] += weight * (mask & hit).sum()
                missed[key] += weight * (mask & ~hit).sum()

    def iou(key):
        whole = right[key] + wrong[key] + missed[key]
        return right[key] / whole if whole else NAN

    return [iou(c) for c in sizes], [iou(name) for name in groups]


def city(rng, classes):
    """An image of blocks, with instances, groups of them, and ignored vehicles among it."""
    shape = (6, 8)
    t = rng.choice(np.array(classes), shape)
    number = rng.integers(0, 3, shape)
    has_instances = np.isin(t, [24, 25, 26, 27, 28, 29, 30, 31, 32, 33])
    instances = np.where(has_instances & (number > 0), 1000 * t + number, t)
    p = np.where(rng.random(shape) < 0.6, t, rng.choice(np.array([*classes, 29, 255]), shape))
    grow = (x.repeat(5, 0).repeat(7, 1).astype(np.int32) for x in (p, t, instances))
    p, t, instances = grow
    return np.where(rng.random(p.shape) < 0.1, rng.choice(p.ravel(), p.shape), p), t, instances


def test_instance_iou_is_that_of_a_loop_over_instances(x64):
    rng = np.random.default_rng(0)
    classes = [0, 7, 8, 21, 24, 25, 26, 27, 29, 30, 32, 33]  # no bus and no train
    images = [city(rng, classes) for _ in range(4)]
    wide = (np.stack(x).astype(np.int64) for x in zip(*images, strict=True))
    each = jax.vmap(instance_counts)(*wide)
    got = instance_iou(jax.tree.map(lambda x: x.sum(axis=0), each))
    per_class, per_group = loop_instance_iou(images)
    assert np.isnan(per_class).tolist() == [False] * 4 + [True] * 2 + [False] * 2
    np.testing.assert_allclose(got.class_iou, per_class, rtol=1e-12)
    np.testing.assert_allclose(got.category_iou, per_group, rtol=1e-12)
    np.testing.assert_allclose(got.mean_iou, np.nanmean(per_class), rtol=1e-12)
    np.testing.assert_allclose(got.mean_category_iou, np.mean(per_group), rtol=1e-12)
    # Each image by itself, too.
    apart = instance_iou(each)
    for i, image in enumerate(images):
        np.testing.assert_allclose(apart.class_iou[i], loop_instance_iou([image])[0], rtol=1e-12)


def test_without_wide_types_instance_iou_has_float32_s_digits():
    rng = np.random.default_rng(1)
    p, t, instances = city(rng, [7, 24, 25, 26, 33])
    got = instance_iou(
        instance_counts(p.astype(np.uint8), t.astype(np.uint8), instances.astype(np.uint16))
    )
    per_class, per_group = loop_instance_iou([(p, t, instances)])
    assert got.class_iou.dtype == np.float32
    np.testing.assert_allclose(got.class_iou, per_class, rtol=1e-6)
    np.testing.assert_allclose(got.category_iou, per_group, rtol=1e-6)


def test_a_small_instance_weighs_as_much_as_a_large_one():
    instances = np.array([24001] * 9 + [24002], np.int32)
    t = instances // 1000
    p = np.where(instances == 24001, 24, 7)
    got = instance_iou(instance_counts(p, t, instances))
    assert got.class_iou[0] == 0.5
    assert segmentation.class_iou(count(p, t, CITYSCAPES))[24] == np.float32(0.9)


def test_groups_of_instances_are_no_hits_and_no_misses():
    instances, t = np.array([26, 26, 26001, 7]), np.array([26, 26, 26, 7])
    for predicted in (26, 7):
        p = np.array([predicted, predicted, 26, 7])
        counts = instance_counts(p, t, instances)
        assert float(counts.true_positives[2]) == np.float32(dict(CITYSCAPES.instance_sizes)[26])
        assert not np.asarray(counts.false_negatives).any()
        assert not np.asarray(counts.false_positives).any()


def test_where_leaves_pixels_out_of_instances():
    rng = np.random.default_rng(2)
    p, t, instances = city(rng, [7, 24, 26])
    where = rng.random(p.shape) < 0.7
    got = instance_counts(p, t, instances, where=where)
    gone = np.where(where, instances, 0), np.where(where, t, 0)
    wanted = instance_counts(p, gone[1], gone[0])
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_instances_are_errors_that_name_them():
    x = np.zeros((2, 3), np.int32)
    with pytest.raises(ValueError, match=r"instances must have shape \[2, 3\] .* got \[3\]"):
        instance_counts(x, x, x[0])
    with pytest.raises(TypeError, match="instances must hold integers, got dtype float32"):
        instance_counts(x, x, jnp.zeros((2, 3)))
