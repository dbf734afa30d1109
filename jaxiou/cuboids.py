r"""Cuboids in space: upright ones `(cx, cy, cz, dx, dy, dz, yaw)`, `[..., 7]`, and turned ones.

What holds for every function here, and is not repeated below:

- **Format.** The geometric centre, the full sizes along the cuboid's own axes, and the angle in
  radians about the vertical z axis, turning +x towards +y. An oriented cuboid, `[..., 10]`, is
  `(cx, cy, cz, dx, dy, dz, qw, qx, qy, qz)`: its rotation is any quaternion of nonzero length,
  which is normalised; q and -q are the same rotation. Functions whose names begin with
  `oriented_` take these. Data sets differ in every one of these points: use `from_kitti`,
  `from_nuscenes`, `from_waymo`, `from_bottom_center`, `from_matrix`, `from_corners`.
- **Types and shapes** as in `boxes`: cast to float32 or wider before any arithmetic, leading
  axes broadcast.
- **Empty cuboids.** A negative size counts as 0. A cuboid without volume has IoU 0 with every
  cuboid, itself included.
- **NaN** in a cuboid makes its own results NaN, and no others.
- **Upright cuboids** share the area that their outlines share on the ground, `bev_iou`'s, times
  the height that they share.
- **Gradients** are finite. Where faces coincide the one-sided slopes differ, and their mean is
  returned: 0 for equal cuboids. A size of 0 has half the slope of an open one, a negative one none.
"""

from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks, _clamp, _hull, _solids
from jaxiou._clamp import Oriented
from jaxiou._compiled import compiled, overlap
from jaxiou._math import (
    absolute,
    carry_nan,
    maximum,
    minimum,
    never_negative,
    per_pair,
    positive_part,
    product,
    safe_arctan2,
    safe_divide,
    stored_product,
)
from jaxiou._typing import ArrayLike

__all__ = [
    "volume",
    "corners",
    "intersection",
    "iou",
    "bev_iou",
    "ioa",
    "giou",
    "diou",
    "oriented_corners",
    "oriented_intersection",
    "oriented_iou",
    "from_kitti",
    "from_waymo",
    "from_bottom_center",
    "from_nuscenes",
    "to_oriented",
    "from_oriented",
    "from_matrix",
    "from_corners",
]

Cuboids: TypeAlias = Real[ArrayLike, "*#batch 7"]
Turned: TypeAlias = Real[ArrayLike, "*#batch 10"]
Values: TypeAlias = Float[Array, "*batch"]


@compiled()
def volume(regions: Real[ArrayLike, "*batch 7"]) -> Float[Array, "*batch"]:
    """Volume of each cuboid: the product of its sizes.

    Args:
      regions: cuboids, `[..., 7]`.

    Returns:
      `[...]`, in cubed units of length, at least 0. 0 where a size is 0 or negative.

    Gradient:
      For each size, the product of the others; half of that at 0, none below.

    Example:
      >>> print(volume(jnp.array([0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.3])))
      12.0
    """
    (cuboid,) = _cuboids(regions=regions)
    return _volume(cuboid)


@compiled()
def corners(regions: Real[ArrayLike, "*batch 7"]) -> Float[Array, "*batch 8 3"]:
    """The eight corners of each cuboid: four below, then the four above them.

    Args:
      regions: cuboids, `[..., 7]`.

    Returns:
      `[..., 8, 3]`. The lower ones run once around, from +x to +y of the cuboid's axes:
      (-, -), (+, -), (+, +), (-, +).

    Gradient:
      That of the rotation; linear in the rest.

    Example:
      >>> first, *_, last = corners(jnp.array([0.0, 0.0, 1.0, 4.0, 2.0, 2.0, 0.0]))
      >>> print(first, last)
      [-2. -1.  0.] [-2.  1.  2.]
    """
    (cuboid,) = _cuboids(regions=regions)
    cos, sin = jnp.cos(cuboid.bev.angle), jnp.sin(cuboid.bev.angle)
    none = jnp.zeros_like(cos)
    axes = ((cos, sin, none), (-sin, cos, none), (none, none, none + 1))
    sizes = (cuboid.bev.width, cuboid.bev.height, cuboid.height)
    return _corners((cuboid.bev.x, cuboid.bev.y, cuboid.z), sizes, axes)


@overlap(region_rank=1)
def intersection(a: Cuboids, b: Cuboids) -> Values:
    """Volume that two upright cuboids share.

    Args:
      a: cuboids, `[..., 7]`.
      b: cuboids; leading axes broadcast against those of `a`.

    Returns:
      One volume per pair, `[...]`, at least 0 and at most that of the smaller cuboid.

    Gradient:
      0 where the cuboids do not meet or only touch; where faces coincide, half of what the face
      would give if it were the inner one.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.0])
      >>> print(intersection(a, a + jnp.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0])))
      1.0
    """
    return _intersection(*_cuboids(a=a, b=b))


@overlap(region_rank=1)
def iou(a: Cuboids, b: Cuboids) -> Values:
    r"""Intersection over union of two upright cuboids: shared volume over covered volume.

    Args:
      a: cuboids, `[..., 7]`.
      b: cuboids; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means the cuboids coincide: exactly, for a
      cuboid with itself.

    At the edges:
      Empty, disjoint and touching cuboids give 0, those that touch along turned faces up to 1e-7.

    Gradient:
      0 for disjoint and for equal cuboids.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 0.0])
      >>> print(iou(a, jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.0])))
      0.125

    Reference:
      Geiger et al., "Are we ready for Autonomous Driving? The KITTI Vision Benchmark Suite",
      CVPR 2012, https://www.cvlibs.net/datasets/kitti.
    """
    first, second = _cuboids(a=a, b=b)
    return _ratio(_intersection(first, second), _volume(first), _volume(second))


@overlap(region_rank=1)
def bev_iou(a: Cuboids, b: Cuboids) -> Values:
    """Bird's-eye-view IoU: that of the outlines on the ground, whatever the heights.

    Args:
      a: cuboids, `[..., 7]`.
      b: cuboids; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]: `rotated.iou` of `(cx, cy, dx, dy, yaw)`.

    At the edges:
      As `rotated.iou`: 0 for outlines without area. A height of 0 or below does not matter; NaN
      in cz or dz passes on.

    Gradient:
      0 in cz and dz; otherwise as `iou`.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 4.0, 4.0, 4.0, 0.0])
      >>> print(bev_iou(a, jnp.array([0.0, 0.0, 9.0, 2.0, 2.0, 2.0, 0.0])))
      0.25

    Reference:
      Geiger et al., CVPR 2012, https://www.cvlibs.net/datasets/kitti, whose benchmark of objects
      seen from above has it.
    """
    first, second = _cuboids(a=a, b=b)
    value = _clamp.iou(first.bev, second.bev)
    return carry_nan(value, (first.z + first.height) + (second.z + second.height))


@overlap(region_rank=1)
def ioa(a: Cuboids, b: Cuboids) -> Values:
    """Intersection over the volume of `a`: how much of `a` lies within `b`. Not symmetric.

    Args:
      a: cuboids, `[..., 7]`, whose volume divides.
      b: cuboids; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means `a` lies within `b`.

    At the edges:
      0 for an empty `a`, wherever it lies, and for cuboids that do not meet.

    Gradient:
      0 while `a` lies strictly within `b`, and where the cuboids do not meet.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.0])
      >>> print(ioa(a, jnp.array([1.0, 0.0, 0.0, 2.0, 8.0, 8.0, 0.0])))
      0.5

    Reference:
      `boxes.ioa` has it in two dimensions; KITTI's "don't care" rule (2012) divides by the
      detection likewise.
    """
    first, second = _cuboids(a=a, b=b)
    shared = _intersection(first, second)
    return safe_divide(shared, per_pair(_volume(first), shared))


@overlap(region_rank=1)
def giou(a: Cuboids, b: Cuboids) -> Values:
    r"""Generalised IoU: the IoU, less the share of the enclosing prism that neither covers.

    .. math:: \mathrm{GIoU} = \mathrm{IoU} - |C \setminus (A \cup B)| / |C|

    with C the upright prism over the convex hull of both outlines, as high as both reach.

    Args:
      a: cuboids, `[..., 7]`.
      b: cuboids; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the cuboids coincide; -1 is approached as
      they move apart. Turning both about the vertical changes nothing.

    At the edges:
      0 for two equal points, as both ratios are 0/0, and for two empty cuboids in one upright or
      level plane. Touching cuboids have the penalty alone.

    Gradient:
      0 where the cuboids coincide. Disjoint cuboids are drawn together.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])
      >>> print(giou(a, jnp.array([3.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0])))
      -0.5

    Reference:
      Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019,
      https://arxiv.org/abs/1902.09630. Rotated_IoU takes a rectangle for the hull.
    """
    first, second = _cuboids(a=a, b=b)
    shared, volumes = _intersection(first, second), (_volume(first), _volume(second))
    pose = _hull.pose_in_larger(first.bev, second.bev)
    around = product(_hull.hull_area(pose), _joint_height(first, second))
    excess = never_negative(around - _union(shared, *volumes))
    return _ratio(shared, *volumes) - safe_divide(excess, around)


@overlap(region_rank=1)
def diou(a: Cuboids, b: Cuboids) -> Values:
    r"""Distance IoU: the IoU, less a penalty for centres that lie apart.

    .. math:: \mathrm{DIoU} = \mathrm{IoU} - \rho^2 / (c^2 + h^2)

    with rho the distance of the centres, c the greatest distance of two corners seen from above,
    and h the height from the lower bottom to the higher top.

    Args:
      a: cuboids, `[..., 7]`.
      b: cuboids; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the cuboids coincide. Turning both about
      the vertical changes nothing.

    At the edges:
      0 for two equal points, -1 for two distinct ones, the lower end.

    Gradient:
      0 where the cuboids coincide. Where they only share a centre, that of the IoU.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 3.0, 4.0, 12.0, 0.0])
      >>> print(f"{diou(a, jnp.array([0.0, 0.0, 12.0, 3.0, 4.0, 12.0, 0.0])):.4f}")
      -0.2396

    Reference:
      Zheng et al., "Distance-IoU Loss", AAAI 2020, https://arxiv.org/abs/1911.08287. Rotated_IoU
      takes the sides of a rectangle around both outlines for c.
    """
    first, second = _cuboids(a=a, b=b)
    x, y, z = (
        first.bev.x - second.bev.x,
        first.bev.y - second.bev.y,
        first.z - second.z,
    )
    pose = _hull.pose_in_larger(first.bev, second.bev)
    diagonal = _hull.squared_diameter(pose) + _joint_height(first, second) ** 2
    value = _ratio(_intersection(first, second), _volume(first), _volume(second))
    return value - safe_divide((x**2 + y**2) + z**2, diagonal)


@compiled()
def oriented_corners(regions: Real[ArrayLike, "*batch 10"]) -> Float[Array, "*batch 8 3"]:
    """The eight corners of each oriented cuboid, in the order of `corners`.

    Args:
      regions: oriented cuboids, `[..., 10]`.

    Returns:
      `[..., 8, 3]`.

    Gradient:
      That of the rotation; 0 along the quaternion, whose length does not matter.

    Example:
      >>> upside_down = jnp.array([0.0, 0.0, 1.0, 4.0, 2.0, 2.0, 0.0, 1.0, 0.0, 0.0])
      >>> print(oriented_corners(upside_down)[0])
      [-2.  1.  2.]
    """
    (cuboid,) = _turned(regions=regions)
    return _corners(cuboid.center, cuboid.sizes, _solids.rotation(cuboid.quaternion))


@overlap(region_rank=1)
def oriented_intersection(a: Turned, b: Turned) -> Values:
    """Volume that two oriented cuboids share.

    Args:
      a: oriented cuboids, `[..., 10]`.
      b: oriented cuboids; leading axes broadcast against those of `a`.

    Returns:
      One volume per pair, `[...]`, at least 0 and at most that of the smaller cuboid. In float32
      within 1e-6 of the larger one's volume, mostly 1e-7.

    At the edges:
      As `oriented_iou`: 0 for empty, disjoint and touching cuboids, but for rounding.

    Gradient:
      The areas of faces that lie within the other cuboid, by how they move. 0 where the cuboids
      do not meet, and in all arguments where one has no volume. Where faces coincide, half of
      what the face would give if it were the inner one.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0])
      >>> eighth = jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.92387953, 0.38268343, 0.0, 0.0])
      >>> print(f"{oriented_intersection(a, eighth):.4f}")
      6.6274

    Reference:
      The method is ours, described in `oriented_iou`. The derivative is Reynolds' transport
      theorem ("Papers on Mechanical and Physical Subjects", volume 3, 1903).
    """
    return _shared(*_turned(a=a, b=b))


@overlap(region_rank=1)
def oriented_iou(a: Turned, b: Turned) -> Values:
    r"""Intersection over union of two cuboids that are turned in any way.

    Args:
      a: oriented cuboids, `[..., 10]`.
      b: oriented cuboids; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means the cuboids coincide: exactly, for a cuboid
      with itself, and for q against -q. In float32 it is within 1e-6; of thin cuboids that are
      nearly parallel within 1e-7 times their aspect ratio, as a quaternion has no more digits.

    At the edges:
      Empty, disjoint and touching cuboids give 0, those that touch along turned faces up to 1e-7.
      A quaternion of zeros, as of padding, turns nothing. Sizes and offsets may differ by a
      factor of 1e8 in float32; beyond, squares overflow.

    Gradient:
      0 for disjoint and for equal cuboids (`giou` of upright ones has a slope for the first), and
      along the quaternion. Always finite.

    Example:
      >>> a = jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 1.0, 0.0, 0.0, 0.0])
      >>> eighth = jnp.array([0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 0.92387953, 0.38268343, 0.0, 0.0])
      >>> print(f"{oriented_iou(a, eighth):.4f}")
      0.7071

    Reference:
      Ahmadyan et al., "Objectron: A Large Scale Dataset of Object-Centric Videos in the Wild with
      Pose Annotations", CVPR 2021, https://arxiv.org/abs/2012.09988, scores by it. The method is
      ours: one integral over the faces of each cuboid, clamped into the other.
    """
    first, second = _turned(a=a, b=b)
    shared = _shared(first, second)
    return _ratio(shared, _solids.volume(first.sizes), _solids.volume(second.sizes))


@compiled()
def from_kitti(regions: Real[ArrayLike, "*batch 7"]) -> Float[Array, "*batch 7"]:
    """Cuboids from rows of KITTI's label_2 files, `(h, w, l, x, y, z, rotation_y)`.

    KITTI's frame is the camera's: x to the right, y down, z forward; the point is in the middle
    of the cuboid's bottom, and the angle is about y. In the frame of the result, x is to the
    right, y forward and z up.

    Args:
      regions: height, width, length, location and rotation as a label line has them in its
        fields 9 to 15, `[..., 7]`, in metres and radians.

    Returns:
      Cuboids, `[..., 7]`: (x, z, h/2 - y, l, w, h, -rotation_y).

    Gradient:
      Linear.

    Example:
      >>> print(from_kitti(jnp.array([1.5, 1.6, 4.0, 2.0, 1.75, 30.0, 0.25])))
      [ 2.   30.   -1.    4.    1.6   1.5  -0.25]
    """
    h, w, length, x, y, z, angle = _columns(regions)
    return _join(x, z, h / 2 - y, length, w, h, -angle)


@compiled()
def from_waymo(regions: Real[ArrayLike, "*batch 7"]) -> Float[Array, "*batch 7"]:
    """Cuboids from Waymo's rows `(center_x, center_y, center_z, length, width, height, heading)`.

    They are the ones used here, to the letter: this function casts, and says so in your code.
    Mind the fields of the message `Label.Box`, whose numbers have the width before the length.

    Args:
      regions: `[..., 7]`, in metres and radians.

    Returns:
      Cuboids, `[..., 7]`.

    Gradient:
      1.

    Example:
      >>> print(from_waymo(jnp.array([10, 5, 1, 4, 2, 2, 0])))
      [10.  5.  1.  4.  2.  2.  0.]
    """
    return _join(*_columns(regions))


@compiled()
def from_bottom_center(regions: Real[ArrayLike, "*batch 7"]) -> Float[Array, "*batch 7"]:
    """Cuboids from rows whose point is the middle of the bottom, as mmdet3d's LiDAR boxes.

    Args:
      regions: `(x, y, z of the bottom, dx, dy, dz, yaw)`, `[..., 7]`, z up.

    Returns:
      Cuboids, `[..., 7]`: the centre is half of dz higher.

    Gradient:
      Linear.

    Example:
      >>> print(from_bottom_center(jnp.array([10.0, 5.0, 0.0, 4.0, 2.0, 1.5, 0.0])))
      [10.    5.    0.75  4.    2.    1.5   0.  ]
    """
    x, y, z, dx, dy, dz, yaw = _columns(regions)
    return _join(x, y, z + dz / 2, dx, dy, dz, yaw)


@compiled()
def from_nuscenes(regions: Real[ArrayLike, "*batch 10"]) -> Float[Array, "*batch 10"]:
    """Oriented cuboids from nuScenes' rows of translation, size and rotation.

    nuScenes has the width first, across the heading; the rest is the same.

    Args:
      regions: `(x, y, z, width, length, height, qw, qx, qy, qz)`, `[..., 10]`, in metres.

    Returns:
      Oriented cuboids, `[..., 10]`; `from_oriented` makes upright ones of them.

    Gradient:
      1.

    Example:
      >>> row = jnp.array([10.0, 5.0, 1.0, 2.0, 4.0, 1.5, 1.0, 0.0, 0.0, 0.0])
      >>> print(from_oriented(from_nuscenes(row)))
      [10.   5.   1.   4.   2.   1.5  0. ]
    """
    x, y, z, width, length, height, *quaternion = _columns(regions, 10)
    return _join(x, y, z, length, width, height, *quaternion)


@compiled()
def to_oriented(regions: Real[ArrayLike, "*batch 7"]) -> Float[Array, "*batch 10"]:
    """Oriented cuboids from upright ones.

    Args:
      regions: cuboids, `[..., 7]`.

    Returns:
      Oriented cuboids, `[..., 10]`, with quaternions of length 1.

    Gradient:
      That of the rotation; 1 in the rest.

    Example:
      >>> print(to_oriented(jnp.array([0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 0.0])))
      [0.  0.  0.  4.  2.  1.5 1.  0.  0.  0. ]
    """
    *rest, yaw = _columns(regions)
    none = jnp.zeros_like(yaw)
    return _join(*rest, jnp.cos(yaw / 2), none, none, jnp.sin(yaw / 2))


@compiled()
def from_oriented(regions: Real[ArrayLike, "*batch 10"]) -> Float[Array, "*batch 7"]:
    """Upright cuboids with the heading of oriented ones; pitch and roll are dropped.

    Args:
      regions: oriented cuboids, `[..., 10]`.

    Returns:
      Cuboids, `[..., 7]`: the yaw is that of the x axis seen from above, in [-pi, pi]; 0 where
      that axis points straight up or down, or the quaternion is 0.

    Gradient:
      That of the angle; 1 in the rest.

    Example:
      >>> print(from_oriented(jnp.array([0.0, 0.0, 0.0, 4.0, 2.0, 1.5, 3.0, 0.0, 0.0, 3.0])))
      [0.        0.        0.        4.        2.        1.5       1.5707963]
    """
    columns = _columns(regions, 10)
    (x, y, _), *_ = _solids.rotation(_solids.unit(tuple(columns[6:])))
    return _join(*columns[:6], safe_arctan2(y, x))


@compiled()
def from_matrix(regions: Real[ArrayLike, "*batch 15"]) -> Float[Array, "*batch 10"]:
    """Oriented cuboids from a centre, sizes and a rotation matrix.

    Args:
      regions: `(cx, cy, cz, dx, dy, dz, and the matrix row by row)`, `[..., 15]`. The columns of
        the matrix are the cuboid's axes. One that is only nearly a rotation gives a nearby one.

    Returns:
      Oriented cuboids, `[..., 10]`, with quaternions of length 1 whose largest part is positive.

    Gradient:
      1 for what is not the rotation. The quaternion's is that of one formula for rotation
      matrices; a step off them has no meaning of its own.

    Example:
      >>> quarter = jnp.array([0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
      >>> print(from_matrix(jnp.concatenate([jnp.ones(6), quarter]))[6:])
      [0.70710677 0.         0.         0.70710677]
    """
    columns = _columns(regions, 15)
    rows = tuple(zip(*[iter(columns[6:])] * 3, strict=True))
    return _join(*columns[:6], *_solids.quaternion(rows))


@compiled()
def from_corners(corners: Real[ArrayLike, "*batch 8 3"]) -> Float[Array, "*batch 10"]:
    """Oriented cuboids from their eight corners, in the order of `corners`.

    Args:
      corners: `[..., 8, 3]`. Eight points that are only nearly those of a cuboid give one near
        them: its axes are the nearest rotation to the mean edges.

    Returns:
      Oriented cuboids, `[..., 10]`. Corners of a mirrored order have no such rotation; check
      data of another order with `oriented_corners`, which must give them back.

    Gradient:
      Finite where no size is 0.

    Example:
      >>> cuboid = jnp.array([1.0, 2.0, 3.0, 4.0, 2.0, 1.5, 1.0, 0.0, 0.0, 0.0])
      >>> print(from_corners(oriented_corners(cuboid)))
      [1.  2.  3.  4.  2.  1.5 1.  0.  0.  0. ]
    """
    (points,) = _checks.regions((8, 3), "eight corners", corners=corners)

    def weighted(weights: tuple[int, ...], count: int) -> _solids.Vector:
        """The sum of the corners, each with its weight, over a count."""
        column = jnp.array(weights, points.dtype)[:, None]
        column = jax.lax.expand_dims(column, range(points.ndim - 2))
        return _solids.split((points * column).sum(axis=-2) / count)

    center = weighted((1,) * 8, 8)
    edges = tuple(weighted(signs, 4) for signs in zip(*_SIGNS, strict=True))
    axes = _solids.nearest_rotation(edges)
    sizes = (u[0] * v[0] + u[1] * v[1] + u[2] * v[2] for u, v in zip(edges, axes, strict=True))
    turn = _solids.quaternion(tuple(zip(*axes, strict=True)))
    return _join(*center, *sizes, *turn)


class _Turned(NamedTuple):
    """An oriented cuboid: its centre, its sizes and the unit quaternion that turns it."""

    center: _solids.Vector
    sizes: _solids.Vector
    quaternion: tuple[Array, ...]


def _turned(**regions: ArrayLike) -> tuple[_Turned, ...]:
    def cuboid(x: Array) -> _Turned:
        columns = _solids.split(x)
        sizes = tuple(map(_open, columns[3:6]))
        return _Turned(tuple(columns[:3]), sizes, _solids.unit(tuple(columns[6:])))

    return tuple(map(cuboid, _checks.regions((10,), "one oriented cuboid a row", **regions)))


def _shared(a: _Turned, b: _Turned) -> Array:
    offset = tuple(x - y for x, y in zip(a.center, b.center, strict=True))
    return _solids.shared_volume(_solids.pose(offset, a.quaternion, a.sizes, b.quaternion, b.sizes))


class _Cuboid(NamedTuple):
    """An upright cuboid: its outline on the ground, the height of its centre, its height."""

    bev: Oriented
    z: Array
    height: Array


def _columns(regions: ArrayLike, count: int = 7) -> list[Array]:
    (cast,) = _checks.regions((count,), "one cuboid a row", regions=regions)
    return list(_solids.split(cast))


def _join(*columns: Array) -> Array:
    return jnp.stack(jnp.broadcast_arrays(*columns), axis=-1)


def _cuboids(**regions: ArrayLike) -> tuple[_Cuboid, ...]:
    def cuboid(x: Array) -> _Cuboid:
        cx, cy, cz, dx, dy, dz, yaw = _solids.split(x)
        dx, dy, dz = map(_open, (dx, dy, dz))
        return _Cuboid(Oriented(cx, cy, dx, dy, yaw), cz, dz)

    return tuple(map(cuboid, _checks.regions((7,), "one cuboid a row", **regions)))


def _open(size: Array) -> Array:
    """A size, 0 where it is negative."""
    return carry_nan(maximum(size, jnp.zeros_like(size)), size)


def _volume(a: _Cuboid) -> Array:
    return stored_product(_clamp.area(a.bev), a.height)


def _shared_height(a: _Cuboid, b: _Cuboid) -> Array:
    half = (a.height + b.height) / 2 - absolute(a.z - b.z)
    return positive_part(minimum(minimum(a.height, b.height), half))


def _intersection(a: _Cuboid, b: _Cuboid) -> Array:
    shared = product(_clamp.intersection(a.bev, b.bev), _shared_height(a, b))
    # A minimum may lose a NaN.
    return carry_nan(shared, (a.z + a.height) + (b.z + b.height))


def _joint_height(a: _Cuboid, b: _Cuboid) -> Array:
    half = (a.height + b.height) / 2 + absolute(a.z - b.z)
    return maximum(maximum(a.height, b.height), half)


def _union(shared: Array, first: Array, second: Array) -> Array:
    # The greater volume and what the smaller one adds: never below what is shared.
    return jnp.maximum(first, second) + (jnp.minimum(first, second) - shared)


def _ratio(shared: Array, first: Array, second: Array) -> Array:
    """IoU, from the volumes."""
    return safe_divide(shared, _union(shared, first, second))


_SIGNS = [(x, y, z) for z in (-1, 1) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
"""On which side of the centre each corner is, along each axis."""


def _corners(center: _solids.Vector, sizes: _solids.Vector, axes: _solids.Matrix) -> Array:
    """`[..., 8, 3]` from a centre, sizes and axes, one a row."""

    def along(k: int, signs: tuple[int, int, int]) -> Array:
        x, y, z = (s * size / 2 * axis[k] for s, size, axis in zip(signs, sizes, axes, strict=True))
        return center[k] + (x + y + z)

    return jnp.stack([_join(*(along(k, signs) for k in range(3))) for signs in _SIGNS], axis=-2)
