"""Diagnosis of detectors: against loops written from the rules, pycocotools, and tidecv's numbers.

All drawn images have one shape, and eight of them are a batch, so that few programs are compiled.
"""

import contextlib
import functools
import io
import json
import math
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import boxes
from jaxiou.detection import coco, tide
from jaxiou.detection.diagnosis import at_score, best_f1, confusion_matrix
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images

SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "ap" / "coco_val2014_100"
needs_data = pytest.mark.skipif(not SAMPLE.exists(), reason="shared/data/ap is not there")
B, D, G, K = 8, 12, 6, 3
SCORES = [x / 8 for x in range(9)]
"""Exact in float32, and few, so that many are equal."""


# Images ------------------------------------------------------------------------------------------


def draw(seed, with_ties=True):
    """A batch of images with NaN in their padding, crowds, and truths that are ignored; corners are
    integers, so that many overlaps are equal, and some are a half exactly.
    """
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 12, (B, G, 2))
    truths = np.concatenate([corners, corners + rng.integers(1, 5, (B, G, 2)) * 2], axis=-1)
    labels = rng.integers(0, K, (B, G))
    near = rng.integers(0, G, (B, D))
    found = np.take_along_axis(truths, near[..., None], 1) + rng.integers(-1, 2, (B, D, 4))
    guessed = np.take_along_axis(labels, near, 1)
    guessed = np.where(rng.random((B, D)) < 0.7, guessed, rng.integers(0, K, (B, D)))
    scores = rng.choice(SCORES, (B, D)) if with_ties else rng.random((B, D))
    d_valid = np.arange(D) < rng.integers(0, D + 1, (B, 1))
    t_valid = np.arange(G) < rng.integers(0, G + 1, (B, 1))
    kind = rng.random((B, G))
    return (
        Detections(
            np.where(d_valid[..., None], found, np.nan),
            np.where(d_valid, scores, np.nan),
            guessed.astype(np.int32),
            d_valid,
        ),
        GroundTruth(
            np.where(t_valid[..., None], truths, np.nan),
            np.where(kind < 0.05, -1, labels).astype(np.int32),
            t_valid,
            crowd=kind < 0.12,
            ignored=(kind > 0.12) & (kind < 0.2),
        ),
    )


BATCHES = [draw(seed) for seed in range(6)]


def boxes_at(*places):
    """Boxes of side 8, each this far to the right of the origin."""
    return np.array([[x, 0.0, x + 8, 8] for x in places]).reshape(-1, 4)


def dets(regions, scores, labels):
    labels = np.array(labels, np.int32)
    return Detections(regions, np.array(scores, float), labels, np.ones(labels.shape, bool))


def gts(regions, labels, **kinds):
    labels = np.array(labels, np.int32)
    none = np.zeros(labels.shape, bool)
    crowd, ignored = (np.array(kinds.get(name, none)) for name in ("crowd", "ignored"))
    return GroundTruth(regions, labels, ~none, crowd=crowd, ignored=ignored)


# Oracles: one image, one detection after the other ------------------------------------------------


def overlap_of(a, b, crowd):
    """IoU, or of crowds the share of the detection that lies within, in float64."""
    w, h = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    areas = [np.prod(np.maximum(x[2:] - x[:2], 0)) for x in (a, b)]
    whole = areas[0] if crowd else areas[0] + areas[1] - w * h
    return w * h / whole if whole else 0.0


def ragged(detections, truths, tables=None):
    """For each image its rows as lists of dictionaries, in order, and a function of overlaps."""
    for i in range(len(detections.scores)):
        found = [
            {
                "row": d,
                "label": int(detections.labels[i, d]),
                "score": float(detections.scores[i, d]),
            }
            for d in np.flatnonzero(detections.valid[i])
        ]
        there = [
            {
                "row": g,
                "label": int(truths.labels[i, g]),
                "crowd": bool(truths.crowd is not None and truths.crowd[i, g]),
                "ignored": bool(truths.ignored is not None and truths.ignored[i, g]),
            }
            for g in np.flatnonzero(truths.valid[i])
        ]

        def overlap(d, g, i=i):
            if tables is not None:
                return tables[i, d["row"], g["row"]]
            a, b = detections.regions[i, d["row"]], truths.regions[i, g["row"]]
            return overlap_of(a, b, g["crowd"])

        regular = [g for g in there if not g["crowd"] and not g["ignored"] and g["label"] >= 0]
        excusing = [g for g in there if g["crowd"] or g["ignored"]]
        yield found, regular, excusing, overlap


def may_excuse(d, g):
    return g["label"] in (d["label"], -1)


def matrix_loop(detections, truths, num_classes, score=0.25, threshold=0.5, tables=None):
    matrix = np.zeros((num_classes + 1, num_classes + 1), int)
    for found, regular, excusing, overlap in ragged(detections, truths, tables):
        found = [d for d in found if d["score"] >= score]
        pairs = [(-overlap(d, g), -d["score"], d["row"], g["row"]) for d in found for g in regular]
        taken, used = {}, set()
        for negative, _, d, g in sorted(pairs):
            if -negative >= threshold and d not in taken and g not in used:
                taken[d] = g
                used.add(g)
        labels = {g["row"]: g["label"] for g in regular}
        for d in found:
            if d["row"] in taken:
                matrix[labels[taken[d["row"]]], d["label"]] += 1
            elif not any(may_excuse(d, g) and overlap(d, g) >= threshold for g in excusing):
                matrix[num_classes, d["label"]] += 1
        for g in regular:
            if g["row"] not in used:
                matrix[g["label"], num_classes] += 1
    return matrix


def ap_loop(points, positives):
    """Of `{class: [(score, is right)]}` and `{class: truths}`: the mean over classes."""
    aps = []
    for label in points.keys() | positives.keys():
        rows = sorted(points.get(label, []), key=lambda x: -x[0])
        count = positives.get(label, 0)
        if not rows and not count:
            continue
        if not count:
            aps.append(0.0)
            continue
        found = np.cumsum([right for _, right in rows])
        precision = [tp / (i + 1) for i, tp in enumerate(found)]
        best = [
            max(
                (p for p, tp in zip(precision, found, strict=True) if tp / count >= r / 100),
                default=0,
            )
            for r in range(101)
        ]
        aps.append(sum(best) / 101)
    return sum(aps) / len(aps) if aps else math.nan


def tide_loop(detections, truths, limit=100, threshold=0.5, background=0.1, tables=None):
    """Average precision, eight costs and eight counts, by mending one kind after the other."""
    hits, errors, ranked, left = [], [], [], []
    positives = defaultdict(int)
    for found, regular, excusing, overlap in ragged(detections, truths, tables):
        found = sorted(found, key=lambda d: -d["score"])[:limit]
        ranked += found
        for g in regular:
            positives[g["label"]] += 1
            g["used"], g["first"] = False, None
        for d in found:
            free = [g for g in regular if g["label"] == d["label"] and not g["used"]]
            best = max(free, key=lambda g: overlap(d, g), default=None)
            d["kind"] = "correct" if best and overlap(d, best) >= threshold else None
            if d["kind"]:
                best["used"] = True
        for d in found:
            if d["kind"]:
                hits.append(d)
                d["counted"] = True
                continue
            own = [g for g in regular if g["label"] == d["label"]]
            other = [g for g in regular if g["label"] != d["label"]]
            nearest = [max(x, key=lambda g: overlap(d, g), default=None) for x in (own, other)]
            o, x = (overlap(d, g) if g else 0 for g in nearest)
            wants = None
            if regular and background <= o <= threshold:
                d["kind"], wants = "localisation", nearest[0]
            elif x >= threshold:
                d["kind"], wants = "classification", nearest[1]
            elif any(g["used"] and overlap(d, g) >= threshold for g in own):
                d["kind"] = "duplicate"
            else:
                d["kind"] = "background" if max(o, x) <= background else "both"
            d["mended"] = None
            if wants and not wants["used"] and wants["first"] is None:
                wants["first"], d["mended"] = d, wants["label"]
            d["counted"] = not any(may_excuse(d, g) and overlap(d, g) > threshold for g in excusing)
            errors.append(d)
        left += [g for g in regular if not g["used"]]

    def ap(mend=None, without=(), last=False):
        points, there = defaultdict(list), dict(positives)
        for d in errors:
            if d["kind"] == mend:
                if d["mended"] is not None:
                    points[d["mended"]].append((d["score"], True))
            elif d["counted"]:
                points[d["label"]].append((-math.inf if last else d["score"], False))
        for d in hits:
            points[d["label"]].append((d["score"], True))
        for g in without:
            there[g["label"]] -= 1
        return ap_loop(points, there)

    points = defaultdict(list)
    for d in ranked:
        if d["counted"]:
            points[d["label"]].append((d["score"], d["kind"] == "correct"))
    base = ap_loop(points, positives)
    missed = [g for g in left if g["first"] is None]
    kinds = ["classification", "localisation", "both", "duplicate", "background"]
    costs = [max(ap(kind) - base, 0) for kind in kinds] + [max(ap(without=missed) - base, 0)]
    costs += [ap(last=True) - base, ap(without=left) - base]
    counts = [sum(d["kind"] == kind for d in errors) for kind in kinds]
    counts += [len(missed), sum(d["counted"] for d in errors), len(left)]
    return [base, *costs], counts


def costs_of(result):
    return [float(x) for x in result[:-1]], [int(x) for x in result.counts]


def best_loop(rows, count):
    """Of `[(score, is right)]`: the limit of best F1, the highest of equals, and what it takes."""
    best = 0, math.inf, 0, 0
    for limit in sorted({score for score, _ in rows}, reverse=True):
        taken = [right for score, right in rows if score >= limit]
        f1 = 2 * sum(taken) / (len(taken) + count)
        if f1 > best[0]:
            best = f1, limit, sum(taken), len(taken)
    return best[1:]


# The confusion matrix -----------------------------------------------------------------------------


matrix_of = functools.partial(confusion_matrix, num_classes=K)


def alone(detections, truths):
    """A batch of the shape of all, of this image and of others without rows."""

    def pad(x, size):
        full = np.zeros((B, size, *x.shape[1:]), x.dtype)
        full[0, : len(x)] = x
        return full

    return (
        jax.tree.map(lambda x: pad(x, D), detections),
        jax.tree.map(lambda x: pad(x, G), truths),
    )


@pytest.mark.parametrize("batch", BATCHES)
def test_matrix_is_that_of_a_loop_over_pairs(batch):
    for score in (0.25, 0.6):
        np.testing.assert_array_equal(matrix_of(*batch, score=score), matrix_loop(*batch, K, score))
    # Of half the threshold, so that crowds and ignored truths excuse more than one detection.
    np.testing.assert_array_equal(
        matrix_of(*batch, threshold=0.25), matrix_loop(*batch, K, threshold=0.25)
    )


def test_matrix_of_a_batch_is_the_sum_of_those_of_its_images():
    by_image = jax.vmap(matrix_of)(*BATCHES[0])
    np.testing.assert_array_equal(by_image.sum(axis=0), matrix_of(*BATCHES[0]))
    folded = jax.tree.map(lambda x: x.reshape(2, 4, *x.shape[1:]), BATCHES[0])
    np.testing.assert_array_equal(matrix_of(*folded), matrix_of(*BATCHES[0]))


def test_detections_in_an_image_without_truths_are_false_positives_of_their_class():
    found, truth = dets(boxes_at(0, 20), [0.9, 0.8], [2, 0]), gts(boxes_at(), [])
    matrix = matrix_of(*alone(found, truth))
    assert matrix[K].tolist() == [1, 0, 1, 0]
    assert matrix.sum() == 2


def test_a_detection_whose_best_truth_is_taken_has_its_second_choice():
    # Overlaps 6/10 and 7/9 with the first truth: the first detection takes the second truth, 5/11.
    found, truth = dets(boxes_at(2, 1), [0.9, 0.8], [0, 0]), gts(boxes_at(0, 5), [0, 0])
    matrix = matrix_of(*alone(found, truth), threshold=0.45)
    assert matrix[0].tolist() == [2, 0, 0, 0]


def test_a_box_of_two_classes_is_taken_for_the_one_that_scores_higher():
    found, truth = dets(boxes_at(0, 0), [0.6, 0.9], [0, 1]), gts(boxes_at(0), [0])
    assert matrix_of(*alone(found, truth)).tolist() == [
        [0, 1, 0, 0],
        [0] * 4,
        [0] * 4,
        [1, 0, 0, 0],
    ]


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_scores_may_be_integers_of_which_none_is_the_negative(dtype):
    """Two detections fit one truth, and that of the higher score takes it, which 0 does not."""
    there, labels = jnp.ones(2, bool), jnp.array([1, 0])
    regions = jnp.array([[0.0, 0.0, 2.0, 2.0]] * 2)
    least = np.iinfo(dtype).min
    found = Detections(regions, jnp.asarray(np.array([least, 5], dtype)), labels, there)
    truths = GroundTruth(regions[:1], labels[1:], there[:1])
    matrix = confusion_matrix(found, truths, num_classes=2, score=-1000)
    assert matrix.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_score_and_threshold_are_limits_that_are_reached():
    found, truth = (
        dets(boxes_at(0, 40), [0.25, 0.125], [0, 0]),
        gts(np.array([[0, 0, 8.0, 4.0]]), [0]),
    )
    assert matrix_of(*alone(found, truth))[0, 0] == 1  # the overlap is a half
    assert matrix_of(*alone(found, truth), threshold=0.5001)[0].tolist() == [0, 0, 0, 1]
    assert matrix_of(*alone(found, truth)).sum() == 1
    assert matrix_of(*alone(found, truth), score=0.3).tolist()[0] == [0, 0, 0, 1]


@pytest.mark.parametrize("kind", ["crowd", "ignored"])
def test_what_need_not_be_found_excuses_detections_of_its_class(kind):
    found = dets(boxes_at(0, 1, 0, 30), [0.9, 0.8, 0.7, 0.6], [1, 1, 0, 1])
    truth = gts(boxes_at(0), [1], **{kind: [True]})
    assert matrix_of(*alone(found, truth)).tolist() == [[0] * 4, [0] * 4, [0] * 4, [1, 1, 0, 0]]
    of_any = truth._replace(labels=np.array([-1], np.int32))
    assert matrix_of(*alone(found, of_any))[K].tolist() == [0, 1, 0, 0]


def test_a_small_detection_in_a_crowd_is_excused_by_its_share_within():
    found = dets(boxes_at(0), [0.9], [1])
    truth = gts(np.array([[0.0, 0.0, 80, 80]]), [1], crowd=[True])
    assert matrix_of(*alone(found, truth)).sum() == 0
    assert matrix_of(*alone(found, truth), crowd_overlap=boxes.iou)[K, 1] == 1


def test_rows_that_are_no_class_and_scores_of_nan_do_not_take_part():
    found = dets(boxes_at(0, 0, 0), [0.9, 0.9, np.nan], [K, -1, 0])
    truth = gts(boxes_at(0, 20), [0, K])
    assert matrix_of(*alone(found, truth)).tolist()[0] == [0, 0, 0, 1]
    assert matrix_of(*alone(found, truth)).sum() == 1


def test_nothing_gives_zeros():
    empty = dets(boxes_at(), [], []), gts(boxes_at(), [])
    assert matrix_of(*empty).tolist() == np.zeros((K + 1, K + 1)).tolist()
    no_images = jax.tree.map(lambda x: x[:0], BATCHES[0])
    assert matrix_of(*no_images).sum() == 0


def test_any_overlap_does_and_a_table_does():
    found, truth = BATCHES[1]
    table = np.stack(
        [
            [[overlap_of(a, b, c) for b, c in zip(x, crowd, strict=True)] for a in y]
            for x, y, crowd in zip(truth.regions, found.regions, truth.crowd, strict=True)
        ]
    )
    bare = found._replace(regions=None), truth._replace(regions=None)
    np.testing.assert_array_equal(matrix_of(*bare, overlaps=table), matrix_of(found, truth))
    with np.errstate(invalid="ignore"):
        squared = matrix_of(*bare, overlaps=table**2, threshold=0.25)
    np.testing.assert_array_equal(squared, matrix_of(found, truth))
    with pytest.raises(ValueError, match="must have regions, or overlaps"):
        matrix_of(*bare)


# Precision, recall and F1 -------------------------------------------------------------------------


def random_matches(seed, count=60, truths=40):
    """Four images with two thresholds and three area ranges."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 4, (2, 4, count, 3)).astype(np.uint32)
    return Matches(
        rng.choice(SCORES, (4, count)).astype(np.float32),
        rng.integers(-1, K + 1, (4, count)).astype(np.int32),
        np.zeros((4, count), np.int32),
        rng.random((4, count)) < 0.9,
        words[0],
        words[1] & rng.integers(0, 4, words[1].shape).astype(np.uint32),
        rng.integers(-1, K, (4, truths)).astype(np.int32),
        rng.random((4, truths, 3)) < 0.7,
    )


def rows_of(matches, label, t, a):
    """`[(score, is right)]` of a class, and how many truths it has."""
    bit = lambda x: x[..., a] >> t & 1 > 0  # noqa: E731
    rows = matches.valid & (matches.labels == label) & ~bit(matches.ignored)
    right = bit(matches.matched)[rows]
    count = ((matches.truth_labels == label) & matches.truth_counts[..., a]).sum()
    return list(zip(matches.scores[rows].tolist(), right.tolist(), strict=True)), int(count)


def assert_point(point, label, right, taken, count):
    counts = [int(x[label]) for x in point[4:]]
    assert counts == [right, taken - right, count - right]
    ratios = [(right, taken), (right, count), (2 * right, taken + count)]
    wanted = [x / y if y else math.nan for x, y in ratios]
    np.testing.assert_allclose([x[label] for x in point[1:4]], wanted, rtol=1e-6)


@pytest.mark.parametrize(("t", "a"), [(0, 0), (1, 2)])
def test_counts_at_a_score_are_those_of_a_loop(t, a):
    for seed in range(3):
        matches = random_matches(seed)
        limits = np.array([0.25, 0.5, 1.5], np.float32)
        settings = {"num_classes": K, "threshold_index": t, "area_index": a}
        point, best = at_score(matches, score=limits, **settings), best_f1(matches, **settings)
        for label, limit in enumerate(limits):
            rows, count = rows_of(matches, label, t, a)
            taken = [right for score, right in rows if score >= limit]
            assert_point(point, label, sum(taken), len(taken), count)
            limit, right, taken = best_loop(rows, count)
            assert best.scores[label] == limit
            assert_point(best, label, right, taken, count)
        again = at_score(matches, score=best.scores, **settings)
        jax.tree.map(np.testing.assert_array_equal, again, best)


def of_one_class(scores, right, truths):
    """Matches of one image and class."""
    count = len(scores)
    return Matches(
        np.array([scores], np.float32),
        np.zeros((1, count), np.int32),
        np.zeros((1, count), np.int32),
        np.ones((1, count), bool),
        np.array(right, np.uint32).reshape(1, count, 1),
        np.zeros((1, count, 1), np.uint32),
        np.zeros((1, truths), np.int32),
        np.ones((1, truths, 1), bool),
    )


def test_precision_is_counted_and_not_read_off_the_interpolated_curve():
    matches = of_one_class([0.9, 0.8, 0.7, 0.6, 0.5], [0, 1, 0, 1, 1], 4)
    point = at_score(matches, num_classes=1, score=0.75)
    assert (point.precision[0], point.recall[0]) == (0.5, 0.25)
    # At this recall the curve has 3/5, which is the precision at 0.5.
    assert at_score(matches, num_classes=1, score=0.5).precision[0] == np.float32(3 / 5)


def test_detections_of_equal_score_are_all_in_or_all_out():
    matches = of_one_class([0.9, 0.5, 0.5, 0.5], [1, 1, 0, 0], 2)
    best = best_f1(matches, num_classes=1)
    # 2/3 at 0.9, and 4/6 at 0.5: the higher score. With the right half of the ties it would be 1.
    assert best.scores[0] == np.float32(0.9)
    assert best.f1[0] == np.float32(2 / 3)
    assert int(at_score(matches, num_classes=1, score=0.5).false_positives[0]) == 2


def test_without_a_right_detection_the_best_is_to_take_none():
    wrong = best_f1(of_one_class([0.9], [0], 2), num_classes=1)
    assert (wrong.scores[0], wrong.f1[0], wrong.recall[0]) == (np.inf, 0, 0)
    assert np.isnan(wrong.precision[0])
    no_truth = best_f1(of_one_class([0.9], [0], 0), num_classes=1)
    assert no_truth.scores[0] == np.inf
    assert np.isnan(no_truth.f1[0])
    nothing = of_one_class([], [], 0)
    for point in (best_f1(nothing, num_classes=1), at_score(nothing, num_classes=1, score=0.5)):
        assert np.isnan(np.stack(point[1:4])).all()
        assert not np.stack(point[4:]).any()


def test_a_score_of_nan_reaches_nothing():
    matches = of_one_class([np.nan, 0.5], [1, 1], 2)
    for point in (best_f1(matches, num_classes=1), at_score(matches, num_classes=1, score=-1.0)):
        assert int(point.true_positives[0]) == 1


def test_a_score_for_each_class_is_checked():
    with pytest.raises(ValueError, match=r"score must have shape \[3\]"):
        at_score(random_matches(0), num_classes=K, score=np.zeros(2))
    with pytest.raises(ValueError, match="area_index must lie in 0 to 2"):
        best_f1(random_matches(0), num_classes=K, area_index=3)


# TIDE ---------------------------------------------------------------------------------------------


costs_on_host = functools.partial(tide.breakdown, num_classes=K)


def images(detections, truths, tables=None):
    return [Images(detections, truths, np.arange(len(detections.scores), dtype=np.int32), tables)]


def costs_alone(detections, truths, **settings):
    """The breakdown of one image, the kinds of its detections, and its errors."""
    errors = tide.evaluate(*alone(detections, truths), **settings)
    kinds = [tide.KINDS[k] for k in errors.kinds[0] if k >= 0]
    return tide.summarize(errors, num_classes=K), kinds, errors


@pytest.mark.parametrize("batch", [*BATCHES, *(draw(seed, with_ties=False) for seed in (7, 8, 9))])
def test_costs_and_counts_are_those_of_mending_one_error_after_the_other(batch):
    costs, counts = costs_of(costs_on_host(images(*batch)))
    wanted, wanted_counts = tide_loop(*batch)
    assert counts == wanted_counts
    np.testing.assert_allclose(costs, wanted, rtol=0, atol=1e-14)


def test_errors_of_all_batches_are_summarized_as_one_in_float32_too():
    parts = [tide.evaluate(*batch) for batch in BATCHES]
    errors = jax.tree.map(lambda *x: jnp.concatenate(x), *parts)
    costs, counts = costs_of(tide.summarize(errors, num_classes=K))
    batches = [
        Images(*batch, np.arange(B, dtype=np.int32) + B * i) for i, batch in enumerate(BATCHES)
    ]
    # Batches in any order; images that fill up a batch have the index -1.
    unused = batches[0]._replace(indices=np.full(B, -1, np.int32))
    exact, exact_counts = costs_of(costs_on_host([unused, *batches[::-1]]))
    both = jax.tree.map(lambda *x: np.concatenate(x), *BATCHES)
    wanted, wanted_counts = tide_loop(*both)
    assert counts == exact_counts == wanted_counts
    np.testing.assert_allclose(exact, wanted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(costs, wanted, rtol=0, atol=1e-6)


def coco_sample():
    """The sample as one batch, with tables of overlaps by pycocotools."""
    mask = pytest.importorskip("pycocotools.mask")
    truth = json.loads((SAMPLE / "instances_val2014_100.json").read_text())
    found = json.loads((SAMPLE / "instances_val2014_fakebbox100_results.json").read_text())
    classes = {c: k for k, c in enumerate(sorted(x["id"] for x in truth["categories"]))}
    names = sorted(x["id"] for x in truth["images"])
    sides = [
        [[x for x in rows if x["image_id"] == name] for name in names]
        for rows in (found, truth["annotations"])
    ]
    shapes = [(len(names), max(map(len, side))) for side in sides]

    def column(side, field, dtype):
        full = np.zeros(shapes[side], dtype)
        for i, rows in enumerate(sides[side]):
            full[i, : len(rows)] = [field(x) for x in rows]
        return full

    tables = np.zeros((*shapes[0], shapes[1][1]))
    for i, (a, b) in enumerate(zip(*sides, strict=True)):
        if a and b:
            crowds = [x["iscrowd"] for x in b]
            tables[i, : len(a), : len(b)] = mask.iou(
                [x["bbox"] for x in a], [x["bbox"] for x in b], crowds
            )
    label = lambda x: classes[x["category_id"]]  # noqa: E731
    detections = Detections(
        None,
        column(0, lambda x: x["score"], float),
        column(0, label, np.int32),
        column(0, lambda _: True, bool),
        areas=column(0, lambda x: x["bbox"][2] * x["bbox"][3], float),
    )
    truths = GroundTruth(
        None,
        column(1, label, np.int32),
        column(1, lambda _: True, bool),
        areas=column(1, lambda x: x["area"], float),
        crowd=column(1, lambda x: x["iscrowd"], bool),
    )
    return detections, truths, tables, len(classes)


@needs_data
def test_coco_sample_has_the_numbers_of_tidecv_and_of_the_loops():
    detections, truths, tables, count = coco_sample()
    costs, counts = costs_of(tide.breakdown(images(detections, truths, tables), num_classes=count))
    # tidecv 1.0.1 on these files, in percent.
    wanted = [64.20498881733425, 22.2460397441685, 0.22789102370710168, 0, 0.018972971237019465]
    wanted += [0, 8.523573787723365, 6.821587524510463, 17.684978535217198]
    np.testing.assert_allclose(costs, np.array(wanted) / 100, rtol=0, atol=1e-14)
    assert counts[:6] == [83, 1, 0, 1, 0, 97]
    loop, loop_counts = tide_loop(detections, truths, tables=tables)
    np.testing.assert_allclose(costs, loop, rtol=0, atol=1e-14)
    assert counts == loop_counts
    np.testing.assert_array_equal(
        confusion_matrix(detections, truths, num_classes=count, overlaps=tables),
        matrix_loop(detections, truths, count, tables=tables),
    )


@needs_data
def test_counts_on_coco_sample_are_those_of_pycocotools():
    cocotools = pytest.importorskip("pycocotools.coco")
    detections, truths, tables, count = coco_sample()
    with contextlib.redirect_stdout(io.StringIO()):
        truth = cocotools.COCO(str(SAMPLE / "instances_val2014_100.json"))
        found = truth.loadRes(str(SAMPLE / "instances_val2014_fakebbox100_results.json"))
        evaluator = pytest.importorskip("pycocotools.cocoeval").COCOeval(truth, found, "bbox")
        evaluator.evaluate()
    rows, truths_of = defaultdict(list), defaultdict(int)
    for image in filter(None, evaluator.evalImgs):
        if image["aRng"] == [0, 1e10]:
            label = evaluator.params.catIds.index(image["category_id"])
            regular = ~image["dtIgnore"][5]  # at the threshold 0.75
            right = image["dtMatches"][5] > 0
            rows[label] += [
                x
                for x, keep in zip(zip(image["dtScores"], right, strict=True), regular, strict=True)
                if keep
            ]
            truths_of[label] += int((np.array(image["gtIgnore"]) == 0).sum())
    matches = coco.evaluate(detections, truths, overlaps=tables, thresholds=(0.5, 0.75))
    settings = {"num_classes": count, "threshold_index": 1}
    point, best = at_score(matches, score=0.5, **settings), best_f1(matches, **settings)
    for label in range(count):
        taken = [right for score, right in rows[label] if score >= 0.5]
        assert_point(point, label, sum(taken), len(taken), truths_of[label])
        limit, right, taken = best_loop(rows[label], truths_of[label])
        assert best.scores[label] == np.float32(limit)
        assert_point(best, label, right, taken, truths_of[label])


def test_each_error_has_its_kind():
    # Truths of class 0 and 1; a detection 8 - x over 8 + x with another x to the right.
    truth = gts(boxes_at(0, 40), [0, 1])
    found = dets(
        boxes_at(0, 1, 4, 40, 45, 20, 7.9),
        [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3],
        [0, 0, 0, 0, 0, 0, 0],
    )
    _, kinds, _ = costs_alone(found, truth)
    names = ["correct", "duplicate", "localisation", "classification", "both", "background"]
    assert kinds == [*names, "background"]


def test_a_truth_is_mended_by_the_best_of_its_errors_only():
    truth = gts(boxes_at(0), [0])
    found = dets(boxes_at(4, 0, 5), [0.6, 0.9, 0.5], [0, 1, 0])
    result, kinds, errors = costs_alone(found, truth)
    assert kinds == ["localisation", "classification", "localisation"]
    assert errors.mended[0, :3].tolist() == [-1, 0, -1]
    # Mended classification: right at 0.9, and no detection of class 1 is left. Mended localisation:
    # its truth goes to none of the two, so that nothing is right.
    assert (float(result.classification), float(result.localisation)) == (1, 0)
    assert int(result.counts.missed) == 0


def test_a_class_of_detections_alone_counts_as_zero():
    truth = gts(boxes_at(0), [0])
    right = dets(boxes_at(0, 20), [0.9, 0.8], [0, 1])
    result, _, _ = costs_alone(right, truth)
    assert (float(result.ap), float(result.background)) == (0.5, 0.5)


def test_errors_come_before_correct_detections_of_equal_score_once_anything_is_mended():
    truth = gts(boxes_at(0), [0])
    result, _, _ = costs_alone(dets(boxes_at(0, 20), [0.5, 0.5], [0, 0]), truth)
    assert float(result.ap) == 1
    assert float(result.false_negative) == -0.5
    assert (float(result.false_positive), float(result.missed)) == (0, 0)


def test_of_equal_overlaps_the_first_truth_is_taken():
    truth = gts(boxes_at(1, 1), [0, 0])
    _, _, errors = costs_alone(dets(boxes_at(0), [0.5], [0]), truth)
    assert errors.found[0, :2].tolist() == [True, False]


def test_detections_beyond_the_limit_of_an_image_do_not_take_part():
    truth = gts(boxes_at(0), [0])
    found = dets(boxes_at(0, 20, 30), [0.5, 0.9, 0.9], [0, 1, 2])
    result, kinds, _ = costs_alone(found, truth, max_detections=2)
    assert kinds == ["background", "background"]
    assert (int(result.counts.false_negative), float(result.ap)) == (1, 0)


def test_an_excused_detection_is_no_false_positive_and_may_be_mended():
    truth = gts(boxes_at(0, 1), [0, 0], crowd=[False, True])
    result, kinds, errors = costs_alone(dets(boxes_at(4), [0.5], [0]), truth)
    assert kinds == ["localisation"]
    assert not errors.counted[0, 0]
    assert (float(result.ap), float(result.localisation)) == (0, 1)
    assert (int(result.counts.localisation), int(result.counts.false_positive)) == (1, 0)
    # By more than the threshold: a half of it within the crowd is not enough.
    half = gts(boxes_at(0, 8), [0, 0], crowd=[False, True])
    assert costs_alone(dets(boxes_at(4), [0.5], [0]), half)[2].counted[0, 0]
    own = dets(boxes_at(4), [0.5], [0])._replace(ignored=np.ones(1, bool))
    assert not costs_alone(own, gts(boxes_at(0), [0]))[2].counted[0, 0]


def test_costs_of_nothing_are_stated():
    nothing = dets(boxes_at(), [], []), gts(boxes_at(), [])
    empty, _, _ = costs_alone(*nothing)
    assert np.isnan(np.stack(empty[:-1])).all()
    assert sum(int(x) for x in empty.counts) == 0
    jax.tree.map(np.testing.assert_array_equal, costs_on_host([]), empty)
    # Without rows at all, not even padded ones.
    bare = tide.evaluate(*nothing)
    jax.tree.map(np.testing.assert_array_equal, tide.summarize(bare, num_classes=K), empty)
    unfound, _, _ = costs_alone(nothing[0], gts(boxes_at(0, 20), [0, 1]))
    assert (float(unfound.ap), int(unfound.counts.missed)) == (0, 2)
    # Nothing is left of any class, where tidecv divides by 0.
    assert np.isnan(float(unfound.missed))
    false, kinds, _ = costs_alone(dets(boxes_at(0), [0.5], [1]), gts(boxes_at(), []))
    assert kinds == ["background"]
    assert (float(false.ap), float(false.missed)) == (0, 0)
    assert np.isnan(float(false.background))


def test_exact_costs_refuse_tracers():
    with pytest.raises(TypeError, match="batches is traced"):
        jax.jit(lambda x: costs_on_host(images(*x)))(BATCHES[0])
