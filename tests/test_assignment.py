"""One-to-one matching: against all matchings there are, SciPy and a greedy loop."""

import functools
import sys

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from scipy.optimize import linear_sum_assignment

from jaxiou import boxes, pairwise
from jaxiou.assignment import Matching, greedy_matching, maximum_matching

NAN, INF = float("nan"), float("inf")
SOLVERS = ["optax", "scipy"]


def compiled(matching):
    """A function that compiles once for each shape: its mask and its minimum are arrays."""
    body = jax.jit(matching)

    def run(scores, *, where=True, minimum=-INF):
        return body(scores, where=np.broadcast_to(where, scores.shape), minimum=np.float32(minimum))

    return run


SOLVE = {name: compiled(functools.partial(maximum_matching, solver=name)) for name in SOLVERS}
solve = SOLVE["optax"]
by_greed = compiled(greedy_matching)


# Oracles -----------------------------------------------------------------------------------


def all_matchings(allowed):
    """Every one-to-one set of allowed pairs, the empty one included."""

    def from_row(i, free):
        if i == len(allowed):
            yield []
            return
        yield from from_row(i + 1, free)
        for j in free:
            if allowed[i, j]:
                yield from ([(i, j), *rest] for rest in from_row(i + 1, free - {j}))

    return list(from_row(0, frozenset(range(allowed.shape[1]))))


def best_by_enumeration(scores, allowed, minimum):
    """What the best matching reaches: its number of pairs and its total, or its sum of gains."""
    scores = np.where(allowed, scores, 0).astype(np.float64)
    totals = [(len(pairs), sum(scores[pair] for pair in pairs)) for pairs in all_matchings(allowed)]
    if minimum is None:
        return max(totals)
    return max(total - count * min(minimum, 0) for count, total in totals)


def greedy_loop(scores, allowed):
    """Pairs by falling score, then row, then column; each is taken if both are still free."""
    columns = np.full(len(scores), -1)
    pairs = sorted((-scores[i, j], i, j) for i, j in np.argwhere(allowed))
    for _, i, j in pairs:
        if columns[i] < 0 and j not in columns:
            columns[i] = j
    return columns


def scipy_total(scores):
    scores = np.asarray(scores, np.float64)
    return scores[linear_sum_assignment(scores, maximize=True)].sum()


def pairs_of(matching):
    """The pairs of a matching, after what must hold of every one: it is one to one, and its
    fields agree.
    """
    columns, rows, valid = map(np.asarray, matching[:3])
    assert columns.dtype == rows.dtype == np.int32
    assert valid.dtype == bool
    pairs = [(i, j) for i, j in enumerate(columns.tolist()) if j != -1]
    assert valid.tolist() == (columns >= 0).tolist()
    assert sorted((i, j) for j, i in enumerate(rows.tolist()) if i != -1) == pairs
    return pairs


def assert_total(matching, scores):
    matched = [float(scores[pair]) for pair in pairs_of(matching)]
    assert abs(matching.total - sum(matched)) <= 1e-6 * sum(map(abs, matched))


def overlaps(rng, r, c, size=300):
    """A table of IoUs: most 0, some rows contested."""

    def random(count):
        corner, side = rng.uniform(0, size, (count, 2)), rng.uniform(10, 90, (count, 2))
        return np.concatenate([corner, corner + side], axis=1).astype(np.float32)

    near = random(max(r, c))
    other = near + rng.normal(0, 6, near.shape).astype(np.float32)
    return np.asarray(pairwise(boxes.iou)(near[:r], rng.permutation(other)[:c]))


# The greatest total --------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("shape", [(4, 5), (5, 3), (1, 4)])
@pytest.mark.parametrize("minimum", [None, 0.0, 0.5, -0.5])
def test_no_matching_of_the_allowed_pairs_is_better(solver, shape, minimum):
    rng = np.random.default_rng(0)
    least = -INF if minimum is None else minimum
    infeasible = ties = 0
    for trial in range(60):
        # Whole and half numbers, so that there are ties; and normal ones.
        scores = rng.integers(-2, 4, shape) / 2 if trial % 2 else rng.normal(size=shape)
        scores = scores.astype(np.float32)
        scores[rng.random(shape) < 0.1] = rng.choice([NAN, INF, -INF])
        where = rng.random(shape) < (0.3 if trial % 3 else 0.9)
        allowed = where & np.isfinite(scores) & (scores >= least)

        matching = SOLVE[solver](scores, where=where, minimum=least)
        pairs = pairs_of(matching)
        assert all(allowed[pair] for pair in pairs)
        assert_total(matching, np.where(allowed, scores, 0))
        total = sum(float(scores[pair]) for pair in pairs)
        got = (len(pairs), total) if minimum is None else total - len(pairs) * min(minimum, 0)
        np.testing.assert_allclose(got, best_by_enumeration(scores, allowed, minimum), atol=1e-6)
        infeasible += len(pairs) < min(shape)
        ties += len(np.unique(scores[allowed])) < allowed.sum()
    assert infeasible > 5
    assert ties > 5 or shape == (1, 4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_that_share_too_few_columns_still_reach_the_greatest_total(solver):
    # Two rows for each column, and each pair of rows may have the columns of those above it
    # too: half of the rows go without, and which half is a question of the total alone.
    rng = np.random.default_rng(0)
    where = np.arange(7) <= np.arange(6)[:, None] // 2
    for _ in range(100):
        order = rng.permutation(6)
        scores = rng.normal(size=(6, 7)).astype(np.float32)
        pairs = pairs_of(SOLVE[solver](scores, where=where[order]))
        total = sum(float(scores[pair]) for pair in pairs)
        wanted = best_by_enumeration(scores, where[order], None)
        np.testing.assert_allclose((len(pairs), total), wanted, atol=1e-5)


@pytest.mark.parametrize("shape", [(30, 30), (20, 45), (45, 20)])
@pytest.mark.parametrize("kind", ["random", "overlaps", "costs", "whole", "rows and columns"])
def test_the_total_is_scipy_s_on_any_rectangle(shape, kind):
    rng = np.random.default_rng(0)
    make = {
        "random": lambda: rng.random(shape),
        "overlaps": lambda: overlaps(rng, *shape),
        "costs": lambda: rng.uniform(-1e4, 1e4, shape),
        "whole": lambda: rng.integers(0, 4, shape),
        # Every matching of as many pairs is as good but for rounding, and all prices are in use.
        "rows and columns": lambda: rng.normal(size=(shape[0], 1)) + rng.normal(size=shape[1]),
    }[kind]
    for _ in range(5):
        scores = make().astype(np.float32)
        matching = solve(scores)
        assert len(pairs_of(matching)) == min(shape)
        assert_total(matching, scores)
        scale = np.abs(scores).max() * min(shape)
        assert abs(matching.total - scipy_total(scores)) <= 1e-6 * scale


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_batch_reaches_scipy_s_totals_to_a_millionth(solver):
    rng = np.random.default_rng(0)
    scores = np.stack([overlaps(rng, 100, 100) for _ in range(16)])
    scores[8:] = rng.random((8, 100, 100))
    matching = jax.jit(jax.vmap(functools.partial(maximum_matching, solver=solver)))(scores)
    wanted = [scipy_total(table) for table in scores]
    np.testing.assert_allclose(matching.total, wanted, rtol=1e-6)
    for i in range(16):
        one = jax.tree.map(lambda x, i=i: x[i], matching)
        assert len(pairs_of(one)) == 100
        assert_total(one, scores[i])


def test_float64_agrees_with_scipy_to_the_last_digits():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for solver in SOLVERS:
            scores = rng.uniform(-1e4, 1e4, (20, 45))
            matching = maximum_matching(scores, solver=solver)
            assert matching.total.dtype == np.float64
            assert_total(matching, scores)
            np.testing.assert_allclose(matching.total, scipy_total(scores), rtol=1e-14)
            assert matching.columns.tolist() == linear_sum_assignment(-scores)[1].tolist()


@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1e6, 1e30])
def test_a_common_factor_of_the_scores_changes_no_pair(scale):
    scale = 2.0 ** round(np.log2(scale))  # exact
    scores = np.random.default_rng(0).normal(size=(20, 45)).astype(np.float32)
    for where in (True, np.random.default_rng(1).random((20, 45)) < 0.08):
        wanted = solve(scores, where=where)
        got = solve(scores * np.float32(scale), where=where)
        assert got.columns.tolist() == wanted.columns.tolist()
    assert not wanted.valid.all()


def test_a_thousand_walls_cost_no_precision():
    # Seven rows share three columns, so that four must go without; in float32 a large number
    # in place of infinity would round the scores, which differ in their last bits.
    rng = np.random.default_rng(0)
    where = np.zeros((40, 40), bool)
    where[:7, :3], where[7:, 3:] = True, True
    for _ in range(5):
        scores = (1 + rng.random((40, 40)) * 1e-4).astype(np.float32)
        matching = solve(scores, where=where)
        exact = scores.astype(np.float64)
        wanted = scipy_total(exact[:7, :3]) + scipy_total(exact[7:, 3:])
        got = sum(exact[pair] for pair in pairs_of(matching))
        assert len(pairs_of(matching)) == 36
        # The part that differs between matchings, to a hundredth.
        assert wanted - got <= 1e-2 * (wanted - 36)


@pytest.mark.parametrize("dtype", ["bfloat16", "uint8"])
def test_narrow_scores_are_matched_as_the_numbers_that_they_are(dtype):
    scores = (np.random.default_rng(0).random((20, 45)) * 100).astype(jnp.dtype(dtype))
    for f in (solve, by_greed):
        matching = f(scores)
        assert matching.total.dtype == np.float32
        assert_total(matching, scores.astype(np.float64))
        assert matching.columns.tolist() == f(scores.astype(np.float32)).columns.tolist()


# The gate ------------------------------------------------------------------------------------


def test_t7_a_gate_keeps_the_rule_of_the_sum():
    scores = np.float32([[0.51, 0.95, 0], [0, 0.51, 0.95], [0, 0, 0.51]])
    for solver in SOLVERS:
        matching = SOLVE[solver](scores, minimum=0.5)
        assert matching.columns.tolist() == [1, 2, -1]
        # Without a gate, the most pairs come first.
        matching = SOLVE[solver](scores, where=scores > 0.5)
        assert matching.columns.tolist() == [0, 1, 2]


@pytest.mark.parametrize("solver", SOLVERS)
def test_t21_a_cost_limit_is_a_gate_within_the_problem(solver):
    # lap's `cost_limit` maximises the sum of `limit - cost` over partial matchings.
    rng = np.random.default_rng(0)
    differ = 0
    for _ in range(60):
        costs = rng.random((4, 5)).astype(np.float32)
        limit = np.float32(0.4)
        gains = np.maximum(limit - costs, 0).astype(np.float64)
        wanted = scipy_total(gains)
        for scores, least in [(-costs, -limit), (limit - costs, np.float32(0))]:
            pairs = pairs_of(SOLVE[solver](scores, minimum=least))
            assert all(costs[pair] < limit for pair in pairs)
            np.testing.assert_allclose(sum(gains[pair] for pair in pairs), wanted, atol=1e-6)
        filtered = gains[linear_sum_assignment(costs)].sum()
        differ += filtered < wanted - 1e-6
    assert differ > 5


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_pair_at_the_gate_is_matched_and_one_that_adds_nothing_is_not(solver):
    half, f = np.float32([[0.5, 0], [0, 0]]), SOLVE[solver]
    assert f(half, minimum=0.5).columns.tolist() == [0, -1]
    assert f(half, minimum=0).columns.tolist() == [0, -1]
    assert f(half, minimum=0.6).columns.tolist() == [-1, -1]
    # 0 adds a half, and -0.5 nothing.
    assert f(-half, minimum=-0.5).total == 0
    assert f(-half[:1, :1], minimum=-0.5).columns.tolist() == [-1]
    assert f(half).columns.tolist() == [0, 1]


def test_greedy_matches_a_pair_at_the_gate():
    half = np.float32([[0.5, 0], [0, 0]])
    assert by_greed(half, minimum=0.5).columns.tolist() == [0, -1]
    assert by_greed(half, minimum=0).columns.tolist() == [0, 1]
    assert by_greed(half, minimum=0.6).columns.tolist() == [-1, -1]


def test_no_minimum_is_a_minimum_of_minus_infinity():
    scores = np.random.default_rng(0).normal(size=(20, 45)).astype(np.float32)
    for f in (maximum_matching, greedy_matching):
        for x, y in zip(f(scores), f(scores, minimum=-INF), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_minimum_far_below_all_scores_costs_no_precision(solver):
    rng = np.random.default_rng(0)
    for walls in (1.0, 0.4):
        scores, where = rng.random((20, 45)).astype(np.float32), rng.random((20, 45)) < walls
        wanted = SOLVE[solver](scores, where=where)
        for least in (-1e3, -1e8, -3e38):
            got = SOLVE[solver](scores, where=where, minimum=least)
            assert got.columns.tolist() == wanted.columns.tolist()


def test_costs_with_a_minus_are_all_matched():
    # The set matching of DETR: every truth gets a query, whatever it costs.
    costs = np.random.default_rng(0).uniform(0, 1e4, (45, 20)).astype(np.float32)
    valid = np.arange(20) < 13
    matching = solve(-costs, where=valid[None])
    assert (np.asarray(matching.rows) >= 0).tolist() == valid.tolist()
    np.testing.assert_allclose(matching.total, scipy_total(-costs[:, :13]), rtol=1e-6)


def test_the_minimum_may_differ_in_a_batch():
    scores = np.random.default_rng(0).random((4, 5)).astype(np.float32)
    least = np.float32([-INF, 0.5, 2, -1])
    for solver in SOLVERS:

        def one(x, solver=solver):
            return maximum_matching(scores, minimum=x, solver=solver).columns

        for columns, x in zip(jax.vmap(one)(least), least, strict=True):
            assert columns.tolist() == solve(scores, minimum=x).columns.tolist()


# What is never matched -------------------------------------------------------------------------

EVERY = {**SOLVE, "gate": functools.partial(solve, minimum=-10), "greedy": by_greed}
every = pytest.mark.parametrize("f", EVERY.values(), ids=EVERY)


@every
def test_n14_one_nan_leaves_its_pair_alone_and_the_rest_optimal(f):
    scores = np.float32([[NAN, 0.7, 0.1], [0.9, 0.8, 0.3], [0.6, 0.2, 0.5]])
    matching = f(scores)
    assert matching.columns.tolist() == [1, 0, 2]
    np.testing.assert_allclose(matching.total, 0.7 + 0.9 + 0.5, rtol=1e-6)


def test_n15_greedy_finds_two_true_positives():
    matching = by_greed(np.float32([[1, 0.667], [0.333, 0.538]]), minimum=0.5)
    assert matching.columns.tolist() == [0, 1]


@every
@pytest.mark.parametrize("odd", [NAN, INF, -INF])
def test_t24_rows_of_nan_and_infinity_are_never_matched_and_never_a_hang(f, odd):
    scores = np.random.default_rng(0).random((4, 5)).astype(np.float32)
    scores[1], scores[:, 2], scores[3, 3] = odd, odd, odd
    matching = f(scores)
    assert all(np.isfinite(scores[pair]) for pair in pairs_of(matching))
    assert len(pairs_of(matching)) == 3
    assert np.isfinite(matching.total)
    nothing = f(np.full((4, 5), odd, np.float32))
    assert pairs_of(nothing) == []
    assert nothing.total == 0


@every
def test_padding_changes_nothing_whatever_it_holds(f):
    rng = np.random.default_rng(0)
    scores = rng.random((4, 5)).astype(np.float32)
    wanted = f(scores)
    place = np.ix_([2, 5, 11, 12], [0, 3, 4, 30, 44])  # anywhere among the padding
    where = np.zeros((20, 45), bool)
    where[place] = True
    run = jax.jit(jax.grad(lambda x: f(x, where=where).total))
    for fill in (0, 7, -7, NAN, INF):
        padded = np.full((20, 45), fill, np.float32)
        padded[place] = scores
        matching = f(padded, where=where)
        at = [(i, j) for i, j in pairs_of(matching)]
        assert np.asarray(matching.columns)[~where.any(axis=1)].max() == -1
        inner = [(place[0][i, 0], place[1][0, j]) for i, j in pairs_of(wanted)]
        assert at == inner
        np.testing.assert_allclose(matching.total, wanted.total, rtol=1e-6)
        slope = run(padded)
        assert (slope == 1).sum() == 4
        assert (np.asarray(slope)[~where] == 0).all()


@every
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_table_has_no_pairs(f, shape):
    matching = f(np.zeros(shape, np.float32))
    assert matching.columns.tolist() == [-1] * shape[0]
    assert matching.rows.tolist() == [-1] * shape[1]
    assert pairs_of(matching) == []
    assert matching.total == 0
    batch = jax.vmap(f)(np.zeros((2, *shape), np.float32))
    assert batch.columns.shape == (2, shape[0])
    assert batch.total.shape == (2,)


@every
def test_nan_that_is_left_out_is_clean_under_debug_nans(f):
    scores = np.float32([[NAN, 0.2, INF], [INF, 0.8, NAN], [-INF, NAN, NAN]])
    with jax.debug_nans(True):
        assert pairs_of(f(scores)) == [(1, 1)]


# Gradients -------------------------------------------------------------------------------------


@every
def test_the_gradient_of_the_total_is_one_for_each_pair(f):
    scores = np.random.default_rng(0).random((4, 5)).astype(np.float32)
    scores[2, 2] = NAN
    value, slope = jax.value_and_grad(lambda x: f(x).total)(scores)
    wanted = np.zeros((4, 5))
    for pair in pairs_of(f(scores)):
        wanted[pair] = 1
    assert slope.tolist() == wanted.tolist()
    assert np.isfinite(value)


def test_a_loss_of_matched_boxes_trains_through_take():
    predictions = jnp.array([[0.0, 0, 4, 4], [10, 10, 14, 14], [20, 20, 24, 24]])
    targets = jnp.array([[10.0, 10, 15, 15], [0, 0, 5, 5]])

    def loss(predictions):
        matching = maximum_matching(pairwise(boxes.giou)(predictions, targets))
        gaps = predictions - matching.take(targets)
        return jnp.where(matching.valid[:, None], gaps**2, 0).sum()

    slope = jax.grad(loss)(predictions)
    assert slope.tolist() == [[0, 0, -2, -2], [0, 0, -2, -2], [0, 0, 0, 0]]


# Greedy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["random", "ties", "equal", "columns", "chain", "overlaps"])
@pytest.mark.parametrize("shape", [(9, 13), (13, 9)])
def test_greedy_takes_pairs_by_falling_score_then_row_then_column(kind, shape):
    rng = np.random.default_rng(0)
    r, c = shape
    make = {
        "random": lambda: rng.normal(size=shape),
        "ties": lambda: rng.integers(0, 4, shape),
        "equal": lambda: np.zeros(shape),
        "columns": lambda: np.broadcast_to(rng.integers(0, 4, c), shape),  # a pair a round
        "chain": lambda: np.add.outer(np.arange(r), np.arange(c)),  # likewise
        "overlaps": lambda: overlaps(rng, r, c),
    }[kind]
    for trial in range(20):
        scores = make().astype(np.float32)
        least = np.float32(-INF if trial % 2 else np.median(scores))
        where = rng.random(shape) < [1, 0.5, 0.2][trial % 3]
        if trial % 4 == 0:  # padding
            where = (rng.random(r) < 0.7)[:, None] & (rng.random(c) < 0.7)
        matching = by_greed(scores, where=where, minimum=least)
        wanted = greedy_loop(scores, where & (scores >= least))
        assert matching.columns.tolist() == wanted.tolist()
        assert_total(matching, scores)


def test_greedy_in_a_batch_is_greedy_in_each_table():
    rng = np.random.default_rng(0)
    scores = np.stack([np.round(rng.random((9, 13)), i % 3 + 1) for i in range(16)])
    scores = scores.astype(np.float32)
    batch = jax.jit(jax.vmap(greedy_matching))(scores)
    for columns, table in zip(batch.columns, scores, strict=True):
        assert columns.tolist() == greedy_loop(table, np.ones((9, 13), bool)).tolist()


# Invariants --------------------------------------------------------------------------------------

settings = hypothesis.settings(
    max_examples=40, deadline=None, derandomize=True, database=None, print_blob=False
)
seeds = st.integers(0, 2**32 - 1)


@settings
@hypothesis.given(seeds, st.sampled_from([-INF, 0, 0.5, -0.5]))
def test_permuted_and_transposed_tables_have_the_same_total(seed, least):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(4, 5)).astype(np.float32)
    rows, columns = rng.permutation(4), rng.permutation(5)
    least = np.float32(least)
    for run in (solve, by_greed):
        total = run(scores, minimum=least).total
        permuted = run(scores[rows][:, columns], minimum=least)
        np.testing.assert_allclose(permuted.total, total, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(run(scores.T, minimum=least).total, total, rtol=1e-5, atol=1e-6)


@settings
@hypothesis.given(seeds)
def test_greedy_reaches_half_of_the_greatest_total(seed):
    scores = np.random.default_rng(seed).random((4, 5)).astype(np.float32)
    greedy, greatest = by_greed(scores).total, solve(scores).total
    assert greatest / 2 <= greedy <= greatest * (1 + 1e-6)


# The result, and errors --------------------------------------------------------------------------


def test_take_gives_each_row_what_belongs_to_its_column():
    matching = maximum_matching(np.float32([[0.1, 0.9], [0.2, 0.3], [0.8, 0.1]]))
    assert isinstance(matching, Matching)
    assert matching.columns.tolist() == [1, -1, 0]
    assert matching.take(np.array([7, 9])).tolist() == [9, 0, 7]
    assert matching.take(np.array([[7, 1], [9, 2]]), fill=-1).tolist() == [[9, 2], [-1, -1], [7, 1]]
    with pytest.raises(ValueError, match=r"x must have shape \[2, \.\.\.\], got \[3\]"):
        matching.take(np.ones(3))
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), matching)
    assert batch.take(np.array([[7, 9], [5, 6]])).tolist() == [[9, 0, 7], [6, 0, 5]]


MESH = {"mesh": jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))}


def test_maximum_matching_runs_on_batches_sharded_over_devices():
    scores = np.random.default_rng(0).random((8, 4, 5)).astype(np.float32)
    wanted = jax.vmap(maximum_matching)(scores)
    sharded = jax.device_put(scores, NamedSharding(MESH["mesh"], P("batch")))
    shard = functools.partial(jax.shard_map, **MESH, in_specs=P("batch"), out_specs=P("batch"))
    over_devices = shard(jax.vmap(maximum_matching), check_vma=False)
    for result in (jax.jit(jax.vmap(maximum_matching))(sharded), over_devices(scores)):
        for x, y in zip(result, wanted, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_arguments_are_errors_that_name_them():
    scores = np.zeros((4, 5), np.float32)
    for f in (maximum_matching, greedy_matching):
        for bad, error, text in [
            (scores[0], ValueError, r"scores must have shape \[_, _\] .* got \[5\]"),
            (scores[None], ValueError, r"scores must have shape .* got \[1, 4, 5\]"),
            (scores.tolist(), TypeError, "scores must be a JAX or NumPy array"),
            (scores > 0, TypeError, "scores must hold floats or integers, got dtype bool"),
        ]:
            with pytest.raises(error, match=text):
                f(bad)
        with pytest.raises(ValueError, match=r"minimum must be a number, got shape \[5\]"):
            f(scores, minimum=scores[0])
    with pytest.raises(ValueError, match=r"solver must be one of \['optax', 'scipy'\], got 'lap'"):
        maximum_matching(scores, solver="lap")


def test_without_scipy_the_error_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r'"scipy" needs SciPy: .* or take solver="optax"'):
        maximum_matching(np.zeros((2, 7), np.float32), solver="scipy")
