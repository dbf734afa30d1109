"""Counts that stay exact past 2^31 with 32-bit types: four limbs of 16 bits in uint32.

Counts of shape `[*shape]` are limbs `[4, *shape]`, the least significant first, together up
to 2^64 - 1. A limb that is carried lies below 2^16, so that leafwise sums of up to 65,536
such arrays, `psum` over as many devices included, do not overflow before `carry`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Integer, UInt32

LIMBS, BITS = 4, 16
MASK = np.uint32(2**BITS - 1)

Limbs = UInt32[Array, "4 ..."]


def zeros(shape: Sequence[int] = ()) -> Limbs:
    """No counts yet; a fresh array, which may be donated."""
    return jnp.zeros((LIMBS, *shape), jnp.uint32)


def from_integers(counts: Integer[Array, "..."]) -> Limbs:
    """Non-negative integers of any type as limbs."""
    wide = counts.astype(jnp.uint64 if counts.dtype.itemsize == 8 else jnp.uint32)
    available = wide.dtype.itemsize * 8 // BITS
    mask = jnp.asarray(MASK, wide.dtype)
    parts = [wide >> jnp.asarray(BITS * i, wide.dtype) & mask for i in range(available)]
    parts += [wide ^ wide] * (LIMBS - available)  # zeros that are sharded as the counts are
    return jnp.stack(parts).astype(jnp.uint32)


def carry(limbs: Limbs) -> Limbs:
    """The same counts with every limb below 2^16; what goes past 2^64 is lost."""
    carried, rest = [], jnp.zeros_like(limbs[0])
    for limb in limbs:
        rest = rest + (limb & MASK)
        carried.append(rest & MASK)
        # Apart, so that a limb near 2^32 does not overflow by what is carried into it.
        rest = (rest >> BITS) + (limb >> BITS)
    return jnp.stack(carried)


def add(a: Limbs, b: Limbs) -> Limbs:
    return carry(a + b)


def subtract(a: Limbs, b: Limbs) -> Limbs:
    """`a - b` of counts where `a` is the larger."""
    # Two's complement: -b is the complement of all limbs, plus one in the last place.
    one = jnp.zeros_like(b).at[0].set(1)
    return carry(a + (b ^ MASK) + one)


def total(limbs: Limbs, axis: int | Sequence[int]) -> Limbs:
    """The sum of counts along negative axes, of at most 65,536 counts."""
    return carry(limbs.sum(axis=axis, dtype=jnp.uint32))


def to_float(limbs: Limbs, dtype: np.dtype) -> Float[Array, "..."]:
    """The counts, each rounded once: float32 is exact below 2^24, float64 below 2^53."""
    low = limbs[0] | limbs[1] << BITS
    high = limbs[2] | limbs[3] << BITS
    if dtype.itemsize == 8:
        return high.astype(dtype) * 2.0**32 + low.astype(dtype)
    # Rounding both halves would round twice. The 32 highest digits, the last of which tells
    # whether anything follows, are rounded as all 64 would be.
    up = jnp.where(high == 0, 0, jax.lax.clz(high))
    down = jnp.where(up == 0, 0, low >> (32 - up))
    follows = (low << up) != 0
    digits = high << up | down | follows.astype(jnp.uint32)
    scaled = jnp.ldexp(digits.astype(dtype), 32 - up.astype(jnp.int32))
    return jnp.where(high == 0, low.astype(dtype), scaled)


def to_numpy(limbs: Limbs) -> np.ndarray:
    """The counts as they are, uint64, on the host."""
    parts = np.asarray(limbs).astype(np.uint64)
    return np.asarray(sum(part << np.uint64(BITS * i) for i, part in enumerate(parts)))
