"""Matching the regions of two sets one to one, by a table of scores for their pairs.

What holds for every function here, and is not repeated below:

- **Scores** are larger for better pairs: overlaps as they are, costs with a minus. A table
  is `[R, C]`; batches by `jax.vmap`. It may have more rows than columns, or none at all.
- **Never matched** are pairs that `where` leaves out, whatever they hold, and pairs whose
  score is not finite. A padded row or column changes nothing.
- **The result** is a `Matching`, which says for each row its column and for each column
  its row.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Real, Shaped

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.pairing import take

__all__ = ["maximum_matching", "greedy_matching", "Matching"]


class Matching(NamedTuple):
    """Which row belongs to which column.

    Attributes:
      columns: the column of each row, int32 `[R]`; -1 where it has none.
      rows: the row of each column, int32 `[C]`; -1 where it has none.
      valid: bool, `[R]`; False where the row has no column.
      total: the sum of the scores of the pairs; 0 if there are none.
    """

    columns: Int[Array, "..."]
    rows: Int[Array, "..."]
    valid: Bool[Array, "..."]
    total: Float[Array, "..."]

    def take(self, x: Shaped[ArrayLike, "..."], fill: float = 0) -> Shaped[Array, "..."]:
        """The rows of `x` that belong to each row's column, `fill` where it has none.

        Args:
          x: `[..., C, *rest]`, one row for each column: its box, score or label.
          fill: what stands where `valid` is False; indexing with -1 would give the last row.

        Returns:
          `[..., R, *rest]`, of the type of `x`.
        """
        _checks.rows("x", x, self.columns.shape[:-1], self.rows.shape[-1])
        return take(x, self.columns, self.valid, fill)


@compiled(static=("solver",))
def maximum_matching(
    scores: Real[ArrayLike, "r c"],
    *,
    where: Bool[ArrayLike, "#r #c"] | None = None,
    minimum: Real[ArrayLike, ""] | float | None = None,
    solver: Literal["optax", "scipy"] = "optax",
) -> Matching:
    r"""The one-to-one matching of greatest total: the assignment problem.

    Without `minimum`, as many pairs are made as can be, and of all matchings with that many
    the total is the greatest. With it, regions may stay alone, and what is greatest is

    $$\sum_{(i, j)} s_{ij} - \min(\text{minimum}, 0)$$

    over all matchings of pairs that score `minimum` or more: a gate within the problem,
    not a filter after it, which would lose what the pairs it drops have kept from others.

    Args:
      scores: `[R, C]`. Overlaps, or costs with a minus, as for the set matching of DETR.
      where: bool, of rank 2, broadcasting to `scores`: `valid[None, :]` leaves padded columns
        out, `valid[:, None]` rows.
      minimum: the least score of a pair; it may be traced. 0 or more for overlaps: the sum
        above is then the total, as in the CLEAR metrics. Below 0 it is for scores that are
        costs with a minus: `-limit` makes what `lap.lapjv(costs, cost_limit=limit)` makes,
        and so does 0 with `limit - costs`, as trackers such as ByteTrack use it. None is the
        limit for minus infinity; with `where=scores >= least` it makes the most pairs that
        score `least`, if their number counts more than their total.
      solver: "optax" runs wherever JAX does. "scipy" calls
        `scipy.optimize.linear_sum_assignment` on the host, one table at a time.

    Returns:
      A `Matching`.

    At the edges:
      Equal totals: one of the matchings, the same in each run. With `minimum`, a pair that
      adds nothing to the sum, such as one of score 0 where `minimum` is 0, is left alone.
      In float32 the total may lie below the best one by the rounding of its sums, near 1e-7
      of R times the spread of the scores; and without `minimum`, if single pairs are left
      out and not just rows and columns, of R times that.

      Scores that differ by 1e37 and more overflow float32. Optax's solver needs
      `check_vma=False` under `shard_map`, and that for batches over an explicit mesh.

    Gradient:
      That of `total` is 1 for each pair's score and 0 for all else. The choice has none.

    Example:
      >>> scores = jnp.array([[0.9, 0.8], [0.8, 0.1]])
      >>> print(maximum_matching(scores).columns, greedy_matching(scores).columns)
      [1 0] [0 1]
      >>> print(maximum_matching(scores, minimum=0.85).columns)
      [ 0 -1]

    Reference:
      Kuhn, "The Hungarian Method for the Assignment Problem", Naval Research Logistics
      Quarterly, 1955. Solved by `optax.assignment.hungarian_algorithm`, which knows neither
      masks nor a gate, and matches NaN and infinite costs.
    """
    _checks.one_of("solver", solver, _SOLVERS)
    scores, allowed, minimum = _table(scores, where, minimum)
    if scores.size == 0:
        return _unmatched(scores)
    gains = _gains(jax.lax.stop_gradient(scores), allowed, minimum)
    if scores.shape[0] <= scores.shape[1]:
        return _matching(scores, _SOLVERS[solver](gains))
    return _matching(scores, _inverse(_SOLVERS[solver](gains.T), len(scores)))


@compiled()
def greedy_matching(
    scores: Real[ArrayLike, "r c"],
    *,
    where: Bool[ArrayLike, "#r #c"] | None = None,
    minimum: Real[ArrayLike, ""] | float | None = None,
) -> Matching:
    """The best pair, then the best of those that share no region with it, and so on.

    This is what a match by falling overlap means in most evaluations. Its total is at
    least half of the greatest if no score is negative.

    Args:
      scores: `[R, C]`.
      where: bool, of rank 2, broadcasting to `scores`: `valid[None, :]` leaves padded columns
        out, `valid[:, None]` rows.
      minimum: pairs that score less are never matched; it may be traced. None matches all
        that can be, pairs of score 0 included.

    Returns:
      A `Matching`.

    At the edges:
      Equal scores: the pair in the lowest row first, then in the lowest column.

    Gradient:
      That of `total` is 1 for each pair's score and 0 for all else. The choice has none.

    Example:
      >>> matching = greedy_matching(jnp.array([[0.9, 0.8], [0.8, 0.1]]), minimum=0.5)
      >>> print(matching.columns, matching.total)
      [ 0 -1] 0.9
    """
    scores, allowed, _ = _table(scores, where, minimum)
    if scores.size == 0:
        return _unmatched(scores)
    ranked = jnp.where(allowed, jax.lax.stop_gradient(scores), -jnp.inf)
    return _matching(scores, _greedy(ranked))


def _table(
    scores: ArrayLike, where: ArrayLike | None, minimum: ArrayLike | float | None
) -> tuple[Array, Array, Array]:
    """The scores, 0 where a pair does not count; which pairs are allowed; and `minimum`."""
    _checks.table("scores", scores)
    if where is None:
        where = jnp.ones((1, 1), bool)
    _checks.mask("where", where, scores.shape)
    scores, where = jnp.asarray(scores), jnp.asarray(where)
    dtype = _checks.working_dtype(scores)
    allowed = where & jnp.isfinite(scores)
    # Before the cast, at which `debug_nans` would raise.
    scores = jnp.where(allowed, scores, jnp.zeros((), scores.dtype)).astype(dtype)
    least = _checks.scalar("minimum", -jnp.inf if minimum is None else minimum).astype(dtype)
    return scores, allowed & (scores >= least), least


def _matching(scores: Array, columns: Array) -> Matching:
    """The `Matching` that gives each row its column."""
    pairs = columns[:, None] == _places(scores[0])[None]
    total = jnp.where(pairs, scores, 0).sum()
    return Matching(columns, _inverse(columns, scores.shape[1]), columns >= 0, total)


def _unmatched(scores: Array) -> Matching:
    """The `Matching` of a table without rows or without columns."""
    columns, rows = (jnp.full_like(scores, -1, jnp.int32, shape=(size,)) for size in scores.shape)
    return Matching(columns, rows, columns >= 0, scores.sum())


def _greedy(scores: Array) -> Array:
    """The column of each row, int32 `[R]`, -1 for none; a score of -inf is no pair.

    Each round takes every pair that is the best of its row and of its column: no pair that
    is left comes before it and shares a region with it. There are few rounds unless many
    scores are equal, as overlaps of 0 are, and min(R, C) at most. Once all that is left is
    equal, the first row goes with the first column, the second with the second.
    """
    rows, columns = _places(scores[:, 0]), _places(scores[0])

    def take_best(state):
        column_of, row_left, column_left, _ = state
        pairs = row_left[:, None] & column_left[None]
        table = jnp.where(pairs, scores, -jnp.inf)
        row_best, column_best = table.max(axis=1), table.max(axis=0)
        # XLA on CPU vectorises no argmax. Of equals the lowest.
        column = jnp.where(table == row_best[:, None], columns[None], len(columns)).min(axis=1)
        row = jnp.where(table == column_best[None], rows[:, None], len(rows)).min(axis=0)
        row_left, column_left = row_best > -jnp.inf, column_best > -jnp.inf

        taken = row_left & (row[column] == rows)
        column_taken = (taken[:, None] & (column[:, None] == columns[None])).any(axis=0)
        # Regions that have no pair count as taken, so that what is left may all be equal.
        least = jnp.where(row_left[:, None] & column_left[None], scores, jnp.inf).min()
        return (
            jnp.where(taken, column, column_of),
            row_left & ~taken,
            column_left & ~column_taken,
            least < row_best.max(),
        )

    state = (
        jnp.full_like(scores[:, 0], -1, jnp.int32),
        jnp.ones_like(scores[:, 0], bool),
        jnp.ones_like(scores[0], bool),
        jnp.ones_like(scores[0, 0], bool),
    )
    column_of, row_left, column_left, _ = jax.lax.while_loop(lambda s: s[-1], take_best, state)
    pairs = row_left[:, None] & column_left[None]
    pairs &= _rank(row_left)[:, None] == _rank(column_left)[None]
    return jnp.where(pairs, columns[None], column_of[:, None]).max(axis=1)


def _rank(x: Array) -> Array:
    """How many are True up to each place."""
    return jnp.cumsum(x, dtype=jnp.int32)


def _places(x: Array) -> Array:
    return jnp.arange(x.shape[0], dtype=jnp.int32)


def _gains(scores: Array, allowed: Array, minimum: Array) -> Array:
    """What each pair adds to the sum that is to be greatest, `[R, C]`; 0 for no pair.

    Without a minimum, or with one far below all scores, these are lifted just so far that one
    more pair is worth more than any better choice: more would cost bits. If all of some
    rows may be paired with all of some columns, as with padding, any lift does, since another
    pair never stands in the way of one that is there.
    """
    least = jnp.where(allowed, scores, jnp.inf).min()
    most = jnp.where(allowed, scores, -jnp.inf).max()
    least, most = (jnp.where(jnp.isfinite(x), x, 0) for x in (least, most))
    spread = jnp.where(most > least, most - least, 1)
    block = allowed.any(axis=1)[:, None] & allowed.any(axis=0)[None]
    lift = spread * jnp.where((block == allowed).all(), 1, min(scores.shape))
    worthless = jnp.minimum(minimum, 0)
    lifted = (scores - least) + lift
    gains = jnp.where(least - worthless > lift, lifted, scores - worthless)
    return jnp.where(allowed & (gains > 0), gains, 0)


def _inverse(partners: Array, count: int) -> Array:
    """For each of `count` columns the row whose partner it is, int32; -1 for none."""
    hits = partners[:, None] == jnp.arange(count, dtype=jnp.int32)[None]
    return jnp.where(hits, _places(partners)[:, None], -1).max(axis=0)


def _costs(gains: Array) -> Array:
    """`[R, C + R]`: each row has a column of its own, at which it stays alone.

    Zeros in their place would be the same problem, but ties by the hundred slow a solver.
    """
    wall = jnp.where(gains.max() > 0, gains.max(), 1)
    alone = jnp.where(jnp.eye(len(gains), dtype=bool), 0, wall)
    return jnp.concatenate([jnp.where(gains > 0, -gains, wall), alone], axis=1)


def _by_optax(gains: Array) -> Array:
    """The column of each row in the matching of greatest gain, int32 `[R]`, -1 for none."""
    from optax.assignment import hungarian_algorithm  # a slow import

    # With x64 on, optax keeps its prices in float64.
    costs = _costs(gains).astype(jax.dtypes.canonicalize_dtype(float))
    rows, columns = hungarian_algorithm(costs)
    columns = jnp.where(columns < gains.shape[1], columns, -1).astype(jnp.int32)
    return jnp.full_like(gains, -1, jnp.int32, shape=gains.shape[:1]).at[rows].set(columns)


def _by_scipy(gains: Array) -> Array:
    """The same by `scipy.optimize.linear_sum_assignment`, on the host."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError(
            'solver="scipy" needs SciPy: pip install scipy, or take solver="optax"'
        ) from error

    def solve(gains):
        _, columns = linear_sum_assignment(gains, maximize=True)
        return np.where(gains[np.arange(len(gains)), columns] > 0, columns, -1)

    def solve_all(gains):
        tables = np.asarray(gains, np.float64)
        columns = [solve(table) for table in tables.reshape(-1, *tables.shape[-2:])]
        return np.array(columns, np.int32).reshape(tables.shape[:-1])

    result = jax.ShapeDtypeStruct(gains.shape[:1], jnp.int32)
    return jax.pure_callback(solve_all, result, gains, vmap_method="expand_dims")


_SOLVERS = {"optax": _by_optax, "scipy": _by_scipy}
