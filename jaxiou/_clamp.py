"""Oriented boxes taken apart, and the area that two of them share.

A box travels as five arrays, as in `_corners`. The shared area is a boundary integral. Put the
box B at the origin, along the axes, and clamp every point of the plane into it. That map has
Jacobian 1 inside B and 0 outside, so the area of A within B is the integral of X dY along the
edges of A, with (X, Y) the clamped point. The edges of B never occur: nothing can be counted
twice or not at all, so no rule for shared edges, no set of vertices and no sorting is needed.
The mean of A within B and B within A is symmetric to the last bit.

The derivative is the flux of the moving boundary (Reynolds): the lengths of A's edges inside B,
their first moments, and the lengths of B's edges inside A, which the clamped edges of A give too.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou import _checks
from jaxiou._math import (
    carry_nan,
    maximum,
    product,
    safe_divide,
    stored_product,
    two_sum,
)
from jaxiou._typing import ArrayLike


class Oriented(NamedTuple):
    """A box, or arrays of boxes: centre, sides, and the angle from +x towards +y."""

    x: Array
    y: Array
    width: Array
    height: Array
    angle: Array


def cast(**boxes: ArrayLike) -> tuple[Array, ...]:
    """Checked boxes `[..., 5]` in one float type and of one rank."""
    return _checks.regions((5,), "one oriented box a row", **boxes)


@jax.custom_jvp
def split(boxes: Array) -> Oriented:
    """The five numbers of cast boxes, as they are."""
    columns = jax.lax.split(boxes, (1,) * 5, axis=boxes.ndim - 1)
    return Oriented(*(jax.lax.squeeze(x, (boxes.ndim - 1,)) for x in columns))


@split.defjvp
def _split_jvp(primals, tangents):
    """The transpose joins five columns of cotangents, behind a wall.

    XLA on CPU would fuse all that makes the columns into their concatenation, and evaluate it
    again for every element, which takes a hundred times as long. It fuses nothing into a
    branch. The condition is a constant, which the barrier hides until branches are settled.
    """

    def branch(x):
        true = jax.lax.optimization_barrier(jnp.array(True))
        return jax.lax.cond(true, split, lambda x: split(-x), x)

    return split(*primals), jax.lax.platform_dependent(*tangents, cpu=branch, default=split)


def join(box: Oriented) -> Array:
    """`[..., 5]` from five numbers."""
    return jnp.stack(jnp.broadcast_arrays(*box), axis=-1)


def oriented(**boxes: ArrayLike) -> tuple[Oriented, ...]:
    """Checked and cast boxes, a negative side taken as 0."""
    return tuple(
        Oriented(x, y, maximum(jnp.zeros_like(w), w), maximum(jnp.zeros_like(h), h), angle)
        for x, y, w, h, angle in map(split, cast(**boxes))
    )


def area(a: Oriented) -> Array:
    return stored_product(a.width, a.height)


def intersection(a: Oriented, b: Oriented) -> Array:
    """The shared area, at most the smaller area; NaN for boxes that are not finite."""
    return _intersection(
        a.x - b.x, a.y - b.y, a.angle, b.angle, a.width, a.height, b.width, b.height
    )


def union(a: Oriented, b: Oriented) -> Array:
    # The larger area and what the smaller one adds: never below the intersection.
    first, second = area(a), area(b)
    smaller, larger = jnp.minimum(first, second), jnp.maximum(first, second)
    return larger + (smaller - intersection(a, b))


def iou(a: Oriented, b: Oriented) -> Array:
    return safe_divide(intersection(a, b), union(a, b))


# Angles ------------------------------------------------------------------------------------

QUARTER = {
    4: (1.5703125, 4.837512969970703e-4, 7.54978995489188e-8),
    8: (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21),
}
"""pi / 2 in parts, so short that a number of quarter turns times the first ones is exact."""

SINE = {
    4: (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    8: (
        1.58962301576546568060e-10,
        -2.50507477628578072866e-8,
        2.75573136213857245213e-6,
        -1.98412698295895385996e-4,
        8.33333333332211858878e-3,
        -1.66666666666666307295e-1,
    ),
}
COSINE = {
    4: (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    8: (
        -1.13585365213876817300e-11,
        2.08757008419747316778e-9,
        -2.75573141792967388112e-7,
        2.48015872888517045348e-5,
        -1.38888888888730564116e-3,
        4.16666666666665929218e-2,
    ),
}
"""Cephes' polynomials for angles up to pi / 4. XLA's own take longer than all the rest."""


def _horner(x: Array, coefficients: tuple[float, ...]) -> Array:
    total = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


@jax.custom_jvp
def _cos_sin(x: Array) -> tuple[Array, Array]:
    """Cosine and sine of an angle in [-pi / 4, pi / 4], and a little beyond."""
    z = x * x
    width = x.dtype.itemsize
    return 1 - z / 2 + z * z * _horner(z, COSINE[width]), x + x * z * _horner(z, SINE[width])


@_cos_sin.defjvp
def _cos_sin_jvp(primals, tangents):
    cos, sin = _cos_sin(*primals)
    return (cos, sin), (-sin * tangents[0], cos * tangents[0])


def _reduced(angle: Array, rest: Array | float = 0) -> tuple[Array, Array]:
    """What is left of an angle without its quarter turns, and their number."""
    turns = jax.lax.stop_gradient(jnp.round(angle * (2 / np.pi)))
    for part in QUARTER[angle.dtype.itemsize]:
        angle = angle - turns * part
    return angle + rest, turns


def _odd(turns: Array) -> Array:
    half = turns / 2
    return jnp.floor(half) != half


def direction(angle: Array) -> tuple[Array, Array]:
    """Cosine and sine of any angle; computed once for a box and not for every pair."""
    rest, turns = _reduced(angle)
    cos, sin = _cos_sin(rest)
    odd = _odd(turns)
    cos, sin = jnp.where(odd, -sin, cos), jnp.where(odd, cos, sin)
    flip = _odd(jnp.floor(turns / 2))
    return stored(jnp.where(flip, -cos, cos)), stored(jnp.where(flip, -sin, sin))


def stored(x: Array) -> Array:
    """`x`, which XLA computes once a box and not once a pair, as in `stored_product`."""
    return x / jnp.where(x == x, 1, x)


# The boundary integral ---------------------------------------------------------------------


class Pose(NamedTuple):
    """A in the frame of B, mirrored so that it is turned by an angle in [0, pi / 4].

    Both boxes stay as they are when turned by half about their centres, and A when it is
    turned by a quarter and its sides change places. So there is one case, with known signs.
    """

    x: Array
    y: Array
    cos: Array
    sin: Array
    width: Array
    height: Array
    half_width: Array
    half_height: Array


def _clip(x: Array, low: Array | float, high: Array | float) -> Array:
    return jnp.minimum(jnp.maximum(x, low), high)


def _inverse(x: Array) -> Array:
    return jnp.where(x == 0, 0, 1 / jnp.where(x == 0, 1, x))


def _pose(dx, dy, axis, cos, sin, mirrored, odd, own, others):
    """The canonical pose, and whether x and y changed their signs."""
    # Products are rounded, not contracted, so that both directions give the same bits.
    x = product(axis[0], dx) + product(axis[1], dy)
    y = product(axis[0], dy) - product(axis[1], dx)
    turned = (x < 0) | ((x == 0) & ((y < 0) ^ mirrored))
    flipped = turned ^ mirrored
    pose = Pose(
        jnp.where(turned, -x, x),
        jnp.where(flipped, -y, y),
        cos,
        sin,
        jnp.where(odd, own[1], own[0]),
        jnp.where(odd, own[0], own[1]),
        others[0] / 2,
        others[1] / 2,
    )
    return pose, turned, flipped


def _relative(angle_a, angle_b) -> tuple[Array, Array]:
    """The angle between two boxes in [-pi / 4, pi / 4], and whether sides change places."""
    # With what rounding leaves over: a difference near a quarter turn is not exact.
    relative, turns = _reduced(*two_sum(angle_a, -angle_b))
    return relative, _odd(turns)


def _acute(angle: Array) -> tuple[Array, Array]:
    cos, sin = _cos_sin(jnp.where(angle < 0, -angle, angle))
    # An angle far below rounding is none, so that the square of its inverse is finite.
    return cos, jnp.where(sin < jnp.finfo(sin.dtype).eps / 1024, 0, sin)


def pose(a: Oriented, b: Oriented, axis: tuple[Array, Array]) -> Pose:
    """`a` in the frame of `b`, whose `direction` is `axis`."""
    relative, odd = _relative(a.angle, b.angle)
    sides = (a.width, a.height), (b.width, b.height)
    return _pose(a.x - b.x, a.y - b.y, axis, *_acute(relative), relative < 0, odd, *sides)[0]


def _poses(dx, dy, angle_a, angle_b, width_a, height_a, width_b, height_b):
    relative, odd = _relative(angle_a, angle_b)
    cos, sin = _acute(relative)
    a, b = (width_a, height_a), (width_b, height_b)
    return (
        (*_pose(dx, dy, direction(angle_b), cos, sin, relative < 0, odd, a, b), relative < 0),
        (*_pose(dx, dy, direction(angle_a), cos, sin, relative > 0, odd, b, a), relative > 0),
        odd,
    )


class _Edge(NamedTuple):
    """One edge of A. A place on it is a fraction of its run, from -1/2 to 1/2.

    It starts at `start_y` and ends at `end_y`. It crosses B's walls x = -+half_width at `x_span`
    and y = -+half_height at `y_span`, which are not limited to the edge. `sign` is -1 for an
    edge that runs clockwise. `falls` says that x falls along it.
    """

    sign: int
    falls: bool
    length: Array
    x: Array
    y: Array
    start_y: Array
    end_y: Array
    dx: Array
    dy: Array
    x_span: tuple[Array, Array]
    y_span: tuple[Array, Array]


def _edges(f: Pose) -> tuple[_Edge, ...]:
    """The lower, upper, right and left edge of A."""
    ux, uy = product(f.width / 2, f.cos), product(f.width / 2, f.sin)
    vx, vy = product(f.height / 2, f.sin), product(f.height / 2, f.cos)
    left, right = f.x - ux, f.x + ux
    below, above = f.y - uy, f.y + uy
    by_width, by_height = _inverse(f.width), _inverse(f.height)
    by_cos, by_sin = 1 / f.cos, _inverse(f.sin)

    def edge(sign, x, y, start_y, end_y, falls):
        length = f.height if falls else f.width
        dx, dy = (-2 * vx, 2 * vy) if falls else (2 * ux, 2 * uy)
        by_dx = -by_height * by_sin if falls else by_width * by_cos
        by_dy = by_height * by_cos if falls else by_width * by_sin
        wall = -f.half_width if falls else f.half_width
        x_span = (-wall - x) * by_dx, (wall - x) * by_dx
        y_span = (-f.half_height - y) * by_dy, (f.half_height - y) * by_dy
        return _Edge(sign, falls, length, x, y, start_y, end_y, dx, dy, x_span, y_span)

    # The corners' y are shared by the edges that meet there: in a long box a difference by
    # rounding would count for much.
    y00, y10, y01, y11 = below - vy, above - vy, below + vy, above + vy
    return (
        edge(1, f.x + vx, f.y - vy, y00, y10, False),
        edge(-1, f.x - vx, f.y + vy, y01, y11, False),
        edge(1, right, above, y10, y11, True),
        edge(-1, left, below, y00, y01, True),
    )


def _one_sided(f: Pose) -> Array:
    """The integral of X dY along A's edges."""
    total = jnp.zeros_like(f.x)
    for edge in _edges(f):
        # Y is constant outside of [b0, b1], where the edge is beyond a wall of B. Within, X is
        # constant, then linear from u0 to u1, then constant again.
        b0, b1 = (_clip(t, -0.5, 0.5) for t in edge.y_span)
        u0, u1 = (_clip(t, b0, b1) for t in edge.x_span)
        first_x, last_x = (
            _clip(edge.x + t * edge.dx, -f.half_width, f.half_width) for t in (b0, b1)
        )
        first_y, last_y = (
            _clip(y, -f.half_height, f.half_height) for y in (edge.start_y, edge.end_y)
        )
        middle_y = edge.y + (u0 + u1) * (edge.dy / 2)
        term = product(first_x, last_y - first_y)
        term = term + product(last_x - first_x, last_y - middle_y)
        total = total + edge.sign * term
    return jnp.maximum(total, 0)


@jax.custom_jvp
def _intersection(dx, dy, angle_a, angle_b, width_a, height_a, width_b, height_b) -> Array:
    first, second, _ = _poses(dx, dy, angle_a, angle_b, width_a, height_a, width_b, height_b)
    shared = (_one_sided(first[0]) + _one_sided(second[0])) / 2
    areas = product(width_a, height_a), product(width_b, height_b)
    smaller = jnp.minimum(*areas)
    # 0 * inf is NaN: whatever is not finite ends here.
    spoiled = 0 * ((first[0].x + second[0].x) + (areas[0] + areas[1]))
    return carry_nan(jnp.where(shared > smaller, smaller, shared), spoiled)


class _Flux(NamedTuple):
    """Derivatives of the one-sided area.

    By a shift of A along B's axes, by a turn of A about its own and about B's centre, by A's
    sides and by B's.
    """

    x: Array
    y: Array
    turn: Array
    swing: Array
    width: Array
    height: Array
    others_width: Array
    others_height: Array


def _flux(f: Pose) -> _Flux:
    lengths, moments = [], []
    by_half_width = by_half_height = jnp.zeros_like(f.x)
    for edge in _edges(f):
        a0, a1 = _within(edge.x_span, edge.x, f.half_width, edge.dx, edge.falls)
        b0, b1 = _within(edge.y_span, edge.y, f.half_height, edge.dy, False)
        t0 = jnp.maximum(a0, b0)
        t1 = jnp.maximum(jnp.minimum(a1, b1), t0)
        length = edge.length * (t1 - t0)
        lengths.append(length)
        moments.append(edge.length * length * ((t0 + t1) / 2))

        u0, u1 = _clip(a0, b0, b1), _clip(a1, b0, b1)
        beyond = (b1 - u1) - (u0 - b0)
        by_half_width = by_half_width + edge.sign * edge.dy * (-beyond if edge.falls else beyond)
        v0, v1 = _clip(b0, a0, a1), _clip(b1, a0, a1)
        by_half_height = by_half_height - edge.sign * edge.dx * ((a1 - v1) - (v0 - a0))
    bottom, top, right, left = lengths
    along, across = right - left, top - bottom
    x, y = f.cos * along - f.sin * across, f.sin * along + f.cos * across
    turn = (moments[1] - moments[0]) + (moments[3] - moments[2])
    return _Flux(
        x,
        y,
        turn,
        turn + (f.x * y - f.y * x),
        (right + left) / 2,
        (top + bottom) / 2,
        by_half_width / 2,
        by_half_height / 2,
    )


def _within(span, middle, wall, run, falls):
    """Where an edge is between two walls; on a wall, it is."""
    before, after = middle < -wall, middle > wall
    if falls:
        before, after = after, before
    # An edge without a run in this direction is on one side of a wall from end to end.
    none = run == 0
    half = jnp.full_like(middle, 0.5)
    return (
        jnp.where(none, jnp.where(before, half, -half), _clip(span[0], -0.5, 0.5)),
        jnp.where(none, jnp.where(after, -half, half), _clip(span[1], -0.5, 0.5)),
    )


@_intersection.defjvp
def _intersection_jvp(primals, tangents):
    _, _, angle_a, angle_b, *_ = primals
    first, second, odd = _poses(*primals)

    def flux(pose, turned, flipped, mirrored):
        f = _flux(pose)
        return _Flux(
            jnp.where(turned, -f.x, f.x),
            jnp.where(flipped, -f.y, f.y),
            jnp.where(mirrored, -f.turn, f.turn),
            jnp.where(mirrored, -f.swing, f.swing),
            jnp.where(odd, f.height, f.width),
            jnp.where(odd, f.width, f.height),
            f.others_width,
            f.others_height,
        )

    a, b = flux(*first), flux(*second)
    cos_a, sin_a = direction(angle_a)
    cos_b, sin_b = direction(angle_b)
    partials = (
        (cos_b * a.x - sin_b * a.y) + (cos_a * b.x - sin_a * b.y),
        (sin_b * a.x + cos_b * a.y) + (sin_a * b.x + cos_a * b.y),
        # Turning both boxes about one point changes nothing, so each turn gives the other's.
        a.turn - b.swing,
        b.turn - a.swing,
        a.width + b.others_width,
        a.height + b.others_height,
        b.width + a.others_width,
        b.height + a.others_height,
    )
    change = sum(p * t for p, t in zip(partials, tangents, strict=True)) / 2
    return _intersection(*primals), change
