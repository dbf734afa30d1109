"""Checks of shapes and types; the only file that imports chex.

They read static facts alone, cost nothing in compiled code, and raise ValueError or
TypeError naming the argument, the shape it has and the shape it needs.
"""

import math
from collections.abc import Collection, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou._typing import ArrayLike


def is_array(name: str, x: object) -> None:
    """Raises TypeError unless `x` is a JAX or NumPy array."""
    if not isinstance(x, jax.Array | np.ndarray):
        raise TypeError(
            f"{name} must be a JAX or NumPy array, got {type(x).__name__}; "
            f"wrap it in jnp.asarray(...)"
        )


def is_real(name: str, x: ArrayLike) -> None:
    """Raises TypeError unless the numbers of `x` are floats or integers."""
    if not (jnp.issubdtype(x.dtype, jnp.floating) or jnp.issubdtype(x.dtype, jnp.integer)):
        raise TypeError(f"{name} must hold floats or integers, got dtype {x.dtype}")


def is_integer(name: str, x: ArrayLike) -> None:
    """Raises TypeError unless `x` holds integers."""
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{name} must hold integers, got dtype {x.dtype}")


def fits_in_32_bits(name: str, x: np.ndarray) -> None:
    """Raises ValueError where JAX without x64 would wrap 64-bit integers silently."""
    if x.dtype.kind not in "iu" or x.dtype.itemsize < 8 or x.size == 0:
        return
    if jax.dtypes.canonicalize_dtype(x.dtype) == x.dtype:
        return
    limits = np.iinfo(np.int32 if x.dtype.kind == "i" else np.uint32)
    if x.min() < limits.min or x.max() > limits.max:
        raise ValueError(
            f"{name} holds integers in [{x.min()}, {x.max()}], which do not fit in 32 bits; "
            f"convert it to float, or switch on jax_enable_x64"
        )


def trailing_shape(name: str, x: ArrayLike, shape: Sequence[int | None], meaning: str) -> None:
    """Raises ValueError unless the last axes of `x` are `shape`; None stands for any size."""
    try:
        chex.assert_shape(x, (..., *shape))
    except AssertionError:
        wanted = ", ".join(["...", *("_" if size is None else str(size) for size in shape)])
        raise ValueError(
            f"{name} must have shape [{wanted}] ({meaning}), got {list(x.shape)}"
        ) from None


def exact_shape(name: str, x: ArrayLike, shape: Sequence[int], meaning: str) -> None:
    """Raises ValueError unless the axes of `x` are `shape`."""
    try:
        chex.assert_shape(x, tuple(shape))
    except AssertionError:
        raise ValueError(
            f"{name} must have shape {list(shape)} ({meaning}), got {list(x.shape)}"
        ) from None


def one_set(name: str, x: ArrayLike, rank: int) -> None:
    """Raises unless `x` is one set of regions of `rank` axes, `[N, *region]`."""
    is_array(name, x)
    if x.ndim != rank + 1:
        wanted = ", ".join("_" for _ in range(rank + 1))
        raise ValueError(
            f"{name} must have shape [{wanted}] (one set of regions), got {list(x.shape)}"
        )


def table(name: str, x: ArrayLike) -> None:
    """Raises unless `x` is one table of real numbers, `[_, _]`."""
    is_array(name, x)
    is_real(name, x)
    if x.ndim != 2:
        raise ValueError(f"{name} must have shape [_, _] (one table), got {list(x.shape)}")


def leading_shape(rank: int, **arrays: ArrayLike) -> tuple[int, ...]:
    """The broadcast shape of all axes but the last `rank`; ValueError if there is none."""
    leading = [x.shape[: x.ndim - rank] for x in arrays.values()]
    try:
        return np.broadcast_shapes(*leading)
    except ValueError:
        got = " and ".join(f"{name} {list(x.shape)}" for name, x in arrays.items())
        raise ValueError(
            f"the leading axes of {' and '.join(arrays)} must broadcast, got {got}"
        ) from None


def same_rank(*arrays: ArrayLike) -> tuple[Array, ...]:
    """The arrays with leading axes of size 1 added, so that their ranks are equal.

    Not `broadcast_to`: what depends on one array alone would then be computed per pair.
    """
    rank = max(x.ndim for x in arrays)
    return tuple(jnp.asarray(x).reshape((1,) * (rank - x.ndim) + x.shape) for x in arrays)


def working_dtype(*arrays: ArrayLike) -> np.dtype:
    """float64 if any array holds 64-bit numbers, else float32."""
    wide = any(np.dtype(x.dtype).itemsize == 8 for x in arrays)
    return np.dtype(np.float64 if wide else np.float32)


def regions(shape: Sequence[int | None], meaning: str, **arrays: ArrayLike) -> tuple[Array, ...]:
    """Checked regions, cast to one float type and brought to one rank.

    The cast comes before any arithmetic: uint8 differences wrap and float16 areas overflow.
    """
    are_regions(shape, meaning, **arrays)
    dtype = working_dtype(*arrays.values())
    return same_rank(*(jnp.asarray(x).astype(dtype) for x in arrays.values()))


def are_regions(shape: Sequence[int | None], meaning: str, **arrays: ArrayLike) -> None:
    """Raises unless all are arrays of real numbers, `[..., *shape]`, with axes that broadcast."""
    for name, x in arrays.items():
        is_array(name, x)
        is_real(name, x)
        trailing_shape(name, x, shape, meaning)
    leading_shape(len(shape), **arrays)


def mask(name: str, where: ArrayLike, shape: Sequence[int]) -> None:
    """Raises unless `where` is boolean, of the rank of `shape`, and broadcasts to it."""
    is_array(name, where)
    if where.dtype != np.bool_:
        raise TypeError(f"{name} must be boolean, got dtype {where.dtype}")
    fits = where.ndim == len(shape) and all(
        size in (1, wanted) for size, wanted in zip(where.shape, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name} must have rank {len(shape)} and broadcast to {list(shape)}, "
            f"got {list(where.shape)}"
        )


def positive(name: str, value: float) -> float:
    """`value` as a float; ValueError unless it is finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def count(name: str, value: object, least: int = 0) -> None:
    """Raises unless `value` is a Python integer of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be {least} or more, got {value}")


def integers(name: str, value: object) -> tuple[int, ...]:
    """One integer or a tuple of them, as a tuple; TypeError for anything else."""
    values = value if isinstance(value, tuple) else (value,)
    for x in values:
        if isinstance(x, bool) or not isinstance(x, int | np.integer):
            raise TypeError(f"{name} must be an integer or a tuple of integers, got {value!r}")
    return tuple(int(x) for x in values)


def members(name: str, value: object, count: int) -> tuple[int, ...]:
    """`integers` that are numbers of `count` things, from 0; ValueError for others."""
    values = integers(name, value)
    for x in values:
        if not 0 <= x < count:
            raise ValueError(f"{name} must lie in 0 to {count - 1}, got {x}")
    return values


def scalar(name: str, value: ArrayLike | float) -> Array:
    """`value` as an array of rank 0; ValueError if it has axes."""
    if value is None or isinstance(value, str):
        raise TypeError(f"{name} must be a number, got {value!r}")
    x = jnp.asarray(value)
    is_real(name, x)
    if x.ndim != 0:
        raise ValueError(f"{name} must be a number, got shape {list(x.shape)}")
    return x


def labels(name: str, x: ArrayLike, count: int, meaning: str) -> None:
    """Raises unless `x` is an array of `count` integers."""
    is_array(name, x)
    is_integer(name, x)
    exact_shape(name, x, (count,), meaning)


def is_concrete(name: str, x: object) -> None:
    """Raises TypeError for an array inside `jit`, which has no values yet."""
    is_array(name, x)
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name} is traced and has no values yet; check it outside of jit")


def one_of(name: str, value: object, choices: Collection[object]) -> None:
    """Raises ValueError unless `value` is among `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}")


def rows(name: str, x: ArrayLike, leading: Sequence[int], count: int | None = None) -> None:
    """Raises unless `x` has axes that broadcast to `leading`, and one more for its rows.

    Of these there must be `count`; None stands for any number.
    """
    is_array(name, x)
    sizes = zip(x.shape, leading, strict=False)
    fits = x.ndim > len(leading) and all(size in (1, wanted) for size, wanted in sizes)
    if not fits or (count is not None and x.shape[len(leading)] != count):
        wanted = ", ".join([*map(str, leading), "_" if count is None else str(count), "..."])
        raise ValueError(f"{name} must have shape [{wanted}], got {list(x.shape)}")


def one_number(name: str, x: jax.ShapeDtypeStruct) -> None:
    """Raises unless the result of the function `name` is a float without axes."""
    if x.shape != ():
        raise ValueError(f"{name} must give one number for two regions, got shape {list(x.shape)}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} must give a float for two regions, got dtype {x.dtype}")


def one_region(name: str, x: jax.ShapeDtypeStruct, shape: Sequence[int]) -> None:
    """Raises unless the result of the function `name` is a region like those it is given."""
    if x.shape != tuple(shape):
        raise ValueError(
            f"{name} must give one region for two, of shape {list(shape)}, got {list(x.shape)}"
        )
