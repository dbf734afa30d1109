"""Arithmetic that stays finite, each function with its gradient contract.

All of them guard the *input* of the operation that can fail. Masking the output would
leave NaN in the gradient, since `0 * inf` is NaN in the backward pass.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@jax.custom_jvp
def safe_divide(x: Array, y: Array) -> Array:
    """`x / y`, and 0 where `y` is 0, whatever `x` is; NaN in `y` passes on.

    Gradient: `(dx - q dy) / y` with `q = x / y`, and 0 where `y` is 0. JAX's own rule
    divides by `y * y`, which underflows for areas below 1e-19.
    """
    return jnp.where(y != 0, x / jnp.where(y != 0, y, 1), 0)


@safe_divide.defjvp
def _safe_divide_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    q = safe_divide(x, y)
    inverse = jnp.where(y != 0, 1 / jnp.where(y != 0, y, 1), 0)
    return q, (dx - q * dy) * inverse


def per_pair(y: Array, x: Array) -> Array:
    """`y`, made to depend on `x`, for a quotient `x / y` with one `y` for many `x`.

    XLA on CPU turns division by a broadcast array into multiplication by a rounded
    reciprocal, and the quotient of equal numbers is then not always 1. NaN in `x` gives 1.
    """
    return jnp.where(x == x, y, 1)


def product(x: Array, y: Array) -> Array:
    """`x * y`, rounded once, in every compilation.

    Inside `jit` a multiplication and an addition are contracted into one rounding, so
    that an area depends on what is added to it. The select stands between the two.

    Gradient: that of `x * y`.
    """
    p = x * y
    return jnp.where(p != p, x + y, p)


@jax.custom_jvp
def stored_product(x: Array, y: Array) -> Array:
    """`product`, for what belongs to one region and is used in many pairs.

    Dividing by 1 makes it expensive in XLA's eyes, which then computes it once per region
    and stores it, where a mere product would be computed anew for every pair.

    Gradient: that of `x * y`.
    """
    return x * y / jnp.where(x == x, 1, x)


@stored_product.defjvp
def _stored_product_jvp(primals, tangents):
    (x, y), (dx, dy) = primals, tangents
    return stored_product(x, y), x * dy + y * dx


@jax.custom_jvp
def maximum(x: Array, y: Array) -> Array:
    """The larger of two, `y` where one is NaN; a tie splits the derivative evenly.

    Not `jnp.maximum`: asking both arguments whether they are NaN triples the work, and
    halving the derivative by a division, which XLA takes for expensive and stores, doubles
    the time of a backward pass. Where NaN in `x` matters, `carry_nan` brings it along.
    """
    return jnp.where(x > y, x, y)


@maximum.defjvp
def _maximum_jvp(primals, tangents):
    return jnp.maximum(*primals), _weighted(primals, tangents, primals[0] > primals[1])


@jax.custom_jvp
def minimum(x: Array, y: Array) -> Array:
    """The smaller of two, `y` where one is NaN; a tie splits the derivative evenly."""
    return jnp.where(x < y, x, y)


@minimum.defjvp
def _minimum_jvp(primals, tangents):
    return jnp.minimum(*primals), _weighted(primals, tangents, primals[0] < primals[1])


def _weighted(primals, tangents, first) -> Array:
    (x, y), (dx, dy) = primals, tangents
    weight = jnp.where(first, 1, jnp.where(x == y, 0.5, 0)).astype(x.dtype)
    return weight * dx + (1 - weight) * dy


def carry_nan(value: Array, source: Array) -> Array:
    """`value`, and NaN where `source` is NaN."""
    return jnp.where(source == source, value, source)


@jax.custom_jvp
def positive_part(x: Array) -> Array:
    """`max(x, 0)` with derivative 0 at 0; NaN stays NaN.

    `jax.nn.relu` is the same function. Its maximum has to ask whether `x` is NaN, which a
    select does not; in a backward pass, where XLA would store each select's condition, the
    maximum is the faster one.
    """
    return jnp.where(x <= 0, 0, x)


@positive_part.defjvp
def _positive_part_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return jnp.maximum(x, 0), jnp.where(x > 0, dx, 0)


@jax.custom_jvp
def never_negative(x: Array) -> Array:
    """`max(x, 0)` of a number that only rounding makes negative; derivative 1 everywhere."""
    return jnp.where(x <= 0, 0, x)


@never_negative.defjvp
def _never_negative_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return jnp.maximum(x, 0), dx


def safe_sqrt(x: Array) -> Array:
    """`sqrt(x)` with derivative 0, not infinity, at `x = 0`."""
    positive = x != 0  # also true for NaN and negative numbers, which give NaN
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), 0)


def safe_power(x: Array, exponent: float) -> Array:
    """`x ** exponent` for `x >= 0` and `exponent > 0`, with derivative 0 at `x = 0`."""
    positive = x != 0
    return jnp.where(positive, jnp.where(positive, x, 1) ** exponent, 0)


def safe_arctan2(y: Array, x: Array) -> Array:
    """`arctan2(y, x)`, and 0 with derivative 0 at the origin."""
    somewhere = (x != 0) | (y != 0)
    return jnp.where(somewhere, jnp.arctan2(y, jnp.where(somewhere, x, 1)), 0)


def absolute(x: Array) -> Array:
    """`|x|` with derivative 0 at 0, the mean of its slopes; `jnp.abs` has 1 there."""
    return maximum(x, -x)


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """`x + y` as it is rounded, and what the rounding left over, exactly (Knuth)."""
    total = x + y
    rest = total - x
    return total, (x - (total - rest)) + (y - rest)


def places(ordered: Array, keys: Array) -> Array:
    """Where each key first is among the ordered ones, by bisection.

    Not `jnp.searchsorted`: its loop does not run in `shard_map`; unrolled, it is fused with what
    made the keys, and makes them anew in every step.
    """
    count = ordered.shape[-1]
    steps = count.bit_length()

    def step(i, smaller):
        """Raises the number of keys that are known to be smaller by a power of 2, if it may."""
        more = smaller + (1 << (steps - 1 - i))
        there = jnp.take_along_axis(ordered, jnp.minimum(more, count) - 1, axis=-1)
        return jnp.where((more <= count) & (there < keys), more, smaller)

    return jax.lax.fori_loop(np.int32(0), np.int32(steps), step, jnp.zeros_like(keys, jnp.int32))
