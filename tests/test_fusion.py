"""Soft suppression and merging against plain loops in float64, and their edge values."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from compiling import AS_USERS

from jaxiou import boxes, suppression
from jaxiou.suppression import (
    matrix_nms,
    nms,
    non_maximum_merging,
    soft_nms,
    weighted_boxes_fusion,
)

N, K = 40, 16
"""Regions in a scene, and most of its results; alike, so that scenes share programs."""


# The methods as plain loops. A score of None, NaN or below `min_score` is left out.


def live(scores, where, min_score):
    return [i for i in range(len(scores)) if where[i] and scores[i] >= min_score]


def by_score(places, scores):
    return sorted(places, key=lambda i: (-scores[i], i))


def interaction(regions, labels):
    """The IoU of two places; 0 where they do not interact, NaN included."""
    table = np.nan_to_num(reference.table(reference.iou, regions, regions))
    return np.where(labels[:, None] == labels, table, 0)


def soft_nms_loop(regions, scores, labels, where, decay):
    meet = interaction(regions, labels)
    left = {i: float(scores[i]) for i in live(scores, where, 0.001)}
    found = []
    while left and len(found) < K:
        best = by_score(left, left)[0]
        found.append((best, left.pop(best)))
        for i in list(left):
            left[i] *= decay(meet[best, i])
            if left[i] < 0.001:
                del left[i]
    return found


def matrix_nms_loop(regions, scores, labels, where, decay, *, candidates, min_score=0.05):
    meet = interaction(regions, labels)
    order = by_score(live(scores, where, min_score), scores)[:candidates]
    lowered = {}
    for place, j in enumerate(order):
        quotients = [1.0]
        for before, i in enumerate(order[:place]):
            compensation = max([meet[h, i] for h in order[:before]], default=0.0)
            if decay(compensation) > 0:
                quotients.append(decay(meet[i, j]) / decay(compensation))
        score = float(scores[j]) * min(quotients)
        if score >= min_score:
            lowered[j] = score
    return [(i, lowered[i]) for i in by_score(lowered, lowered)[:K]]


def fusion_loop(regions, scores, labels, where, *, threshold, models, clusters=K):
    """`(best member, fused score, fused region)` of each cluster."""
    groups: list[list[int]] = []

    def mean(group):
        weights = scores[group].astype(np.float64)
        rows = regions[group].astype(np.float64)
        total = weights.sum()
        return (weights[:, None] * rows).sum(0) / total if total > 0 else rows[0]

    for j in by_score(live(scores, where, -math.inf), scores):
        overlaps = [
            reference.iou(mean(g), regions[j]) if labels[g[0]] == labels[j] else 0 for g in groups
        ]
        best = max(range(len(groups)), key=lambda g: (np.nan_to_num(overlaps[g]), -g), default=None)
        if best is not None and overlaps[best] > threshold:
            groups[best].append(j)
        elif len(groups) < clusters:
            groups.append([j])
    fused = {
        g[0]: (scores[g].astype(np.float64).mean() * min(models, len(g)) / models, mean(g))
        for g in groups
    }
    order = by_score(fused, {i: score for i, (score, _) in fused.items()})
    return [(i, *fused[i]) for i in order]


def merging_loop(regions, scores, labels, where, *, threshold):
    meet = interaction(regions, labels)
    order = by_score(live(scores, where, -math.inf), scores)
    found = []
    while order and len(found) < K:
        best, *order = order
        group = [j for j in order if meet[best, j] > threshold]
        order = [j for j in order if j not in group]
        rows = np.stack(reference.corners(regions[[best, *group]]), axis=-1) if group else None
        merged = regions[best] if rows is None else [*rows[:, :2].min(0), *rows[:, 2:].max(0)]
        found.append((best, float(scores[best]), merged))
    return found


# Scenes.


def spread(rng):
    corner, size = rng.uniform(-60, 60, (N, 2)), rng.uniform(10, 50, (N, 2))
    return np.concatenate([corner, corner + size], axis=1)


def clustered(rng):
    return spread(rng)[rng.integers(5, size=N)] + rng.uniform(-3, 3, (N, 4))


def scene(name):
    """Regions, scores, labels and the mask."""
    rng = np.random.default_rng(sum(map(ord, name)))
    regions = (spread if name == "spread" else clustered)(rng).astype(np.float32)
    scores = (rng.permutation(N) / N + 0.01).astype(np.float32)
    labels, where = np.zeros(N, np.int32), np.ones(N, bool)
    if name == "labels":
        labels = rng.integers(-1, 2, N, np.int32)
    if name == "equal scores":
        scores = rng.choice(np.float32([0.25, 0.5, 1]), N)
    if name == "equal boxes":
        regions[:] = regions[0]
    if name == "all equal":
        regions[:], scores[:] = regions[0], 0.5
    if name == "padding":
        where = rng.random(N) < 0.6
        regions[~where], scores[~where] = np.nan, np.nan
    if name == "NaN":
        scores[rng.random(N) < 0.2] = np.nan
        regions[rng.random(N) < 0.2, 2] = np.nan
    if name == "empty and inverted":
        regions[::3, 2] = regions[::3, 0]
        regions[1::3] = regions[1::3][:, [2, 1, 0, 3]]
        regions[2::6] = 0
    if name == "nothing":
        where[:] = False
    if name == "zero scores":
        scores[rng.random(N) < 0.5] = 0
    return regions, scores, labels, where


SCENES = "spread, clustered, labels, equal scores, equal boxes, all equal, padding, NaN"
SCENES += ", empty and inverted, nothing, zero scores"
every_scene = pytest.mark.parametrize("name", SCENES.split(", "))


def assert_found(result, wanted):
    """`result` is `Rescored` or `Merged`; `wanted` a list of place, score and perhaps region."""
    count, result = len(wanted), jax.device_get(result)
    indices, valid = result.selection
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(valid, np.arange(len(valid)) < count)
    np.testing.assert_array_equal(indices, [i for i, *_ in wanted] + [-1] * (len(valid) - count))
    scores = [score for _, score, *_ in wanted]
    np.testing.assert_allclose(result.scores[:count], scores, rtol=1e-5)
    assert (result.scores[count:] == 0).all()
    if isinstance(result, suppression.Merged):
        regions = np.reshape([region for *_, region in wanted], (-1, 4))
        np.testing.assert_allclose(result.regions[:count], regions, rtol=1e-5, atol=1e-5)
        assert (result.regions[count:] == 0).all()


@every_scene
def test_gaussian_soft_nms_is_that_of_a_loop(name):
    regions, scores, labels, where = scene(name)
    result = soft_nms(regions, scores, max_outputs=K, labels=labels, where=where)
    wanted = soft_nms_loop(regions, scores, labels, where, lambda o: math.exp(-(o**2) / 0.5))
    assert_found(result, wanted)


@every_scene
def test_linear_soft_nms_is_that_of_a_loop(name):
    regions, scores, labels, where = scene(name)
    result = soft_nms(regions, scores, max_outputs=K, method="linear", labels=labels, where=where)
    wanted = soft_nms_loop(regions, scores, labels, where, lambda o: 1 - o if o > 0.3 else 1)
    assert_found(result, wanted)


@every_scene
def test_gaussian_matrix_nms_is_that_of_a_loop(name):
    regions, scores, labels, where = scene(name)
    result = matrix_nms(regions, scores, max_outputs=K, labels=labels, where=where)
    wanted = matrix_nms_loop(
        regions, scores, labels, where, lambda o: math.exp(-2 * o**2), candidates=500
    )
    assert_found(result, wanted)


@every_scene
def test_linear_matrix_nms_is_that_of_a_loop(name):
    regions, scores, labels, where = scene(name)
    result = matrix_nms(
        regions,
        scores,
        max_outputs=K,
        method="linear",
        candidates=30,
        labels=labels,
        where=where,
    )
    assert_found(
        result,
        matrix_nms_loop(regions, scores, labels, where, lambda o: 1 - o, candidates=30),
    )


@every_scene
def test_weighted_boxes_fusion_is_that_of_a_loop(name):
    regions, scores, labels, where = scene(name)
    result = weighted_boxes_fusion(
        regions, scores, max_outputs=K, num_models=3, labels=labels, where=where
    )
    wanted = fusion_loop(regions, scores, labels, where, threshold=0.55, models=3)
    assert_found(result, wanted)


@every_scene
def test_non_maximum_merging_is_that_of_a_loop(name):
    regions, scores, labels, where = scene(name)
    result = non_maximum_merging(
        regions, scores, threshold=0.5, max_outputs=K, labels=labels, where=where
    )
    assert_found(result, merging_loop(regions, scores, labels, where, threshold=0.5))


@every_scene
def test_non_maximum_merging_keeps_what_nms_keeps(name):
    regions, scores, labels, where = scene(name)
    settings = {"threshold": 0.5, "max_outputs": K, "labels": labels, "where": where}
    result = non_maximum_merging(regions, scores, **settings)
    for x, y in zip(result.selection, nms(regions, scores, **settings), strict=True):
        np.testing.assert_array_equal(x, y)


# The golden cases of suppression, for all methods that they concern.


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """A function, its static settings, and the numbers that its calls here have."""

    function: Callable
    static: dict
    numbers: dict

    def __call__(self, regions, scores, labels=(0, 0, 0, 0, 0, 0), **numbers):
        """On up to six boxes, padded with NaN, so that all calls share one program."""
        padding = 6 - len(regions)
        result = self.raw(
            np.pad(regions, ((0, padding), (0, 0)), constant_values=np.nan),
            np.pad(scores, (0, padding), constant_values=np.nan),
            labels=np.resize(labels, 6).astype(np.int32),
            where=np.arange(6) < len(regions),
            **{name: np.float32(x) for name, x in (self.numbers | numbers).items()},
        )
        return jax.device_get(result)

    def raw(self, regions, scores, **settings):
        return self.function(regions, scores, **{"max_outputs": 5} | self.static | settings)


SOFT, MATRIX, MERGES = {"min_score": 0.001}, {"min_score": 0.05}, {"min_score": 0, "threshold": 0.5}
LINEAR = {"method": "linear"}
RESCORE = {
    "soft gaussian": Method(soft_nms, {}, SOFT),
    "soft linear": Method(soft_nms, LINEAR, SOFT | {"threshold": 0.3}),
    "matrix gaussian": Method(matrix_nms, {}, MATRIX),
    "matrix linear": Method(matrix_nms, LINEAR, MATRIX),
}
MERGE = {
    "fusion": Method(weighted_boxes_fusion, {}, MERGES | {"num_models": 1}),
    "merging": Method(non_maximum_merging, {"threshold": 0.5}, MERGES),
}
every_method = pytest.mark.parametrize("method", (RESCORE | MERGE).values(), ids=RESCORE | MERGE)
every_rescoring = pytest.mark.parametrize("method", RESCORE.values(), ids=RESCORE)
every_merging = pytest.mark.parametrize("method", MERGE.values(), ids=MERGE)

FALLING = np.float32([0.9, 0.8, 0.7, 0.6, 0.5])


def kept(result):
    """The places in a result, without those that are not valid."""
    indices, valid = jax.device_get(result.selection)
    return indices[valid].tolist()


def far_apart(count):
    corner = 100 * np.arange(count)[:, None]
    return np.concatenate([corner, corner, corner + 10, corner + 10], axis=1).astype(np.float32)


@every_merging
def test_an_overlap_equal_to_the_threshold_does_not_merge(method):
    regions = np.float32([[0, 0, 10, 10], [0, 0, 10, 5]])
    assert kept(method(regions, FALLING[:2], threshold=0.5)) == [0, 1]
    assert kept(method(regions, FALLING[:2], threshold=0.499)) == [0]


def test_an_overlap_equal_to_the_threshold_of_linear_does_not_decay():
    regions = np.float32([[0, 0, 10, 10], [0, 0, 10, 5]])
    method = RESCORE["soft linear"]
    np.testing.assert_array_equal(
        method(regions, FALLING[:2], threshold=0.5).scores[:2], FALLING[:2]
    )
    np.testing.assert_allclose(
        method(regions, FALLING[:2], threshold=0.499).scores[:2], [0.9, 0.4], rtol=1e-6
    )


@every_method
def test_of_three_equal_boxes_with_equal_scores_the_first_leads(method):
    result = method(np.float32([[0, 0, 10, 10]] * 3), np.float32([0.5, 0.5, 0.5]))
    assert kept(result)[0] == 0
    assert result.scores[0] == 0.5


@every_method
def test_equal_scores_keep_the_lower_index_first(method):
    result = method(far_apart(5), np.float32([1, 2, 2, 1, 2]))
    assert kept(result) == [1, 2, 4, 0, 3]
    assert result.scores.tolist() == [2, 2, 2, 1, 1]


@every_method
def test_a_negative_zero_is_as_good_as_zero(method):
    scores = np.float32([-0.0, 0.0, 0.5, -0.0])
    assert kept(method(far_apart(4), scores, min_score=0.0)) == [2, 0, 1, 3]


@every_method
def test_a_region_of_score_nan_is_left_out(method):
    regions = np.float32([[0, 0, 10, 10], [0, 0, 10, 10], [50, 50, 60, 60]])
    alone = method(regions[1:], np.float32([0.5, 0.25]))
    result = method(regions, np.float32([np.nan, 0.5, 0.25]))
    assert kept(result) == [1, 2]
    np.testing.assert_array_equal(result.scores, alone.scores)


def nearness(a, b):
    """An overlap that zeros, which stand in for regions of NaN, have with all."""
    return jnp.exp(-abs(a - b).sum() / 100)


@every_method
def test_a_region_of_nan_is_kept_for_its_score_and_interacts_with_none(method):
    regions = np.float32([[0, 0, np.nan, 10], [0, 0, 10, 10], [0, 0, 10, np.nan]])
    settings = {"threshold": 0.5} if method in MERGE.values() else {}
    result = jax.device_get(method.raw(regions, FALLING[:3], overlap=nearness, **settings))
    assert kept(result) == [0, 1, 2]
    np.testing.assert_allclose(result.scores[:3], FALLING[:3], rtol=1e-6)
    if method in MERGE.values():
        np.testing.assert_array_equal(result.regions[:3], regions)


@every_method
def test_empty_and_inverted_boxes_do_not_interact(method):
    regions = np.float32([[5, 5, 5, 5], [5, 5, 5, 5], [9, 9, 0, 0], [0, 0, 9, 0], [0, 0, 9, 9]])
    result = method(regions, FALLING)
    assert kept(result) == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(result.scores, FALLING, rtol=1e-6)


@every_method
def test_boxes_of_two_classes_do_not_meet_at_negative_coordinates(method):
    regions = np.float32([[0, 0, 10, 10], [-11, -11, -1, -1]])
    result = method(regions, FALLING[:2], labels=np.int32([0, 1]))
    assert kept(result) == [0, 1]
    np.testing.assert_allclose(result.scores[:2], FALLING[:2], rtol=1e-6)


@every_method
def test_a_class_of_a_large_number_and_small_boxes_loses_no_bits(method):
    regions = np.float32([[0.1, 0.1, 0.2, 0.2], [0.1, 0.1, 0.2, 0.155], [0, 0, 1000, 1000]])
    labels = np.int32([1000, 1000, 0])
    if method in MERGE.values():
        assert kept(method(regions, FALLING[:3], labels)) == [0, 2]
        return
    # The first two have IoU 0.55; the third is of another class.
    kind = method.static.get("method", "gaussian")
    lowered = 0.8 * {"gaussian": math.exp(-2 * 0.55**2), "linear": 0.45}[kind]
    result = method(regions, FALLING[:3], labels=labels)
    assert kept(result) == [0, 2, 1]
    np.testing.assert_allclose(result.scores[:3], [0.9, 0.7, lowered], rtol=1e-5)


@every_method
def test_other_images_of_a_batch_change_nothing(method):
    images = np.stack([scene(name)[0] for name in ("spread", "clustered")])
    scores = np.stack([scene(name)[1] for name in ("spread", "clustered")])
    over_batch = jax.jit(jax.vmap(method.raw))
    before = over_batch(images, scores)
    # New arrays: JAX may still be reading the old ones.
    images = np.stack([images[0], images[1] + 5])
    scores = np.stack([scores[0], scores[1][::-1] / 2])
    after = over_batch(images, scores)
    for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(x[0], y[0])
    assert before.scores[1].tolist() != after.scores[1].tolist()


@pytest.mark.parametrize("threshold", [0.3, 0.4])
def test_a_chain_merges_with_its_best_alone(threshold):
    regions = np.float32([[1, 1, 11, 11], [5, 1, 15, 11], [9, 1, 19, 11]])
    result = MERGE["merging"](regions, FALLING[:3], threshold=threshold)
    assert kept(result) == [0, 2]
    np.testing.assert_array_equal(result.regions[:2], [[1, 1, 15, 11], [9, 1, 19, 11]])


@every_method
def test_disjoint_boxes_at_negative_coordinates_stay(method):
    regions = np.float32([[-20, -20, -10, -10], [-5, -5, 0, 0]])
    result = method(regions, FALLING[:2])
    assert kept(result) == [0, 1]
    np.testing.assert_array_equal(result.scores[:2], FALLING[:2])


@every_merging
def test_a_threshold_of_0_keeps_disjoint_boxes_apart(method):
    assert kept(method(far_apart(3), FALLING[:3], threshold=0.0)) == [0, 1, 2]


# What holds for all.


@every_method
@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.parametrize("max_outputs", [0, 3])
def test_fewer_regions_than_outputs_and_none_at_all(method, count, max_outputs):
    result = jax.device_get(
        method.raw(far_apart(5)[:count], FALLING[:count], max_outputs=max_outputs)
    )
    assert kept(result) == list(range(count))[:max_outputs]
    assert all(x.shape[0] == max_outputs for x in jax.tree.leaves(result))
    behind = min(count, max_outputs)
    assert (result.selection.indices[behind:] == -1).all()
    assert (result.scores[behind:] == 0).all()


@every_method
def test_settings_are_traced_or_not(method):
    regions, scores, *_ = scene("clustered")
    settings = {"threshold": 0.4, "sigma": 0.7, "min_score": 0.1, "num_models": 4.0}
    takes = inspect.signature(method.function).parameters
    settings = {name: value for name, value in settings.items() if name in takes}
    constant = jax.jit(lambda: method.raw(regions, scores, **settings))()
    traced = method.raw(regions, scores, **settings)
    assert kept(traced) == kept(constant)
    np.testing.assert_allclose(traced.scores, constant.scores, rtol=1e-6)


@every_method
def test_a_score_equal_to_min_score_stays(method):
    scores = np.float32([0.75, 0.5, np.nextafter(np.float32(0.5), np.float32(0))])
    assert kept(method(far_apart(3), scores, min_score=0.5)) == [0, 1]


@every_method
def test_labels_of_what_is_found_are_taken_by_its_selection(method):
    labels = np.int32([7, 8, 9])
    result = method.raw(far_apart(3), np.float32([0.25, 0.75, 0.5]), labels=labels)
    assert result.selection.take(labels, fill=-1).tolist() == [8, 9, 7, -1, -1]


@every_method
def test_gradients_of_regions_of_nan_are_theirs_alone(method):
    regions, scores, _, _ = scene("NaN")
    bad = np.isnan(regions).any(axis=1) | np.isnan(scores)

    def total(regions, scores):
        result = method.raw(regions, scores, max_outputs=K)
        merged = result.regions[:, :2].sum(axis=1) if isinstance(result, suppression.Merged) else 0
        known = jnp.isfinite(result.scores + merged)
        return jnp.where(known, result.scores + merged, 0).sum()

    for gradient in jax.jit(jax.grad(total, (0, 1)))(regions, scores):
        assert np.isfinite(gradient[~bad]).all()
        assert np.abs(gradient[~bad]).max() > 0


@every_method
def test_scores_that_are_wide_may_belong_to_regions_that_are_not(method):
    regions, scores, *_ = scene("clustered")
    wanted = method.raw(regions, scores)
    with jax.enable_x64(True):
        result = method.raw(regions, scores.astype(np.float64))
    assert (wanted.scores.dtype, result.scores.dtype) == (np.float32, np.float64)
    assert result.selection.indices.dtype == np.int32
    assert kept(result) == kept(wanted)
    np.testing.assert_allclose(result.scores, wanted.scores, rtol=1e-5)


@every_rescoring
def test_an_overlap_is_called_with_the_better_region_first(method):
    small, large = np.float32([0, 0, 4, 4]), np.float32([0, 0, 4, 8])
    worse_inside = method.raw(np.stack([large, small]), FALLING[:2], overlap=boxes.ioa)
    worse_around = method.raw(np.stack([small, large]), FALLING[:2], overlap=boxes.ioa)
    # ioa(better, worse) is a half, and 1.
    assert worse_inside.scores[1] > worse_around.scores[1]


def interval_iou(a, b):
    shared = jnp.maximum(jnp.minimum(a[1], b[1]) - jnp.maximum(a[0], b[0]), 0)
    return shared / (jnp.maximum(a[1], b[1]) - jnp.minimum(a[0], b[0]))


@every_method
def test_regions_of_two_numbers_and_an_overlap_of_ones_own(method):
    # As intervals are boxes of height 1, the results are those of the boxes.
    intervals = np.float32([[0, 4], [0, 3], [8, 9]])
    regions = np.float32([[0, 0, 4, 1], [0, 0, 3, 1], [8, 0, 9, 1]])
    wanted = method(regions, FALLING[:3])
    settings = {"threshold": 0.5} if method in MERGE.values() else {}
    if method is MERGE["merging"]:
        settings["merge"] = interval_hull
    result = method.raw(intervals, FALLING[:3], overlap=interval_iou, **settings)
    assert kept(result) == kept(wanted)
    np.testing.assert_allclose(result.scores, wanted.scores, rtol=1e-6)
    if method in MERGE.values():
        np.testing.assert_allclose(result.regions, wanted.regions[:, ::2], rtol=1e-6)


def interval_hull(a, b):
    return jnp.stack([jnp.minimum(a[0], b[0]), jnp.maximum(a[1], b[1])])


def mask_iou(a, b):
    return (a & b).sum() / jnp.maximum((a | b).sum(), 1)


mask_iou.region_rank = 2


@every_rescoring
def test_masks_by_an_overlap_of_masks(method):
    regions = np.float32([[0, 0, 4, 4], [0, 0, 4, 3], [5, 5, 6, 6]])
    place = np.arange(8) + 0.5
    x1, y1, x2, y2 = regions.T[:, :, None]
    masks = ((y1 < place) & (place < y2))[:, :, None] & ((x1 < place) & (place < x2))[:, None]
    result = method.raw(masks, FALLING[:3], overlap=mask_iou)
    wanted = method(regions, FALLING[:3])
    assert kept(result) == kept(wanted)
    np.testing.assert_allclose(result.scores, wanted.scores, rtol=1e-6)


def test_masks_merge_by_their_union():
    masks = np.zeros((3, 2, 4), bool)
    masks[0, :, :3], masks[1, :, 1:], masks[2, 0, 0] = True, True, True
    result = non_maximum_merging(
        masks,
        FALLING[:3],
        threshold=0.4,
        max_outputs=3,
        overlap=mask_iou,
        merge=jnp.logical_or,
    )
    assert kept(result) == [0, 2]  # the IoU of the first two is 4/8, of the third 1/6
    assert result.regions.dtype == bool
    np.testing.assert_array_equal(result.regions, [masks[0] | masks[1], masks[2], masks[0] & False])


# What is said of one of them.


@every_rescoring
def test_scores_never_rise(method):
    for name in ("clustered", "spread"):
        regions, scores, *_ = scene(name)
        assert (np.diff(method.raw(regions, scores).scores) <= 0).all()


@pytest.mark.parametrize("kind", ["gaussian", "linear"])
def test_soft_nms_multiplies_the_decays_of_all_that_were_taken(kind):
    # Two equal boxes of IoU 1/2 with the third, which is decayed twice.
    regions = np.float32([[0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 4, 2]])
    decay = {"gaussian": lambda o: math.exp(-(o**2) / 0.5), "linear": lambda o: 1 - o}[kind]
    result = RESCORE[f"soft {kind}"](regions, FALLING[:3], min_score=0.0)
    found = dict(zip(kept(result), result.scores.tolist(), strict=False))
    # The third is taken second by either, as the second has all but lost its score.
    wanted = {0: 0.9, 2: 0.7 * decay(0.5), 1: 0.8 * decay(1) * decay(0.5)}
    assert list(found) == [0, 2, 1]
    assert found == pytest.approx(wanted, rel=1e-6)


def test_the_gradient_of_soft_nms_is_that_of_its_product():
    regions = np.float32([[0, 0, 4, 4], [0, 0, 4, 3], [0, 0, 4, 2]])

    def scores_of(regions, scores):
        return soft_nms(regions, scores, max_outputs=3, method="linear").scores

    by_edge, by_score = jax.jit(jax.jacrev(scores_of, (0, 1)))(regions, FALLING[:3])
    # Taken: the first; the third, at 0.7 / 2; the second, at 0.8 / 4 / 3.
    np.testing.assert_allclose(by_score, [[1, 0, 0], [0, 0, 1 / 2], [0, 1 / 12, 0]], rtol=1e-5)
    # IoU of the first and the third: y2 / 4. Of the second with both: y2 / 4 and 2 / y2.
    np.testing.assert_allclose(by_edge[1, 2, 3], -0.7 / 4, rtol=1e-5)
    np.testing.assert_allclose(
        by_edge[2, 1, 3], 0.8 * (-(1 / 4) * (1 / 3) + (1 / 4) * (2 / 9)), rtol=1e-5
    )


def test_an_exact_duplicate_lowers_no_other_score_by_linear_matrix_nms():
    # The second equals the first, and the third overlaps both by a half: 0/0 is not taken.
    regions = np.float32([[0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 4, 2]])
    result = RESCORE["matrix linear"](regions, FALLING[:3], min_score=0.0)
    assert kept(result) == [0, 2, 1]
    np.testing.assert_allclose(result.scores[:3], [0.9, 0.35, 0], rtol=1e-6)

    def total(regions):
        return matrix_nms(regions, FALLING[:3], max_outputs=3, method="linear").scores.sum()

    assert np.isfinite(jax.jit(jax.grad(total))(regions)).all()


def test_matrix_nms_looks_at_no_more_than_its_candidates():
    result = matrix_nms(far_apart(5), FALLING[::-1], max_outputs=5, candidates=3)
    assert kept(result) == [4, 3, 2]


def test_what_few_models_found_counts_less():
    # Three of four models found the first object, one the second, with the same mean score.
    regions = np.float32([[0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 9, 9], [20, 20, 29, 29]])
    result = MERGE["fusion"](regions, np.float32([0.75, 0.5, 0.25, 0.5]), num_models=4)
    assert result.scores[:2].tolist() == [0.375, 0.125]
    # With more members than models the factor is 1.
    result = MERGE["fusion"](regions, np.float32([0.75, 0.5, 0.25, 0.5]), num_models=2)
    assert result.scores[:2].tolist() == [0.5, 0.25]


@pytest.mark.parametrize("origin", [0.0, 1e6])
def test_equal_boxes_fuse_to_exactly_themselves(origin):
    box = np.float32([0.1, 0.2, 0.7, 0.9]) + np.float32(origin)
    scores = np.random.default_rng(0).random(6).astype(np.float32)
    run = functools.partial(MERGE["fusion"].raw, **MERGE["fusion"].numbers)
    # Compiled as users have it, sums and products may be fused.
    result = jax.jit(run, compiler_options=AS_USERS)(np.tile(box, (6, 1)), scores)
    assert kept(result) == [scores.argmax()]
    np.testing.assert_array_equal(result.regions[0], box)


def test_members_of_score_0_do_not_move_the_mean():
    regions = np.float32([[0, 0, 10, 10], [0, 0, 10, 9], [50, 0, 60, 9], [50, 0, 60, 10]])
    result = MERGE["fusion"](regions, np.float32([0.5, 0, 0, 0]))
    assert kept(result) == [0, 2]
    np.testing.assert_array_equal(result.regions[:2], regions[[0, 2]])
    assert result.scores[:2].tolist() == [0.25, 0]


def test_a_box_is_compared_with_the_mean_and_not_with_members():
    # The third has IoU 0.6 with the first, and 2/3 with the mean [0, 0, 10, 9] of both.
    regions = np.float32([[0, 0, 10, 10], [0, 0, 10, 8], [0, 0, 10, 6]])
    scores = np.float32([0.5, 0.5, 0.25])
    assert kept(MERGE["fusion"](regions, scores, threshold=0.65)) == [0]
    assert kept(MERGE["fusion"](regions[[0, 2]], scores[[0, 2]], threshold=0.65)) == [0, 1]


def test_clusters_that_find_no_room_are_dropped_and_their_regions_join_no_other():
    regions = np.concatenate([far_apart(3), far_apart(3) + 1])
    scores = np.float32([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    result = weighted_boxes_fusion(regions, scores, threshold=0.5, max_outputs=2)
    assert kept(result) == [0, 1]
    np.testing.assert_allclose(result.scores, [0.75, 0.65], rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9])
def test_every_member_is_merged_once(count):
    regions = np.concatenate([far_apart(1)] * count + [far_apart(2)[1:]] * (9 - count))
    scores = np.linspace(1, 0.5, 9).astype(np.float32)
    result = non_maximum_merging(regions, scores, threshold=0.5, max_outputs=2, merge=jnp.add)
    wanted = [count * regions[0], (9 - count) * regions[-1]]
    np.testing.assert_array_equal(result.regions, wanted)


def test_a_merged_region_is_not_compared_again():
    # The enclosing box of the first two meets the third by more than the threshold.
    regions = np.float32([[0, 0, 10, 10], [2, 0, 12, 10], [4, 0, 14, 10]])
    result = MERGE["merging"](regions, FALLING[:3], threshold=0.6)
    assert kept(result) == [0, 2]
    np.testing.assert_array_equal(result.regions[:2], [[0, 0, 12, 10], [4, 0, 14, 10]])


# Errors.


def test_errors_name_the_argument(without_jaxtyping):
    regions = far_apart(3)
    for method, settings, error, message in [
        (soft_nms, {"method": "hard"}, ValueError, "^method must be one of"),
        (matrix_nms, {"method": "hard"}, ValueError, "^method must be one of"),
        (matrix_nms, {"candidates": -1}, ValueError, "^candidates must be 1 or more"),
        (soft_nms, {"max_outputs": -1}, ValueError, "^max_outputs must be 0 or more"),
        (soft_nms, {"max_outputs": 2.0}, TypeError, "^max_outputs must be an integer"),
        (soft_nms, {"sigma": np.ones(2)}, ValueError, "^sigma must be a number"),
        (soft_nms, {"labels": np.ones(3)}, TypeError, "^labels must hold integers"),
        (soft_nms, {"labels": np.ones(2, int)}, ValueError, r"^labels must have shape \[3\]"),
        (soft_nms, {"where": np.ones(2, bool)}, ValueError, r"^where must .* broadcast to \[3\]"),
        (soft_nms, {"overlap": boxes.enclosing}, ValueError, "^overlap must give one number"),
        (non_maximum_merging, {"threshold": 0.5, "merge": boxes.iou}, ValueError, "^merge must"),
    ]:
        with pytest.raises(error, match=message):
            method(regions, FALLING[:3], **{"max_outputs": 2} | settings)
    with pytest.raises(ValueError, match=r"^scores must have shape \[3\]"):
        soft_nms(regions, FALLING[:2], max_outputs=2)
    with pytest.raises(
        TypeError, match=r"^scores must hold floats or integers, got dtype complex64"
    ):
        soft_nms(regions, FALLING[:3].astype(np.complex64), max_outputs=2)
