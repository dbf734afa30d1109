"""What makes a plain function one of the library's: compiled once, and guarded on entry."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from jaxiou import _checks

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(*, static: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """Compiles a function with `jax.jit`, once for the whole process.

    The thin wrapper around the compiled body catches what `jit` would lose before the
    body sees it: NumPy integers of 64 bits, which wrap when x64 is off.

    Args:
      static: names of arguments that are hashable Python values, not arrays.
    """

    def decorate(function: Function) -> Function:
        body = jax.jit(function, static_argnames=static)

        @functools.wraps(function)
        def public(*args, **kwargs):
            for x in (*args, *kwargs.values()):
                if isinstance(x, np.ndarray | np.generic) and x.dtype.itemsize == 8:
                    named = inspect.signature(function).bind(*args, **kwargs).arguments
                    for name, value in named.items():
                        if isinstance(value, np.ndarray | np.generic):
                            _checks.fits_in_32_bits(name, np.asarray(value))
                    break
            return body(*args, **kwargs)

        return public  # type: ignore[return-value]

    return decorate


def overlap(*, region_rank: int) -> Callable[[Function], Function]:
    """Marks and compiles an overlap `f(a, b)` of two regions.

    Args:
      region_rank: how many trailing axes are one region: 1 for boxes, 2 for masks.
        `pairing` reads it off the function, so that users do not have to say it.
    """

    def decorate(function: Function) -> Function:
        public = compiled()(function)
        public.region_rank = region_rank  # type: ignore[attr-defined]
        return public

    return decorate
