"""The volume that two oriented cuboids share.

The idea of `_clamp` in three dimensions. Put the cuboid B at the origin, scaled to the cube of
all |x|, |y|, |z| <= 1, and clamp every point of space into it. That map has Jacobian 1 inside B
and 0 outside, so the volume of A within B is the integral of X dY dZ over the faces of A, with
(X, Y, Z) the clamped point. B's faces never occur: nothing is counted twice or not at all, and
faces that coincide need no rule.

On one face, x is a linear function of y and z, and clamped it is a function of one variable: the
distance along the slope. So the integral over the face is one along its clamped outline (Green),
of its second antiderivative. All of it is polynomials between the points where an edge meets a
wall. No polygon is stored, and each step is plain arithmetic on separate arrays.

The derivative is the flux of the moving surface (Reynolds): areas and first moments of A's faces
inside B. They give areas of B's faces inside A, too, as the surface of what is shared is closed.
Faces that coincide count half, the mean of both slopes.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxiou._math import carry_nan, product, safe_sqrt

Pair = tuple[Array, Array]
Vector = tuple[Array, ...]
Matrix = tuple[Vector, ...]


class Pose(NamedTuple):
    """How two cuboids lie to each other.

    Attributes:
      center: of A, in the frame of B.
      center_back: of B, in the frame of A.
      axes: A's axes, in the frame of B, one a row.
      sizes: full sizes of A.
      others_sizes: of B.
    """

    center: Vector
    center_back: Vector
    axes: Matrix
    sizes: Vector
    others_sizes: Vector


@jax.custom_jvp
def split(x: Array) -> tuple[Array, ...]:
    """The columns of an array, `[..., n]`."""
    columns = jax.lax.split(x, (1,) * x.shape[-1], axis=x.ndim - 1)
    return tuple(jax.lax.squeeze(column, (x.ndim - 1,)) for column in columns)


@split.defjvp
def _split_jvp(primals, tangents):
    """As that of `_clamp.split`: the transpose joins its columns behind a branch."""

    def branch(x):
        true = jax.lax.optimization_barrier(jnp.array(True))
        return jax.lax.cond(true, split, lambda x: split(jnp.zeros_like(x)), x)

    return split(*primals), jax.lax.platform_dependent(*tangents, cpu=branch, default=split)


def shared_volume(pose: Pose) -> Array:
    """The volume of both, at most that of the smaller one; NaN for what is not finite."""
    return _shared(*pose)


def volume(sizes: Vector) -> Array:
    return product(product(sizes[0], sizes[1]), sizes[2])


@jax.custom_jvp
def _shared(center, center_back, axes, sizes, others_sizes) -> Array:
    pose, empty = _solid(Pose(center, center_back, axes, sizes, others_sizes))
    volumes = volume(pose.sizes), volume(pose.others_sizes)
    forth, back = _each_face(_add_face, pose, jnp.zeros_like(center[0]))
    shared = -(product(forth / 8, volumes[1]) + product(back / 8, volumes[0])) / 2
    shared = jnp.where(empty, 0, jnp.clip(shared, 0, jnp.minimum(*volumes)))
    # 0 * inf is NaN: whatever is not finite ends here.
    return carry_nan(shared, 0 * sum((*center, *sizes, *others_sizes, *axes[0])))


@_shared.defjvp
def _shared_jvp(primals, tangents):
    shared = _shared(*primals)
    pose, empty = _solid(Pose(*primals))
    # The faces of the smaller one, which rounding in the units of the larger one does not hurt.
    swap = volume(pose.sizes) > volume(pose.others_sizes)
    pose, d = (
        jax.tree.map(lambda x, y: jnp.where(swap, x, y), _swapped(x), x)
        for x in (pose, Pose(*tangents))
    )
    none = jnp.zeros_like(pose.center[0])
    change, moments = none, [none] * 3
    for i, flux in enumerate(_each_own_face(_add_flux, pose, ((none,) * 4,) * 3)):
        j, k = (i + 1) % 3, (i + 2) % 3
        area = pose.sizes[j] * pose.sizes[k] / 4
        both, shift, along_j, along_k = flux
        integrals = zip((both, along_j, along_k), (i, j, k), strict=True)
        halves = tuple(x * (pose.sizes[m] / 2) for x, m in integrals)
        change = change + area * both * d.sizes[i] / 2
        for x in range(3):
            outwards = area * pose.axes[i][x]
            moved = -shift * d.center[x] + halves[1] * d.axes[j][x] + halves[2] * d.axes[k][x]
            change = change + outwards * moved
            place = -shift * pose.center[x] + sum(
                half * pose.axes[m][x] for half, m in zip(halves, (i, j, k), strict=True)
            )
            moments[x] = moments[x] + outwards * place
    # The volume is the flux of (x, 0, 0) out of all faces (Gauss). What does not leave through
    # A's faces leaves through two of B's, where x is half of B's size.
    for size, moment, by in zip(pose.others_sizes, moments, d.others_sizes, strict=True):
        change = change + (shared - moment) / size * by
    return shared, jnp.where(empty, 0, change)


def _swapped(pose: Pose) -> Pose:
    axes = tuple(zip(*pose.axes, strict=True))
    return Pose(pose.center_back, pose.center, axes, pose.others_sizes, pose.sizes)


def unit(q: tuple[Array, ...]) -> tuple[Array, ...]:
    """A quaternion of length 1; zeros stay zeros."""
    largest = functools.reduce(jnp.maximum, map(jnp.abs, jax.lax.stop_gradient(q)))
    scaled = [x * _inverse(largest) for x in q]
    length = safe_sqrt(sum(x * x for x in scaled))  # type: ignore[arg-type]
    return tuple(x * _inverse(length) for x in scaled)


def rotation(q: tuple[Array, ...]) -> Matrix:
    """The axes that a unit quaternion turns x, y and z to, one a row; of zeros, x, y and z."""
    w, x, y, z = q
    xx, yy, zz = 2 * product(x, x), 2 * product(y, y), 2 * product(z, z)
    xy, yz, zx = 2 * product(x, y), 2 * product(y, z), 2 * product(z, x)
    wx, wy, wz = 2 * product(w, x), 2 * product(w, y), 2 * product(w, z)
    return (
        (1 - (yy + zz), xy + wz, zx - wy),
        (xy - wz, 1 - (zz + xx), yz + wx),
        (zx + wy, yz - wx, 1 - (xx + yy)),
    )


def quaternion(rows: Matrix) -> tuple[Array, ...]:
    """The unit quaternion of a rotation matrix, by whichever part of it is largest (Shepperd)."""
    (a, b, c), (d, e, f), (g, h, i) = rows
    # Four times the outer product of the quaternion with itself, row by row.
    products = (
        (1 + a + e + i, h - f, c - g, d - b),
        (h - f, 1 + a - e - i, b + d, c + g),
        (c - g, b + d, 1 - a + e - i, f + h),
        (d - b, c + g, f + h, 1 - a - e + i),
    )
    best: tuple[Array, ...] = products[0]
    largest = best[0]
    for k in range(1, 4):
        better = products[k][k] > largest
        best = tuple(jnp.where(better, x, y) for x, y in zip(products[k], best, strict=True))
        largest = jnp.where(better, products[k][k], largest)
    return unit(best)


def nearest_rotation(edges: Matrix) -> Matrix:
    """The axes that are nearest to three edges of any length, which are nearly orthogonal.

    By the iteration of Newton and Schulz. A singular value decomposition has no derivative here,
    as all singular values are equal.
    """

    def step(x: Matrix, _):
        gram = tuple(tuple(_dot(u, v) for v in x) for u in x)
        nearer = tuple(
            tuple(
                (3 * x[i][k] - (gram[i][0] * x[0][k] + gram[i][1] * x[1][k] + gram[i][2] * x[2][k]))
                / 2
                for k in range(3)
            )
            for i in range(3)
        )
        return nearer, None

    start = tuple(_unit_vector(edge) for edge in edges)
    nearest, _ = jax.lax.scan(step, start, None, length=6)
    return nearest


def _unit_vector(v: Vector) -> Vector:
    inverse = _inverse(safe_sqrt(v[0] ** 2 + v[1] ** 2 + v[2] ** 2))
    return v[0] * inverse, v[1] * inverse, v[2] * inverse


def pose(offset: Vector, q: tuple[Array, ...], sizes: Vector, r: tuple[Array, ...], others) -> Pose:
    """The pose of a cuboid A, turned by the unit quaternion q, to B, turned by r.

    Args:
      offset: the centre of A less that of B.
      q: of A.
      sizes: of A.
      r: of B.
      others: sizes of B.
    """
    to_a, to_b = rotation(q), rotation(r)
    (w, x, y, z), (a, b, c, d) = q, r
    # conj(r) q. The products are pinned, so that of equal quaternions it is 1 exactly, and that
    # the other way round has the same bits.
    relative = (
        (product(a, w) + product(b, x)) + (product(c, y) + product(d, z)),
        (product(a, x) - product(w, b)) - (product(c, z) - product(y, d)),
        (product(a, y) - product(w, c)) - (product(d, x) - product(z, b)),
        (product(a, z) - product(w, d)) - (product(b, y) - product(x, c)),
    )
    center = tuple(_dot(row, offset) for row in to_b)
    center_back = tuple(-_dot(row, offset) for row in to_a)
    return Pose(center, center_back, rotation(unit(relative)), sizes, others)


def _dot(u: Vector, v: Vector) -> Array:
    return product(u[0], v[0]) + product(u[1], v[1]) + product(u[2], v[2])


def _solid(pose: Pose) -> tuple[Pose, Array]:
    """The pose, with sizes of 1 where a cuboid is empty, and where that is."""
    empty = functools.reduce(jnp.logical_or, (s <= 0 for s in (*pose.sizes, *pose.others_sizes)))
    sizes = tuple(jnp.where(empty, 1, s) for s in pose.sizes)
    others_sizes = tuple(jnp.where(empty, 1, s) for s in pose.others_sizes)
    return pose._replace(sizes=sizes, others_sizes=others_sizes), empty


def _each_face(function, pose: Pose, start):
    """`function` of each face of A in B's frame, and of B in A's, with a result for each cuboid.

    In every step of the loop the cuboids change places, so that there is one copy of the code.
    """

    def step(state, _):
        own, other = state
        return (other, _next_face(function, own)), None

    state = _first_face(pose, start), _first_face(_swapped(pose), start)
    ((_, _, forth), (_, _, back)), _ = jax.lax.scan(step, state, None, length=12)
    return forth, back


def _each_own_face(function, pose: Pose, start):
    """`function` of each face of A in B's frame."""

    def step(state, _):
        return _next_face(function, state), None

    (_, _, result), _ = jax.lax.scan(step, _first_face(pose, start), None, length=6)
    return result


def _first_face(pose: Pose, start):
    """What a loop over the faces of A begins with: B's walls, A's axes in its units, a result."""
    a, b = pose.sizes, pose.others_sizes
    scaled = tuple(tuple(pose.axes[i][k] * (a[i] / b[k]) for k in range(3)) for i in range(3))
    return tuple(_walls(2 * pose.center[k] / b[k]) for k in range(3)), scaled, start


def _next_face(function, state):
    """A step of a loop, not one of many copies of the code, which XLA would compile for long.

    The axes turn by a third and through the centre, which leads to each face in turn without any
    indexing: +1, -2, +3, -1, +2, -3. Every other time the axes are a left-handed system.
    """
    walls, axes, result = state
    result = function(walls, axes, result)
    return walls, tuple(tuple(-x for x in axis) for axis in (*axes[1:], axes[0])), result


def _walls(center: Array) -> Pair:
    """Where the cube begins and ends along an axis, seen from a point in it."""
    return -1 - center, 1 - center


def _inverse(x: Array) -> Array:
    return jnp.where(x == 0, 0, 1 / jnp.where(x == 0, 1, x))


def _clip(x: Array, wall: Pair | tuple[float, float]) -> Array:
    return jnp.minimum(jnp.maximum(x, wall[0]), wall[1])


def _cross(u: Vector, v: Vector) -> Vector:
    return (
        u[1] * v[2] - u[2] * v[1],
        u[2] * v[0] - u[0] * v[2],
        u[0] * v[1] - u[1] * v[0],
    )


def _outline(p: Vector, u: Vector, v: Vector, walls) -> list[Pair]:
    """The outline of a face in y and z, clamped: each corner and the two points behind it.

    Along an edge, the clamped point waits for the edge to pass the first wall in y or z, and
    waits again beyond the last. It turns where the edge has passed both first walls, and where
    it comes to the nearer of both last ones.
    """
    (_, y, z), (_, wall_y, wall_z) = p, walls
    corners = [
        (y + s * u[1] + t * v[1], z + s * u[2] + t * v[2])
        for s, t in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    clamped = [(_clip(y, wall_y), _clip(z, wall_z)) for y, z in corners]
    halves = (u, v)
    inverses = [(_inverse(2 * w[1]), _inverse(2 * w[2])) for w in halves]
    points = []
    for k, ((y0, z0), (first_y, first_z)) in enumerate(zip(corners, clamped, strict=True)):
        last_y, last_z = clamped[(k + 1) % 4]
        sign = 1 if k < 2 else -1
        dy, dz = (2 * sign * x for x in halves[k % 2][1:])
        iy, iz = (sign * x for x in inverses[k % 2])
        enter_y, leave_y = _span(y0, iy, wall_y)
        enter_z, leave_z = _span(z0, iz, wall_z)
        start, end = jnp.maximum(enter_y, enter_z), jnp.minimum(leave_y, leave_z)
        y_waited, y_goes_on = enter_y >= enter_z, leave_y >= leave_z
        points += [
            (first_y, first_z),
            (
                jnp.where(y_waited, first_y, _clip(y0 + start * dy, wall_y)),
                jnp.where(y_waited, _clip(z0 + start * dz, wall_z), first_z),
            ),
            (
                jnp.where(y_goes_on, _clip(y0 + end * dy, wall_y), last_y),
                jnp.where(y_goes_on, last_z, _clip(z0 + end * dz, wall_z)),
            ),
        ]
    return points


def _span(start: Array, inverse: Array, wall: Pair) -> Pair:
    """The fractions of an edge at which it passes the first and the last wall, in [0, 1]."""
    one, other = (wall[0] - start) * inverse, (wall[1] - start) * inverse
    return _clip(jnp.minimum(one, other), (0, 1)), _clip(jnp.maximum(one, other), (0, 1))


class _Slope(NamedTuple):
    """x on a face, less `middle`, as a function of the distance s along its slope in y and z.

    Attributes:
      y: the slope's direction, but for its sign.
      z: likewise.
      sign: of the direction.
      flat: the distance over which x changes by 1.
      steep: 1 / flat.
      middle: x in the middle of the face, clamped.
      start: s where y and z are 0.
      wall: s at which x is at its walls.
    """

    y: Array
    z: Array
    sign: Array
    flat: Array
    steep: Array
    middle: Array
    start: Array
    wall: Pair

    def distance(self, y: Array, z: Array) -> Array:
        return self.start - self.sign * (self.y * y + self.z * z)


def _slope(p: Vector, normal: Vector, wall: Pair) -> _Slope:
    m = jnp.abs(normal[0])
    n = safe_sqrt(normal[1] ** 2 + normal[2] ** 2)
    y, z = normal[1] * _inverse(n), normal[2] * _inverse(n)
    # A slope below 1e-12 is none, and one above 1e12 a wall.
    flat = jnp.where(n > 1e-12 * m, m * _inverse(n), 1e12)
    steep = jnp.where(m > 1e-12 * n, n * _inverse(m), 1e12)
    sign = jnp.where(normal[0] < 0, -1, 1).astype(m.dtype)
    middle = _clip(p[0], wall)
    start = (p[0] - middle) * flat + sign * (y * p[1] + z * p[2])
    ends = (wall[0] - middle) * flat, (wall[1] - middle) * flat
    return _Slope(y, z, sign, flat, steep, middle, start, ends)


def _pieces(points: list[Pair], slope: _Slope):
    """For each piece of the outline: how far it goes across the slope; its points; s there, and
    clamped; and the mean of the second antiderivative of clamped x.
    """
    s = [slope.distance(y, z) for y, z in points]
    within = [_clip(x, slope.wall) for x in s]
    below, above = (w * slope.steep for w in slope.wall)
    half = slope.steep / 2
    bowl = [
        c * (c * half)
        + above * jnp.maximum(x - slope.wall[1], 0)
        - below * jnp.maximum(slope.wall[0] - x, 0)
        for x, c in zip(s, within, strict=True)
    ]
    for i, j in zip(range(12), (*range(1, 12), 0), strict=True):
        (y0, z0), (y1, z1) = points[i], points[j]
        across = slope.y * (z1 - z0) - slope.z * (y1 - y0)
        inverse = _inverse(s[j] - s[i])
        a0, a1 = within[i] - s[i], within[j] - s[i]
        # The trapezoid, less what the parabola within the walls takes off.
        off = (a0 + a1) / 2 - (a0 * a0 + a0 * a1 + a1 * a1) * (inverse / 3)
        mean = (bowl[i] + bowl[j]) / 2 - (within[j] - within[i]) * half * off
        enter = _clip(a0 * inverse, (0, 1))
        leave = jnp.where(inverse == 0, 1, _clip(a1 * inverse, (0, 1)))
        yield across, points[i], points[j], (within[i], within[j]), (enter, leave), mean


def _add_face(walls, axes: Matrix, total: Array) -> Array:
    """The integral of X dY dZ over the face at the end of the first axis, less those before.

    From a left-handed system it comes with the wrong sign, and after six steps all have it.
    """
    return _face(axes[0], axes[1], axes[2], walls) - total


def _face(p: Vector, u: Vector, v: Vector, walls) -> Array:
    slope = _slope(p, _cross(u, v), walls[0])
    points = _outline(p, u, v, walls)
    area = sloped = jnp.zeros_like(p[0])
    for across, (y0, z0), (y1, z1), _, _, mean in _pieces(points, slope):
        area = area + (y0 * z1 - y1 * z0)
        sloped = sloped + mean * across
    return slope.middle * (area / 2) - slope.sign * sloped


def _add_flux(walls, axes: Matrix, results):
    """Adds the integrals over the face at the end of the first axis to what belongs to the axis.

    They are, of both faces together: the area; how much more of it lies behind, which changes
    its sign in every step; and the moments, positive outwards on both.
    """
    area, s, t = _inside(axes[0], axes[1], axes[2], walls)
    flipped = [(both, -more, along_s, along_t) for both, more, along_s, along_t in results]
    both, more, along_s, along_t = flipped[0]
    return (*flipped[1:], (both + area, more + area, along_s + s, along_t + t))


def _inside(p: Vector, u: Vector, v: Vector, walls) -> Vector:
    """The integrals of 1, s and t over the part of a face `p + s u + t v` that is inside."""
    # The axes change places until the face looks at the first one as squarely as it can.
    normal = _cross(u, v)
    nx, ny, nz = (jnp.abs(x) for x in normal)
    second, third = (ny > nx) & (ny >= nz), (nz > nx) & (nz > ny)

    def turned(w: Vector) -> Vector:
        return tuple(
            jnp.where(second, w[(k + 1) % 3], jnp.where(third, w[(k + 2) % 3], w[k]))
            for k in range(3)
        )

    p, u, v, normal = (turned(w) for w in (p, u, v, normal))
    walls = tuple(zip(*(turned(w) for w in zip(*walls, strict=True)), strict=True))
    slope, weight = _tilted(p, normal, walls[0])
    area = y_moment = z_moment = bowl = jnp.zeros_like(p[0])
    for across, (y0, z0), (y1, z1), (d0, d1), (enter, leave), mean in _pieces(
        _outline(p, u, v, walls), slope
    ):
        bowl = bowl + mean * across
        before, between, beyond = enter, leave - enter, 1 - leave
        area = area + across * (before * d0 + between * ((d0 + d1) / 2) + beyond * d1)

        def moment(w0, w1, enter=enter, leave=leave, d0=d0, d1=d1):
            at_enter, at_leave = w0 + enter * (w1 - w0), w0 + leave * (w1 - w0)
            inner = at_enter * (2 * d0 + d1) + at_leave * (d0 + 2 * d1)
            outer = enter * (w0 + at_enter) * d0 + (1 - leave) * (at_leave + w1) * d1
            return outer / 2 + (leave - enter) * (inner / 6)

        y_moment = y_moment + across * moment(y0, y1)
        z_moment = z_moment + across * moment(z0, z1)
    area, y_moment, z_moment = (-slope.sign * x for x in (area, y_moment, z_moment))
    y_moment = y_moment - slope.flat * slope.y * bowl - p[1] * area
    z_moment = z_moment - slope.flat * slope.z * bowl - p[2] * area
    inverse = _inverse(normal[0])
    return (
        weight * area * inverse,
        weight * (y_moment * v[2] - z_moment * v[1]) * inverse * inverse,
        weight * (z_moment * u[1] - y_moment * u[2]) * inverse * inverse,
    )


def _tilted(p: Vector, normal: Vector, wall: Pair) -> tuple[_Slope, Array]:
    """The slope of a face, and by how much it counts.

    A face along a wall has none. It is inside, or outside, or on the wall, and counts half; its
    area comes by any slope that meets no wall.
    """
    rounding = 4 * float(jnp.finfo(p[0].dtype).eps)
    steepest = jnp.maximum(jnp.abs(normal[1]), jnp.abs(normal[2]))
    along = steepest <= rounding * jnp.abs(normal[0])
    depth = jnp.minimum(wall[1] - p[0], p[0] - wall[0])
    on_wall = jnp.abs(depth) <= rounding * (1 + jnp.abs(p[0]))
    weight = jnp.where(on_wall, 0.5, jnp.where(depth > 0, 1, 0))
    one = jnp.ones_like(p[0])
    wide = jnp.abs(wall[0]) + jnp.abs(wall[1]) + sum(jnp.abs(x) for x in p)
    level = _Slope(one, 0 * one, one, one, one, 0 * one, 0 * one, (-1e3 * wide, 1e3 * wide))
    slope = jax.tree.map(lambda x, y: jnp.where(along, x, y), level, _slope(p, normal, wall))
    return slope, jnp.where(along, weight, 1).astype(p[0].dtype)
