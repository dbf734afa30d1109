"""Assigners against loops over anchors and truths in float64, as their papers have them."""

import functools
import inspect
import re
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from compiling import AS_USERS
from scipy.optimize import linear_sum_assignment

from jaxiou import boxes
from jaxiou.assigners import Assignment, atss, max_iou, set_matching, simota, task_aligned

NAN, INF = float("nan"), float("inf")
LEVELS = {8: 64, 16: 16, 32: 4}
"""Strides and cells of the three levels of a picture of 64 by 64."""
A, M, K = 84, 8, 5
"""Anchors, truths with their padding, and classes: one compilation serves all scenes."""

OVERLAPS = {"iou": reference.iou, "giou": reference.giou, "diou": reference.diou}
OVERLAPS["ciou"] = reference.ciou
CROWDS = range(40)


# Scenes ------------------------------------------------------------------------------------


def grid():
    """Centres and strides of all cells, level after level."""
    centres, strides = [], []
    for stride in LEVELS:
        at = np.arange(0, 64, stride) + stride / 2
        centres += [(x, y) for y in at for x in at]
        strides += [stride] * len(at) ** 2
    return np.float32(centres), np.float32(strides)


CENTRES, STRIDES = grid()
ANCHORS = np.concatenate([CENTRES - 2 * STRIDES[:, None], CENTRES + 2 * STRIDES[:, None]], 1)


def crowd(rng, whole=True):
    """A picture of up to eight truths that crowd together, with twins among all.

    Boxes of whole numbers, so that equal overlaps are equal in every type; or of others, so
    that none are. What `where` and `anchor_where` leave out is NaN, and its label no class.
    """
    corner = rng.integers(8, 40, (M, 2))
    truths = np.concatenate([corner, corner + rng.integers(4, 40, (M, 2))], 1)
    predictions = ANCHORS + rng.integers(-9, 10, (A, 4))
    near = rng.integers(0, M, A // 2)
    predictions[::2] = truths[near] + rng.integers(-3, 4, (A // 2, 4))
    scores, labels = rng.random((A, K)), rng.integers(0, K, M)
    if not whole:
        truths = truths + rng.normal(0, 0.3, truths.shape)
        predictions = predictions + rng.normal(0, 0.3, predictions.shape)
    else:
        for some in (predictions, scores):
            some[1:20] = some[21:40]
        truths[M // 2], labels[M // 2] = truths[0], labels[0]
    where, anchor_where = rng.random(M) < rng.choice([0, 0.2, 0.6, 1]), rng.random(A) < 0.9
    truths = np.where(where[:, None], truths, NAN)
    labels = np.where(where, labels, rng.choice([-7, 99], M))
    floats = [np.where(anchor_where[:, None], x, NAN) for x in (ANCHORS, predictions, scores)]
    scene = {"truths": truths, "labels": labels, "where": where, "anchor_where": anchor_where}
    scene |= dict(zip(("anchors", "predictions", "scores"), floats, strict=True))
    return {
        name: x.astype({"f": np.float32, "i": np.int32, "b": bool}[x.dtype.kind])
        for name, x in scene.items()
    }


def table_of(overlap, a, b, anchor_where, where):
    """Overlaps of all pairs that count, NaN for others; as float32 has them."""
    table = reference.table(OVERLAPS[overlap], a, b).astype(np.float32).astype(float)
    return np.where(anchor_where[:, None] & where, table, NAN)


def within(point, box):
    (x, y), (x1, y1, x2, y2) = point, box
    return x1 < x < x2 and y1 < y < y2


def middle(box):
    return (box[:2] + box[2:]) / 2


# The assigners as loops --------------------------------------------------------------------


def max_iou_loop(scene, positive, negative, low_quality, overlap):
    live, where = scene["anchor_where"], scene["where"]
    table = table_of(overlap, scene["anchors"], scene["truths"], live, where)
    indices, ignored = np.full(A, -1), ~live
    for i in np.flatnonzero(live):
        truths = [j for j in range(M) if np.isfinite(table[i, j])]
        if not truths:
            continue
        own = max(truths, key=lambda j: (table[i, j], -j))
        best = any(table[i, j] == np.nanmax(table[:, j]) and table[i, j] > 0 for j in truths)
        if table[i, own] >= np.float32(positive) or (low_quality and best):
            indices[i] = own
        elif table[i, own] >= np.float32(negative):
            ignored[i] = True
    return indices, ignored, table


def atss_loop(scene, candidates, overlap):
    live, where = scene["anchor_where"], scene["where"]
    table = table_of(overlap, scene["anchors"], scene["truths"], live, where)
    claims = [[] for _ in range(A)]
    for j in np.flatnonzero(where):
        chosen, start = [], 0
        for size in LEVELS.values():
            level = [i for i in range(start, start + size) if live[i]]
            away = {
                i: ((CENTRES[i] - middle(scene["truths"][j])).astype(float) ** 2).sum()
                for i in level
            }
            chosen += sorted(level, key=lambda i: (away[i], i))[:candidates]
            start += size
        overlaps = [table[i, j] for i in chosen]
        least = statistics.mean(overlaps)
        if len(overlaps) > 1:
            least += statistics.stdev(overlaps)
        for i in chosen:
            if table[i, j] >= least and within(CENTRES[i], scene["truths"][j]):
                claims[i].append(j)
    indices = [max(c, key=lambda j: (table[i, j], -j), default=-1) for i, c in enumerate(claims)]
    return np.array(indices), ~live, table


def simota_loop(scene, candidates=10, radius=2.5, weight=3.0, overlap="iou"):
    """With YOLOX's large number for cells outside of a box or far from its centre."""
    live, where = scene["anchor_where"], scene["where"]
    table = table_of(overlap, scene["predictions"], scene["truths"], live, where)
    scores = scene["scores"].astype(float)
    costs = np.full((A, M), INF)
    part = np.zeros(A, bool)
    for i in np.flatnonzero(live):
        outside = {}
        for j in np.flatnonzero(where):
            inside = within(CENTRES[i], scene["truths"][j])
            away = np.abs(CENTRES[i] - middle(scene["truths"][j])).max()
            near = away < radius * STRIDES[i]
            part[i] |= inside or near
            outside[j] = not (inside and near)
        for j in outside if part[i] else ():
            target = np.arange(K) == scene["labels"][j]
            chances = np.where(target, scores[i], 1 - scores[i])
            entropy = -np.log(np.maximum(chances, 1e-8)).sum()
            cost = entropy - weight * np.log(max(table[i, j], 1e-8)) + 1e5 * outside[j]
            if np.isfinite(cost):
                costs[i, j] = cost
    claims = [[] for _ in range(A)]
    for j in np.flatnonzero(where):
        pairs = [i for i in range(A) if costs[i, j] < INF]
        most = sorted((table[i, j] for i in pairs), reverse=True)[:candidates]
        number = min(max(int(sum(most)), 1), candidates)
        for i in sorted(pairs, key=lambda i: (costs[i, j], i))[:number]:
            claims[i].append(j)
    indices = [
        costs[i].argmin() if len(claim) > 1 else claim[0] if claim else -1
        for i, claim in enumerate(claims)
    ]
    return np.array(indices), ~live, table


def task_aligned_loop(scene, alpha, beta, candidates, overlap):
    """Also gives the quality that each prediction is to have."""
    live, where = scene["anchor_where"], scene["where"]
    table = table_of(overlap, scene["predictions"], scene["truths"], live, where)
    metric = np.zeros((A, M))
    for i in np.flatnonzero(live):
        for j in np.flatnonzero(where):
            if within(CENTRES[i], scene["truths"][j]):
                score = float(scene["scores"][i, scene["labels"][j]])
                metric[i, j] = np.nan_to_num(score**alpha * max(table[i, j], 0) ** beta)
    claims = [[] for _ in range(A)]
    for j in range(M):
        for i in sorted(range(A), key=lambda i: (-metric[i, j], i))[:candidates]:
            if metric[i, j] > 0:
                claims[i].append(j)
    rivals = np.where(metric > 0, table, -INF)
    indices = np.array(
        [
            rivals[i].argmax() if len(claim) > 1 else claim[0] if claim else -1
            for i, claim in enumerate(claims)
        ]
    )
    quality = np.zeros(A)
    for j in range(M):
        own = np.flatnonzero(indices == j)
        if len(own):
            scale = table[own, j].max() / metric[own, j].max()
            quality[own] = metric[own, j] * scale
    return indices, ~live, quality


def assert_assigns(assigned, indices, ignored, quality):
    """`quality` of each anchor, or the table of all pairs."""
    np.testing.assert_array_equal(assigned.indices, indices)
    np.testing.assert_array_equal(assigned.valid, indices >= 0)
    np.testing.assert_array_equal(assigned.ignored, ignored)
    assert assigned.indices.dtype == np.int32
    if quality.ndim == 2:
        quality = quality[np.arange(len(indices)), indices]
    wanted = np.where(indices >= 0, quality, 0)
    np.testing.assert_allclose(assigned.quality, wanted, rtol=2e-5, atol=2e-6)


# The functions, compiled once for each overlap


@functools.cache
def compiled(assign, **options):
    if "overlap" in options:
        options["overlap"] = getattr(boxes, options["overlap"])
    return jax.jit(functools.partial(assign, **options))


def masks(scene):
    return {name: scene[name] for name in ("where", "anchor_where")}


def run_max_iou(scene, positive, negative, **options):
    assign = compiled(max_iou, **options)
    numbers = {"positive": np.float32(positive), "negative": np.float32(negative)}
    return assign(scene["anchors"], scene["truths"], **numbers, **masks(scene))


def run_atss(scene, **options):
    assign = compiled(atss, level_sizes=tuple(LEVELS.values()), **options)
    return assign(scene["anchors"], scene["truths"], **masks(scene))


def predicted(scene):
    return [scene[name] for name in ("predictions", "truths", "scores", "labels")]


def run_simota(scene, **options):
    assign = compiled(simota, **options)
    return assign(*predicted(scene), centres=CENTRES, strides=STRIDES, **masks(scene))


def run_task_aligned(scene, **options):
    return compiled(task_aligned, **options)(*predicted(scene), centres=CENTRES, **masks(scene))


def run_set_matching(scene, **options):
    return compiled(set_matching, **options)(*predicted(scene), **masks(scene))


# Against the loops


@pytest.mark.parametrize(
    ("overlap", "low_quality"), [*((name, True) for name in OVERLAPS), ("iou", False)]
)
def test_max_iou_is_its_loop(overlap, low_quality):
    positives = ignored = 0
    for seed in CROWDS:
        rng = np.random.default_rng(seed)
        scene = crowd(rng, whole=overlap == "iou")
        positive, negative = sorted(rng.choice([0.2, 0.25, 0.3, 0.5, 0.7], 2))[::-1]
        options = {"low_quality": low_quality, "overlap": overlap}
        assigned = run_max_iou(scene, positive, negative, **options)
        wanted = max_iou_loop(scene, positive, negative, low_quality, overlap)
        assert_assigns(assigned, *wanted)
        positives += (wanted[0] >= 0).sum()
        ignored += (wanted[1] & scene["anchor_where"]).sum()
    assert positives > 100
    assert ignored > 100


@pytest.mark.parametrize(
    ("overlap", "candidates"), [*((name, 9) for name in OVERLAPS), ("iou", 1), ("ciou", 3)]
)
def test_atss_is_its_loop(overlap, candidates):
    positives = 0
    for seed in CROWDS:
        scene = crowd(np.random.default_rng(seed), whole=overlap == "iou")
        wanted = atss_loop(scene, candidates, overlap)
        assert_assigns(run_atss(scene, candidates=candidates, overlap=overlap), *wanted)
        positives += (wanted[0] >= 0).sum()
    assert positives > (100 if candidates > 1 else 60)


@pytest.mark.parametrize("overlap", ["iou", "giou"])
@pytest.mark.parametrize("candidates", [1, 10])
def test_simota_is_its_loop(overlap, candidates):
    several = 0
    for seed in CROWDS:
        scene = crowd(np.random.default_rng(seed), whole=overlap == "iou")
        wanted = simota_loop(scene, candidates, overlap=overlap)
        assert_assigns(run_simota(scene, candidates=candidates, overlap=overlap), *wanted)
        several += (np.bincount(wanted[0] + 1, minlength=M + 1)[1:] > 1).sum()
    assert several > 10 or candidates == 1


@pytest.mark.parametrize(
    ("overlap", "powers"), [*((name, (1.0, 6.0)) for name in OVERLAPS), ("ciou", (0.5, 1.5))]
)
def test_task_aligned_is_its_loop(overlap, powers):
    positives = 0
    for seed in CROWDS:
        scene = crowd(np.random.default_rng(seed), whole=overlap == "iou")
        options = dict(zip(("alpha", "beta"), powers, strict=True))
        options |= {"candidates": 5, "overlap": overlap}
        wanted = task_aligned_loop(scene, **options)
        assert_assigns(run_task_aligned(scene, **options), *wanted)
        positives += (wanted[0] >= 0).sum()
    assert positives > 100


def set_worth(scene, class_weight=1, l1_weight=5, overlap_weight=2, overlap="giou"):
    """DETR's costs with a minus, and -infinity where there is no pair."""
    a, b = scene["predictions"].astype(float), scene["truths"].astype(float)

    def centred(x):
        return np.concatenate([(x[:, :2] + x[:, 2:]) / 2, x[:, 2:] - x[:, :2]], axis=1)

    distance = np.abs(centred(a)[:, None] - centred(b)[None]).sum(-1)
    labels = np.where(scene["where"], scene["labels"], 0)
    chance = scene["scores"].astype(float)[:, labels]
    table = reference.table(OVERLAPS[overlap], a, b)
    worth = class_weight * chance - l1_weight * distance + overlap_weight * table
    counts = scene["anchor_where"][:, None] & scene["where"]
    return np.where(counts & np.isfinite(worth), worth, -INF)


@pytest.mark.parametrize("solver", ["optax", "scipy"])
@pytest.mark.parametrize("overlap", ["giou", "ciou"])
def test_set_matching_reaches_the_least_cost(solver, overlap):
    for seed in CROWDS:
        scene = crowd(np.random.default_rng(seed), whole=False)
        scene["predictions"], scene["truths"] = scene["predictions"] / 64, scene["truths"] / 64
        matching = run_set_matching(scene, solver=solver, overlap=overlap)
        worth = set_worth(scene, overlap=overlap)
        live = np.flatnonzero(scene["anchor_where"])
        there = np.flatnonzero(scene["where"])
        rows, columns = linear_sum_assignment(worth[np.ix_(live, there)], maximize=True)
        wanted = np.full(A, -1)
        wanted[live[rows]] = there[columns]
        assert (wanted >= 0).sum() == len(there)
        np.testing.assert_array_equal(matching.columns, wanted)
        total = sum(worth[i, j] for i, j in enumerate(wanted) if j >= 0)
        np.testing.assert_allclose(matching.total, total, rtol=1e-5, atol=1e-5)


# What each says of its edges ---------------------------------------------------------------


def f32(*rows):
    return np.float32(rows)


TRUTH = f32([0, 0, 8, 8])


def test_an_anchor_at_positive_is_positive_and_one_at_negative_is_ignored():
    anchors = f32([0, 0, 8, 4], [0, 0, 8, 2], [0, 0, 8, 1])  # a half, a quarter, an eighth
    assigned = max_iou(anchors, TRUTH, positive=0.5, negative=0.25)
    assert assigned.indices.tolist() == [0, -1, -1]
    assert assigned.ignored.tolist() == [False, True, False]
    assert assigned.quality.tolist() == [0.5, 0, 0]


def test_the_best_anchors_of_a_truth_are_positive_and_learn_what_they_overlap_most():
    # The first anchor is the best of both truths, and overlaps the first one more.
    anchors, truths = f32([0, 0, 8, 8], [20, 20, 30, 30]), f32([0, 0, 8, 7], [6, 6, 12, 12])
    assigned = max_iou(anchors, truths, positive=0.9, negative=0.3)
    assert assigned.indices.tolist() == [0, -1]
    assert not max_iou(anchors, truths, positive=0.9, low_quality=False).valid.any()
    # Nothing is the best of a truth that no anchor overlaps.
    assigned = max_iou(anchors, f32([40, 40, 50, 50]))
    assert not assigned.valid.any()
    assert not assigned.ignored.any()


@pytest.mark.parametrize("size", [7, 333])
@pytest.mark.parametrize("overlap", ["iou", "ciou"])
def test_each_truth_s_best_anchor_is_found_bit_for_bit(size, overlap):
    """A highest overlap that is computed once more may not be equal to itself."""
    rng = np.random.default_rng(0)
    options = {"positive": 2, "negative": 1, "overlap": getattr(boxes, overlap)}
    find = jax.jit(jax.vmap(lambda a, b: max_iou(a, b, **options).valid))
    corner = rng.uniform(0, 30, (100, size + 6, 2))
    sets = np.concatenate([corner, corner + rng.uniform(1, 60, corner.shape)], 2).astype("f4")
    a, b = sets[:, :-6], sets[:, -6:]
    tables = reference.table(OVERLAPS[overlap], a, b)
    sure = 0
    for valid, table in zip(find(a, b), tables, strict=True):
        ranked = np.sort(np.maximum(table, 0), axis=0)
        second = ranked[-2] if size > 1 else 0
        if ((ranked[-1] > 0) & (ranked[-1] - second < 1e-6)).any():
            continue  # too near for float64 to say which is higher in float32
        wanted = set(table.argmax(axis=0)[table.max(axis=0) > 0])
        assert set(np.flatnonzero(valid)) == wanted
        sure += 1
    assert sure > 90


def test_thresholds_may_be_traced():
    scene = crowd(np.random.default_rng(3))
    positive, negative = np.float32([0.2, 0.5, 0.7]), np.float32([0.1, 0.5, 0.3])

    def assign(positive, negative):
        thresholds = {"positive": positive, "negative": negative}
        return max_iou(scene["anchors"], scene["truths"], **thresholds, **masks(scene))

    batch = jax.jit(jax.vmap(assign))(positive, negative)
    for i in range(3):
        wanted = max_iou_loop(scene, positive[i], negative[i], True, "iou")
        assert_assigns(jax.tree.map(lambda x, i=i: x[i], batch), *wanted)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_atss_takes_all_of_equal_candidates(count):
    # The mean of equal overlaps, rounded, may be more than any of them.
    rng = np.random.default_rng(0)
    assign = jax.jit(functools.partial(atss, level_sizes=(count,)))
    for truth in (rng.uniform(0, 8, (200, 1, 4)) + f32([-10, -10, 10, 10])).astype(np.float32):
        anchor = truth + rng.normal(0, 0.5, 4).astype(np.float32)
        assert assign(np.repeat(anchor, count, axis=0), truth).valid.all()


def test_a_centre_on_the_edge_of_a_truth_is_not_within_it():
    anchors = f32([-2, 2, 2, 6], [-1, 2, 3, 6])
    assert atss(anchors, TRUTH, level_sizes=(1, 1)).indices.tolist() == [-1, -1]
    assert atss(anchors[1:], TRUTH, level_sizes=(1,)).indices.tolist() == [0]
    cell = {"centres": f32([0, 4], [1, 4])}
    one = np.ones((2, 1), np.float32), np.int32([0])
    assert task_aligned(anchors, TRUTH, *one, **cell).indices.tolist() == [-1, 0]
    cell |= {"strides": f32(1), "radius": 4.5}
    assert simota(anchors, TRUTH, *one, **cell, candidates=1).indices.tolist() == [-1, 0]


def test_levels_may_be_empty_and_have_fewer_anchors_than_candidates():
    scene = crowd(np.random.default_rng(1))
    wanted = atss_loop(scene, 9, "iou")
    for sizes in [(64, 0, 16, 4), (64, 16, 4, 0)]:
        assigned = atss(scene["anchors"], scene["truths"], level_sizes=sizes, **masks(scene))
        assert_assigns(assigned, *wanted)


def test_simota_takes_whole_numbers_of_predictions_and_one_at_least():
    predictions = f32([0, 0, 8, 8], [0, 0, 8, 8], [0, 0, 8, 4], [50, 50, 60, 60])
    cells = {"centres": np.full((4, 2), 4, np.float32), "strides": f32(8)}
    scores, labels = f32([0.9], [0.8], [0.9], [0.9]), np.int32([0])

    def number(predictions, scores):
        return simota(predictions, TRUTH, scores, labels, **cells).valid.sum()

    assert number(predictions, scores) == 2  # 1 + 1 + 0.5 + 0
    predictions[0] = [0, 0, 8, 4]
    assert number(predictions, scores) == 2
    predictions[:] = [50, 50, 60, 60]
    assert number(predictions, scores) == 1


def test_a_prediction_that_several_truths_take_may_go_to_one_that_did_not():
    """As in YOLOX and in ultralytics."""
    # The third truth has a prediction that it overlaps more, and takes no second.
    truths = f32([0, 0, 10, 10], [0, 0, 10, 11], [0, 0, 10, 14])
    predictions = f32([0, 0, 10, 14], [0, 0, 10, 13])
    scores, labels = f32([0.9, 0.1], [0.9, 0.9]), np.int32([0, 0, 1])
    cells = {"centres": f32([5, 5], [5, 5]), "candidates": 1}
    scores = f32([0.01, 0.9], [0.9, 0.9])
    for assign in (task_aligned, functools.partial(simota, strides=f32(8))):
        assigned = assign(predictions, truths, scores, labels, **cells)
        assert assigned.indices.tolist() == [2, 2]


def test_n16_padding_is_never_taken_and_nothing_is_aligned_below_zero():
    # All CIoU are 0 or less, so that all that count tie with what does not.
    predictions = f32([20, 20, 30, 30], [40, 40, 41, 60], [0, 0, 8, 8])
    truths, labels = np.concatenate([TRUTH, TRUTH]), np.int32([0, 0])
    options = {"centres": np.full((3, 2), 4, np.float32), "overlap": boxes.ciou}
    masks = {"where": np.array([True, False]), "anchor_where": np.array([True, True, False])}
    scores = np.ones((3, 1), np.float32)
    assigned = task_aligned(predictions, truths, scores, labels, **options, **masks)
    assert assigned.indices.tolist() == [-1, -1, -1]
    assert assigned.quality.tolist() == [0, 0, 0]
    assigned = task_aligned(predictions, truths, scores, labels, **options, where=masks["where"])
    assert assigned.indices.tolist() == [-1, -1, 0]


@pytest.mark.parametrize("solver", ["optax", "scipy"])
def test_n14_a_prediction_of_nan_is_alone_and_the_rest_is_matched_at_least_cost(solver):
    scene = crowd(np.random.default_rng(5), whole=False)
    scene |= {"where": np.ones(M, bool), "labels": np.arange(M, dtype=np.int32) % K}
    truths = np.random.default_rng(0).uniform(0, 32, (M, 4)) + f32([0, 0, 32, 32])
    scene["truths"] = (truths / 64).astype(np.float32)
    scene["predictions"] = scene["predictions"] / 64
    first = run_set_matching(scene, solver=solver, overlap="giou")
    broken = np.flatnonzero(first.valid)[:3]
    scene["predictions"][broken[0]] = NAN
    scene["scores"][broken[1]] = INF
    scene["scores"][broken[2]] = NAN
    matching = run_set_matching(scene, solver=solver, overlap="giou")
    assert not matching.valid[broken].any()
    live = scene["anchor_where"] & ~np.isin(np.arange(A), broken)
    worth = set_worth(scene)[live]
    rows, columns = linear_sum_assignment(worth, maximize=True)
    wanted = np.full(A, -1)
    wanted[np.flatnonzero(live)[rows]] = columns
    np.testing.assert_array_equal(matching.columns, wanted)


# What holds of all -------------------------------------------------------------------------

RUN = {
    "max_iou": functools.partial(run_max_iou, positive=0.5, negative=0.3),
    "atss": run_atss,
    "simota": run_simota,
    "task_aligned": run_task_aligned,
    "set_matching": run_set_matching,
}
every = pytest.mark.parametrize("name", RUN)
PER_ANCHOR = {"anchors", "predictions", "scores", "anchor_where"}


def rows_of(result):
    """Of each anchor: its truth, and what else there is of it but the quality."""
    if isinstance(result, Assignment):
        return np.stack([result.indices, result.valid, result.ignored])
    return np.stack([result.columns, result.valid])


@every
def test_a_batch_of_padded_pictures_is_each_without_its_padding(name):
    scenes = []
    for seed, count in enumerate([0, 5, 5]):
        scene = crowd(np.random.default_rng(100 + seed), whole=False)
        scene["where"] = np.arange(M) < count
        scene["truths"][:count] = f32([8, 8, 30, 30]) + np.random.default_rng(seed).normal(
            0, 5, (count, 4)
        )
        scene["truths"][count:] = NAN
        scene["labels"] = np.where(scene["where"], np.arange(M) % K, 99).astype(np.int32)
        scenes.append(scene)
    batch = {key: np.stack([scene[key] for scene in scenes]) for key in scenes[0]}
    padded = jax.vmap(RUN[name])(batch)
    for i, scene in enumerate(scenes):
        count = scene["where"].sum()
        alone = scene | {key: scene[key][:count] for key in ("truths", "labels", "where")}
        wanted = RUN[name](alone)
        got = jax.tree.map(lambda x, i=i: x[i], padded)
        np.testing.assert_array_equal(rows_of(got), rows_of(wanted))
        if isinstance(got, Assignment):
            np.testing.assert_allclose(got.quality, wanted.quality, rtol=1e-5, atol=1e-6)
        assert (np.asarray(got.valid).sum() > 0) == (count > 0)


@every
def test_without_truths_all_anchors_that_count_are_negative(name):
    scene = crowd(np.random.default_rng(0))
    for where in (np.zeros(M, bool), np.zeros(0, bool)):
        empty = {key: scene[key][: len(where)] for key in ("truths", "labels")}
        result = RUN[name](scene | empty | {"where": where})
        assert not result.valid.any()
        if isinstance(result, Assignment):
            assert result.indices.tolist() == [-1] * A
            np.testing.assert_array_equal(result.ignored, ~scene["anchor_where"])
            assert not result.quality.any()
        else:
            assert result.columns.tolist() == [-1] * A
            assert result.rows.tolist() == [-1] * len(where)


SMALL = {
    "max_iou": lambda p, t, s, c: max_iou(p, t),
    "atss": lambda p, t, s, c: atss(p, t, level_sizes=(len(p),)),
    "simota": lambda p, t, s, c: simota(p, t, s, np.int32([0]), centres=c, strides=f32(8)),
    "task_aligned": lambda p, t, s, c: task_aligned(p, t, s, np.int32([0]), centres=c),
    "set_matching": lambda p, t, s, c: set_matching(p, t, s, np.int32([0])),
}


@every
def test_one_anchor_or_none(name):
    centre, score = f32([4, 4]), f32([0.5])
    one = SMALL[name](TRUTH, TRUTH, score, centre)
    assert one[0].tolist() == [0]
    if isinstance(one, Assignment):
        assert one.quality.tolist() == [1]
        assert one.take(TRUTH).tolist() == TRUTH.tolist()
    none = SMALL[name](TRUTH[:0], TRUTH, score[:0], centre[:0])
    assert none[0].shape == none.valid.shape == (0,)
    assert none[0].dtype == np.int32


def test_without_classes_nothing_is_matched():
    for name in ("simota", "task_aligned", "set_matching"):
        assert not SMALL[name](TRUTH, TRUTH, np.zeros((1, 0), np.float32), f32([4, 4])).valid.any()


@every
@pytest.mark.parametrize("odd", [NAN, INF, -INF])
def test_what_is_not_finite_is_never_matched_and_changes_nothing_else(name, odd):
    uses = ["anchors"] if name in ("max_iou", "atss") else ["predictions", "scores"]
    for seed in range(10):
        scene = crowd(np.random.default_rng(seed), whole=False)
        rows = np.random.default_rng(seed).random(A) < 0.2
        for key in uses:
            broken = scene | {key: np.where(rows[:, None], odd, scene[key])}
            got = RUN[name](broken)
            without = RUN[name](scene | {"anchor_where": scene["anchor_where"] & ~rows})
            np.testing.assert_array_equal(got[0], without[0])
            assert not got.valid[rows].any()
            floats = got.quality if isinstance(got, Assignment) else got.total
            np.testing.assert_array_equal(
                floats, without.quality if isinstance(got, Assignment) else without.total
            )


def test_a_truth_whose_label_is_no_class_counts_for_nothing():
    for name in ("simota", "task_aligned", "set_matching"):
        scene = crowd(np.random.default_rng(5), whole=False)
        scene |= {"where": np.ones(M, bool), "labels": np.arange(M, dtype=np.int32) % K}
        scene["truths"] = np.float32(ANCHORS[20:28])
        for wrong in (-1, K):
            labels = np.where(np.arange(M) < 3, wrong, scene["labels"]).astype(np.int32)
            got = RUN[name](scene | {"labels": labels})
            wanted = RUN[name](scene | {"where": np.arange(M) >= 3})
            np.testing.assert_array_equal(rows_of(got), rows_of(wanted))
            assert got.valid.any()


@pytest.mark.parametrize("odd", [INF, -INF])
def test_an_infinite_overlap_is_no_match(odd):
    def overlap(a, b):
        return jnp.where(a[0] < 0, odd, boxes.iou(a, b))

    anchors = f32([-1, 0, 8, 8], [0, 0, 8, 8])
    assert max_iou(anchors, TRUTH, overlap=overlap).indices.tolist() == [-1, 0]
    assert atss(anchors, TRUTH, level_sizes=(1, 1), overlap=overlap).indices.tolist() == [-1, 0]
    options = {"centres": f32([4, 4], [4, 4]), "overlap": overlap}
    given = anchors, TRUTH, np.ones((2, 1), np.float32), np.int32([0])
    assert task_aligned(*given, **options).indices.tolist() == [-1, 0]
    assert simota(*given, **options, strides=f32(8)).indices.tolist() == [-1, 0]
    assert set_matching(*given, overlap=overlap).columns.tolist() == [-1, 0]


@every
def test_nothing_has_a_gradient(name):
    scene = crowd(np.random.default_rng(5), whole=False)
    scene["truths"] = np.nan_to_num(scene["truths"])

    def total(floats):
        result = RUN[name](scene | floats)
        return (result.quality if isinstance(result, Assignment) else result.total).sum()

    floats = {key: scene[key] for key in ("anchors", "predictions", "truths", "scores")}
    for gradient in jax.tree.leaves(jax.grad(total)(floats)):
        assert not gradient.any()


@pytest.mark.parametrize("low_quality", [True, False])
def test_200_000_anchors_against_500_truths_need_megabytes(low_quality):
    anchors, truths = (jax.ShapeDtypeStruct((n, 4), jnp.float32) for n in (200_000, 500))
    where, anchor_where = (jax.ShapeDtypeStruct((n,), jnp.bool) for n in (500, 200_000))
    assign = jax.jit(functools.partial(max_iou, low_quality=low_quality))
    program = assign.lower(anchors, truths, where=where, anchor_where=anchor_where).compile()
    # The table would be 400 MB, and a mask of it 100 MB.
    assert program.memory_analysis().temp_size_in_bytes < 20e6


@every
def test_no_array_is_of_anchors_times_truths_times_classes(name):
    rng = np.random.default_rng(0)
    a, m, k = 84, 50, 80
    scene = {key: rng.random((a, 4)).astype("f4") for key in ("anchors", "predictions")}
    scene |= {"truths": rng.random((m, 4)).astype("f4"), "labels": np.zeros(m, np.int32)}
    scene |= {"scores": rng.random((a, k)).astype("f4")}
    scene |= {"where": np.ones(m, bool), "anchor_where": np.ones(a, bool)}
    text = str(jax.make_jaxpr(RUN[name])(scene))
    sizes = [np.prod([int(n) for n in shape.split(",")]) for shape in SHAPES.findall(text)]
    # optax adds a column for each of the truths.
    assert a * m in sizes or name == "max_iou"
    assert max(sizes) <= max(a * k, m * (a + m))


SHAPES = re.compile(r"\w\[(\d+(?:,\d+)*)\]")


@pytest.mark.usefixtures("x64")
def test_scores_of_64_bits_make_all_of_64_bits():
    given = TRUTH, TRUTH, np.ones((1, 1)), np.int32([0])
    centres = f32([4, 4])
    assert task_aligned(*given, centres=centres).quality.dtype == np.float64
    assert simota(*given, centres=centres, strides=f32(8)).quality.dtype == np.float64
    assert set_matching(*given).total.dtype == np.float64
    assert max_iou(TRUTH.astype(float), TRUTH).quality.dtype == np.float64


# The result, and errors --------------------------------------------------------------------


def test_take_gives_each_anchor_what_belongs_to_its_truth():
    truths = f32([10, 10, 20, 20], [0, 0, 8, 8])
    assigned = max_iou(f32([0, 0, 8, 7], [40, 40, 50, 50], [10, 10, 20, 20]), truths)
    assert assigned.indices.tolist() == [1, -1, 0]
    assert assigned.take(np.array([7, 9])).tolist() == [9, 0, 7]
    assert assigned.take(np.array([7, 9]), fill=-1).tolist() == [9, -1, 7]
    assert assigned.take(truths)[0].tolist() == truths[1].tolist()


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_arguments_are_errors_that_name_them():
    predictions, scores = np.zeros((3, 4), np.float32), np.zeros((3, 2), np.float32)
    truths, labels = np.zeros((2, 4), np.float32), np.zeros(2, np.int32)
    centres, strides = np.zeros((3, 2), np.float32), np.ones(3, np.float32)
    given = {"predictions": predictions, "truths": truths, "scores": scores, "labels": labels}
    cells = {"centres": centres, "strides": strides}
    need = {simota: given | cells, task_aligned: given | {"centres": centres}}
    need |= {set_matching: given}
    anchors = {"anchors": predictions, "truths": truths}
    need |= {max_iou: anchors, atss: anchors | {"level_sizes": (2, 1)}}
    bad = [
        ("anchors", predictions[0], ValueError, r"shape \[_, _\] .* got \[4\]"),
        ("anchors", predictions.tolist(), TypeError, "a JAX or NumPy array, got list"),
        ("predictions", predictions[:, :3], ValueError, r"shape \[\.\.\., 4\] .* got \[3, 3\]"),
        ("predictions", predictions[None], ValueError, r"shape \[_, _\] .* got \[1, 3, 4\]"),
        ("truths", truths[:, :3], ValueError, r"shape \[\.\.\., 4\] .* got \[2, 3\]"),
        ("truths", truths[0], ValueError, r"shape \[_, _\] .* got \[4\]"),
        (
            "scores",
            scores[:2],
            ValueError,
            r"shape \[3, 2\] \(one row a prediction\), got \[2, 2\]",
        ),
        ("scores", scores[0], ValueError, r"shape \[_, _\] .* got \[2\]"),
        ("scores", scores > 0, TypeError, "floats or integers, got dtype bool"),
        ("labels", labels[:1], ValueError, r"shape \[2\] \(one label a truth\), got \[1\]"),
        ("labels", scores[0], TypeError, "integers, got dtype float32"),
        ("labels", [0, 0], TypeError, "a JAX or NumPy array, got list"),
        ("centres", centres[:2], ValueError, r"shape \[3, 2\] .* got \[2, 2\]"),
        ("centres", centres > 0, TypeError, "floats or integers, got dtype bool"),
        ("strides", strides[:2], ValueError, r"shape \[3\] .* got \[2\]"),
        ("strides", [8, 8, 8], TypeError, "a JAX or NumPy array, got list"),
        ("level_sizes", (2, 2), ValueError, r"sum to the 3 anchors, got \[2, 2\]"),
        ("level_sizes", (4, -1), ValueError, "be 0 or more, got -1"),
        ("where", np.ones(3, bool), ValueError, r"broadcast to \[2\], got \[3\]"),
        ("anchor_where", np.ones(2, bool), ValueError, r"broadcast to \[3\], got \[2\]"),
        ("anchor_where", strides, TypeError, "boolean, got dtype float32"),
        ("candidates", -1, ValueError, "be 0 or more, got -1"),
        ("candidates", 2.5, TypeError, "be an integer, got float"),
        ("radius", strides, ValueError, r"a number, got shape \[3\]"),
        ("positive", strides, ValueError, r"a number, got shape \[3\]"),
        ("l1_weight", strides, ValueError, r"a number, got shape \[3\]"),
        ("solver", "lap", ValueError, r"one of \['optax', 'scipy'\], got 'lap'"),
    ]
    for assign, options in need.items():
        for name, value, error, text in bad:
            if name not in inspect.signature(assign).parameters:
                continue
            with pytest.raises(error, match=f"^{name} must .*{text}"):
                assign(**options | {name: value})


def test_atss_takes_the_first_of_two_anchors_that_are_as_near():
    """Also where the squares are rounded: a fused multiply-add would tell (p, q) from (q, p)."""
    rng = np.random.default_rng(0)
    p, q = rng.integers(-8192, 8192, (2, 300)) / 1024
    centres = np.stack([np.stack([p, q], -1), np.stack([q, p], -1)], axis=1)
    anchors = np.concatenate([centres - 1, centres + 1], axis=-1).astype(np.float32)
    truths = np.float32([[-20, -20, 20, 20]])
    run = functools.partial(atss, truths=truths, level_sizes=(2,), candidates=1)
    assigned = jax.jit(jax.vmap(run), compiler_options=AS_USERS)(anchors)
    np.testing.assert_array_equal(assigned.indices, np.tile([0, -1], (300, 1)))
