"""What encloses two oriented boxes: their convex hull, rectangles around it, and its extent.

The hull is the area between two graphs. Over the x of each corner, the upper one is the
greatest of all chords between corners on either side, the lower one the least, and between
neighbours both are linear. A maximum does not care about corners that coincide or lie on a
line, where a walk along the hull would have to tell left from right.

All is computed in the frame of the larger box, so that it does not depend on the order of two
boxes, and is exact where they coincide.
"""

import itertools

import jax
import jax.numpy as jnp
from jax import Array

from jaxiou import _clamp
from jaxiou._clamp import Oriented, Pose
from jaxiou._math import absolute, maximum, minimum, safe_divide

Point = tuple[Array, Array]


def pose_in_larger(a: Oriented, b: Oriented) -> Pose:
    """The smaller box in the frame of the larger one; by other numbers if both are as large."""
    swap = a.angle > b.angle
    for x, y in ((a.width, b.width), (_clamp.area(a), _clamp.area(b))):
        swap = (x > y) | ((x == y) & swap)
    small, large = (
        Oriented(*(jnp.where(swap, x, y) for x, y in zip(p, q, strict=True)))
        for p, q in ((b, a), (a, b))
    )
    axes = zip(_clamp.direction(a.angle), _clamp.direction(b.angle), strict=True)
    cos, sin = (jnp.where(swap, x, y) for x, y in axes)
    return _clamp.pose(small, large, (cos, sin))


def _corners(f: Pose) -> tuple[list[Point], list[Point]]:
    """The corners of both boxes of a pose, each from left to right, and upwards on a tie."""
    ux, uy = f.width / 2 * f.cos, f.width / 2 * f.sin
    vx, vy = -f.height / 2 * f.sin, f.height / 2 * f.cos
    # The box's half axes, both to the right, the longer step first.
    backwards = vx < 0
    vx, vy = jnp.where(backwards, -vx, vx), jnp.where(backwards, -vy, vy)
    swap = (ux < vx) | ((ux == vx) & (uy < vy))
    ux, uy, vx, vy = (jnp.where(swap, *pair) for pair in ((vx, ux), (vy, uy), (ux, vx), (uy, vy)))
    own = [
        (f.x - ux - vx, f.y - uy - vy),
        (f.x - ux + vx, f.y - uy + vy),
        (f.x + ux - vx, f.y + uy - vy),
        (f.x + ux + vx, f.y + uy + vy),
    ]
    x, y = f.half_width, f.half_height
    return own, [(-x, -y), (-x, y), (x, -y), (x, y)]


@jax.custom_jvp
def _order(x0: Array, y0: Array, x1: Array, y1: Array) -> tuple[Array, Array, Array, Array]:
    """Two points from left to right, and upwards on a tie; equal ones share their derivative."""
    swap = (x0 > x1) | ((x0 == x1) & (y0 > y1))
    first = jnp.where(swap, x1, x0), jnp.where(swap, y1, y0)
    return *first, jnp.where(swap, x0, x1), jnp.where(swap, y0, y1)


@_order.defjvp
def _order_jvp(primals, tangents):
    x0, y0, x1, y1 = primals
    swap = (x0 > x1) | ((x0 == x1) & (y0 > y1))
    share = jnp.where(swap, 1, jnp.where((x0 == x1) & (y0 == y1), 0.5, 0)).astype(x0.dtype)
    s, t, u, v = tangents
    first = s + share * (u - s), t + share * (v - t)
    return _order(*primals), (*first, (s + u) - first[0], (t + v) - first[1])


def _merged(a: list[Point], b: list[Point]) -> list[Point]:
    """Two ordered lists of four as one, by Batcher's odd-even merge."""
    if len(a) == 1:
        x0, y0, x1, y1 = _order(*a[0], *b[0])
        return [(x0, y0), (x1, y1)]
    even, odd = _merged(a[::2], b[::2]), _merged(a[1::2], b[1::2])
    merged = [even[0]]
    for p, q in zip(odd[:-1], even[1:], strict=True):
        x0, y0, x1, y1 = _order(*p, *q)
        merged += [(x0, y0), (x1, y1)]
    return [*merged, odd[-1]]


def hull_area(f: Pose) -> Array:
    """Area of the convex hull of the two boxes of a pose."""
    points = _merged(*_corners(f))
    x = [p[0] for p in points]
    upper = [p[1] for p in points]
    lower = list(upper)
    for i, j in itertools.combinations(range(len(points)), 2):
        if j - i < 2:
            continue
        (x0, y0), (x1, y1) = points[i], points[j]
        slope = safe_divide(y1 - y0, x1 - x0)
        for k in range(i + 1, j):
            chord = y0 + slope * (x[k] - x0)
            upper[k] = maximum(upper[k], chord)
            lower[k] = minimum(lower[k], chord)
    # A chord's end, which rounding may put beyond all corners.
    own_top = f.width / 2 * f.sin + f.height / 2 * f.cos
    top, bottom = maximum(f.y + own_top, f.half_height), minimum(f.y - own_top, -f.half_height)
    height = [minimum(u, top) - maximum(v, bottom) for u, v in zip(upper, lower, strict=True)]
    strips = [(x[k + 1] - x[k]) * (height[k + 1] + height[k]) for k in range(len(points) - 1)]
    return sum(strips[1:], strips[0]) / 2


def _extent(f: Pose, x: Array, y: Array) -> Array:
    """How far the two boxes reach along a direction, times its length."""
    center = f.x * x + f.y * y
    along, across = f.cos * x + f.sin * y, f.cos * y - f.sin * x
    own = (f.width * absolute(along) + f.height * absolute(across)) / 2
    others = f.half_width * absolute(x) + f.half_height * absolute(y)
    return maximum(center + own, others) - minimum(center - own, -others)


def rectangle(f: Pose) -> tuple[Array, Array]:
    """Area and squared diagonal of the smallest rectangle around the two boxes of a pose.

    One of its sides lies along a side of the hull, which joins two corners. So it is the
    smallest along all lines that join a corner of one box with one of the other, and along
    the boxes themselves; most of these lines are none of the hull's, and give larger ones.
    """
    own, others = _corners(f)
    one = jnp.ones_like(f.x)
    width, height = _extent(f, one, 0 * one), _extent(f, 0 * one, one)
    area, diagonal = width * height, width**2 + height**2
    for x, y in [(f.cos, f.sin), *((x - s, y - t) for x, y in own for s, t in others)]:
        square = x * x + y * y
        width, height = _extent(f, x, y), _extent(f, -y, x)
        candidate = safe_divide(width * height, square)
        smaller = (square > 0) & (candidate < area)
        area = jnp.where(smaller, candidate, area)
        diagonal = jnp.where(smaller, safe_divide(width**2 + height**2, square), diagonal)
    return area, diagonal


def squared_diameter(f: Pose) -> Array:
    """The greatest squared distance of two corners."""
    own, others = _corners(f)
    greatest = maximum(f.width**2 + f.height**2, 4 * (f.half_width**2 + f.half_height**2))
    for (x, y), (s, t) in itertools.product(own, others):
        greatest = maximum(greatest, (x - s) ** 2 + (y - t) ** 2)
    return greatest


def reach(a: Oriented) -> tuple[Array, Array]:
    """Half the sides of the axis-parallel box around one box, computed once a box."""
    cos, sin = (absolute(x) for x in _clamp.direction(a.angle))
    x, y = a.width * cos + a.height * sin, a.width * sin + a.height * cos
    return _clamp.stored(x / 2), _clamp.stored(y / 2)


def box_sides(a: Oriented, b: Oriented) -> tuple[Array, Array]:
    """Sides of the smallest axis-parallel box around both."""
    (ax, ay), (bx, by) = reach(a), reach(b)
    return (
        maximum(a.x + ax, b.x + bx) - minimum(a.x - ax, b.x - bx),
        maximum(a.y + ay, b.y + by) - minimum(a.y - ay, b.y - by),
    )
