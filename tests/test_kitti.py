"""KITTI's object benchmark: against the official numbers, and a loop written from its rules."""

import functools
import json
import math
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import shapely

from jaxiou import cli
from jaxiou.detection import kitti
from jaxiou.detection.kitti import (
    CLASSES,
    DIFFICULTIES,
    MEASURES,
    MINIMUM,
    TYPES,
    Counts,
    Detections,
    GroundTruth,
    Table,
)
from jaxiou.readers import FileError
from jaxiou.readers import kitti as reader

DATA = Path(__file__).parents[2] / "shared" / "data" / "kitti_synthetic"
needs_data = pytest.mark.skipif(
    not DATA.exists(), reason="shared/data/kitti_synthetic is not there"
)

CAR, PEDESTRIAN, CYCLIST, VAN, SITTING, DONT_CARE = range(len(TYPES))
EASY, MODERATE, HARD = range(3)


# Oracle: section by section as the rules are written, one box after the other ---------------

HEIGHT, OCCLUSION, TRUNCATION = [40, 25, 25], [0, 1, 2], [0.15, 0.3, 0.5]
ALIKE = {CAR: VAN, PEDESTRIAN: SITTING}


def intersection(a, b):
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0)


def area(a):
    return (a[2] - a[0]) * (a[3] - a[1])


def truth_state(t, label, k):
    height = t["box"][3] - t["box"][1]
    hard = height <= HEIGHT[k] or t["occluded"] > OCCLUSION[k] or t["truncated"] > TRUNCATION[k]
    if t["label"] == label:
        return 1 if hard else 0
    return 1 if t["label"] == ALIKE.get(label) else -1


def detection_state(d, label, k):
    if d["box"][3] - d["box"][1] < HEIGHT[k]:
        return 1
    return 0 if d["label"] == label else -1


def choose(scores, total):
    kept, r = [], 0.0
    scores = sorted(scores, reverse=True)
    for i, score in enumerate(scores):
        last = i == len(scores) - 1
        left, right = (i + 1) / total, (i + 1 if last else i + 2) / total
        if right - r < r - left and not last:
            continue
        kept.append(score)
        r += 1 / 40
    return kept


def one_image(truths, found, table, states, limit, threshold=None):
    """The scores of right detections; with a threshold, TP, FP, FN, similarity and what is used."""
    of_truths, of_found = states
    used, scores, tp, fn, similarity = set(), [], 0, 0, 0.0
    for g, truth in enumerate(truths):
        if of_truths[g] < 0:
            continue
        best = None
        for d, one in enumerate(found):
            low = threshold is not None and one["score"] < threshold
            if of_found[d] < 0 or d in used or low or not table[d][g] > limit:
                continue
            if threshold is None:
                better = best is None or one["score"] > found[best]["score"]
            elif of_found[d] == 0:
                better = best is None or of_found[best] == 1 or table[d][g] > table[best][g]
            else:
                better = best is None
            best = d if better else best
        if best is None:
            fn += of_truths[g] == 0
            continue
        used.add(best)
        if of_truths[g] == 0 and of_found[best] == 0:
            tp += 1
            scores.append(found[best]["score"])
            similarity += (1 + np.cos(truth["alpha"] - found[best]["alpha"])) / 2
    return scores, tp, fn, similarity, used


def loop(images, label, k, measure, limit):
    """Thresholds, counts and scores of `[(truths, detections, table)]`."""
    states = [
        (
            [truth_state(t, label, k) for t in truths],
            [detection_state(d, label, k) for d in found],
        )
        for truths, found, _ in images
    ]
    total = sum(of_truths.count(0) for of_truths, _ in states)
    scores = []
    for (truths, found, table), s in zip(images, states, strict=True):
        scores += one_image(truths, found, table, s, limit)[0]
    thresholds = choose(scores, total)
    rows, precision, similarities = [], [0.0] * 41, [0.0] * 41
    for place, threshold in enumerate(thresholds):
        tp = fp = fn = 0
        similarity = 0.0
        for (truths, found, table), s in zip(images, states, strict=True):
            _, a, b, c, used = one_image(truths, found, table, s, limit, threshold)
            tp, fn, similarity = tp + a, fn + b, similarity + c
            for d, one in enumerate(found):
                if d in used or s[1][d] != 0 or one["score"] < threshold:
                    continue
                regions = [t["box"] for t in truths if t["label"] == DONT_CARE]
                shares = [intersection(one["box"], x) / area(one["box"]) for x in regions]
                fp += not (measure == "image" and any(x > limit for x in shares))
        rows.append((tp, fp, fn))
        precision[place] = tp / (tp + fp) if tp + fp else 0
        similarities[place] = similarity / (tp + fp) if tp + fp else 0
    curves = [[max(curve[i:]) for i in range(41)] for curve in (precision, similarities)]
    r11 = [functools.reduce(float.__add__, map(float, c[::4]), 0.0) / 11 for c in curves]
    r40 = [functools.reduce(float.__add__, map(float, c[1:]), 0.0) / 40 for c in curves]
    return thresholds, rows, curves, r11, r40, total


# Data ----------------------------------------------------------------------------------------


def outline(cuboid):
    x, y, _, length, width, _, yaw = cuboid
    c, s = math.cos(yaw) / 2, math.sin(yaw) / 2
    along, across = np.array([c, s]) * length, np.array([-s, c]) * width
    return shapely.Polygon(
        [along + across, along - across, -along - across, across - along]
    ), np.array([x, y])


def solid_tables(frames):
    """Bird's-eye view and 3D overlaps of every image by exact polygons."""
    tables = {"bev": [], "3d": []}
    for image in range(frames.num_images):
        found = frames.detections.cuboids[frames.detection_images == image]
        truths = frames.truths.cuboids[frames.truth_images == image]
        bev, volume = (np.zeros((len(found), len(truths))) for _ in range(2))
        for i, a in enumerate(found):
            for j, b in enumerate(truths):
                if b[3] <= 0:
                    continue
                (p, at), (q, other) = outline(a), outline(b)
                q = shapely.transform(q, lambda x, d=other - at: x + d)
                shared = p.intersection(q).area
                bev[i, j] = shared / (a[3] * a[4] + b[3] * b[4] - shared)
                low, high = (
                    max(a[2] - a[5] / 2, b[2] - b[5] / 2),
                    min(a[2] + a[5] / 2, b[2] + b[5] / 2),
                )
                shared *= max(high - low, 0)
                volume[i, j] = shared / (a[3:6].prod() + b[3:6].prod() - shared)
        tables["bev"].append(bev)
        tables["3d"].append(volume)
    return tables


@pytest.fixture(scope="module")
def synthetic():
    return reader.load(DATA / "gt", DATA / "det")


def assert_official(result, measures=MEASURES):
    wanted = json.loads((DATA / "expected.json").read_text())
    for label, kind in enumerate(CLASSES):
        np.testing.assert_array_equal(result.num_truths[label], wanted["n_gt"][kind])
        for measure in measures:
            place = MEASURES.index(measure)
            e = wanted[f"{kind}|{'bbox' if measure == 'image' else measure}"]
            # A cosine is not the same to the last bit on every machine.
            near = functools.partial(
                np.testing.assert_allclose, rtol=1e-15 if measure == "aos" else 0, atol=0
            )
            near(100 * result.r11[place, label], e["R11"])
            near(100 * result.r40[place, label], e["R40"])
            near(result.curves[place, label], e.get("precision") or e.get("similarity"))
            if measure != "aos":
                kept = np.isfinite(result.thresholds[place, label]).sum(axis=-1)
                np.testing.assert_array_equal(kept, e["n_thresholds"])


@needs_data
def test_synthetic_set_has_the_official_numbers_to_the_last_bit(synthetic):
    assert_official(kitti.average_precision(synthetic))


@needs_data
def test_tables_of_exact_polygons_give_the_official_numbers_too(synthetic):
    tables = solid_tables(synthetic)
    result = kitti.average_precision(synthetic, measures=("bev", "3d"), overlaps=tables)
    assert_official(result, ("bev", "3d"))
    assert np.isnan(result.r40[MEASURES.index("image")]).all()
    assert np.isnan(result.curves[MEASURES.index("aos")]).all()


@needs_data
def test_order_of_images_and_rows_that_are_not_valid_change_nothing(synthetic):
    """All but the order within an image may change, as sums of counts do not."""
    rng = np.random.default_rng(0)
    order = rng.permutation(synthetic.num_images).astype(np.int32)

    def widened(rows, images):
        """Rows of NaN between the others."""

        def field(x):
            full = np.full((2 * len(x), *x.shape[1:]), np.nan if x.dtype.kind == "f" else 0)
            full[::2] = x
            return full.astype(x.dtype)

        return jax.tree.map(field, rows), np.repeat(order[images], 2)

    mixed = Table(
        *widened(synthetic.detections, synthetic.detection_images),
        *widened(synthetic.truths, synthetic.truth_images),
        synthetic.num_images,
    )
    result = kitti.average_precision(mixed, measures=("image",))
    assert_official(result, ("image",))


def random_images(seed, num_images=12, per_image=(5, 7)):
    """Boxes on a grid, so that heights, overlaps and shares lie on their limits; equal scores,
    classes that are alike, DontCare regions. As dictionaries, and as `Table`.
    """
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(num_images):
        truths, found = [], []
        for _ in range(per_image[0]):
            x, y = rng.integers(0, 6, 2) * 10.0
            size = rng.choice([20, 30, 40]), rng.choice([20, 25, 26, 40, 50])
            label = int(
                rng.choice([CAR, CAR, CAR, PEDESTRIAN, CYCLIST, VAN, SITTING, DONT_CARE, -1])
            )
            truths.append(
                {
                    "box": [x, y, x + size[0], y + size[1]],
                    "label": label,
                    "occluded": float(rng.choice([0, 0, 0, 1, 2, 3])),
                    "truncated": float(rng.choice([0, 0, 0, 0.15, 0.3, 0.5, 0.6])),
                    "alpha": rng.normal(),
                }
            )
        for _ in range(per_image[1]):
            near = truths[rng.integers(len(truths))]
            box = np.array(near["box"]) + rng.choice([0, 0, 0, 0, 1, 10], 4) * [1, 1, 1, 1]
            box[2:] = np.maximum(box[2:], box[:2] + 10)
            label = rng.choice([near["label"], *range(3), -1], p=[0.6, 0.1, 0.1, 0.1, 0.1])
            found.append(
                {
                    "box": [float(v) for v in box],
                    "label": int(label),
                    "score": float(rng.integers(-5, 20)) / 10,
                    "alpha": rng.normal(),
                }
            )
        table = [
            [
                intersection(d["box"], t["box"])
                / (area(d["box"]) + area(t["box"]) - intersection(d["box"], t["box"]))
                for t in truths
            ]
            for d in found
        ]
        solids = rng.choice([0, 0.2, 0.25, 0.5, 0.6, 0.7, 0.8], (2, len(found), len(truths)))
        images.append((truths, found, {"image": table, "bev": solids[0], "3d": solids[1]}))
    return images, as_table(images)


def as_table(images):
    def column(side, name, kind=np.float64):
        return np.array([row[name] for image in images for row in image[side]], kind)

    def places(side):
        return np.repeat(np.arange(len(images), dtype=np.int32), [len(x[side]) for x in images])

    truths, found = (
        {
            "regions": column(side, "box").reshape(-1, 4),
            "labels": column(side, "label", np.int32),
            "alphas": column(side, "alpha"),
            "valid": np.ones(len(places(side)), bool),
        }
        for side in (0, 1)
    )
    return Table(
        Detections(scores=column(1, "score"), **found),
        places(1),
        GroundTruth(occlusions=column(0, "occluded"), truncations=column(0, "truncated"), **truths),
        places(0),
        len(images),
    )


@pytest.mark.parametrize("minimum", ["strict", "loose"])
def test_random_sets_have_the_numbers_of_a_loop(minimum):
    for seed in range(12):
        images, frames = random_images(seed)
        tables = {name: [np.array(x[2][name]) for x in images] for name in ("bev", "3d")}
        result = kitti.average_precision(frames, minimum=minimum, overlaps=tables)
        for measure in ("image", "bev", "3d"):
            own = [(truths, found, tables[measure]) for truths, found, tables in images]
            place, orientation = MEASURES.index(measure), MEASURES.index("aos")
            for label in range(3):
                limit = MINIMUM[minimum][measure][label]
                for k in range(3):
                    thresholds, rows, curves, r11, r40, total = loop(own, label, k, measure, limit)
                    at = (place, label, k)
                    assert result.num_truths[label, k] == total
                    kept = np.isfinite(result.thresholds[at])
                    assert result.thresholds[at][kept].tolist() == thresholds
                    counts = [getattr(result, x)[at][kept].tolist() for x in ("tp", "fp", "fn")]
                    assert list(zip(*counts, strict=True)) == rows
                    assert result.curves[at].tolist() == curves[0]
                    assert (result.r11[at], result.r40[at]) == (r11[0], r40[0])
                    if measure == "image":
                        at = (orientation, label, k)
                        got = (result.r11[at], result.r40[at])
                        np.testing.assert_allclose(got, (r11[1], r40[1]), rtol=1e-14)
                        np.testing.assert_allclose(result.curves[at], curves[1], rtol=1e-14)


def test_more_rows_in_an_image_than_usual_are_counted_alike():
    images, frames = random_images(99, num_images=2, per_image=(20, 40))
    result = kitti.average_precision(frames, measures=("image",))
    own = [(truths, found, tables["image"]) for truths, found, tables in images]
    for label in range(3):
        for k in range(3):
            _, rows, curves, *_ = loop(own, label, k, "image", MINIMUM["strict"]["image"][label])
            assert result.curves[0, label, k].tolist() == curves[0]
            assert result.tp[0, label, k][: len(rows)].tolist() == [row[0] for row in rows]


def test_thresholds_are_those_of_a_loop_for_many_numbers_of_truths():
    """Where a score is as far from what is due as the next one, rounding decides."""
    rng = np.random.default_rng(0)
    totals = np.array([*range(1, 90), 120, 160, 200, 240, 400, 800, 1000], np.int32)
    scores = np.full((len(totals), 1024), -np.inf)
    for row, total in zip(scores, totals, strict=True):
        found = total if total % 3 == 0 else rng.integers(0, total + 1)
        row[rng.permutation(1024)[:found]] = rng.permutation(2048)[:found]
    with jax.enable_x64(True):
        got = np.asarray(kitti.choose_thresholds(scores, totals))
    for row, total, chosen in zip(scores, totals, got, strict=True):
        wanted = choose(row[row > -np.inf], total)
        assert len(wanted) <= 41
        assert chosen[: len(wanted)].tolist() == wanted
        assert np.isinf(chosen[len(wanted) :]).all()
    # Of a multiple of 8 truths, no two scores are as far from what is due: total * k is never
    # 20 * (2 * i + 3). Then float32 chooses alike.
    single = np.asarray(kitti.choose_thresholds(scores.astype(np.float32), totals))
    np.testing.assert_array_equal(single[totals % 8 == 0], got[totals % 8 == 0])


# Rules, by hand: one image of up to four detections and four truths -------------------------


def truth(label=CAR, height=100.0, occluded=0, truncated=0.0, alpha=0.0, box=None):
    return {
        "box": box or [0.0, 0.0, 100.0, height],
        "label": label,
        "occluded": occluded,
        "truncated": truncated,
        "alpha": alpha,
    }


def found(score=0.9, label=CAR, height=100.0, alpha=0.0, box=None):
    return {"box": box or [0.0, 0.0, 100.0, height], "label": label, "score": score, "alpha": alpha}


def both_passes(truths, detections, table=None, label=CAR, threshold=0.0, measure="image"):
    """By difficulty: scores of right detections; `(tp, fp, fn)` and similarity at a threshold."""
    rows = as_table([(truths, detections)])
    sides = [
        jax.tree.map(lambda x: np.pad(x, [(0, 4 - len(x))] + [(0, 0)] * (x.ndim - 1)), side)
        for side in (rows.detections, rows.truths)
    ]
    full = np.zeros((4, 4))
    full[: len(detections), : len(truths)] = 0.9 if table is None else table
    options = {"label": label, "measure": measure, "overlaps": full}
    first = kitti.evaluate(*sides, **options)
    counts = kitti.accumulate(*sides, thresholds=np.full((3, 41), threshold), **options)
    scores = [sorted(x[x > -np.inf].tolist()) for x in np.asarray(first.scores).round(4)]
    triples = [tuple(int(x[k, 0]) for x in counts[:3]) for k in range(3)]
    return [[round(x, 4) for x in one] for one in scores], triples, counts.similarity[:, 0].tolist()


HIT, MISS, WRONG, NOTHING = (1, 0, 0), (0, 0, 1), (0, 1, 0), (0, 0, 0)


def test_truth_as_high_as_the_minimum_need_not_be_found_but_takes_a_detection():
    _, counts, _ = both_passes([truth(height=40.0)], [found()])
    assert counts == [NOTHING, HIT, HIT]
    _, counts, _ = both_passes([truth(height=25.0)], [found()])
    assert counts == [NOTHING] * 3


def test_detection_as_high_as_the_minimum_counts():
    _, counts, _ = both_passes([truth()], [found(height=25.0)])
    assert counts == [NOTHING, HIT, HIT]
    _, counts, _ = both_passes([truth()], [found(height=40.0)])
    assert counts == [HIT] * 3


@pytest.mark.parametrize(("label", "limit"), [(CAR, 0.7), (PEDESTRIAN, 0.5), (CYCLIST, 0.5)])
def test_overlap_that_equals_the_minimum_is_no_match(label, limit):
    pair = [truth(label)], [found(label=label)]
    with jax.enable_x64(True):
        assert both_passes(*pair, limit, label)[1] == [(0, 1, 1)] * 3
        assert both_passes(*pair, np.nextafter(limit, 1), label)[1] == [HIT] * 3


def test_occlusion_and_truncation_at_their_limits_count():
    _, counts, _ = both_passes([truth(occluded=1)], [found()])
    assert counts == [NOTHING, HIT, HIT]
    _, counts, _ = both_passes([truth(truncated=0.3)], [])
    assert counts == [NOTHING, MISS, MISS]
    _, counts, _ = both_passes([truth(truncated=0.51)], [found()])
    assert counts == [NOTHING] * 3


@pytest.mark.parametrize(
    ("label", "other", "counts"),
    [
        (CAR, VAN, NOTHING),
        (PEDESTRIAN, SITTING, NOTHING),
        (PEDESTRIAN, VAN, WRONG),
        (CYCLIST, SITTING, WRONG),
        (CAR, -1, WRONG),
        (CAR, PEDESTRIAN, WRONG),
    ],
)
def test_van_excuses_a_car_and_a_sitting_person_a_pedestrian(label, other, counts):
    scores, got, _ = both_passes([truth(other)], [found(label=label)], label=label)
    assert got == [counts] * 3
    assert scores == [[]] * 3


def test_low_detection_of_another_class_takes_a_truth_before_its_class_is_asked():
    """It makes no true positive, but nothing is missed either."""
    low = found(label=CYCLIST, height=30.0)
    _, counts, _ = both_passes([truth()], [low])
    assert counts == [NOTHING, MISS, MISS]
    # By score in the first pass it comes before the right one, and by state not in the second.
    scores, counts, _ = both_passes([truth()], [low, found(0.5)])
    assert scores == [[], [0.5], [0.5]]
    assert counts == [HIT] * 3


def test_first_pass_goes_by_score_and_second_by_overlap():
    truths, detections = [truth(), truth()], [found(0.9), found(0.8)]
    table = [[0.75, 0.95], [0.85, 0.6]]
    scores, counts, _ = both_passes(truths, detections, table)
    # By score: the first truth takes 0.9, and 0.8 is not near the second one.
    assert scores == [[0.9]] * 3
    # By overlap: the first takes 0.8, the second 0.9.
    assert counts == [(2, 0, 0)] * 3
    _, counts, _ = both_passes(truths, detections, table, threshold=0.85)
    assert counts == [(1, 0, 1)] * 3


def test_truths_choose_in_their_order():
    detections, table = [found(0.9), found(0.8)], np.array([[0.95, 0.9], [0.8, 0.6]])
    assert both_passes([truth(), truth()], detections, table)[1] == [(1, 1, 1)] * 3
    assert both_passes([truth(), truth()], detections, table[:, ::-1])[1] == [(2, 0, 0)] * 3


def test_equal_scores_and_equal_overlaps_keep_the_first_detection():
    truths, table = [truth(), truth()], [[0.9, 0.6], [0.9, 0.8]]
    scores, counts, _ = both_passes(truths, [found(0.9), found(0.9)], table)
    assert (scores, counts) == ([[0.9, 0.9]] * 3, [(2, 0, 0)] * 3)
    scores, counts, _ = both_passes(truths, [found(0.9), found(0.9)], table[::-1])
    assert (scores, counts) == ([[0.9]] * 3, [(1, 1, 1)] * 3)


def test_of_detections_that_are_too_low_the_first_is_taken_whatever_its_overlap():
    low = [found(0.9, height=30.0), found(0.8, height=30.0)]
    truths = [truth(VAN), truth()]
    # The first low one goes to the Van; the second is left for the car.
    _, counts, _ = both_passes(truths, low, [[0.75, 0.6], [0.95, 0.8]])
    assert counts[EASY] == NOTHING
    # Were it by overlap, the Van would take the second, and the car would have the first.
    _, counts, _ = both_passes(truths, low, [[0.75, 0.8], [0.95, 0.6]])
    assert counts[EASY] == MISS


def test_only_in_the_image_a_dont_care_region_excuses():
    region = truth(DONT_CARE, box=[0.0, 0.0, 200.0, 200.0])
    assert both_passes([region], [found()], 0)[1] == [NOTHING] * 3
    assert both_passes([region], [found()], 0, measure="bev")[1] == [WRONG] * 3
    # The share must exceed the least overlap of the class: 0.7 of this box is within.
    for label, height, counts in [(CAR, 70, WRONG), (CAR, 71, NOTHING), (CYCLIST, 51, NOTHING)]:
        region = truth(DONT_CARE, box=[0.0, 0.0, 100.0, float(height)])
        with jax.enable_x64(True):
            assert both_passes([region], [found(label=label)], 0, label)[1] == [counts] * 3
    # What a truth took is a hit, wherever it is.
    region = truth(DONT_CARE, box=[0.0, 0.0, 200.0, 200.0])
    assert both_passes([region, truth()], [found()], [[0, 0.9]])[1] == [HIT] * 3


def test_similarity_falls_with_the_angle():
    for angle, wanted in [(0, 1), (np.pi / 2, 0.5), (np.pi, 0), (2 * np.pi, 1)]:
        *_, got = both_passes([truth(alpha=0.3)], [found(alpha=0.3 + angle)])
        np.testing.assert_allclose(got, [wanted] * 3, atol=1e-6)
    *_, got = both_passes([truth()], [found()], measure="3d")
    assert got == [0, 0, 0]


@pytest.mark.parametrize(
    ("count", "r11", "r40"),
    # Of n truths that are found, n entries are 1, up to 41.
    [(1, 1 / 11, 0), (2, 1 / 11, 1 / 40), (10, 3 / 11, 9 / 40), (40, 10 / 11, 39 / 40), (41, 1, 1)],
)
def test_perfect_detections_of_a_few_truths_are_no_perfect_score(count, r11, r40):
    boxes = [[0.0, 120.0 * i, 100.0, 120.0 * i + 100] for i in range(count)]
    images = [([truth(box=x)], [found(0.1 + i / 64, box=x)]) for i, x in enumerate(boxes)]
    result = kitti.average_precision(as_table(images), measures=("image",))
    np.testing.assert_allclose(result.r11[0, CAR], [r11] * 3, rtol=1e-15)
    np.testing.assert_allclose(result.r40[0, CAR], [r40] * 3, rtol=1e-15)
    np.testing.assert_allclose(result.r40[3, CAR], [r40] * 3, rtol=1e-15)
    assert np.isfinite(result.thresholds[0, CAR]).sum(axis=-1).tolist() == [count] * 3


def test_a_threshold_at_which_nothing_counts_has_precision_0():
    """The benchmark has 0 / 0: the Van takes the better box, and a DontCare region the rest."""
    truths = [truth(VAN), truth(), truth(DONT_CARE, box=[200.0, 0.0, 300.0, 100.0])]
    detections = [found(0.8), found(0.9, box=[200.0, 0.0, 300.0, 100.0])]
    frames = as_table([(truths, detections)])
    table = np.array([[0.9, 0.8, 0.0], [0.75, 0.0, 0.0]])
    result = kitti.average_precision(frames, measures=("image",), overlaps={"image": [table]})
    assert result.thresholds[0, CAR, EASY, 0] == 0.8
    assert (result.tp[0, CAR, EASY, 0], result.fp[0, CAR, EASY, 0]) == (0, 0)
    assert (result.curves[0, CAR] == 0).all()


def test_nothing_at_all_is_0():
    for images in ([], [([], [])], [([truth()], [])], [([], [found()])]):
        result = kitti.average_precision(as_table(images), measures=("image",))
        assert (result.r11[0] == 0).all()
        assert (result.curves[3] == 0).all()
        assert np.isinf(result.thresholds).all()
    for d, g in [(0, 0), (0, 2), (2, 0)]:
        one = as_table([([truth()] * g, [found()] * d)])
        scores = kitti.evaluate(one.detections, one.truths, label=0).scores
        assert scores.shape == (3, g)
        counts = kitti.accumulate(one.detections, one.truths, thresholds=np.zeros((3, 41)), label=0)
        assert (counts.tp[0, 0], counts.fp[0, 0], counts.fn[0, 0]) == (0, d, g)


# Inside a user's program ---------------------------------------------------------------------


@needs_data
def test_passes_in_float32_inside_jit_count_the_same(synthetic):
    """All images at once, padded with NaN, by the library's cuboids."""

    def padded(rows, images, size):
        slot = np.arange(len(images)) - np.searchsorted(images, images)

        def field(x):
            fill = np.nan if x.dtype.kind == "f" else 0
            full = np.full((synthetic.num_images, size, *x.shape[1:]), fill, x.dtype)
            full[images, slot] = x
            return full.astype(np.float32) if x.dtype.kind == "f" else full

        return jax.tree.map(field, rows)

    sides = (
        padded(synthetic.detections, synthetic.detection_images, 24),
        padded(synthetic.truths, synthetic.truth_images, 24),
    )

    exact = kitti.average_precision(synthetic, measures=("3d",))
    place = MEASURES.index("3d")

    @jax.jit
    def run(detections, truths, thresholds, label):
        found = kitti.evaluate(detections, truths, label=label, measure="3d")
        counts = kitti.accumulate(
            detections, truths, thresholds=thresholds, label=label, measure="3d"
        )
        counts = jax.tree.map(lambda x: x.sum(axis=0), counts)
        return found, counts, kitti.summarize(counts)

    for label in range(3):
        thresholds = exact.thresholds[place, label]
        found, counts, scores = run(
            *sides, thresholds.astype(np.float32), jnp.array(label, jnp.int32)
        )
        np.testing.assert_array_equal(found.counts.sum(axis=(0, 2)), exact.num_truths[label])
        for k in range(3):
            kept = thresholds[k][np.isfinite(thresholds[k])].astype(np.float32)
            assert np.isin(kept, found.scores[:, k]).all()
        for name in ("tp", "fp", "fn"):
            np.testing.assert_array_equal(getattr(counts, name), getattr(exact, name)[place, label])
        assert scores.r40.dtype == np.float32
        np.testing.assert_allclose(scores.r40, exact.r40[place, label], rtol=1e-6)
        np.testing.assert_allclose(scores.precision, exact.curves[place, label], rtol=1e-6)


def test_inside_jit_average_precision_says_what_to_call():
    _, frames = random_images(0)

    def inside(scores):
        found = frames.detections._replace(scores=scores)
        return kitti.average_precision(frames._replace(detections=found)).r11

    with pytest.raises(TypeError, match="table is traced"):
        jax.jit(inside)(frames.detections.scores.astype(np.float32))


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_arguments_are_named():
    _, frames = random_images(0)
    average = kitti.average_precision
    with pytest.raises(ValueError, match=r"overlaps\['bev'\] must be 12 tables, got 1"):
        average(frames, overlaps={"bev": [np.zeros((7, 5))]}, measures=("bev",))
    tables = [np.zeros((7, 5))] * 11 + [np.zeros((5, 7))]
    with pytest.raises(ValueError, match=r"overlaps\['3d'\]\[11\] must have shape \[7, 5\]"):
        average(frames, overlaps={"3d": tables}, measures=("3d",))
    with pytest.raises(ValueError, match=r"measures must be one of .* got 'aos'"):
        average(frames, measures=("aos",))
    with pytest.raises(ValueError, match=r"minimum must be one of .* got 'lax'"):
        average(frames, minimum="lax")
    with pytest.raises(ValueError, match="detection_images must lie in 0 to 5, got 6 in row 42"):
        average(frames._replace(num_images=6))
    with pytest.raises(ValueError, match=r"scores of the detections must have 84 rows, .* got 3"):
        average(frames._replace(detections=frames.detections._replace(scores=np.zeros(3))))
    with pytest.raises(ValueError, match="scores must be finite, got inf in image 1"):
        average(as_table([([], []), ([], [found(np.inf)])]))
    one = as_table([([truth()], [found()])])
    with pytest.raises(ValueError, match=r"detections.cuboids must be given for '3d', got None"):
        kitti.evaluate(one.detections, one.truths, label=0, measure="3d")
    with pytest.raises(ValueError, match=r"overlaps must have shape \[1, 1\]"):
        kitti.evaluate(one.detections, one.truths, label=0, overlaps=np.zeros((2, 1)))
    bad = one.truths._replace(occlusions=np.zeros(2))
    with pytest.raises(ValueError, match=r"truths.occlusions must have shape \[1\]"):
        kitti.evaluate(one.detections, bad, label=0)
    with pytest.raises(ValueError, match=r"thresholds must have shape \[3, 41\]"):
        kitti.accumulate(one.detections, one.truths, label=0, thresholds=np.zeros((3, 40)))
    with pytest.raises(ValueError, match=r"tp must have shape \[..., 41\]"):
        kitti.summarize(Counts(*[np.zeros(40, np.int32)] * 3, np.zeros(40)))


def test_slope_of_the_orientation_is_that_of_the_similarities():
    counts = Counts(*[jnp.ones(41, jnp.int32)] * 3, jnp.linspace(1, 0, 41))

    def aos(similarity):
        return kitti.summarize(counts._replace(similarity=similarity)).aos_r40

    slope = jax.grad(aos)(counts.similarity)
    np.testing.assert_allclose(slope, [0, *[1 / 80] * 40], rtol=1e-6)


# Files ---------------------------------------------------------------------------------------

LINE = "Car 0.00 0 -1.58 10 20 110 120 1.5 1.6 4.0 1 1.65 20 -1.6"


@pytest.fixture
def folders(tmp_path):
    """Two images: one car that is found, and nothing."""
    for name, text in [("gt", LINE), ("det", f"{LINE} 0.9")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "000000.txt").write_text(text + "\n")
        (tmp_path / name / "000001.txt").write_text("")
    return tmp_path


def load(folder, **options):
    return reader.load(folder / "gt", folder / "det", **options)


def test_types_have_no_case_and_unknown_ones_no_label(folders):
    names = ["car", "PEDESTRIAN", "cyclist", "VAN", "person_Sitting", "dontcare", "Tram"]
    lines = [LINE.replace("Car", name) for name in names]
    (folder := folders / "gt" / "000000.txt").write_text("\n".join(lines))
    assert reader.read(folder).labels.tolist() == [0, 1, 2, 3, 4, 5, -1]


def test_columns_are_where_the_benchmark_has_them(folders):
    frames = load(folders)
    found = frames.detections
    assert (frames.num_images, frames.detection_images.tolist()) == (2, [0])
    assert found.regions.tolist() == [[10, 20, 110, 120]]
    assert (found.scores.tolist(), found.alphas.tolist()) == ([0.9], [-1.58])
    np.testing.assert_allclose(found.cuboids, [[1, 20, 0.75 - 1.65, 4, 1.6, 1.5, 1.6]], rtol=1e-15)
    assert (frames.truths.truncations.tolist(), frames.truths.occlusions.tolist()) == ([0], [0])


def test_without_an_angle_orientations_are_not_scored(folders):
    """One detection without is enough, whatever its class; a DontCare region has none anyway."""
    (folders / "gt" / "000001.txt").write_text(
        "DontCare -1 -1 -10 0 0 9 9 -1 -1 -1 -1000 -1000 -1000 -10"
    )
    assert load(folders).detections.alphas is not None
    (folders / "det" / "000001.txt").write_text(f"{LINE.replace('-1.58', '-10')} 0.5")
    frames = load(folders)
    assert frames.detections.alphas is None
    result = kitti.average_precision(frames, measures=("image",))
    assert np.isnan(result.r40[MEASURES.index("aos")]).all()
    assert not np.isnan(result.r40[0]).any()


def test_without_places_only_the_image_is_measured(folders):
    flat = LINE.replace("1.5 1.6 4.0 1 1.65 20 -1.6", "-1 -1 -1 -1000 -1000 -1000 -10")
    (folders / "det" / "000000.txt").write_text(f"{flat} 0.5")
    result = kitti.average_precision(load(folders))
    assert np.isnan(result.r11[[1, 2]]).all()
    assert (result.r11[0, 0] > 0).all()


def test_a_list_of_images_chooses_among_them(folders):
    (folders / "val.txt").write_text("000000\n")
    (folders / "det" / "000001.txt").unlink()
    assert load(folders, images=folders / "val.txt").num_images == 1
    (folders / "det" / "data").mkdir()
    (folders / "det" / "000000.txt").rename(folders / "det" / "data" / "000000.txt")
    assert len(load(folders, images=folders / "val.txt").detections.scores) == 1


FAULTS = {
    "few": (f"{LINE}", "line 1: has 15 fields, not 16"),
    "many": (f"{LINE} 0.5 0.5", "line 1: has 17 fields, not 16"),
    "word": (f"{LINE} 0.5\n\n{LINE} high", "line 3: could not convert string to float: 'high'"),
    "nan": (f"{LINE} nan", "line 1: has a number that is not finite"),
    "infinite": (f"{LINE.replace(' 110 ', ' inf ')} 1", "line 1: has a number that is not finite"),
    "inverted": (f"{LINE.replace(' 110 ', ' 9 ')} 1", r"line 1: the box \[.*\] is inverted"),
}


@pytest.mark.parametrize(("text", "reason"), FAULTS.values(), ids=FAULTS)
def test_a_bad_line_is_named_with_its_reason(folders, text, reason):
    (folders / "det" / "000000.txt").write_text(text)
    with pytest.raises(FileError, match=rf"det.000000\.txt: {reason}"):
        load(folders)


def test_a_bad_label_file_is_named(folders):
    (folders / "gt" / "000001.txt").write_text(LINE + " 1 2")
    with pytest.raises(FileError, match=r"gt.000001.txt: line 1: has 17 fields, not 15, or 16"):
        load(folders)
    (folders / "gt" / "000001.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match=r"gt.000001.txt: is not a text file"):
        load(folders)


def test_files_that_do_not_belong_together_are_named(folders):
    with pytest.raises(FileError, match="nowhere: does not exist"):
        reader.find(folders / "gt", folders / "nowhere")
    with pytest.raises(FileError, match=r"000000\.txt: is no folder"):
        reader.find(folders / "gt" / "000000.txt", folders / "det")
    (folders / "empty").mkdir()
    with pytest.raises(FileError, match=r"empty: has no <image>\.txt"):
        reader.find(folders / "empty", folders / "det")
    (folders / "val.txt").write_text("000000\n000005\n")
    with pytest.raises(FileError, match=r"gt.000005\.txt: does not exist, but .*val\.txt names it"):
        load(folders, images=folders / "val.txt")
    (folders / "det" / "000007.txt").write_text("")
    with pytest.raises(FileError, match=r"det.000007\.txt: has no truths"):
        load(folders)
    (folders / "det" / "000007.txt").unlink()
    (folders / "det" / "000001.txt").unlink()
    with pytest.raises(FileError, match=r"det.000001\.txt: does not exist, but .* has truths"):
        load(folders)


def test_pack_asks_for_scores_and_pairs(folders):
    one = reader.read(folders / "gt" / "000000.txt")
    with pytest.raises(FileError, match=r"000000\.txt: line 1: has no score"):
        reader.pack([one], [one])
    with pytest.raises(ValueError, match="predictions must be 1 files, as targets, got 0"):
        reader.pack([one], [])


# The command ---------------------------------------------------------------------------------


def run(*arguments):
    assert cli.main(["kitti", *map(str, arguments)]) == 0


@needs_data
def test_command_shows_the_official_table_and_writes_it(tmp_path, capsys):
    file, picture = tmp_path / "scores.json", tmp_path / "curves.png"
    run(DATA / "gt", DATA / "det", "--json", file, "--plot", picture)
    report, wanted = json.loads(file.read_text()), json.loads((DATA / "expected.json").read_text())
    shown = capsys.readouterr().out
    for kind in CLASSES:
        for name, measure in [("bbox", "image"), ("bev", "bev"), ("3d", "3d"), ("aos", "aos")]:
            e, got = wanted[f"{kind}|{name}"], report["classes"][kind][measure]
            for rule in ("R11", "R40"):
                scores = [100 * got[difficulty][rule] for difficulty in DIFFICULTIES]
                np.testing.assert_allclose(scores, e[rule], rtol=1e-15)
                assert "  ".join(f"{x:.2f}" for x in e[rule][:1]) in shown
        assert list(report["classes"][kind]["truths"].values()) == wanted["n_gt"][kind]
    assert report["images"] == 150
    assert picture.stat().st_size > 10_000


def test_command_says_what_it_did_not_measure(folders, capsys):
    flat = LINE.replace("1.5 1.6 4.0 1 1.65 20 -1.6", "-1 -1 -1 -1000 -1000 -1000 -10")
    flat = flat.replace("-1.58", "-10")
    (folders / "det" / "000000.txt").write_text(f"{flat} 0.5")
    file = folders / "scores.json"
    run(folders / "gt", folders / "det", "--loose", "--json", file)
    out = capsys.readouterr().out
    assert "orientation similarity: not measured, as an alpha is -10" in out
    assert "3D boxes: not measured, as no detection has a place" in out
    report = json.loads(file.read_text())
    assert report["overlaps"] == "loose"
    assert report["classes"]["Car"]["3d"]["easy"]["R40"] is None
    assert report["classes"]["Car"]["3d"]["easy"]["minimum"] == 0.5
    assert report["classes"]["Car"]["image"]["easy"]["minimum"] == 0.7


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere", "det"], r"nowhere: does not exist"),
        (["gt", "gt"], r"gt.000000\.txt: line 1: has 15 fields, not 16"),
        (["gt", "det", "--images", "val.txt"], r"val\.txt: does not exist"),
        (["gt", "det", "--json", "nowhere/a.json"], r"a\.json: cannot be written"),
        (["gt", "det", "--plot", "a.foo"], r"a\.foo: must end in one of"),
    ],
)
def test_command_ends_with_code_2_and_the_reason(folders, monkeypatch, capsys, arguments, reason):
    monkeypatch.chdir(folders)
    assert cli.main(["kitti", *arguments]) == 2
    streams = capsys.readouterr()
    assert re.search(rf"^jaxiou: .*{reason}", streams.err, re.MULTILINE)
    assert not streams.out
