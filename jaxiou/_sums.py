"""States that add: counts as limbs `[4, ...]`, floats as a sum and its rest, `[2, ...]`.

Which of the two an array of a state is, its type tells: limbs are uint32.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou import _checks, _counts
from jaxiou._compiled import compiled
from jaxiou._math import two_sum
from jaxiou._typing import ArrayLike


def score_dtype() -> np.dtype:
    """Of scores: counts have no width of their own."""
    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


def counting(where: ArrayLike | None, counts: Any, shape: tuple[int, ...]) -> Any:
    """Counts of items, with zeros where an item does not count."""
    if where is None:
        return counts
    _checks.mask("where", where, shape)
    return jax.tree.map(
        lambda x: jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros_like(x)), counts
    )


def from_items(counts: Any, state: Any) -> Any:
    """Counts of items, summed, as a state of the types that `state` has."""

    def held(x: Array, like: Array) -> Array:
        total = x.sum(axis=0, dtype=x.dtype)
        if like.dtype == jnp.uint32:
            return _counts.from_integers(total)
        total = total.astype(like.dtype)
        return jnp.stack([total, total - total])

    return jax.tree.map(held, counts, type(counts)(*state))


def to_floats(state: Any) -> Any:
    """A state's counts and sums as floats, each rounded once."""
    dtype = score_dtype()
    return jax.tree.map(
        lambda x: _counts.to_float(x, dtype) if x.dtype == jnp.uint32 else x.astype(dtype).sum(0),
        state,
    )


@compiled()
def merge(state: Any, other: Any) -> Any:
    """Both states together."""
    return jax.tree.map(_sum, state, other)


def _sum(x: Array, y: Array) -> Array:
    """Of limbs, or of pairs of a float and its rest."""
    if x.dtype == jnp.uint32:
        return _counts.add(x, y)
    total, rest = two_sum(x[0], y[0])
    return jnp.stack(two_sum(total, rest + (x[1] + y[1])))


def reduce(state: Any, axis_name: str) -> Any:
    """The sum over the devices of a mesh axis."""
    total = jax.lax.psum(state, axis_name)
    return jax.tree.map(
        lambda x: _counts.carry(x) if x.dtype == jnp.uint32 else jnp.stack(two_sum(*x)), total
    )
