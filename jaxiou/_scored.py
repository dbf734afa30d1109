"""Scored regions, checked, and what two of them have to do with each other.

What the functions of `suppression` share before they go their own ways.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou import _checks
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, masked, pairwise, region_rank_of, take


class Scored(NamedTuple):
    """Regions to choose from.

    Attributes:
      regions: `[N, *region]`, N at least 1; 0 where left out.
      scores: `[N]`; -inf where left out.
      known: bool, `[N]`; False for regions with NaN in them, which interact with none.
      labels: `[N]`, or None.
    """

    regions: Array
    scores: Array
    known: Array
    labels: Array | None

    @property
    def places(self) -> Array:
        return jnp.arange(self.scores.shape[0], dtype=jnp.int32)

    def length(self, size: int) -> int:
        """How many rows hold `size` results; at least 1, as arrays of none have no greatest."""
        return max(min(size, self.scores.shape[0]), 1)

    def take(self, indices: Array, valid: Array) -> "Scored":
        return jax.tree.map(lambda x: take(x, indices, valid, 0), self)


def scored(
    overlap: Overlap,
    max_outputs: int,
    regions: ArrayLike,
    scores: ArrayLike,
    labels: ArrayLike | None,
    where: ArrayLike | None,
    min_score: ArrayLike | float | None,
) -> Scored:
    """The checked arguments of a function of `suppression`."""
    _checks.count("max_outputs", max_outputs)
    _checks.one_set("regions", regions, region_rank_of(overlap, None))
    one = jax.ShapeDtypeStruct(regions.shape[1:], regions.dtype)
    _checks.one_number("overlap", jax.eval_shape(overlap, one, one))
    _checks.is_array("scores", scores)
    count = regions.shape[0]
    dtype = _checks.working_dtype(regions, scores)
    scores = ranks(scores, count, where, min_score, dtype)
    regions = masked(jnp.asarray(regions), scores > -jnp.inf)
    known = (regions == regions).all(axis=tuple(range(1, regions.ndim)))
    given = Scored(regions, scores, known, classes(labels, count))
    if count == 0:  # One that is left out, so that no axis is empty.
        given = jax.tree.map(lambda x: jnp.zeros((1, *x.shape[1:]), x.dtype), given)
        given = given._replace(scores=jnp.full((1,), -jnp.inf, dtype))
    return given


def ranks(
    scores: ArrayLike,
    count: int,
    where: ArrayLike | None,
    min_score: ArrayLike | float | None,
    dtype: np.dtype,
) -> Array:
    """The checked scores, `[N]`, and -inf for what takes no part."""
    _checks.is_array("scores", scores)
    _checks.is_real("scores", scores)
    _checks.exact_shape("scores", scores, (count,), "one score a region")
    live = jnp.asarray(scores == scores)
    if where is not None:
        _checks.mask("where", where, (count,))
        live = live & where
    scores = masked(jnp.asarray(scores), live).astype(dtype)
    if min_score is not None:
        live = live & (scores >= _checks.scalar("min_score", min_score).astype(dtype))
    return jnp.where(live, scores, -jnp.inf)


def classes(labels: ArrayLike | None, count: int) -> Array | None:
    """The checked labels, `[N]`, if there are any."""
    if labels is None:
        return None
    _checks.labels("labels", labels, count, "one label a region")
    return jnp.asarray(labels)


def numbers(given: Scored, **values: ArrayLike | float) -> tuple[Array, ...]:
    """Settings in the type of the scores."""
    return tuple(_checks.scalar(name, x).astype(given.scores.dtype) for name, x in values.items())


def with_all(given: Scored, overlap: Overlap) -> Callable[[Array], tuple[Array, Array]]:
    """A function of a place: the overlaps of its region with all, and which of them count."""
    regions = masked(given.regions, given.known)
    # Coordinates side by side: a loop over rows of four takes longer.
    axis = 1 if regions.ndim == 2 else 0
    regions = jnp.moveaxis(regions, 0, axis)
    overlaps = jax.vmap(overlap, (None, axis))

    def of(place):
        one = jax.lax.dynamic_index_in_dim(regions, place, axis, keepdims=False)
        return overlaps(one, regions), interact(row(given, place), given)

    return of


def overlap_table(overlap: Overlap, given: Scored) -> Array:
    """Overlaps of better regions, in rows, with worse ones; 0 for other pairs, and at least 0."""
    regions = masked(given.regions, given.known)
    overlaps = pairwise(overlap, region_rank=regions.ndim - 1)(regions, regions)
    places = given.places
    counts = interact(
        jax.tree.map(lambda x: x[:, None], given), jax.tree.map(lambda x: x[None], given)
    )
    return positive(overlaps, counts & (places[:, None] < places[None]))


def interact(a: Scored, b: Scored) -> Array:
    counts = a.known & b.known
    return counts if a.labels is None else counts & (a.labels == b.labels)


def positive(overlaps: Array, counts: Array) -> Array:
    return jnp.where(counts & (overlaps > 0), overlaps, 0)


def row(given: Scored, place: Array | int) -> Scored:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, place, keepdims=False), given)


def first_greatest(x: Array) -> tuple[Array, Array]:
    """The first place of the greatest number, and the number.

    Not an argmax, which XLA on CPU does not vectorise: five times slower. `x` has to be an
    array in memory, such as what a loop carries: if it were computed twice, with different
    rounding, nothing would equal the greatest.
    """
    greatest = x.max()
    places = jnp.arange(x.shape[0], dtype=jnp.int32)
    return jnp.where(x == greatest, places, x.shape[0]).min(), greatest


def ranking(scores: Array, indices: Array) -> Array:
    """Places by falling score; of equal ones the lower index first."""
    places = jnp.arange(scores.shape[0], dtype=jnp.int32)
    return jax.lax.sort((-jax.lax.stop_gradient(scores), indices, places), num_keys=2)[2]


def like(x: Array, y: Array) -> Array:
    """`x`, of one number a row, with the rank of `y`."""
    return x.reshape(x.shape + (1,) * (y.ndim - x.ndim))
