"""Tables of all pairs and best partners: against loops, for any overlap, with any padding."""

import functools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from jaxiou import boxes, losses, pairing, pairwise
from jaxiou.pairing import best_match

NAN = float("nan")
RATIOS = ["iou", "giou", "diou", "ciou", "ioa", "dice"]
OVERLAPS = ["intersection", "union", *RATIOS]


def adversarial(n, m, seed=0):
    a, b = reference.pairs("float32", 4000, seed=seed)
    step = 4000 // max(n, m)
    return a[::step][:n], b[::step][:m]


def whole(rng, *shape, size=5):
    """Boxes on a small lattice: many ties, and many that are equal, touch or are empty."""
    start, end = rng.integers(0, size, (2, *shape, 2))
    return np.concatenate([start, np.maximum(start, end)], axis=-1).astype(np.float32)


def random(rng, *shape):
    start, size = rng.uniform(0, 9, (2, *shape, 2))
    return np.concatenate([start, start + size], axis=-1).astype(np.float32)


# Tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_table_holds_every_pair_s_own_value(name):
    a, b = adversarial(16, 20)
    table = np.asarray(pairwise(getattr(boxes, name))(a, b))
    expected = [[getattr(reference, name)(x, y) for y in b] for x in a]
    assert table.shape == (16, 20)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, expected, rtol=1e-6, atol=1e-6 if name in RATIOS else 1e-37)


def test_a_square_table_is_not_transposed():
    a, b = adversarial(6, 6)
    for name in ("diou", "ioa"):
        table = pairwise(getattr(boxes, name))(a, b)
        expected = reference.table(getattr(reference, name), a, b)
        assert not np.allclose(expected, expected.T)
        np.testing.assert_allclose(table, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (4,)),
        ((5, 3), (4,)),
        ((3,), (5, 4)),
        ((5, 3), (5, 4)),
        ((5, 3), (1, 4)),
        ((2, 1, 3), (3, 4)),
        ((2, 1, 3), (1, 3, 4)),
        ((2, 3, 1), (3, 1)),
        ((0,), (4,)),
        ((5, 3), (1, 0)),
        ((0, 3), (1, 4)),
        ((2, 1, 3), (0, 4)),
    ],
)
def test_leading_axes_of_a_table_broadcast_and_may_be_empty(left, right):
    rng = np.random.default_rng(0)
    a, b = random(rng, *left), random(rng, *right)
    table = pairwise(boxes.iou)(a, b)
    expected = reference.table(reference.iou, a, b)
    assert table.shape == expected.shape
    np.testing.assert_allclose(table, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((2, 1, 3), (3, 4)),
        ((3,), (5, 4)),
        ((2, 3, 1), (3, 1)),
        ((0,), (4,)),
        ((3,), (0,)),
        ((5, 0), (4,)),
        ((5, 3), (1, 0)),
        ((0, 3), (1, 4)),
    ],
)
def test_leading_axes_of_a_match_broadcast_and_may_be_empty(left, right):
    rng = np.random.default_rng(0)
    a, b = random(rng, *left), random(rng, *right)
    expected = reference.table(reference.ioa, a, b)
    values, indices, valid = best_match(boxes.ioa)(a, b)
    assert values.shape == indices.shape == valid.shape == expected.shape[:-1]
    if expected.shape[-1]:
        np.testing.assert_array_equal(indices, expected.argmax(-1))
        np.testing.assert_allclose(values, expected.max(-1), atol=1e-6)
    assert (np.asarray(valid) == (expected.shape[-1] > 0)).all()


def test_a_table_of_an_overlap_of_one_s_own():
    def overlap(p, q):
        """Written for two single boxes, without a thought of batches."""
        assert p.shape == q.shape == (4,)
        (px1, py1, px2, py2), (qx1, qy1, qx2, qy2) = p, q
        width = jnp.maximum(jnp.minimum(px2, qx2) - jnp.maximum(px1, qx1), 0)
        height = jnp.maximum(jnp.minimum(py2, qy2) - jnp.maximum(py1, qy1), 0)
        shared = width * height
        return shared / ((px2 - px1) * (py2 - py1) + (qx2 - qx1) * (qy2 - qy1) - shared)

    rng = np.random.default_rng(0)
    a, b = random(rng, 2, 1, 5), random(rng, 3, 6)
    expected = reference.table(reference.iou, a, b)
    np.testing.assert_allclose(pairwise(overlap)(a, b), expected, atol=1e-6)
    match = best_match(overlap)(a, b)
    np.testing.assert_array_equal(match.indices, expected.argmax(-1))


def test_a_table_of_a_partial_of_an_overlap():
    def scaled(p, q, scale):
        return scale * boxes.iou(p, q)

    a, b = whole(np.random.default_rng(0), 2, 6)
    table = pairwise(functools.partial(scaled, scale=3))(a, b)
    np.testing.assert_allclose(table, 3 * reference.table(reference.iou, a, b), rtol=1e-6)


def mask_iou(p, q):
    assert p.ndim == q.ndim == 2
    return (p & q).sum() / jnp.maximum((p | q).sum(), 1)


@pytest.mark.parametrize(
    "overlap",
    [
        lambda p, q: mask_iou(p, q),
        functools.partial(mask_iou),
        functools.partial(functools.partial(mask_iou)),
    ],
)
def test_regions_of_two_axes(overlap):
    rng = np.random.default_rng(0)
    a, b = ((rng.random((*n, 6, 7)) < 0.5).astype(np.uint8) for n in ((2, 3), (4,)))
    expected = np.array(
        [[[(x & y).sum() / (x | y).sum() for y in b] for x in batch] for batch in a]
    )
    table = pairwise(overlap, region_rank=2)(a, b)
    np.testing.assert_allclose(table, expected, rtol=1e-6)
    match = best_match(overlap, region_rank=2)(a, b)
    np.testing.assert_array_equal(match.indices, expected.argmax(-1))
    np.testing.assert_allclose(match.values, expected.max(-1), rtol=1e-6)


def test_the_rank_of_a_region_is_read_off_the_overlap_also_through_partials():
    def overlap(p, q, *, power=1):
        return mask_iou(p, q) ** power

    overlap.region_rank = 2
    masks = np.eye(3, dtype=np.uint8)[:, :, None] * np.ones(2, np.uint8)
    for f in (overlap, functools.partial(functools.partial(overlap), power=2)):
        np.testing.assert_array_equal(pairwise(f)(masks, masks), np.eye(3))
        assert best_match(f)(masks, masks).indices.tolist() == [0, 1, 2]
        assert losses.overlap_loss(f)(masks, masks).tolist() == [0, 0, 0]
    # Said outright, it goes before what the function carries.
    assert pairwise(overlap, region_rank=2)(masks, masks).shape == (3, 3)


@pytest.mark.parametrize("f", [pairwise, best_match])
def test_boolean_masks(f):
    masks = np.eye(3, dtype=bool)[:, :, None]

    def overlap(p, q):
        assert p.dtype == q.dtype == bool
        return mask_iou(p, q)

    result = f(overlap, region_rank=2)(masks, masks)
    result = result if f is pairwise else result.indices
    assert result.tolist() == (np.eye(3).tolist() if f is pairwise else [0, 1, 2])


def test_regions_of_no_axes():
    def nearness(p, q):
        return -abs(p - q)

    a, b = np.float32([0, 1, 2]), np.float32([2, 0.4])
    table = pairwise(nearness, region_rank=0)(a, b)
    np.testing.assert_allclose(table, -np.abs(a[:, None] - b), rtol=1e-6)
    assert best_match(nearness, region_rank=0)(a, b).indices.tolist() == [1, 1, 0]


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float64"])
def test_regions_of_other_types(dtype):
    with jax.enable_x64(dtype == "float64"):
        a = whole(np.random.default_rng(0), 5).astype(jnp.dtype(dtype))
        b = whole(np.random.default_rng(1), 6).astype(jnp.dtype(dtype))
        expected = reference.table(reference.iou, a, b)
        table = pairwise(boxes.iou)(a, b)
        assert table.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(table, expected, rtol=1e-6)
        if dtype in ("uint8", "float64"):
            match = best_match(boxes.iou)(a, b)
            assert match.values.dtype == table.dtype
            assert match.indices.dtype == jnp.int32
            np.testing.assert_array_equal(match.indices, table.argmax(-1))


def test_an_overlap_may_return_an_array():
    a, b = adversarial(5, 6)
    table = pairwise(boxes.enclosing)(a, b)
    assert table.shape == (5, 6, 4)
    np.testing.assert_array_equal(table, reference.enclosing(a[:, None], b))


def test_one_set_may_be_float32_and_the_other_integers():
    a, b = random(np.random.default_rng(0), 5), whole(np.random.default_rng(1), 6)
    table = pairwise(boxes.iou)(a, b.astype(np.uint8))
    np.testing.assert_allclose(table, reference.table(reference.iou, a, b), atol=1e-6)


def test_nan_fills_its_own_row_or_column_only():
    a, b = adversarial(5, 6)
    a[1], b[4, 2] = NAN, NAN
    for name in ("intersection", "giou", "ciou", "ioa"):
        table = np.isnan(pairwise(getattr(boxes, name))(a, b))
        expected = np.zeros((5, 6), bool)
        expected[1], expected[:, 4] = True, True
        np.testing.assert_array_equal(table, expected)


def test_odd_bits_pass_through_a_table_unchanged():
    # Sets are laid out anew on the way; zeros of either sign, infinities and NaN survive it.
    odd = np.array([-0.0, 0.0, np.inf, -np.inf, NAN, 1e-45, -3e38, 7], np.float32)
    a, b = odd[:, None], np.array([[1.0]], np.float32)
    bits = pairwise(lambda p, q: jax.lax.bitcast_convert_type(p[0], jnp.int32))(a, b)
    np.testing.assert_array_equal(bits[:, 0], odd.view(np.int32))


def test_equal_calls_give_one_object_and_trace_once():
    assert pairwise(boxes.iou) is pairwise(boxes.iou)
    assert best_match(boxes.iou) is best_match(boxes.iou)
    assert pairwise(boxes.iou, region_rank=1) is pairwise(boxes.iou, region_rank=1)

    traces = []

    def overlap(p, q):
        traces.append(1)
        return boxes.iou(p, q)

    a, b = adversarial(5, 6)
    pairwise(overlap)(a, b)
    best_match(overlap)(a, b)
    count = len(traces)
    pairwise(overlap)(b[:5], np.concatenate([a, a[:1]]))
    best_match(overlap)(b[:5], np.concatenate([a, a[:1]]))
    assert len(traces) == count


def test_the_gradient_of_a_table_is_that_of_its_pairs():
    rng = np.random.default_rng(0)
    a, b, weights = random(rng, 5), random(rng, 6), rng.normal(size=(5, 6)).astype(np.float32)

    def total(f):
        return jax.jit(jax.grad(lambda a, b: (weights * f(a, b)).sum(), (0, 1)))

    broadcast = total(lambda a, b: boxes.iou(a[:, None], b[None]))(a, b)
    for x, y in zip(total(pairwise(boxes.iou))(a, b), broadcast, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_a_region_may_be_a_long_vector():
    # A table of dot products of 300 numbers.
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 7, 300)).astype(np.float32)
    np.testing.assert_allclose(pairwise(jnp.vdot)(a, b), a @ b.T, rtol=1e-4, atol=1e-4)


# Invariants ------------------------------------------------------------------------------

settings = hypothesis.settings(
    max_examples=40, deadline=None, derandomize=True, database=None, print_blob=False
)
floats = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)
corners = st.one_of(floats, st.integers(-3, 3))
six = st_numpy.arrays(np.float32, (6, 4), elements=corners)


@settings
@hypothesis.given(six, six, st.permutations(range(6)), st.permutations(range(6)))
def test_permuted_sets_give_a_permuted_table(a, b, rows, columns):
    for name in ("iou", "ciou"):
        table = np.asarray(pairwise(getattr(boxes, name))(a, b))
        permuted = pairwise(getattr(boxes, name))(a[rows], b[columns])
        np.testing.assert_array_equal(permuted, table[rows][:, columns])


@settings
@hypothesis.given(six, six, st.permutations(range(6)))
def test_a_permuted_set_gives_the_same_best_values(a, b, order):
    f = best_match(boxes.iou)
    match, permuted = f(a, b), f(a, b[order])
    np.testing.assert_array_equal(match.values, permuted.values)
    # The partner is the same or as good.
    chosen = np.asarray(boxes.iou(a, b[order][permuted.indices]))
    np.testing.assert_array_equal(chosen, match.values)


@settings
@hypothesis.given(six, six, st.sampled_from([0.0, 7.0, NAN, np.inf]))
def test_padding_under_the_mask_changes_nothing(a, b, fill):
    f = best_match(boxes.giou)
    match = f(a, b)
    pad = np.full((3, 4), fill, np.float32)
    where = np.arange(9) < 6
    padded = f(np.concatenate([a, pad]), np.concatenate([b, pad]), where=where[:, None] & where)
    for x, y in zip(match, padded, strict=True):
        np.testing.assert_array_equal(x, np.asarray(y)[:6])
    assert padded.indices[6:].tolist() == [-1] * 3
    assert not padded.valid[6:].any()
    assert np.isneginf(padded.values[6:]).all()


@settings
@hypothesis.given(six, six)
def test_the_columns_of_a_table_do_not_depend_on_what_stands_beside_them(a, b):
    f = pairwise(boxes.iou)
    np.testing.assert_array_equal(f(a, np.concatenate([b, a]))[:, :6], f(a, b))


# The best partner --------------------------------------------------------------------------


def numpy_match(table, where):
    """The lowest index of the greatest allowed number that is not NaN."""
    scores = np.where(where & ~np.isnan(table), table, -np.inf)
    indices, values = scores.argmax(axis=-1), scores.max(axis=-1)
    valid = values > -np.inf
    return values, np.where(valid, indices, -1), valid


def assert_matches(match, expected):
    for x, y in zip(match, expected, strict=True):
        np.testing.assert_array_equal(x, y)
    assert match.indices.dtype == jnp.int32
    assert match.valid.dtype == bool


MASKS = {
    "none": None,
    "columns": (1, 13),
    "rows": (9, 1),
    "pairs": (9, 13),
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("count", [9])
def test_the_best_partner_is_numpy_s_argmax_with_ties_to_the_lowest_index(kind, count):
    rng = np.random.default_rng(0)
    f = best_match(boxes.iou)
    ties = 0
    for _ in range(5):
        a, b = whole(rng, count), whole(rng, 13)
        b[rng.random(13) < 0.2] = NAN
        a[rng.random(9) < 0.1] = NAN
        where = np.array(True) if MASKS[kind] is None else rng.random(MASKS[kind]) < 0.6
        table = np.asarray(pairwise(boxes.iou)(a, b))
        match = f(a, b) if MASKS[kind] is None else f(a, b, where=where)
        assert_matches(match, numpy_match(table, where))
        ties += ((table == match.values[:, None]).sum(axis=1) > 1).sum()
    assert ties > 5


@pytest.mark.parametrize("name", ["intersection", "ciou"])
def test_the_best_partner_of_adversarial_boxes_is_within_rounding_of_the_best(name):
    a, b = adversarial(60, 70, seed=1)
    if name == "intersection":  # an area has no range to be near in
        a, b = random(np.random.default_rng(0), 60), random(np.random.default_rng(1), 70)
    match = best_match(getattr(boxes, name))(a, b)
    table = reference.table(getattr(reference, name), a, b)
    chosen = table[np.arange(60), match.indices]
    np.testing.assert_allclose(chosen, table.max(axis=1), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(match.values, chosen, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "shape",
    [(2, 3, 5, 6), (2, 1, 1, 6), (1, 3, 5, 1)],
)
def test_masks_broadcast_over_batches(shape):
    rng = np.random.default_rng(0)
    a, b, where = whole(rng, 2, 1, 5), whole(rng, 3, 6), rng.random(shape) < 0.5
    match = best_match(boxes.iou)(a, b, where=where)
    assert_matches(match, numpy_match(np.asarray(pairwise(boxes.iou)(a, b)), where))


@pytest.mark.parametrize("count", [1, 3, 4, 5])
def test_every_number_of_partners_is_looked_at(count):
    # The last one is the best, and several are taken at a time.
    b = np.tile(np.float32([0, 0, 4, 1]), (count, 1))
    b[-1, 3] = 2
    a, last = np.float32([[0, 0, 4, 4]]), np.arange(count)[None] == count - 1
    match = best_match(boxes.iou)(a, b, where=last | True)
    assert (match.indices.tolist(), match.values.tolist()) == ([count - 1], [0.5])
    match = best_match(boxes.iou)(a, b, where=~last)
    assert match.indices.tolist() == [0 if count > 1 else -1]


def test_the_search_by_steps_and_the_one_over_the_table_agree():
    # The one runs on CPU, the other on accelerators.
    rng = np.random.default_rng(0)
    a, b = whole(rng, 40), whole(rng, 30)
    a[3], b[4], b[7, 1] = NAN, NAN, NAN
    by_steps = jax.jit(functools.partial(pairing._best_by_steps, boxes.iou))
    of_table = jax.jit(functools.partial(pairing._best_of_table, boxes.iou, 1))
    for shape in ((1, 30), (40, 30)):
        where = rng.random(shape) < 0.7
        steps, table = by_steps(a, b, where), of_table(a, b, where)
        np.testing.assert_array_equal(steps, table)
        _, expected, _ = numpy_match(np.asarray(pairwise(boxes.iou)(a, b)), np.asarray(where))
        np.testing.assert_array_equal(steps, expected)


def test_nan_never_wins_and_leaves_nothing_if_it_is_all_there_is():
    a = np.float32([[0, 0, 4, 4], [NAN, 0, 1, 1], [50, 50, 60, 60]])
    b = np.float32([[NAN] * 4, [0, 0, 4, 2], [NAN, 0, 9, 9]])
    match = best_match(boxes.iou)(a, b)
    assert match.indices.tolist() == [1, -1, 1]
    assert match.values.tolist() == [0.5, -np.inf, 0]
    assert match.valid.tolist() == [True, False, True]
    match = best_match(boxes.iou)(a, b[[0, 2]])
    assert match.indices.tolist() == [-1, -1, -1]


def test_nothing_allowed_gives_no_index_no_value_and_no_gradient():
    a, b = random(np.random.default_rng(0), 3), random(np.random.default_rng(1), 4)
    where = np.zeros((1, 4), bool)
    match = best_match(boxes.giou)(a, b, where=where)
    assert match.indices.tolist() == [-1] * 3
    assert match.values.tolist() == [-np.inf] * 3
    assert match.valid.tolist() == [False] * 3

    def total(a, b):
        match = best_match(boxes.giou)(a, b, where=where)
        return jnp.where(match.valid, match.values, 0).sum() + match.values.sum()

    for slope in jax.jit(jax.grad(total, (0, 1)))(a, b):
        assert (slope == 0).all()


def test_nan_under_the_mask_leaves_no_trace_in_value_or_gradient():
    rng = np.random.default_rng(0)
    a, b = random(rng, 2, 6), random(rng, 2, 8)
    rows, columns = rng.random((2, 6)) < 0.6, rng.random((2, 8)) < 0.6
    rows[1], columns[0, 0] = True, True
    where = rows[:, :, None] & columns[:, None, :]

    def total(a, b):
        match = best_match(boxes.giou)(a, b, where=where)
        return jnp.where(match.valid, match.values, 0).sum(), match

    f = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))
    with jax.debug_nans(True):
        clean = f(np.where(rows[..., None], a, 1), np.where(columns[..., None], b, 2))
        dirty = f(np.where(rows[..., None], a, NAN), np.where(columns[..., None], b, NAN))
    for x, y in zip(jax.tree.leaves(clean), jax.tree.leaves(dirty), strict=True):
        np.testing.assert_array_equal(x, y)


def test_nan_that_may_be_chosen_leaves_no_trace_in_other_gradients():
    rng = np.random.default_rng(0)
    a, b, rows = random(rng, 6), random(rng, 8), np.arange(6) != 2

    def total(a, b):
        match = best_match(boxes.giou)(a, b)
        return jnp.where(match.valid & rows, match.values, 0).sum()

    f = jax.jit(jax.grad(total, (0, 1)))
    # A box too far away to be anyone's best, and one row that does not count.
    b[5] = 1e6, 1e6, 1e6 + 1, 1e6 + 1
    expected = f(a, b)
    a[2], b[5] = NAN, NAN
    for x, y in zip(f(a, b), expected, strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_array_equal(x, y)


def test_the_gradient_is_that_of_the_pairs_chosen():
    rng = np.random.default_rng(0)
    a, b, weights = random(rng, 3, 9), random(rng, 7), rng.normal(size=(3, 9)).astype(np.float32)

    @jax.jit
    def both(a, b):
        indices = best_match(boxes.giou)(a, b).indices
        best = jax.grad(lambda a, b: (weights * best_match(boxes.giou)(a, b).values).sum(), (0, 1))
        chosen = jax.grad(lambda a, b: (weights * boxes.giou(a, b[indices])).sum(), (0, 1))
        return best(a, b), chosen(a, b)

    for x, y in zip(*both(a, b), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_the_best_value_has_a_forward_derivative_too():
    rng = np.random.default_rng(0)
    a, b, tangent = random(rng, 9), random(rng, 7), random(rng, 9)

    @jax.jit
    def both(a, b):
        def f(a):
            return best_match(boxes.iou)(a, b).values

        reverse = jax.grad(lambda a: f(a).sum())(a)
        return jax.jvp(f, (a,), (tangent,))[1], (reverse * tangent).sum(axis=1)

    np.testing.assert_allclose(*both(a, b), rtol=1e-5, atol=1e-6)


def test_minus_infinity_never_wins():
    def log_iou(p, q):
        return jnp.log(boxes.iou(p, q))

    a, b = np.float32([[0, 0, 2, 2], [8, 8, 9, 9]]), np.float32([[5, 5, 6, 6], [0, 0, 2, 1]])
    match = best_match(log_iou)(a, b)
    assert match.indices.tolist() == [1, -1]
    assert match.valid.tolist() == [True, False]


# The others do less of what these do.
@pytest.mark.parametrize("name", ["giou", "ciou", "dice"])
def test_200_000_anchors_against_500_truths_need_megabytes_forward_and_backward(name):
    match = best_match(getattr(boxes, name))
    anchors = jax.ShapeDtypeStruct((200_000, 4), jnp.float32)
    truths = jax.ShapeDtypeStruct((500, 4), jnp.float32)
    where = jax.ShapeDtypeStruct((1, 500), jnp.bool)

    def total(anchors, truths, where):
        values, indices, valid = match(anchors, truths, where=where)
        return jnp.where(valid, values, 0).sum(), indices

    functions = [jax.value_and_grad(total, (0, 1), has_aux=True)]
    functions += [total] if name == "dice" else []
    for f in functions:
        compiled = jax.jit(f).lower(anchors, truths, where).compile()
        # The table would be 400 MB.
        assert compiled.memory_analysis().temp_size_in_bytes < 100e6


# What belongs to a partner ---------------------------------------------------------------


def test_take_gives_the_rows_of_partners_and_the_fill_elsewhere():
    a = np.float32([[0, 0, 4, 4], [8, 8, 9, 9], [NAN] * 4])
    b = np.float32([[8, 8, 9, 9], [0, 0, 4, 4]])
    match = best_match(boxes.iou)(a, b)
    assert match.take(np.array([10, 20], np.int32)).tolist() == [20, 10, 0]
    assert match.take(jnp.array([10, 20]), fill=-1).tolist() == [20, 10, -1]
    assert match.take(np.array([True, False])).tolist() == [False, True, False]
    assert match.take(b).tolist() == [[0, 0, 4, 4], [8, 8, 9, 9], [0] * 4]
    assert np.isnan(match.take(b, fill=NAN)[2]).all()
    deep = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert match.take(deep).tolist() == [deep[1].tolist(), deep[0].tolist(), (deep[0] * 0).tolist()]
    for dtype in ("uint8", "int32", "bfloat16", "float32"):
        assert match.take(jnp.zeros(2, dtype)).dtype == dtype


@pytest.mark.parametrize(("given", "taken"), [("int64", "int32"), ("float64", "float32")])
def test_take_has_64_bit_arrays_of_numpy_as_jax_has_them(given, taken):
    match = best_match(boxes.iou)(*np.float32([[[0, 0, 4, 4]], [[0, 0, 4, 4]]]))
    labels = match.take(np.array([10], given))
    assert (labels.tolist(), labels.dtype) == ([10], taken)
    with jax.enable_x64(True):
        assert match.take(np.array([2**40])).tolist() == [2**40]


def test_take_follows_the_batch_axes():
    rng = np.random.default_rng(0)
    a, b, labels = whole(rng, 2, 3, 5), whole(rng, 3, 6), rng.integers(0, 99, (2, 3, 6))
    where = rng.random((2, 3, 1, 6)) < 0.3
    where[1, 2] = False
    match = best_match(boxes.iou)(a, b, where=where)
    expected = np.take_along_axis(labels, np.maximum(match.indices, 0), axis=-1)
    expected = np.where(match.valid, expected, -7)
    np.testing.assert_array_equal(match.take(labels, fill=-7), expected)
    assert (~np.asarray(match.valid)).any()


def test_take_of_no_partners_is_the_fill():
    match = best_match(boxes.iou)(np.zeros((2, 3, 4), np.float32), np.zeros((2, 0, 4), np.float32))
    assert match.take(np.zeros((2, 0), np.int32), fill=5).tolist() == [[5] * 3] * 2
    assert match.take(np.zeros((2, 0, 4), np.float32)).shape == (2, 3, 4)


def test_take_has_no_gradient_where_there_is_no_partner():
    a, b = np.float32([[0, 0, 4, 4], [NAN] * 4]), np.float32([[0, 0, 4, 4], [9, 9, 10, 10]])

    def total(x):
        return best_match(boxes.iou)(a, b).take(x).sum()

    assert jax.grad(total)(jnp.array([1.0, 2.0])).tolist() == [1, 0]


def test_take_names_what_has_no_rows(without_jaxtyping):
    one = best_match(boxes.iou)(np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32))
    with pytest.raises(TypeError, match="x must be a JAX or NumPy array, got list"):
        one.take([10, 20])
    with pytest.raises(ValueError, match=r"x must have shape \[_, \.\.\.\], got \[\]"):
        one.take(jnp.array(5))
    two = best_match(boxes.iou)(np.zeros((7, 3, 4), np.float32), np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"x must have shape \[7, _, \.\.\.\], got \[2\]"):
        two.take(jnp.array([10, 20]))


# Errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [pairwise(boxes.iou), best_match(boxes.iou)])
def test_errors_name_the_argument(f, without_jaxtyping):
    a = jnp.zeros((3, 4))
    with pytest.raises(TypeError, match="b must be a JAX or NumPy array, got list"):
        f(a, [[0, 0, 1, 1]])
    with pytest.raises(ValueError, match=r"b must have shape .* \(a set of regions\), got \[4\]"):
        f(a, jnp.zeros(4))
    with pytest.raises(ValueError, match=r"a \[2, 3, 4\] and b \[3, 5, 4\]"):
        f(jnp.zeros((2, 3, 4)), jnp.zeros((3, 5, 4)))
    with pytest.raises(ValueError, match="do not fit in 32 bits"):
        f(a, np.array([[0, 0, 2**40, 1]]))


def test_a_wrong_mask_is_named(without_jaxtyping):
    f, a = best_match(boxes.iou), jnp.zeros((3, 4))
    with pytest.raises(TypeError, match="where must be boolean, got dtype int32"):
        f(a, a, where=jnp.ones((1, 3), jnp.int32))
    with pytest.raises(ValueError, match=r"where must have rank 2 and broadcast to \[3, 3\]"):
        f(a, a, where=jnp.ones(3, bool))
    with pytest.raises(ValueError, match=r"where must have rank 3 and broadcast to \[2, 3, 3\]"):
        f(jnp.zeros((2, 3, 4)), a, where=jnp.ones((3, 3), bool))


def test_an_overlap_that_is_no_number_cannot_be_best():
    a = jnp.zeros((3, 4))
    with pytest.raises(ValueError, match=r"overlap must give one number .*, got shape \[4\]"):
        best_match(boxes.enclosing)(a, a)
