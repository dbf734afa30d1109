"""PASCAL VOC's average precision: against detectron2's numbers, and a loop like `voc_eval`."""

import functools
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import boxes
from jaxiou.detection import voc
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table, pack
from jaxiou.pairing import pairwise

SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "ap" / "voc2012_100"
needs_data = pytest.mark.skipif(not SAMPLE.exists(), reason="shared/data/ap is not there")
IMAGES, FOUND, TRUTHS, CLASSES = 5, 12, 6, 3


# Oracle: one class after the other, one detection after the other ---------------------------


def overlaps_of(box, others):
    width = np.minimum(others[:, 2], box[2]) - np.maximum(others[:, 0], box[0]) + 1.0
    height = np.minimum(others[:, 3], box[3]) - np.maximum(others[:, 1], box[1]) + 1.0
    shared = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    own = (box[2] - box[0] + 1.0) * (box[3] - box[1] + 1.0)
    theirs = (others[:, 2] - others[:, 0] + 1.0) * (others[:, 3] - others[:, 1] + 1.0)
    return shared / (own + theirs - shared)


def loop(batch, label, threshold, strict):
    """Recall and precision of a class, and how many truths it has."""
    found, truths = batch.detections, batch.truths
    rows = [
        (i, d)
        for i in range(found.scores.shape[0])
        for d in range(found.scores.shape[1])
        if found.valid[i, d] and found.labels[i, d] == label
    ]
    rows.sort(key=lambda row: -found.scores[row])  # stable
    of_class = truths.valid & (truths.labels == label)
    total = int((of_class & ~truths.ignored).sum())
    taken = np.zeros_like(of_class)
    true, false = np.zeros(len(rows)), np.zeros(len(rows))
    for n, (i, d) in enumerate(rows):
        places = np.flatnonzero(of_class[i])
        overlaps = overlaps_of(found.regions[i, d], truths.regions[i, places])
        best = overlaps.max(initial=-np.inf)
        if best > threshold or (not strict and best == threshold):
            place = places[overlaps.argmax()]
            if not truths.ignored[i, place]:
                (false if taken[i, place] else true)[n] = 1
                taken[i, place] = True
        else:
            false[n] = 1
    true, false = np.cumsum(true), np.cumsum(false)
    with np.errstate(divide="ignore", invalid="ignore"):
        return true / total, true / np.maximum(true + false, np.finfo(float).eps), total


def by_loop(recall, precision, points):
    if points == 11:
        total = 0.0
        for least in np.arange(0.0, 1.1, 0.1):
            reached = precision[recall >= least]
            total = total + (np.max(reached) if len(reached) else 0) / 11.0
        return total
    recall = np.concatenate(([0.0], recall, [1.0]))
    precision = np.concatenate(([0.0], precision, [0.0]))
    for i in range(precision.size - 1, 0, -1):
        precision[i - 1] = np.maximum(precision[i - 1], precision[i])
    i = np.where(recall[1:] != recall[:-1])[0]
    return np.sum((recall[i + 1] - recall[i]) * precision[i + 1])


def assert_equals_loop(result, batch, thresholds, *, strict, points):
    for t, threshold in enumerate(thresholds):
        wanted = []
        for label in range(CLASSES):
            recall, precision, total = loop(batch, label, threshold, strict)
            wanted.append(by_loop(recall, precision, points) if total else np.nan)
            own = result.labels == label
            np.testing.assert_array_equal(result.precision[t, own], precision)
            if total:
                np.testing.assert_array_equal(result.recall[t, own], recall)
            assert np.isnan(result.recall[t, own]).all() or total
        np.testing.assert_array_equal(result.by_class[t], wanted)
        present = [x for x in wanted if not np.isnan(x)]
        np.testing.assert_array_equal(result.mean[t], np.mean(present) if present else np.nan)


# Data ----------------------------------------------------------------------------------------


def random_batch(seed, decimals=0):
    """Images full of equal scores, equal overlaps, overlaps of exactly a half, difficult truths."""
    rng = np.random.default_rng(seed)

    def regions(count):
        corner = rng.integers(0, 6, (IMAGES, count, 2))
        inclusive = np.concatenate([corner, corner + rng.integers(1, 6, corner.shape)], axis=-1)
        return inclusive + np.round(rng.uniform(0, 1, inclusive.shape), decimals) * (decimals > 0)

    def labels(count):
        return rng.integers(0, rng.integers(1, CLASSES + 1), (IMAGES, count)).astype(np.int32)

    found = Detections(
        regions(FOUND),
        rng.integers(0, 9, (IMAGES, FOUND)) / 8,
        labels(FOUND),
        rng.random((IMAGES, FOUND)) < 0.9,
    )
    truths = GroundTruth(
        regions(TRUTHS),
        labels(TRUTHS),
        rng.random((IMAGES, TRUTHS)) < rng.choice([0.2, 0.9]),
        ignored=rng.random((IMAGES, TRUTHS)) < 0.3,
    )
    return Images(found, truths, np.arange(IMAGES, dtype=np.int32))


@functools.cache
def sample():
    """The 100 images of VOC 2012, and the names of the classes."""
    names = (SAMPLE / "voc.names").read_text().split()
    truths, found = [], []
    files = sorted((SAMPLE / "Annotations").glob("*.xml"))
    for image, file in enumerate(files):
        for item in ET.parse(file).iter("object"):
            corners = (item.find(f"bndbox/{name}") for name in ("xmin", "ymin", "xmax", "ymax"))
            box = [float(corner.text) for corner in corners]
            difficult = item.find("difficult").text == "1"
            truths.append((image, names.index(item.find("name").text), difficult, *box))
        path = SAMPLE / "dets_abs_xyx2y2" / f"{file.stem}.txt"
        if path.exists():
            found += [(image, *map(float, row.split())) for row in path.read_text().splitlines()]
    truths, found = np.array(truths, float), np.array(found, float)
    places = [x[:, 0].astype(np.int32) for x in (found, truths)]
    detections = Detections(
        found[:, 3:], found[:, 2], found[:, 1].astype(np.int32), np.ones(len(found), bool)
    )
    ground_truth = GroundTruth(
        truths[:, 3:],
        truths[:, 1].astype(np.int32),
        np.ones(len(truths), bool),
        ignored=truths[:, 2] == 1,
    )
    return Table(detections, places[0], ground_truth, places[1], len(files)), names


def images(*pairs, difficult=()):
    """A batch of images, of class 0: each the rows of its detections and of its truths.

    A detection is `(score, *box)`, a truth a box.
    """
    count, rows = 2, (4, 3)  # or more: one shape, one program
    count = max(count, len(pairs))
    rows = [max(least, *(len(pair[k]) for pair in pairs)) for k, least in enumerate(rows)]
    scores = np.zeros((count, rows[0]))
    found, truths = (np.zeros((count, size, 4)) for size in rows)
    valid = [np.zeros((count, size), bool) for size in rows]
    for i, pair in enumerate(pairs):
        for d, (score, *box) in enumerate(pair[0]):
            scores[i, d], found[i, d], valid[0][i, d] = score, box, True
        for g, box in enumerate(pair[1]):
            truths[i, g], valid[1][i, g] = box, True
    ignored = np.zeros(truths.shape[:2], bool)
    for place in difficult:
        ignored[place] = True
    labels = [np.zeros(x.shape, np.int32) for x in valid]
    indices = np.full(count, -1, np.int32)
    indices[: len(pairs)] = np.arange(len(pairs))
    return Images(
        Detections(found, scores, labels[0], valid[0]),
        GroundTruth(truths, labels[1], valid[1], ignored=ignored),
        indices,
    )


def average(batch, **settings):
    """The average precision of class 0."""
    return voc.average_precision([batch], num_classes=1, **settings).by_class[0, 0]


SQUARE = (0, 0, 9, 9)
FAR = (50, 50, 59, 59)


# Against the reference ---------------------------------------------------------------------


@needs_data
@pytest.mark.parametrize(("points", "key"), [("all", "voc10_area"), (11, "voc07_11pt")])
def test_numbers_of_voc_2012_equal_those_of_detectron2_to_the_last_bit(points, key):
    table, names = sample()
    expected = json.loads((SAMPLE / "expected.json").read_text())
    result = voc.average_precision(
        pack(table), num_classes=len(names), thresholds=(0.5, 0.75), points=points
    )
    for t, threshold in enumerate(("0.5", "0.75")):
        by_class = [
            expected["per_class"].get(name, {}).get(f"{key}@{threshold}", np.nan) for name in names
        ]
        np.testing.assert_array_equal(result.by_class[t], by_class)
        assert result.mean[t] == expected["mean"][f"{key}@{threshold}"]


@pytest.mark.parametrize("strict", [True, False])
def test_random_sets_equal_the_loop_to_the_last_bit(strict):
    thresholds = (0.5, 0.3, 1 / 3)
    for seed in range(60):
        batch = random_batch(seed, decimals=seed % 2)
        for points in ("all", 11):
            result = voc.average_precision(
                [batch], num_classes=CLASSES, thresholds=thresholds, strict=strict, points=points
            )
            assert_equals_loop(result, batch, thresholds, strict=strict, points=points)


def test_random_sets_have_what_is_hard():
    batches = [random_batch(seed) for seed in range(60)]
    halves = sum(
        (overlaps_of(box, batch.truths.regions[i]) == 0.5).sum()
        for batch in batches
        for i in range(IMAGES)
        for box in batch.detections.regions[i]
    )
    assert halves > 100
    assert any(not batch.truths.valid.any(axis=1).all() for batch in batches)
    assert any(len(np.unique(batch.truths.labels)) < CLASSES for batch in batches)


@needs_data
def test_jit_gives_the_counts_of_the_exact_mode_and_ratios_near_them():
    table, names = sample()
    (batch,) = pack(
        table._replace(
            detection_images=np.zeros_like(table.detection_images),
            truth_images=np.zeros_like(table.truth_images),
            num_images=1,
        ),
        batch_size=1,
    )  # all images as one: who chose whom is another matter, the counts are as hard

    @jax.jit
    def run(detections, truths):
        matches = voc.evaluate(detections, truths, thresholds=(0.5, 0.75))
        curves = voc.accumulate(matches, num_classes=len(names), num_thresholds=2)
        return curves, [voc.summarize(curves, points=points) for points in ("all", 11)]

    for which, points in enumerate(("all", 11)):
        wanted = voc.average_precision(
            [batch], num_classes=len(names), thresholds=(0.5, 0.75), points=points
        )
        for x64, tolerance in ((False, 1e-6), (True, 2e-15)):
            with jax.enable_x64(x64):
                curves, results = jax.device_get(run(batch.detections, batch.truths))
            result = results[which]
            assert result.by_class.dtype == (np.float64 if x64 else np.float32)
            np.testing.assert_array_equal(result.labels, wanted.labels)
            np.testing.assert_allclose(result.by_class, wanted.by_class, rtol=0, atol=tolerance)
            np.testing.assert_allclose(result.mean, wanted.mean, rtol=0, atol=tolerance)
            np.testing.assert_allclose(result.precision, wanted.precision, rtol=0, atol=tolerance)
            np.testing.assert_allclose(result.recall, wanted.recall, rtol=0, atol=tolerance)
            ranked = np.maximum(curves.true_positives + curves.false_positives, 1)
            np.testing.assert_array_equal(curves.true_positives / ranked, wanted.precision)


# The overlap -------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_inclusive_iou_has_the_bits_of_the_reference():
    rng = np.random.default_rng(0)
    for decimals in (0, 1):  # detectors write one decimal
        corner, size = rng.uniform(0, 60, (300, 2)), rng.uniform(1, 60, (300, 2))
        regions = np.round(np.concatenate([corner, corner + size], axis=1), decimals)
        wanted = np.array([overlaps_of(box, regions) for box in regions])
        np.testing.assert_array_equal(pairwise(voc.inclusive_iou)(regions, regions), wanted)
        corners = boxes.from_inclusive(regions)
        near = pairwise(boxes.iou)(corners, corners)
        np.testing.assert_allclose(near, wanted, rtol=0, atol=0 if decimals == 0 else 1e-15)


def test_inclusive_iou_counts_pixels():
    pixel, same, beside, empty = jnp.array([[3, 3, 3, 3], [3, 3, 3, 3], [4, 3, 4, 3], [3, 3, 2, 3]])
    assert voc.inclusive_iou(pixel, same) == 1
    assert voc.inclusive_iou(pixel, beside) == 0
    assert voc.inclusive_iou(empty, empty) == 0
    assert voc.inclusive_iou(empty, pixel) == 0
    assert jnp.isnan(voc.inclusive_iou(pixel.astype(float), jnp.full(4, jnp.nan)))


def test_plus_one_decides_whether_a_detection_is_right():
    """[0, 9] and [0, 4] share 5 of 10 pixels, but 4 of 9 as corners; 6 of 10, and 5 of 9."""
    batch = images(([(0.9, 0, 0, 9, 5)], [SQUARE]))
    assert average(batch, thresholds=(0.59,)) == 1
    assert average(batch, thresholds=(0.59,), overlap=boxes.iou) == 0


# The rule ----------------------------------------------------------------------------------


def test_overlap_of_exactly_a_half_passes_only_if_equal_is_enough():
    batch = images(([(0.9, 0, 0, 9, 4)], [SQUARE]))
    assert average(batch) == 0
    assert average(batch, strict=False) == 1


def test_second_best_truth_is_never_tried():
    """The second detection overlaps both truths by more than the threshold, and the first more."""
    found = [(0.9, 0, 0, 9, 9), (0.8, 1, 0, 10, 9)]
    batch = images((found, [(0, 0, 9, 9), (3, 0, 12, 9)]))
    assert overlaps_of(np.array(found[1][1:]), batch.truths.regions[0])[1] > 0.5
    assert average(batch) == 0.5


def test_of_equal_overlaps_the_first_truth_is_chosen():
    batch = images(([(0.9, 2, 0, 11, 9)], [(0, 0, 9, 9), (4, 0, 13, 9)]), difficult=[(0, 0)])
    assert average(batch) == 0  # it chose the difficult one, and the other is missed
    batch = images(([(0.9, 2, 0, 11, 9)], [(0, 0, 9, 9), (4, 0, 13, 9)]), difficult=[(0, 1)])
    assert average(batch) == 1


def test_difficult_truths_need_not_be_found_and_excuse_every_detection_of_them():
    found = [(0.9, *SQUARE), (0.8, *SQUARE), (0.7, *FAR)]
    assert average(images((found, [SQUARE, FAR]), difficult=[(0, 0)])) == 1


def test_difficult_truth_that_overlaps_more_takes_the_detection_from_a_plain_one():
    batch = images(([(0.9, *SQUARE)], [(1, 0, 10, 9), SQUARE]), difficult=[(0, 1)])
    assert average(batch) == 0


def test_second_detection_of_a_truth_is_wrong():
    """The precisions at the truths are 1 and 2/3."""
    found = [(0.9, *SQUARE), (0.8, *SQUARE), (0.7, *FAR)]
    result = average(images((found, [SQUARE, FAR])))
    assert result == pytest.approx(0.5 * 1 + 0.5 * 2 / 3, abs=1e-15)


def test_detection_in_an_image_without_truths_is_wrong():
    batch = images(([(0.8, *SQUARE)], [SQUARE]), ([(0.9, *SQUARE)], []))
    assert average(batch) == 0.5


def test_equal_scores_are_ranked_by_image_then_by_row():
    right, wrong = (0.5, *SQUARE), (0.5, *FAR)
    assert average(images(([right, wrong], [SQUARE]))) == 1
    assert average(images(([wrong, right], [SQUARE]))) == 0.5
    assert average(images(([right], [SQUARE]), ([wrong], []))) == 1
    assert average(images(([wrong], []), ([right], [SQUARE]))) == 0.5


def test_order_of_batches_and_an_image_given_twice_change_nothing():
    batch = random_batch(3)
    singles = [jax.tree.map(lambda x, i=i: x[i : i + 1], batch) for i in range(IMAGES)]
    wanted = voc.average_precision([batch], num_classes=CLASSES)
    result = voc.average_precision([*singles[::-1], singles[2]], num_classes=CLASSES)
    jax.tree.map(np.testing.assert_array_equal, result, wanted)


def test_score_of_nan_comes_last_and_overlap_of_nan_is_none():
    nan = float("nan")
    assert average(images(([(nan, *FAR), (0.1, *SQUARE)], [SQUARE]))) == 1
    assert average(images(([(0.9, nan, 0, 9, 9), (0.1, *SQUARE)], [SQUARE]))) == 0.5


def test_rows_that_are_not_valid_may_hold_anything():
    batch = random_batch(5)
    found, truths = batch.detections, batch.truths
    spoiled = batch._replace(
        detections=found._replace(
            regions=np.where(found.valid[..., None], found.regions, np.nan),
            scores=np.where(found.valid, found.scores, np.nan),
            labels=np.where(found.valid, found.labels, -7),
        ),
        truths=truths._replace(
            regions=np.where(truths.valid[..., None], truths.regions, np.nan),
            labels=np.where(truths.valid, truths.labels, 99),
        ),
    )
    results = [voc.average_precision([x], num_classes=CLASSES) for x in (batch, spoiled)]
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_table_of_overlaps_takes_the_place_of_regions():
    batch = random_batch(6)
    table = np.stack(
        [
            [overlaps_of(box, truths) for box in found]
            for found, truths in zip(batch.detections.regions, batch.truths.regions, strict=True)
        ]
    )
    bare = Images(
        batch.detections._replace(regions=None),
        batch.truths._replace(regions=None),
        batch.indices,
        table,
    )
    results = [voc.average_precision([x], num_classes=CLASSES) for x in (batch, bare)]
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_overlap_that_is_zero_for_no_candidates_gives_the_rule_of_dota():
    """A detection whose candidates are ruled out is wrong, and leaves the truth to the next."""
    batch = images(([(0.9, *SQUARE), (0.8, *SQUARE)], [SQUARE]))
    table = np.zeros((2, 4, 3))
    table[0, :2, 0] = 0, 0.9
    bare = batch._replace(
        detections=batch.detections._replace(regions=None),
        truths=batch.truths._replace(regions=None),
        overlaps=table,
    )
    assert average(bare) == 0.5


def test_detection_that_is_ignored_counts_only_if_it_is_right():
    batch = images(([(0.9, *FAR), (0.8, *SQUARE)], [SQUARE]))
    ignored = batch.detections._replace(ignored=batch.detections.valid)
    assert average(batch) == 0.5
    assert average(batch._replace(detections=ignored)) == 1


# Averages ----------------------------------------------------------------------------------


def test_recall_of_three_in_ten_does_not_reach_the_grid_of_2007():
    """`np.arange(0, 1.1, 0.1)[3]` is a spacing above 0.3: three of eleven points, not four."""
    curves = voc.Curves(
        np.array([0.9, 0.8, 0.7], np.float32),
        np.zeros(3, np.int32),
        np.array([[1, 2, 3]], np.int32),
        np.zeros((1, 3), np.int32),
        np.array([10], np.int32),
    )
    assert voc.summarize(curves, points=11).mean[0] == pytest.approx(3 / 11, abs=1e-7)
    truths = [(20 * i, 0, 20 * i + 9, 9) for i in range(10)]
    for count, reached in [(3, 3), (5, 6), (6, 6), (7, 7), (8, 9)]:
        found = [(0.9, *box) for box in truths[:count]]
        found += [(0.1, *FAR)] * (10 - count)
        result = average(images((found, truths)), points=11)
        assert result == pytest.approx(reached / 11, abs=1e-15)


def test_grid_of_2007_is_decided_on_integers_as_on_floats():
    """For every number of truths up to 60, and every number of them that is found."""
    grid = np.arange(0.0, 1.1, 0.1)
    total = np.arange(1, 61, dtype=np.int32)
    found = np.tile(np.arange(1, 61, dtype=np.int32), (60, 1))
    curves = voc.Curves(
        np.zeros(60 * 60, np.float32),
        np.repeat(np.arange(60, dtype=np.int32), 60),
        np.minimum(found, total[:, None]).reshape(1, -1),
        np.zeros((1, 60 * 60), np.int32),
        total,
    )
    # One curve for each number that is found: that of a class ends there.
    for last in (1, 3, 7, 21, 59):
        kept = np.minimum(curves.true_positives, last)
        result = voc.summarize(curves._replace(true_positives=kept), points=11).by_class[0]
        recall = np.minimum(last, total) / total
        wanted = (recall[:, None] >= grid).sum(axis=1) / 11
        np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-6)


def test_everything_found_gives_one_at_both_points():
    batch = images(([(0.9, *SQUARE), (0.8, *FAR)], [SQUARE, FAR]))
    assert average(batch) == 1
    assert average(batch, points=11) == pytest.approx(1, abs=1e-15)


def test_class_without_truths_is_nan_and_in_no_mean_and_one_without_detections_is_zero():
    batch = images(([(0.9, *SQUARE), (0.8, *FAR)], [SQUARE, FAR]))
    batch.detections.labels[0, 1], batch.truths.labels[0, 1] = 2, 1
    for points in ("all", 11):
        result = voc.average_precision([batch], num_classes=3, points=points)
        np.testing.assert_allclose(result.by_class, [[1, 0, np.nan]], rtol=0, atol=1e-15)
        np.testing.assert_allclose(result.mean, [0.5], rtol=0, atol=1e-15)


def test_nothing_at_all_is_nan():
    empty = images(([], []))
    for batches in ([], [empty]):
        result = voc.average_precision(batches, num_classes=2)
        assert np.isnan(result.mean).all()
        assert np.isnan(result.by_class).all()
        assert (result.labels == -1).all()


@pytest.mark.parametrize("sizes", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (2, 0, 0)])
def test_no_images_detections_or_truths_are_fine_inside_jit(sizes):
    count, d, g = sizes
    found = Detections(
        *(jnp.zeros((count, d, *x), t) for x, t in [((4,), float), ((), float), ((), jnp.int32)]),
        jnp.ones((count, d), bool),
    )
    truths = GroundTruth(
        jnp.zeros((count, g, 4)), jnp.zeros((count, g), jnp.int32), jnp.ones((count, g), bool)
    )
    curves = voc.accumulate(voc.evaluate(found, truths), num_classes=2)
    assert curves.true_positives.shape == (1, count * d)
    for points in ("all", 11):
        result = voc.summarize(curves, points=points)
        wanted = 0 if count * g else np.nan
        if d and g and count:
            wanted = 1 / g  # the detection found the first truth, the pixel that they all are
            wanted = {"all": wanted, 11: np.sum(np.arange(0, 1.1, 0.1) <= wanted) / 11}[points]
        np.testing.assert_allclose(result.by_class[0, 0], wanted, atol=1e-6)
        assert np.isnan(result.by_class[0, 1])


# Errors ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_jaxtyping")
def test_errors_name_the_argument():
    batch = random_batch(0)
    with pytest.raises(TypeError, match=r"^batches is traced: the exact mode runs outside of jit"):
        jax.jit(lambda b: voc.average_precision([b], num_classes=2))(batch)
    evaluate = functools.partial(voc.evaluate, batch.detections, batch.truths)
    with pytest.raises(ValueError, match=r"^thresholds must be 1 to 32, got 0"):
        evaluate(thresholds=())
    with pytest.raises(ValueError, match=r"^thresholds must lie in 0 to 1, got 1\.5"):
        evaluate(thresholds=(1.5,))
    with pytest.raises(ValueError, match=r"^overlaps must have shape \[5, 12, 6\]"):
        evaluate(overlaps=np.zeros((5, 12, 7)))
    with pytest.raises(ValueError, match=r"^points must be one of \['all', 11\], got 12"):
        voc.average_precision([batch], num_classes=2, points=12)
    with pytest.raises(ValueError, match=r"^num_classes must be 1 or more"):
        voc.average_precision([batch], num_classes=0)
