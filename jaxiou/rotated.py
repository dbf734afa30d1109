"""Oriented boxes `(cx, cy, w, h, angle)`, `[..., 5]`: formats, areas and overlaps.

What holds for every function here, and is not repeated below:

- **Format.** Centre, sides, and the angle in radians that turns +x towards +y: clockwise to the
  eye in an image, whose y points down. The side `w` lies along the direction of the angle. Other
  conventions are conversions: `from_degrees_ccw`, `from_corners`, `from_boxes`.
- **Types and shapes** are those of `boxes`: floats or integers, cast to float32 or float64
  before any arithmetic; leading axes broadcast; for all pairs of two sets, `pairwise`.
- **The same rectangle** is written in many ways: by the angle plus any half turns, and by sides
  that change places with a quarter turn. Overlaps do not depend on the way, but for the
  rounding of the angle itself: a float32 angle of 1e3 turns is known to 2e-4.
- **Empty boxes.** A negative side counts as 0. A box without area has IoU 0 with every box.
- **NaN and infinity** in a box make that box's own overlaps NaN, and no others.
- **Accuracy.** Areas and IoU are within 1e-6 of float64 ones of the same numbers, for all
  angles, distances and sides of which one is up to 1000 times the other; the centre's own
  rounding does not count: centres are subtracted first. As XLA compiles by default, `f(a, b)`
  equals `f(b, a)` bit for bit, but for those with an enclosure, where they may differ by rounding.
- **Range.** As in `boxes`: coordinates up to 1e15, sides and distances 0 or down to 1e-15.
- **Gradients** are finite over that range. They are the lengths and moments of edges, not
  derivatives of crossing points, so boxes that almost coincide have exact ones. Where edges
  coincide, a mean of the one-sided slopes is returned: 0 for equal boxes. A side of 0 has half
  the slope of an open one. Second derivatives are finite for sides 0 or from 1e-6.

The overlaps carry `region_rank = 1`, as those of `boxes` do.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxiou import _checks, _clamp, _corners, _hull
from jaxiou._clamp import Oriented
from jaxiou._compiled import compiled, overlap
from jaxiou._math import never_negative, per_pair, product, safe_arctan2, safe_divide, safe_sqrt
from jaxiou._typing import ArrayLike

__all__ = [
    "area",
    "intersection",
    "union",
    "iou",
    "giou",
    "diou",
    "ciou",
    "ioa",
    "generalized_iou",
    "distance_iou",
    "complete_iou",
    "corners",
    "from_corners",
    "from_degrees_ccw",
    "to_degrees_ccw",
    "to_long_edge",
    "from_boxes",
    "to_boxes",
    "is_valid",
    "check_values",
]

Boxes: TypeAlias = Real[ArrayLike, "*#batch 5"]
Values: TypeAlias = Float[Array, "*batch"]
Overlap = Callable[[Boxes, Boxes], Values]
Enclosing = Literal["hull", "rectangle", "box"]


@compiled()
def area(regions: Real[ArrayLike, "*batch 5"]) -> Float[Array, "*batch"]:
    """Area of each box: width times height.

    Args:
      regions: boxes, `[..., 5]`.

    Returns:
      `[...]`, in squared units of length, at least 0. 0 for boxes with a negative side.

    Gradient:
      The height for w and the width for h, half of that for a side that is 0, and 0 for a
      negative one.

    Example:
      >>> print(area(jnp.array([[0.0, 0.0, 4.0, 3.0, 0.5], [0.0, 0.0, -4.0, 3.0, 0.0]])))
      [12.  0.]
    """
    (box,) = _clamp.oriented(regions=regions)
    return _clamp.area(box)


@overlap(region_rank=1)
def intersection(a: Boxes, b: Boxes) -> Values:
    """Area that two boxes share.

    Args:
      a: boxes, `[..., 5]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One area per pair, `[...]`, at least 0 and at most the smaller box's. Boxes that only touch
      give 0, or up to 1e-7 of the larger one's by rounding where they are turned.

    Gradient:
      By a centre, the lengths of its edges within the other box; by an angle, their moments;
      0 where the boxes do not meet.

    Example:
      >>> a, b = jnp.array([0, 0, 2, 2, 0]), jnp.array([2.0, 0.0, 2.0, 2.0, np.pi / 4])
      >>> print(f"{intersection(a, b):.4f}")
      0.1716
    """
    return _clamp.intersection(*_clamp.oriented(a=a, b=b))


@overlap(region_rank=1)
def union(a: Boxes, b: Boxes) -> Values:
    """Area that two boxes cover together: both areas less what they share.

    Args:
      a: boxes, `[..., 5]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One area per pair, `[...]`, never below `intersection(a, b)`, also after rounding.

    Gradient:
      That of the areas less that of `intersection`.

    Example:
      >>> print(union(jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([1.0, 0.0, 2.0, 2.0, 0.0])))
      6.0
    """
    return _clamp.union(*_clamp.oriented(a=a, b=b))


@overlap(region_rank=1)
def iou(a: Boxes, b: Boxes) -> Values:
    r"""Intersection over union (Jaccard index): shared area over covered area.

    .. math:: \mathrm{IoU} = |A \cap B| / |A \cup B|

    Args:
      a: boxes, `[..., 5]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means the boxes coincide: a box with itself
      gives exactly 1, and 1 within rounding when it is written with another angle.

    At the edges:
      Boxes without area and disjoint boxes give 0; touching ones 0 or up to 1e-7.

    Gradient:
      0 for disjoint boxes (`giou` has a slope there) and for equal ones. For edges within
      rounding of each other, one of the slopes on either side, or between.

    Example:
      >>> square = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0])
      >>> print(f"{iou(square, square + jnp.array([0.0, 0.0, 0.0, 0.0, np.pi / 4])):.4f}")
      0.7071

    Reference:
      The area as a boundary integral of clamped edges is this library's; the derivative is
      Reynolds' transport theorem (Flanders, "Differentiation Under the Integral Sign", American
      Mathematical Monthly, 1973). Reported failures of clipped or sorted vertices, which give 0
      or 1.3 for equal boxes, are cases of its tests.
    """
    return _clamp.iou(*_clamp.oriented(a=a, b=b))


@overlap(region_rank=1)
def giou(a: Boxes, b: Boxes) -> Values:
    r"""Generalized IoU: the IoU, less the share of the convex hull that neither covers.

    .. math:: \mathrm{GIoU} = \mathrm{IoU} - |C \setminus (A \cup B)| / |C|

    with C the convex hull of both boxes. `generalized_iou` has other C.

    Args:
      a: boxes, `[..., 5]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1], never above the IoU. 1 means the boxes coincide.

    At the edges:
      Two equal points give 0: both ratios are 0/0. Two empty boxes in general position give -1.

    Gradient:
      0 where the boxes coincide; elsewhere it draws disjoint boxes together and turns them.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0, 0.0]), jnp.array([3.0, 0.0, 1.0, 1.0, 0.0])
      >>> print(giou(a, b))
      -0.5

    Reference:
      Rezatofighi et al., "Generalized Intersection over Union: A Metric and a Loss for
      Bounding Box Regression", CVPR 2019, https://arxiv.org/abs/1902.09630.
    """
    first, second = _clamp.oriented(a=a, b=b)
    return _giou(first, second, "hull")


@overlap(region_rank=1)
def diou(a: Boxes, b: Boxes) -> Values:
    r"""Distance IoU: the IoU of two boxes, less a penalty for centres that lie apart.

    .. math:: \mathrm{DIoU} = \mathrm{IoU} - \rho^2 / c^2

    with rho the distance of the centres and c the greatest distance of two corners, which does
    not change when both boxes are turned. `distance_iou` has other c: `boxes.diou` takes the
    diagonal of the axis-parallel box around both, `enclosing="box"`.

    Args:
      a: boxes, `[..., 5]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the boxes coincide.

    At the edges:
      Two equal points give 0, as both ratios are 0/0; two distinct points give -1.

    Gradient:
      0 where the boxes coincide.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0, 0.0]), jnp.array([2.0, 0.0, 1.0, 1.0, 0.0])
      >>> print(diou(a, b))
      -0.4

    Reference:
      Zheng et al., "Distance-IoU Loss: Faster and Better Learning for Bounding Box
      Regression", AAAI 2020, https://arxiv.org/abs/1911.08287.
    """
    first, second = _clamp.oriented(a=a, b=b)
    return _diou(first, second, "hull")


@overlap(region_rank=1)
def ciou(a: Boxes, b: Boxes) -> Values:
    r"""Complete IoU: the distance IoU, less a penalty for unequal aspect ratios.

    .. math::
      \mathrm{CIoU} = \mathrm{DIoU} - \alpha v, \quad
      v = \frac{4}{\pi^2} \Bigl(\arctan\frac{w_b}{h_b} - \arctan\frac{w_a}{h_a}\Bigr)^2,
      \quad \alpha = \frac{v}{(1 - \mathrm{IoU}) + v}

    It compares w with w and h with h, so unlike the others it depends on how a rectangle is
    written: give both boxes in one convention, such as `to_long_edge`.

    Args:
      a: boxes, `[..., 5]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1.5, 1]. 1 means the boxes coincide.

    At the edges:
      As in `boxes.ciou`: two equal points give 0.

    Gradient:
      `alpha` is under `stop_gradient`, as the paper has it. The aspect has no part in the angle.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 2.0, 0.0]), jnp.array([0.0, 0.0, 2.0, 2.0, 0.0])
      >>> print(f"{diou(a, b):.3f} {ciou(a, b):.3f}")
      0.500 0.497

    Reference:
      Zheng et al., "Distance-IoU Loss: Faster and Better Learning for Bounding Box
      Regression", AAAI 2020, https://arxiv.org/abs/1911.08287.
    """
    first, second = _clamp.oriented(a=a, b=b)
    return _ciou(first, second, "hull")


@overlap(region_rank=1)
def ioa(a: Boxes, b: Boxes) -> Values:
    """Intersection over area: how much of `a` lies within `b`. It has a direction.

    Args:
      a: boxes, `[..., 5]`, whose area is divided by.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means `a` lies within `b`.

    At the edges:
      0 where `a` has no area.

    Gradient:
      That of `intersection` over the area; 0 for both where `a` lies well within `b`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([1.0, 0.0, 2.0, 8.0, 0.0])
      >>> print(ioa(a, b), ioa(b, a))
      0.5 0.125

    Reference:
      As for `iou`; Flanders, "Differentiation Under the Integral Sign", American Mathematical
      Monthly, 1973.
    """
    first, second = _clamp.oriented(a=a, b=b)
    shared = _clamp.intersection(first, second)
    return safe_divide(shared, per_pair(_clamp.area(first), shared))


def generalized_iou(*, enclosing: Enclosing = "hull") -> Overlap:
    """`giou` with what encloses both boxes by name.

    Args:
      enclosing: "hull", the convex hull; "rectangle", the smallest rectangle of any
        direction; "box", the smallest axis-parallel box.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 5]`, `[...]`, in [-1, 1]. 1 means the boxes coincide,
      but for "box" they must be parallel to the axes too: the box around a turned box is larger.

    At the edges:
      As in `giou`.

    Gradient:
      As in `giou`. The smallest rectangle has a kink where two directions are as good.

    Example:
      >>> diamond = jnp.array([0.0, 0.0, 2.0, 2.0, np.pi / 4])
      >>> print(f"{generalized_iou(enclosing='box')(diamond, diamond):.4f}")
      0.5000

    Reference:
      As in `giou`.
    """
    return _configured(_giou, enclosing)


def distance_iou(*, enclosing: Enclosing = "hull") -> Overlap:
    """`diou` with what encloses both boxes by name.

    Args:
      enclosing: whose diagonal c is: "hull", the greatest distance of two corners; "rectangle",
        of the smallest rectangle of any direction; "box", of the smallest axis-parallel box.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 5]`, `[...]`, in [-1, 1]. 1 means the boxes coincide.

    At the edges:
      As in `diou`.

    Gradient:
      As in `diou`.

    Example:
      >>> a, b = jnp.array([0.5, 0.5, 1.0, 1.0, 0.0]), jnp.array([3.5, 2.0, 1.0, 2.0, 0.0])
      >>> print(f"{distance_iou(enclosing='box')(a, b):.2f}")
      -0.45

    Reference:
      As in `diou`.
    """
    return _configured(_diou, enclosing)


def complete_iou(*, enclosing: Enclosing = "hull") -> Overlap:
    """`ciou` with what encloses both boxes by name.

    Args:
      enclosing: as in `distance_iou`.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 5]`, `[...]`, in [-1.5, 1]. 1 means the boxes coincide.

    At the edges:
      As in `ciou`.

    Gradient:
      As in `ciou`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 2.0, 0.0]), jnp.array([0.0, 0.0, 2.0, 2.0, 0.0])
      >>> print(f"{complete_iou(enclosing='box')(a, b):.3f}")
      0.497

    Reference:
      As in `ciou`.
    """
    return _configured(_ciou, enclosing)


@compiled()
def corners(regions: Real[ArrayLike, "*batch 5"]) -> Float[Array, "*batch 4 2"]:
    """The four corners of each box.

    Args:
      regions: boxes, `[..., 5]`.

    Returns:
      `(x, y)`, `[..., 4, 2]`. For angle 0 in an image: top left, top right, bottom right, bottom
      left. All boxes are walked in this sense, from +x towards +y.

    Gradient:
      Of all of the box; half for a side of 0, none for a negative one.

    Example:
      >>> print(corners(jnp.array([2, 1, 4, 2, 0])).tolist())
      [[0.0, 0.0], [4.0, 0.0], [4.0, 2.0], [0.0, 2.0]]
    """
    (box,) = _clamp.oriented(regions=regions)
    cos, sin = _clamp.direction(box.angle)
    ux, uy = box.width / 2 * cos, box.width / 2 * sin
    vx, vy = -box.height / 2 * sin, box.height / 2 * cos
    x = [box.x - ux - vx, box.x + ux - vx, box.x + ux + vx, box.x - ux + vx]
    y = [box.y - uy - vy, box.y + uy - vy, box.y + uy + vy, box.y - uy + vy]
    return jnp.stack([jnp.stack(x, axis=-1), jnp.stack(y, axis=-1)], axis=-1)


@compiled()
def from_corners(regions: Real[ArrayLike, "*batch 4 2"]) -> Float[Array, "*batch 5"]:
    """Boxes from four corners, as DOTA and DETR-like models write them.

    Args:
      regions: corners `(x, y)` in order around the box, either way, `[..., 4, 2]`. Of a
        quadrilateral that is no rectangle, sides and angle are means of opposite edges;
        `polygons` takes it as it is.

    Returns:
      Boxes, `[..., 5]`; `w` and the angle, in [-pi, pi], belong to the first edge.

    Gradient:
      0 for the angle where both first edges have no length.

    Example:
      >>> print(from_corners(jnp.array([[0, 0], [4, 0], [4, 2], [0, 2]])))
      [2. 1. 4. 2. 0.]
    """
    (quads,) = _checks.regions((4, 2), "four corners a box", regions=regions)
    x, y = ([quads[..., i, axis] for i in range(4)] for axis in (0, 1))

    def mean(z):
        return ((z[0] - z[1]) + (z[2] - z[1]) + (z[3] - z[1])) / 4 + z[1]

    ux, uy = ((z[1] - z[0] + (z[2] - z[3])) / 2 for z in (x, y))
    vx, vy = ((z[3] - z[0] + (z[2] - z[1])) / 2 for z in (x, y))
    # Of a box without width, the other side still has a direction.
    flat = (ux == 0) & (uy == 0)
    angle = safe_arctan2(jnp.where(flat, -vx, uy), jnp.where(flat, vy, ux))
    width, height = safe_sqrt(ux**2 + uy**2), safe_sqrt(vx**2 + vy**2)
    return _clamp.join(Oriented(mean(x), mean(y), width, height, angle))


@compiled()
def from_degrees_ccw(regions: Real[ArrayLike, "*batch 5"]) -> Float[Array, "*batch 5"]:
    """Boxes from `(cx, cy, w, h, degrees)`, counter-clockwise in an image, where y points down.

    The convention of detectron2's `RotatedBoxes` and torchvision's `cxcywhr`. With a wrong sign
    every single box looks right after another sign is dropped; only overlaps of two betray it.

    Args:
      regions: `[..., 5]`, angles in degrees that turn +y towards +x.

    Returns:
      Boxes, `[..., 5]`.

    Gradient:
      That of what it is: linear.

    Example:
      >>> print(from_degrees_ccw(jnp.array([5, 5, 4, 2, -180])))
      [5.        5.        4.        2.        3.1415927]
    """
    box = _split(regions)
    return _clamp.join(box._replace(angle=box.angle * (-math.pi / 180)))


@compiled()
def to_degrees_ccw(regions: Real[ArrayLike, "*batch 5"]) -> Float[Array, "*batch 5"]:
    """Boxes as `(cx, cy, w, h, degrees)`, counter-clockwise in an image, where y points down.

    Args:
      regions: boxes, `[..., 5]`.

    Returns:
      `[..., 5]`, as detectron2 and torchvision have them.

    Gradient:
      That of what it is: linear.

    Example:
      >>> print(to_degrees_ccw(jnp.array([5.0, 5.0, 4.0, 2.0, np.pi / 2])))
      [  5.   5.   4.   2. -90.]
    """
    box = _split(regions)
    return _clamp.join(box._replace(angle=box.angle * (-180 / math.pi)))


@compiled()
def to_long_edge(regions: Real[ArrayLike, "*batch 5"]) -> Float[Array, "*batch 5"]:
    """The same rectangles with `w >= h` and an angle in [-pi/2, pi/2): mmrotate's "le90".

    Args:
      regions: boxes, `[..., 5]`.

    Returns:
      Boxes, `[..., 5]`. Of a square, the sides stay in place.

    Gradient:
      1 by the angle, also where it jumps.

    Example:
      >>> print(to_long_edge(jnp.array([0.0, 0.0, 2.0, 4.0, 0.0])))
      [ 0.         0.         4.         2.        -1.5707964]
    """
    box = _split(regions)
    swap = box.height > box.width
    angle = box.angle - jnp.where(swap, math.pi / 2, 0).astype(box.angle.dtype)
    turns = jax.lax.stop_gradient(jnp.floor(angle / math.pi + 0.5))
    wrapped = jnp.where(turns == 0, angle, angle - turns * math.pi)
    half = jnp.asarray(math.pi / 2, wrapped.dtype)
    wrapped = jnp.where(wrapped >= half, wrapped - math.pi, wrapped)
    width = jnp.where(swap, box.height, box.width)
    height = jnp.where(swap, box.width, box.height)
    return _clamp.join(Oriented(box.x, box.y, width, height, wrapped))


@compiled()
def from_boxes(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 5"]:
    """Oriented boxes from boxes `(x1, y1, x2, y2)`: those of `jaxiou.boxes`, with angle 0.

    Args:
      regions: `[..., 4]`. An inverted box gives a negative side.

    Returns:
      Boxes, `[..., 5]`.

    Gradient:
      That of what it is: linear.

    Example:
      >>> print(from_boxes(jnp.array([0, 0, 4, 2])))
      [2. 1. 4. 2. 0.]
    """
    x1, y1, x2, y2 = _corners.split(*_corners.cast(regions=regions))
    width, height = x2 - x1, y2 - y1
    centre = x1 + width / 2, y1 + height / 2
    return _clamp.join(Oriented(*centre, width, height, jnp.zeros_like(x1)))


@compiled()
def to_boxes(regions: Real[ArrayLike, "*batch 5"]) -> Float[Array, "*batch 4"]:
    """The smallest axis-parallel box `(x1, y1, x2, y2)` around each oriented box.

    Args:
      regions: boxes, `[..., 5]`.

    Returns:
      Boxes of `jaxiou.boxes`, `[..., 4]`.

    Gradient:
      Of the corners that lie outermost; the mean of both where two do.

    Example:
      >>> print(to_boxes(jnp.array([2, 1, 4, 2, 0])))
      [0. 0. 4. 2.]
    """
    (box,) = _clamp.oriented(regions=regions)
    x, y = _hull.reach(box)
    return _corners.join(_corners.Corners(box.x - x, box.y - y, box.x + x, box.y + y))


@compiled()
def is_valid(regions: Real[ArrayLike, "*batch 5"]) -> Bool[Array, "*batch"]:
    """Which boxes are finite and have positive sides.

    Args:
      regions: boxes, `[..., 5]`.

    Returns:
      bool, `[...]`; a mask to give as `where`.

    Example:
      >>> print(is_valid(jnp.array([[0.0, 0.0, 4.0, 3.0, 9.0], [4.0, 0.0, 0.0, 3.0, 0.0]])))
      [ True False]
    """
    (boxes,) = _clamp.cast(regions=regions)
    box = _clamp.split(boxes)
    return jnp.isfinite(boxes).all(axis=-1) & (box.width > 0) & (box.height > 0)


def check_values(
    regions: Real[ArrayLike, "*batch 5"], *, where: Bool[ArrayLike, "*batch"] | None = None
) -> None:
    """Raises ValueError naming the first box that is not `is_valid`; for use on the host.

    It also takes an angle beyond 100 for one in degrees, which no overlap would tell.

    Args:
      regions: boxes, `[..., 5]`.
      where: bool, `[...]`; boxes where it is False are not looked at.

    Raises:
      ValueError: a box with NaN, infinity, a side that is not positive, or an angle beyond 100;
        says which and how many.
      TypeError: under `jit`, where there are no values to look at.

    Example:
      >>> check_values(jnp.array([4, 0, 2, 3, 180]))  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      ...
      ValueError: regions is [4.0, ..., 180.0]: angles are in radians (1 of 1 boxes is invalid)
    """
    _checks.is_concrete("regions", regions)
    (cast,) = _clamp.cast(regions=jnp.asarray(regions))
    rows = np.asarray(cast)
    bad = ~np.asarray(is_valid(regions)) | (np.abs(rows[..., 4]) > 100)
    if where is not None:
        _checks.is_concrete("where", where)
        _checks.mask("where", where, bad.shape)
        bad &= np.asarray(where)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    box = rows[index].tolist()
    if not all(np.isfinite(box)):
        reason = "all five numbers must be finite"
    elif min(box[2:4]) <= 0:
        reason = "width and height must be above 0"
    else:
        reason = "angles are in radians"
    place = f"[{', '.join(map(str, index))}]" if index else ""
    count = f"{bad.sum()} of {bad.size} boxes {'is' if bad.sum() == 1 else 'are'} invalid"
    raise ValueError(f"regions{place} is {box}: {reason} ({count})")


def _split(regions: ArrayLike) -> Oriented:
    return _clamp.split(*_clamp.cast(regions=regions))


@functools.cache
def _configured(value: Callable[..., Array], enclosing: Enclosing) -> Overlap:
    _checks.one_of("enclosing", enclosing, ("hull", "rectangle", "box"))

    @overlap(region_rank=1)
    def configured(a: Boxes, b: Boxes) -> Values:
        first, second = _clamp.oriented(a=a, b=b)
        return value(first, second, enclosing)

    return configured


def _giou(a: Oriented, b: Oriented, enclosing: Enclosing) -> Array:
    if enclosing == "box":
        around = product(*_hull.box_sides(a, b))
    else:
        pose = _hull.pose_in_larger(a, b)
        around = _hull.hull_area(pose) if enclosing == "hull" else _hull.rectangle(pose)[0]
    excess = never_negative(around - _clamp.union(a, b))
    return _clamp.iou(a, b) - safe_divide(excess, around)


def _diou(a: Oriented, b: Oriented, enclosing: Enclosing) -> Array:
    if enclosing == "box":
        width, height = _hull.box_sides(a, b)
        square = width**2 + height**2
    else:
        pose = _hull.pose_in_larger(a, b)
        by_name = {"hull": _hull.squared_diameter, "rectangle": lambda f: _hull.rectangle(f)[1]}
        square = by_name[enclosing](pose)
    distance = (a.x - b.x) ** 2 + (a.y - b.y) ** 2
    return _clamp.iou(a, b) - safe_divide(distance, square)


def _ciou(a: Oriented, b: Oriented, enclosing: Enclosing) -> Array:
    angles = safe_arctan2(b.width, b.height) - safe_arctan2(a.width, a.height)
    v = 4 / math.pi**2 * angles**2
    alpha = safe_divide(v, (1 - _clamp.iou(a, b)) + v)
    return _diou(a, b, enclosing) - jax.lax.stop_gradient(alpha) * v
