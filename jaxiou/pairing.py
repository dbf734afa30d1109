"""From an overlap of two regions to two sets of regions: all pairs, or the best partner.

`pairwise` gives the table, `[..., N, M]`. `best_match` gives each region's best partner in
memory of order N + M. Both take any overlap, the library's or your own: a function of two
single regions that JAX can trace. Both are cached, so `pairwise(f)` may be written where
it is used: the same `f` gives the same compiled function.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Shaped

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike

__all__ = ["pairwise", "best_match", "Match"]

Overlap = Callable[[Array, Array], Array]


@functools.cache
def pairwise(
    overlap: Overlap, *, region_rank: int | None = None
) -> Callable[[Array, Array], Array]:
    """The overlap of every region of one set with every region of another.

    Args:
      overlap: a function of two single regions, `[*region]` each. It never sees a batch.
      region_rank: how many trailing axes are one region. None reads
        `overlap.region_rank`, which the library's overlaps have (through
        `functools.partial` too), and takes 1 if there is none.

    Returns:
      A function of `a`, `[..., N, *region]`, and `b`, `[..., M, *region]`, whose leading axes
      broadcast. It returns `[..., N, M]`: rows are `a`, columns are `b`. N and M may be 0.

    At the edges:
      As `overlap` has it, per pair. A region of NaN fills its own row or column.

    Gradient:
      That of `overlap`. Padding is best left out with `where` in what comes next, and must
      be finite here if a gradient is taken: a table masked afterwards keeps its NaN.

    Example:
      >>> from jaxiou import boxes
      >>> a = jnp.array([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 4.0, 4.0]])
      >>> print(pairwise(boxes.iou)(a, a))
      [[1.   0.25]
       [0.25 1.  ]]
    """
    rank = region_rank_of(overlap, region_rank)

    @compiled()
    def table(a: Shaped[ArrayLike, "..."], b: Shaped[ArrayLike, "..."]) -> Shaped[Array, "..."]:
        a, b = _sets(rank, a=a, b=b)
        return over_leading(_table(overlap, rank), rank + 1)(a, b)

    return table


class Match(NamedTuple):
    """The best partner in `b` of each region in `a`.

    Attributes:
      values: their overlap, `[..., N]`; -inf where nothing was allowed.
      indices: the partner's place in `b`, int32 `[..., N]`; -1 where nothing was allowed.
      valid: bool, `[..., N]`; False where nothing was allowed.
    """

    values: Float[Array, "..."]
    indices: Int[Array, "..."]
    valid: Bool[Array, "..."]

    def take(self, x: Shaped[ArrayLike, "..."], fill: float = 0) -> Shaped[Array, "..."]:
        """The rows of `x` that belong to the partners, `fill` where there is none.

        Args:
          x: `[..., M, *rest]`, one row for each region of `b`: its box, label or score.
          fill: what stands where `valid` is False; indexing with -1 would give the last row.

        Returns:
          `[..., N, *rest]`, of the type of `x`.
        """
        return take(x, self.indices, self.valid, fill)


@functools.cache
def best_match(overlap: Overlap, *, region_rank: int | None = None) -> Callable[..., Match]:
    """For each region of one set, the region of another set that overlaps it most.

    The table of pairs is reduced while it is made and never stored, in the backward pass
    neither: 200,000 anchors against 500 truths take megabytes. This holds for overlaps
    that are elementwise arithmetic once mapped, as all of the library's on boxes are.

    Args:
      overlap: a function of two single regions, larger meaning better.
      region_rank: as in `pairwise`.

    Returns:
      A function of `a`, `[..., N, *region]`, `b`, `[..., M, *region]`, and keyword `where`,
      bool, of the table's rank, broadcasting to it: `valid[..., None, :]` leaves padded
      rows of `b` out, `[..., :, None]` rows of `a`. It returns a `Match`.

    At the edges:
      Equal overlaps: the lowest index. NaN and -inf never win. If nothing is left, M = 0
      included: index -1, value -inf, `valid` False. A region that is masked everywhere may
      hold anything, NaN included.

    Gradient:
      That of `overlap(a, b[index])`; the choice of the index has none. 0 where nothing
      was allowed.

    Example:
      >>> from jaxiou import boxes
      >>> anchors = jnp.array([[0.0, 0.0, 4.0, 4.0], [8.0, 8.0, 9.0, 9.0]])
      >>> truths = jnp.array([[8.0, 8.0, 10.0, 10.0], [0.0, 0.0, 4.0, 5.0]])
      >>> values, indices, valid = best_match(boxes.iou)(anchors, truths)
      >>> print(values, indices)
      [0.8  0.25] [1 0]
    """
    rank = region_rank_of(overlap, region_rank)

    def match(a: Array, b: Array, where: Array) -> Match:
        one = (jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in (a, b))
        _checks.one_number("overlap", jax.eval_shape(overlap, *one))
        a, b = masked(a, where.any(axis=1)), masked(b, where.any(axis=0))
        by_table = functools.partial(_best_of_table, overlap, rank)
        by_steps = functools.partial(_best_by_steps, overlap)
        # Of masks and the like the table is smaller than the set, and is a matrix product.
        small = rank != 1 and len(b) <= math.prod(a.shape[1:])
        indices = jax.lax.platform_dependent(
            *map(jax.lax.stop_gradient, (a, b)),
            where,
            cpu=by_table if small else by_steps,
            default=by_table,
        )
        valid = indices >= 0
        partners = jnp.take(b, jnp.maximum(indices, 0), axis=0)
        values = jax.vmap(overlap)(masked(a, valid), masked(partners, valid))
        return Match(jnp.where(valid, values, -jnp.inf), indices, valid)

    @compiled()
    def matched(
        a: Shaped[ArrayLike, "..."],
        b: Shaped[ArrayLike, "..."],
        *,
        where: Bool[ArrayLike, "..."] | None = None,
    ) -> Match:
        a, b = _sets(rank, a=a, b=b)
        leading = _checks.leading_shape(rank + 1, a=a, b=b)
        shape = (*leading, a.shape[-rank - 1], b.shape[-rank - 1])
        if where is None:
            where = jnp.ones((1,) * len(shape), bool)
        _checks.mask("where", where, shape)
        if shape[-1] == 0:
            none = jnp.zeros(shape[:-1], bool)
            return Match(
                jnp.full_like(none, -jnp.inf, _checks.working_dtype(a, b)),
                jnp.full_like(none, -1, jnp.int32),
                none,
            )
        return over_leading(match, rank + 1, rank + 1, 2)(a, b, where)

    return matched


def take(x: ArrayLike, indices: Array, valid: Array, fill: float) -> Array:
    """`x[indices]` along the axis of items, and `fill` where `valid` is False.

    Leading axes of `indices` `[..., N]` are batch axes of `x` `[..., M, *rest]`.
    """
    leading = indices.ndim - 1
    _checks.rows("x", x, indices.shape[:-1])
    x = jnp.asarray(x)
    if x.shape[leading] == 0:
        return jnp.full((*indices.shape, *x.shape[leading + 1 :]), fill, x.dtype)

    def rows(x, indices, valid):
        valid = valid.reshape(valid.shape + (1,) * (x.ndim - 1))
        return jnp.where(valid, jnp.take(x, indices, axis=0, mode="clip"), jnp.array(fill, x.dtype))

    return over_leading(rows, x.ndim - leading, 1, 1)(x, indices, valid)


def region_rank_of(overlap: Overlap, region_rank: int | None) -> int:
    if region_rank is not None:
        return region_rank
    while isinstance(overlap, functools.partial) and not hasattr(overlap, "region_rank"):
        overlap = overlap.func
    return getattr(overlap, "region_rank", 1)


def _sets(rank: int, **arrays: ArrayLike) -> tuple[Array, ...]:
    for name, x in arrays.items():
        _checks.is_array(name, x)
        _checks.trailing_shape(name, x, (None,) * (rank + 1), "a set of regions")
    _checks.leading_shape(rank + 1, **arrays)
    return _checks.same_rank(*arrays.values())


def _table(overlap: Overlap, rank: int) -> Overlap:
    if rank != 1:
        return jax.vmap(jax.vmap(overlap, (None, 0)), (0, None))
    by_columns = jax.vmap(jax.vmap(overlap, (None, 1)), (1, None))
    return lambda a, b: by_columns(_columns(a), _columns(b))


@jax.custom_jvp
def _columns(x: Array) -> Array:
    """`x.T` of a set of regions, laid out in memory on CPU.

    A loop over pairs that reads one coordinate in four takes a third longer than one that
    reads them side by side, and XLA would fuse a mere transpose back into it. A product
    with the identity is not fused, and on integers it keeps every bit, NaN included.
    """

    def laid_out(x):
        bits = jax.lax.bitcast_convert_type(x, jnp.int32 if x.dtype.itemsize == 4 else jnp.int64)
        identity = jnp.eye(x.shape[1], dtype=bits.dtype)
        columns = jax.lax.dot_general(identity, bits, (((1,), (1,)), ((), ())))
        return jax.lax.bitcast_convert_type(columns, x.dtype)

    # The product grows with the square of a region's length, and long ones vectorise anyway.
    if x.dtype not in (jnp.float32, jnp.float64) or x.shape[1] > 16:
        return x.T
    return jax.lax.platform_dependent(x, cpu=laid_out, default=jnp.transpose)


@_columns.defjvp
def _columns_jvp(primals, tangents):
    return _columns(*primals), tangents[0].T


def over_leading(function: Callable, *ranks: int) -> Callable:
    """Maps `function` over all axes but the last `ranks`, which broadcast, without copies."""

    def mapped(*arrays):
        per_array = ranks if len(ranks) > 1 else ranks * len(arrays)
        leading = max(x.ndim - rank for x, rank in zip(arrays, per_array, strict=True))
        f = function
        squeezed = list(arrays)
        for axis in reversed(range(leading)):
            shared = [x.shape[axis] == 1 for x in arrays]
            if all(shared):
                shared = [False for _ in arrays]
            squeezed = [x.squeeze(axis) if s else x for x, s in zip(squeezed, shared, strict=True)]
            f = jax.vmap(f, [None if s else 0 for s in shared])
        return f(*squeezed)

    return mapped


def masked(x: ArrayLike, where: ArrayLike) -> Array:
    """Regions with zeros where they do not count, whatever they held."""
    counts = where.reshape(where.shape + (1,) * (x.ndim - where.ndim))
    return jnp.where(counts, x, jnp.zeros((), x.dtype))


def _best_of_table(overlap: Overlap, rank: int, a: Array, b: Array, where: Array) -> Array:
    """The column of the greatest allowed overlap, -1 where there is none.

    XLA fuses the table into the reductions.
    """
    table = _table(overlap, rank)(a, b)
    # NaN is not equal to itself, and never wins.
    scores = jnp.where(where & (table == table), table, -jnp.inf)
    found = scores.max(axis=1) > -jnp.inf
    return jnp.where(found, jax.lax.argmax(scores, 1, jnp.int32), -1)


def _best_by_steps(overlap: Overlap, a: Array, b: Array, where: Array) -> Array:
    """The same, one column after the other for all rows at once.

    XLA on CPU does not vectorise an argmax. This is plain arithmetic over the rows, five
    times faster; four columns a step keep the running maximum in registers.
    """
    columns = jax.vmap(overlap, (a.ndim - 1, None))
    a = jnp.moveaxis(a, 0, -1)

    def challenge(best, j):
        value = columns(a, jax.lax.dynamic_index_in_dim(b, j, 0, keepdims=False))
        k = jnp.minimum(j, where.shape[1] - 1)
        allowed = jax.lax.dynamic_index_in_dim(where, k, 1, keepdims=False)
        # Strictly greater: the lowest index keeps a tie, and NaN never wins.
        better = allowed & (value > best[0])
        return jnp.where(better, value, best[0]), jnp.where(better, j, best[1])

    def step(i, best):
        for k in range(4):
            best = challenge(best, jnp.minimum(4 * i + k, b.shape[0] - 1))
        return best

    # Made from an overlap, so that under shard_map it varies over the axes that overlaps do.
    unset = jnp.where(where[:, 0], columns(a, b[0]), -jnp.inf)
    best = jnp.full_like(unset, -jnp.inf), jnp.full_like(unset, -1, jnp.int32)
    return jax.lax.fori_loop(0, -(-b.shape[0] // 4), step, best)[1]
