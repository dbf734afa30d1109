"""Boxes taken apart: the arithmetic that `boxes` and `variants` are written in.

A box travels as four arrays, never as a trailing axis of length 4: it reads like the
formula, and XLA vectorises over the pairs. Conventions that hold for all of it:

- an inverted box collapses on entry, `x2 := maximum(x1, x2)`, and has area 0;
- ties of `minimum` and `maximum` split the derivative evenly, the positive part of a shared
  side has derivative 0 at 0, and ratios 0/0 are 0 with derivative 0.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxiou import _checks
from jaxiou._math import (
    maximum,
    minimum,
    never_negative,
    positive_part,
    product,
    safe_arctan2,
    safe_divide,
    stored_product,
)
from jaxiou._typing import ArrayLike


class Corners(NamedTuple):
    """A box, or arrays of boxes: the left, top, right and bottom edges."""

    x1: Array
    y1: Array
    x2: Array
    y2: Array


def split(boxes: Array) -> Corners:
    """The four coordinates of cast boxes, as they are."""
    # One split, not four slices: its transpose is one concatenation, where slices give a
    # sum of four padded arrays and take twice as long in the backward pass.
    columns = jax.lax.split(boxes, (1, 1, 1, 1), axis=boxes.ndim - 1)
    return Corners(*(jax.lax.squeeze(x, (boxes.ndim - 1,)) for x in columns))


def join(box: Corners) -> Array:
    """`[..., 4]` from four coordinates."""
    return jnp.stack(jnp.broadcast_arrays(*box), axis=-1)


def check(**boxes: ArrayLike) -> None:
    """Raises unless all are boxes `[..., 4]` whose leading axes broadcast."""
    _checks.are_regions((4,), "one box a row", **boxes)


def cast(**boxes: ArrayLike) -> tuple[Array, ...]:
    """Checked boxes `[..., 4]` in one float type and of one rank."""
    return _checks.regions((4,), "one box a row", **boxes)


def corners(**boxes: ArrayLike) -> tuple[Corners, ...]:
    """Checked, cast and collapsed boxes."""
    return tuple(
        Corners(x1, y1, maximum(x1, x2), maximum(y1, y2))
        for x1, y1, x2, y2 in map(split, cast(**boxes))
    )


def sides(a: Corners) -> tuple[Array, Array]:
    """Width and height of a collapsed box: never negative, so nothing is cut.

    A side of 0 has half the slope of an open one, the mean of opening it and of collapsing.
    """
    return a.x2 - a.x1, a.y2 - a.y1


def area(a: Corners) -> Array:
    return stored_product(*sides(a))


def shared(a: Corners, b: Corners) -> Corners:
    """The box of common points, inverted where there are none; NaN in `a` may get lost."""
    return Corners(
        maximum(a.x1, b.x1),
        maximum(a.y1, b.y1),
        minimum(a.x2, b.x2),
        minimum(a.y2, b.y2),
    )


def enclosing(a: Corners, b: Corners) -> Corners:
    """The smallest box around both; NaN in `a` may get lost, here and in what follows.

    The areas keep it, so a sum with an IoU in it is NaN where it has to be.
    """
    return Corners(
        minimum(a.x1, b.x1),
        minimum(a.y1, b.y1),
        maximum(a.x2, b.x2),
        maximum(a.y2, b.y2),
    )


def intersection(a: Corners, b: Corners) -> Array:
    width, height = sides(shared(a, b))
    return product(positive_part(width), positive_part(height))


def union(a: Corners, b: Corners) -> Array:
    # Rounding to nearest gives fl(|a| + |b|) >= 2 I, so the union is never below I.
    return area(a) + area(b) - intersection(a, b)


def iou(a: Corners, b: Corners) -> Array:
    ratio = safe_divide(intersection(a, b), union(a, b))
    # Not `minimum(ratio, 1)`: it would halve the gradient at exactly 1.
    return jnp.where(ratio > 1, 1, ratio)


def center_offset(a: Corners, b: Corners) -> tuple[Array, Array]:
    """The centre of `a` less the centre of `b`.

    Differences first: they are exact for boxes that lie close, however far from the origin.
    """
    return ((a.x1 - b.x1) + (a.x2 - b.x2)) / 2, ((a.y1 - b.y1) + (a.y2 - b.y2)) / 2


def center_penalty(a: Corners, b: Corners) -> Array:
    """DIoU's penalty: squared distance of the centres over squared enclosing diagonal."""
    dx, dy = center_offset(a, b)
    width, height = sides(enclosing(a, b))
    return safe_divide(dx**2 + dy**2, width**2 + height**2)


def area_penalty(a: Corners, b: Corners) -> Array:
    """GIoU's penalty: the share of the enclosing box that is in neither box."""
    around = product(*sides(enclosing(a, b)))
    # In float32 the union exceeds the area around it by an ulp in 16% of nested pairs.
    return safe_divide(never_negative(around - union(a, b)), around)


def aspect_penalty(a: Corners, b: Corners) -> Array:
    """CIoU's `alpha * v`, with `alpha` under `stop_gradient` as the paper has it."""
    angles = safe_arctan2(*sides(b)) - safe_arctan2(*sides(a))
    v = 4 / math.pi**2 * angles**2
    alpha = safe_divide(v, (1 - iou(a, b)) + v)
    return jax.lax.stop_gradient(alpha) * v
