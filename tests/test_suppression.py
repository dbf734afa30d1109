"""Greedy suppression against the sequential algorithm, in plain NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from compiling import AS_USERS

from jaxiou import boxes, pairwise, suppression
from jaxiou._greedy import TILE, WAVE

nms = suppression.nms


def greedy(table, scores, threshold, labels=None, live=True):
    """All that greedy suppression keeps, in order, from its definition."""
    left = live & ~np.isnan(scores)
    meet = True if labels is None else labels[:, None] == labels
    suppresses = (table > threshold) & meet
    kept = []
    for i in sorted(np.flatnonzero(left), key=lambda i: (-scores[i], i)):
        if left[i]:
            kept.append(i)
            left = left & ~suppresses[i]
    return kept


def table_of(regions, overlap=reference.iou):
    """Overlaps as float32 has them: boxes of small integers have exact areas."""
    with np.errstate(invalid="ignore"):
        return overlap(regions[:, None].astype(float), regions[None].astype(float)).astype("f4")


def crowd(rng, count, side=200, high=40):
    """Boxes of small integers that crowd together, and scores with many ties."""
    corner = rng.integers(-side, side, (count, 2))
    regions = np.concatenate([corner, corner + rng.integers(0, high, (count, 2))], 1)
    return regions.astype(np.float32), (rng.integers(0, count, count) / 8).astype(np.float32)


def assert_keeps(selection, wanted, max_outputs):
    wanted = list(wanted)[:max_outputs]
    behind = max_outputs - len(wanted)
    np.testing.assert_array_equal(selection.indices, wanted + [-1] * behind)
    np.testing.assert_array_equal(selection.valid, [True] * len(wanted) + [False] * behind)
    assert selection.indices.dtype == np.int32


def kept(regions, scores, **options):
    """What is kept of a few regions, as a list."""
    regions, scores = np.asarray(regions, np.float32), np.asarray(scores, np.float32)
    selection = nms(regions, scores, **{"max_outputs": len(scores)} | options)
    return list(np.asarray(selection.indices)[np.asarray(selection.valid)])


# Against the sequential algorithm ----------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.3, 0.5, 0.7, 1.0])
def test_keeps_what_greedy_suppression_keeps(threshold):
    for seed in range(8):
        regions, scores = crowd(np.random.default_rng(seed), 60, side=40)
        selection = nms(regions, scores, threshold=threshold, max_outputs=60)
        assert_keeps(selection, greedy(table_of(regions), scores, np.float32(threshold)), 60)


@pytest.mark.parametrize("overlap", ["giou", "diou", "ioa"])
def test_any_overlap_suppresses(overlap):
    regions, scores = crowd(np.random.default_rng(0), 60, side=40)
    table = table_of(regions, getattr(reference, overlap))
    # No overlap lies so near to the threshold that rounding decides.
    threshold = 0.3 if np.abs(table - 0.3).min() > 1e-6 else 0.301
    assert np.abs(table - threshold).min() > 1e-6
    got = kept(regions, scores, threshold=threshold, overlap=getattr(boxes, overlap))
    assert got == greedy(table, scores, threshold)


@pytest.mark.parametrize(
    ("count", "side", "max_outputs"),
    [
        (TILE - 1, 100, 300),  # one tile
        (TILE, 1000, 300),
        (TILE + 1, 1000, 300),  # one box more than a tile
        (3 * TILE, 200, 3 * TILE),  # all that is kept, in several chunks
        (3000, 200, 3000),
        (3000, 2000, 100),  # the buffer is full long before the boxes end
        (3000, 2, 100),  # the first wave does not fill the buffer
    ],
)
def test_tiles_and_the_kept_buffer_leave_no_seam(count, side, max_outputs):
    for seed in range(3):
        regions, scores = crowd(np.random.default_rng(seed), count, side)
        wanted = greedy(table_of(regions), scores, 0.5)
        selection = nms(regions, scores, threshold=0.5, max_outputs=max_outputs)
        assert_keeps(selection, wanted, max_outputs)
    if (count, side) == (3000, 2):
        first = np.sort(np.argsort(-scores, kind="stable")[: max(WAVE * max_outputs, TILE)])
        assert len(greedy(table_of(regions[first]), scores[first], 0.5)) < max_outputs


def test_a_smaller_buffer_keeps_the_first_of_a_larger_one():
    regions, scores = crowd(np.random.default_rng(0), 500)
    wanted = np.asarray(nms(regions, scores, threshold=0.3, max_outputs=500).indices)
    for max_outputs in (0, 1, 7, 499):
        selection = nms(regions, scores, threshold=0.3, max_outputs=max_outputs)
        np.testing.assert_array_equal(selection.indices, wanted[:max_outputs])


def test_a_chain_through_all_tiles_keeps_every_other_box():
    """Each suppresses the next alone, so a step settles one box; IoU 2/3 and 2/5."""
    x = np.arange(2 * TILE + 9, dtype=np.float32)
    regions = np.stack([x, 0 * x, x + 5, 0 * x + 1], axis=1)
    selection = nms(regions, -x, threshold=0.5, max_outputs=len(x))
    assert_keeps(selection, range(0, len(x), 2), len(x))


def test_labels_that_differ_do_not_suppress():
    for seed in range(3):
        rng = np.random.default_rng(seed)
        regions, scores = crowd(rng, 400, side=40)
        labels = rng.integers(-2, 3, 400).astype(np.int32)
        selection = nms(regions, scores, threshold=0.3, max_outputs=400, labels=labels)
        assert_keeps(selection, greedy(table_of(regions), scores, np.float32(0.3), labels), 400)


def test_what_does_not_count_may_hold_anything():
    rng = np.random.default_rng(0)
    regions, scores = crowd(rng, 400, side=40)
    where = rng.random(400) < 0.6
    wanted = greedy(table_of(regions), scores, 0.5, live=where)
    scores[~where], regions[~where] = np.nan, np.nan
    regions[np.flatnonzero(~where)[::2]] = np.inf
    scores[np.flatnonzero(~where)[::2]] = np.inf
    assert_keeps(nms(regions, scores, threshold=0.5, max_outputs=400, where=where), wanted, 400)
    compact = nms(regions[where], scores[where], threshold=0.5, max_outputs=400)
    np.testing.assert_array_equal(
        compact.take(np.flatnonzero(where).astype(np.int32), fill=-1),
        wanted + [-1] * (400 - len(wanted)),
    )


def test_scores_below_the_minimum_are_left_out():
    regions, scores = crowd(np.random.default_rng(0), 400, side=40)
    selection = nms(regions, scores, threshold=0.5, max_outputs=400, min_score=20.0)
    assert (scores == 20).any()
    assert_keeps(selection, greedy(table_of(regions), scores, 0.5, live=scores >= 20), 400)


def test_a_table_gives_what_its_regions_give():
    rng = np.random.default_rng(0)
    regions, scores = crowd(rng, 400, side=40)
    where, labels = rng.random(400) < 0.7, rng.integers(0, 2, 400).astype(np.int32)
    options = {"threshold": 0.3, "max_outputs": 400, "where": where, "labels": labels}
    wanted = nms(regions, scores, **options, min_score=1.0)
    table = np.array(pairwise(boxes.iou)(regions, regions))
    table[~where], table[:, ~where] = np.nan, np.nan
    selection = suppression.nms_from_overlaps(table, scores, **options, min_score=1.0)
    np.testing.assert_array_equal(selection.indices, wanted.indices)


def test_a_row_of_the_table_says_what_its_region_suppresses():
    table, scores = np.float32([[1, 0.9], [0, 1]]), np.float32([2, 1])
    run = functools.partial(suppression.nms_from_overlaps, threshold=0.5, max_outputs=2)
    assert_keeps(run(table, scores), [0], 2)
    assert_keeps(run(table.T, scores), [0, 1], 2)
    big, small = [0, 0, 4, 4], [0, 0, 1, 1]  # ioa is 1/16 one way, 1 the other
    assert kept([big, small], [2, 1], threshold=0.5, overlap=boxes.ioa) == [0, 1]
    assert kept([small, big], [2, 1], threshold=0.5, overlap=boxes.ioa) == [0]


def test_masks_are_suppressed_by_an_overlap_of_rank_two():
    def mask_iou(a, b):
        a, b = a.astype(jnp.float32), b.astype(jnp.float32)
        both = jnp.einsum("hw,hw->", a, b)
        return both / jnp.maximum(a.sum() + b.sum() - both, 1)

    mask_iou.region_rank = 2
    masks = np.zeros((4, 6, 6), np.float32)
    masks[0, :3], masks[1, :4], masks[2, 3:], masks[3, :2] = 1, 1, 1, 1  # IoU 3/4, 0, 2/3, 1/7, 1/2
    assert kept(masks, [4, 3, 2, 1], threshold=0.5, overlap=mask_iou) == [0, 2]
    assert kept(masks, [4, 3, 2, 1], threshold=0.7, overlap=mask_iou) == [0, 2, 3]
    scores = np.float32([4, 3, 2, 1])
    selection = nms(masks > 0, scores, threshold=0.7, max_outputs=4, overlap=mask_iou)
    assert_keeps(selection, [0, 2, 3], 4)


def test_batches_by_vmap_are_images_by_themselves():
    """Also where one image needs many tiles and another is done after one (N8)."""
    images = [crowd(np.random.default_rng(seed), 700, side=30 * 9**seed) for seed in range(3)]
    regions, scores = (np.stack(x) for x in zip(*images, strict=True))
    run = functools.partial(nms, threshold=0.5, max_outputs=100)
    selection = jax.jit(jax.vmap(run))(regions, scores)
    for image, of_image in enumerate(map(suppression.Selection, *selection)):
        wanted = greedy(table_of(regions[image]), scores[image], 0.5)
        assert_keeps(of_image, wanted, 100)


def test_thresholds_may_be_traced():
    regions, scores = crowd(np.random.default_rng(0), 60, side=40)
    thresholds = np.float32([0, 0.3, 0.5, 0.9])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, None, 0, 0))
    def run(regions, scores, threshold, min_score):
        return nms(regions, scores, threshold=threshold, max_outputs=60, min_score=min_score)

    selection = run(regions, scores, thresholds, 2 * thresholds)
    for threshold, one in zip(thresholds, map(suppression.Selection, *selection), strict=True):
        wanted = greedy(table_of(regions), scores, threshold, live=scores >= 2 * threshold)
        assert_keeps(one, wanted, 60)


def test_memory_grows_with_boxes_and_outputs_but_not_with_their_square():
    count = 100_000
    run = jax.jit(functools.partial(nms, threshold=0.5, max_outputs=300))
    box, score = jax.ShapeDtypeStruct((count, 4), "f4"), jax.ShapeDtypeStruct((count,), "f4")
    memory = run.lower(box, score).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 10 * count * 5 * 4


def test_the_gradient_of_what_is_taken_goes_to_the_rows_kept():
    regions = jnp.array([[0.0, 0, 4, 4], [0, 0, 4, 5], [6, 6, 9, 9]])

    def total(regions, scores):
        selection = nms(regions, scores, threshold=0.5, max_outputs=3)
        return (selection.take(regions).sum(axis=1) * selection.take(scores)).sum()

    by_region, by_score = jax.grad(total, (0, 1))(regions, jnp.array([0.7, 0.9, 0.8]))
    np.testing.assert_allclose(by_region, np.float32([[0] * 4, [0.9] * 4, [0.8] * 4]))
    np.testing.assert_allclose(by_score, [0, 9, 30])


# Golden cases of other libraries' faults -----------------------------------------------------


def test_an_overlap_equal_to_the_threshold_keeps_both():
    @functools.partial(jax.jit, compiler_options=AS_USERS)  # which must not round otherwise
    def stays(regions, threshold):
        scores = np.float32([2, 1])
        return nms(regions, scores, threshold=threshold, max_outputs=2).valid.sum()

    assert stays(np.float32([[0, 0, 10, 10], [0, 0, 10, 5]]), 0.5) == 2
    assert stays(np.float32([[0, 0, 10, 10], [0, 0, 10, 5]]), 0.4999) == 1
    assert stays(np.float32([[0, 0, 1, 1]] * 2), 1.0) == 2


def test_of_equal_boxes_with_equal_scores_the_first_is_kept():
    assert kept([[0, 0, 1, 1]] * 3, [1, 1, 1], threshold=0.5) == [0]


def test_equal_scores_keep_the_order_of_the_input():
    apart = [[10 * i, 0, 10 * i + 1, 1] for i in range(5)]
    assert kept(apart, [1, 2, 2, 1, 2], threshold=0.5) == [1, 2, 4, 0, 3]
    assert kept(apart, [0.0, -0.0, 0.0, -0.0, 0.0], threshold=0.5) == [0, 1, 2, 3, 4]
    many = np.zeros(4 * TILE, np.float32)
    many[::2] = -0.0
    far = np.arange(4 * TILE, dtype=np.float32)[:, None] * 2 + np.float32([0, 0, 1, 1])
    assert_keeps(nms(far, many, threshold=0.5, max_outputs=9), range(9), 9)


def test_scores_that_are_not_numbers_are_never_kept():
    apart = [[10 * i, 0, 10 * i + 1, 1] for i in range(4)]
    assert kept(apart, [1, np.nan, 2, -np.nan], threshold=0.5) == [2, 0]
    assert kept([[0, 0, 1, 1]] * 2, [np.nan, 1], threshold=0.5) == [1]
    assert kept(apart, [np.nan] * 4, threshold=0.5) == []


def test_a_score_of_minus_infinity_is_never_kept_and_the_largest_is():
    apart = [[10 * i, 0, 10 * i + 1, 1] for i in range(4)]
    assert kept(apart, [-np.inf, -3e38, np.inf, 1], threshold=0.5) == [2, 3, 1]
    assert kept([[0, 0, 1, 1]] * 2, [-np.inf] * 2, threshold=0.5, min_score=-np.inf) == []


def test_degenerate_boxes_and_nan_end_and_suppress_nothing():
    odd = [[5, 5, 5, 5], [5, 5, 5, 5], [9, 9, 1, 1], [np.nan] * 4, [0, 0, np.inf, 1], [0, 0, 9, 9]]
    assert kept(odd, [6, 5, 4, 3, 2, 1], threshold=0.0) == [0, 1, 2, 3, 4, 5]


def test_a_region_of_nan_meets_none_whatever_the_overlap_says():
    def always(a, b):
        return jnp.ones_like(a[0] * 0, jnp.float32)

    odd = [[np.nan, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, np.nan], [5, 5, 6, 6]]
    assert kept(odd, [4, 3, 2, 1], threshold=0.5, overlap=always) == [0, 1, 2]


def test_classes_are_told_apart_by_equality_not_by_moving_boxes():
    pair = [[0, 0, 10, 10], [-11, -11, -1, -1]]
    assert kept(pair, [2, 1], threshold=0.5, labels=np.int32([0, 1])) == [0, 1]
    small = [[0.1, 0.1, 0.2, 0.2], [0.1, 0.1, 0.2, 0.155], [0, 0, 1000, 1000]]
    labels = np.int32([1000, 1000, 0])
    assert kept(small, [3, 2, 1], threshold=0.5, labels=labels) == [0, 2]


@pytest.mark.parametrize("threshold", [0.3, 0.4])
def test_a_box_suppressed_within_its_tile_suppresses_nothing(threshold):
    row = [[1, 1, 11, 11], [5, 1, 15, 11], [9, 1, 19, 11]]
    assert kept(row, [3, 2, 1], threshold=threshold) == [0, 2]


def test_boxes_at_negative_coordinates_are_kept():
    assert kept([[-20, -20, -10, -10], [-5, -5, 0, 0]], [2, 1], threshold=0.5) == [0, 1]


def test_threshold_zero_keeps_disjoint_and_touching_boxes():
    apart = [[0, 0, 1, 1], [1, 0, 2, 1], [5, 5, 6, 6]]
    assert kept(apart, [3, 2, 1], threshold=0.0) == [0, 1, 2]


def test_no_boxes_and_no_outputs():
    none = np.zeros((0, 4), np.float32), np.zeros(0, np.float32)
    assert_keeps(nms(*none, threshold=0.5, max_outputs=3), [], 3)
    assert_keeps(nms(*none, threshold=0.5, max_outputs=0), [], 0)
    assert_keeps(nms(*none, threshold=0.5, max_outputs=3, labels=np.zeros(0, "i4")), [], 3)
    table = np.zeros((0, 0), np.float32)
    run = functools.partial(suppression.nms_from_overlaps, threshold=0.5, max_outputs=2)
    assert_keeps(run(table, none[1]), [], 2)
    batch = jax.vmap(functools.partial(nms, threshold=0.5, max_outputs=3))
    assert batch(np.zeros((0, 5, 4), "f4"), np.zeros((0, 5), "f4")).indices.shape == (0, 3)


def test_more_outputs_than_boxes_are_padded():
    assert_keeps(
        nms(np.float32([[0, 0, 1, 1]]), np.float32([1]), threshold=0.5, max_outputs=4), [0], 4
    )


# Errors ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_jaxtyping")
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"scores": np.zeros(2, "f4")}, ValueError, r"scores must have shape \[3\] .*got \[2\]"),
        ({"regions": np.zeros((3, 5), "f4")}, ValueError, r"must have shape .*4\]"),
        ({"regions": np.zeros(4, "f4")}, ValueError, r"regions must have shape"),
        ({"regions": np.zeros((2, 3, 4), "f4")}, ValueError, r"regions must have shape \[_, _\]"),
        ({"labels": np.zeros(2, "i4")}, ValueError, r"labels must have shape \[3\] .*got \[2\]"),
        ({"labels": np.zeros(3, "f4")}, TypeError, "labels must hold integers, got dtype float32"),
        ({"where": np.ones(3, "i4")}, TypeError, "where must be boolean"),
        ({"where": np.ones(2, bool)}, ValueError, "where must have rank 1"),
        ({"max_outputs": -1}, ValueError, "max_outputs must be 0 or more, got -1"),
        ({"max_outputs": 2.0}, TypeError, "max_outputs must be an integer, got float"),
        (
            {"threshold": np.zeros(3, "f4")},
            ValueError,
            r"threshold must be a number, got shape \[3\]",
        ),
        ({"min_score": np.zeros(3, "f4")}, ValueError, r"min_score must be a number"),
        ({"threshold": None}, TypeError, "threshold must be a number, got None"),
        ({"overlap": lambda a, b: a}, ValueError, "overlap must give one number"),
        ({"scores": [1.0, 2.0, 3.0]}, TypeError, "scores must be a JAX or NumPy array, got list"),
    ],
)
def test_wrong_arguments_are_errors_that_name_them(change, error, message):
    arguments = {"regions": np.zeros((3, 4), "f4"), "scores": np.zeros(3, "f4")}
    arguments |= {"threshold": 0.5, "max_outputs": 3} | change
    with pytest.raises(error, match=message):
        nms(**arguments)


@pytest.mark.usefixtures("without_jaxtyping")
def test_scores_of_a_table_are_an_array_and_candidates_some():
    table, regions = np.zeros((3, 3), "f4"), np.zeros((3, 4), "f4")
    with pytest.raises(TypeError, match="scores must be a JAX or NumPy array"):
        suppression.nms_from_overlaps(table, [1.0, 2, 3], threshold=0.5, max_outputs=3)
    with pytest.raises(ValueError, match=r"scores must have shape \[_, \.\.\.\], got \[\]"):
        suppression.nms_from_overlaps(table, np.zeros((), np.float32), threshold=0.5, max_outputs=3)
    with pytest.raises(ValueError, match="candidates must be 1 or more, got 0"):
        suppression.matrix_nms(regions, np.zeros(3, "f4"), max_outputs=3, candidates=0)


@pytest.mark.usefixtures("without_jaxtyping")
def test_a_table_that_is_not_square_is_an_error():
    with pytest.raises(ValueError, match=r"overlaps must have shape \[3, 3\] .*got \[3, 4\]"):
        suppression.nms_from_overlaps(
            np.zeros((3, 4), "f4"), np.zeros(3, "f4"), threshold=0.5, max_outputs=3
        )


# What other platforms run ----------------------------------------------------------------------


def test_the_form_for_accelerators_keeps_the_same(monkeypatch):
    """The branch that CPU never takes, on CPU."""

    def on_accelerators(*args, default, **_):
        return default(*args)

    monkeypatch.setattr(jax.lax, "platform_dependent", on_accelerators)
    regions, scores = crowd(np.random.default_rng(0), 3000, side=2)
    labels = np.random.default_rng(1).integers(0, 2, 3000).astype(np.int32)
    wanted = greedy(table_of(regions), scores, 0.5, labels)
    # Unwrapped, and so compiled anew: it takes several waves.
    run = jax.jit(functools.partial(nms.__wrapped__, threshold=0.5, max_outputs=100))
    assert_keeps(run(regions, scores, labels=labels), wanted, 100)
