"""Axis-aligned boxes `(x1, y1, x2, y2)`, `[..., 4]`: formats, areas and overlaps.

What holds for every function here, and is not repeated below:

- **Format.** Continuous corners, no `+1`. Any unit of length, the same for both arguments.
  Other formats are conversions: `from_xywh`, `from_cxcywh`, `from_yxyx`, `from_inclusive`.
- **Types.** JAX or NumPy arrays of floats or integers, cast to float32 before any
  arithmetic, or to float64 if one of them holds 64-bit numbers; so is the result.
  float16 and bfloat16 boxes were rounded before they came here, which no cast can mend.
- **Shapes.** Leading axes broadcast as in NumPy. For all pairs of two sets, `pairwise`.
- **Empty boxes.** A box with `x2 < x1` collapses to `x2 = x1`, and likewise in y. A box
  without area has IoU 0 with every box, itself included, and no ratio is ever NaN for
  finite boxes.
- **NaN** in a box makes that box's own results NaN, and no others.
- **Range.** Coordinates up to 1e15, sides and distances 0 or down to 1e-15 in float32; 1e150
  and 1e-150 in float64. Beyond it areas overflow or vanish.
- **Gradients** are finite over that range, second derivatives for sides 0 or from 1e-9 and
  coordinates up to 1e4. A gradient has its argument's type, and float16 cannot hold more than
  65504, so sides below 2e-5 may overflow there.
  Where two edges coincide the one-sided slopes differ, and their mean is returned; so a
  side of 0 has half the slope of an open one, and an inverted side none. An intersection
  that is exactly 0 has slope 0: boxes that only touch count as apart.

The overlaps carry `region_rank = 1`, which tells `pairwise`, the losses and everything
else that one region is one trailing axis.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxiou import _checks, _corners
from jaxiou._compiled import compiled, overlap
from jaxiou._corners import Corners
from jaxiou._math import carry_nan, per_pair, safe_divide
from jaxiou._typing import ArrayLike

__all__ = [
    "area",
    "intersection",
    "union",
    "enclosing",
    "iou",
    "giou",
    "diou",
    "ciou",
    "ioa",
    "dice",
    "from_xywh",
    "to_xywh",
    "from_cxcywh",
    "to_cxcywh",
    "from_yxyx",
    "to_yxyx",
    "from_inclusive",
    "to_inclusive",
    "clip",
    "is_valid",
    "check_values",
]


@compiled()
def area(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch"]:
    """Area of each box: width times height.

    Args:
      regions: boxes, `[..., 4]`.

    Returns:
      `[...]`, in squared units of length, at least 0. 0 for empty and inverted boxes.

    Gradient:
      The height for x2, the width for y2, their negatives for x1 and y1. Half of that for
      the edges of a side that is 0, and 0 for those of a negative side.

    Example:
      >>> print(area(jnp.array([[0.0, 0.0, 4.0, 3.0], [4.0, 0.0, 0.0, 3.0]])))
      [12.  0.]
    """
    (box,) = _corners.corners(regions=regions)
    return _corners.area(box)


@overlap(region_rank=1)
def intersection(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    """Area that two boxes share.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One area per pair, `[...]`, at least 0 and at most the smaller box's. 0 for boxes
      that only touch.

    Gradient:
      0 where the boxes do not meet or only touch; where they share an edge, half of what
      the edge would give if it were the inner one.

    Example:
      >>> print(intersection(jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([1.0, 1.0, 3.0, 3.0])))
      1.0
    """
    first, second = _corners.corners(a=a, b=b)
    return carry_nan(_corners.intersection(first, second), _corners.area(first))


@overlap(region_rank=1)
def union(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    """Area that two boxes cover together: both areas less what they share.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One area per pair, `[...]`, never below `intersection(a, b)`, also after rounding.

    Gradient:
      That of the areas less that of `intersection`.

    Example:
      >>> print(union(jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([1.0, 1.0, 3.0, 3.0])))
      7.0
    """
    return _corners.union(*_corners.corners(a=a, b=b))


@overlap(region_rank=1)
def enclosing(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch 4"]:
    """The smallest box around two boxes.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One box per pair, `[..., 4]`. Empty boxes count as the points or segments to which
      they collapse, so the box around two points has an area in general.

    Gradient:
      1 for the box whose edge is the outer one, a half each where the edges coincide.

    Example:
      >>> print(enclosing(jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([1.0, 1.0, 3.0, 3.0])))
      [0. 0. 3. 3.]
    """
    first, second = _corners.corners(a=a, b=b)
    around = _corners.enclosing(first, second)
    return _join(*map(carry_nan, around, first))


@overlap(region_rank=1)
def iou(a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]) -> Float[Array, "*batch"]:
    r"""Intersection over union (Jaccard index): shared area over covered area.

    .. math:: \mathrm{IoU} = |A \cap B| / |A \cup B|

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means the boxes coincide: a box with
      itself gives exactly 1, however small or far from the origin, as nothing is added
      to the ratio.

    At the edges:
      Empty, inverted, disjoint and touching boxes give 0; so do two equal points (0/0).

    Gradient:
      0 for disjoint and touching boxes (`giou` has a slope there) and for equal boxes.
      A box inside another, sharing an edge: the mean of the two one-sided slopes.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 10.0, 10.0]), jnp.array([1.0, 1.0, 11.0, 11.0])
      >>> print(f"{iou(a, b):.4f}")
      0.6807

    Reference:
      Jaccard, "The distribution of the flora in the alpine zone", New Phytologist 1912;
      as a loss: Yu et al., "UnitBox", ACM MM 2016, https://arxiv.org/abs/1608.01471.
    """
    return _corners.iou(*_corners.corners(a=a, b=b))


@overlap(region_rank=1)
def giou(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    r"""Generalized IoU: the IoU, less the share of the enclosing box that neither covers.

    .. math:: \mathrm{GIoU} = \mathrm{IoU} - |C \setminus (A \cup B)| / |C|

    with C the smallest box around both, so it keeps a slope where boxes do not meet.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the boxes coincide; -1 is reached
      by two empty boxes in general position, and approached as boxes move apart.

    At the edges:
      Two equal points give 0: both ratios are 0/0. So do two empty boxes on one axis-
      parallel line, whose enclosing box has no area.

    Gradient:
      0 where the boxes coincide. A box within another has the gradient of the IoU.
      Touching boxes keep the slope that pulls them together.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([3.0, 0.0, 4.0, 1.0])
      >>> print(giou(a, b))
      -0.5

    Reference:
      Rezatofighi et al., "Generalized Intersection over Union: A Metric and a Loss for
      Bounding Box Regression", CVPR 2019, https://arxiv.org/abs/1902.09630.
    """
    first, second = _corners.corners(a=a, b=b)
    return _corners.iou(first, second) - _corners.area_penalty(first, second)


@overlap(region_rank=1)
def diou(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    r"""Distance IoU: the IoU of two boxes, less a penalty for centres that lie apart.

    .. math:: \mathrm{DIoU} = \mathrm{IoU} - \rho^2 / c^2

    with rho the distance of the centres and c the diagonal of the smallest box around both.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the boxes coincide.

    At the edges:
      Two equal points give 0, as both ratios are 0/0; two distinct points give -1, the
      lower end.

    Gradient:
      0 where the boxes coincide. Where they only share a centre, that of the IoU.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([3.0, 1.0, 4.0, 3.0])
      >>> print(f"{diou(a, b):.2f}")
      -0.45

    Reference:
      Zheng et al., "Distance-IoU Loss: Faster and Better Learning for Bounding Box
      Regression", AAAI 2020, https://arxiv.org/abs/1911.08287.
    """
    first, second = _corners.corners(a=a, b=b)
    return _corners.iou(first, second) - _corners.center_penalty(first, second)


@overlap(region_rank=1)
def ciou(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    r"""Complete IoU: the distance IoU, less a penalty for unequal aspect ratios.

    .. math::
      \mathrm{CIoU} = \mathrm{DIoU} - \alpha v, \quad
      v = \frac{4}{\pi^2} \Bigl(\arctan\frac{w_b}{h_b} - \arctan\frac{w_a}{h_a}\Bigr)^2,
      \quad \alpha = \frac{v}{(1 - \mathrm{IoU}) + v}

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1.5, 1] but for rounding: `alpha v` is at most a
      half. 1 means the boxes coincide.

    At the edges:
      The angle of a point is 0, of a box without height pi/2. Two equal points give 0.

    Gradient:
      `alpha` is under `stop_gradient`, as the paper has it, so this is not the slope of
      the value. The slope of `v` is the true one: the authors' code leaves the factor
      1/(w^2 + h^2) out. 0 where the boxes coincide.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 1.0]), jnp.array([0.0, 0.0, 1.0, 2.0])
      >>> print(f"{diou(a, b):.4f} {ciou(a, b):.4f}")
      0.2708 0.2371

    Reference:
      Zheng et al., AAAI 2020, https://arxiv.org/abs/1911.08287. Its journal form
      (https://arxiv.org/abs/2005.03572) sets alpha to 0 below IoU 0.5; we do not.
    """
    first, second = _corners.corners(a=a, b=b)
    distance = _corners.iou(first, second) - _corners.center_penalty(first, second)
    return distance - _corners.aspect_penalty(first, second)


@overlap(region_rank=1)
def ioa(a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]) -> Float[Array, "*batch"]:
    """Intersection over area: how much of `a` lies within `b`. Not symmetric.

    Args:
      a: boxes, `[..., 4]`, whose area divides. (detectron2's and ultralytics' `ioa` divide
        by the second argument's; COCO's crowd rule by the detection's.)
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means `a` lies within `b`.

    At the edges:
      0 for an empty `a`, wherever it lies, and for boxes that do not meet.

    Gradient:
      0 while `a` lies strictly within `b`, and where the boxes do not meet.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([1.0, 0.0, 9.0, 9.0])
      >>> print(ioa(a, b), f"{ioa(b, a):.4f}")
      0.5 0.0278
    """
    first, second = _corners.corners(a=a, b=b)
    shared = _corners.intersection(first, second)
    return safe_divide(shared, per_pair(_corners.area(first), shared))


@overlap(region_rank=1)
def dice(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    """Dice coefficient (F1 of areas): twice the shared area over the sum of the areas.

    A monotone function of the IoU, `2 IoU / (1 + IoU)`, so both rank pairs alike.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means the boxes coincide.

    At the edges:
      0 wherever the IoU is 0.

    Gradient:
      0 for disjoint, touching and equal boxes, like that of the IoU.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 3.0, 1.0]), jnp.array([1.0, 0.0, 4.0, 1.0])
      >>> print(f"{iou(a, b):.3f} {dice(a, b):.3f}")
      0.500 0.667

    Reference:
      Dice, "Measures of the Amount of Ecologic Association Between Species", Ecology 1945.
    """
    first, second = _corners.corners(a=a, b=b)
    return safe_divide(
        2 * _corners.intersection(first, second), _corners.area(first) + _corners.area(second)
    )


@compiled()
def from_xywh(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes from `(left, top, width, height)`, COCO's format.

    Args:
      regions: `[..., 4]`. A negative width gives an inverted box.

    Returns:
      Boxes, `[..., 4]`.

    Example:
      >>> print(from_xywh(jnp.array([10, 20, 30, 40])))
      [10. 20. 40. 60.]
    """
    x, y, width, height = _split(regions)
    return _join(x, y, x + width, y + height)


@compiled()
def to_xywh(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes as `(left, top, width, height)`, COCO's format.

    Args:
      regions: boxes, `[..., 4]`. An inverted box gives a negative width or height.

    Returns:
      `[..., 4]`.

    Example:
      >>> print(to_xywh(jnp.array([10, 20, 40, 60])))
      [10. 20. 30. 40.]
    """
    x1, y1, x2, y2 = _split(regions)
    return _join(x1, y1, x2 - x1, y2 - y1)


@compiled()
def from_cxcywh(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes from `(centre x, centre y, width, height)`, the format of YOLO and DETR.

    Args:
      regions: `[..., 4]`. A negative width gives an inverted box.

    Returns:
      Boxes, `[..., 4]`. A small box far from the origin changes its size by the rounding
      of its corners, as every box does that is stored by corners.

    Example:
      >>> print(from_cxcywh(jnp.array([25, 40, 30, 40])))
      [10. 20. 40. 60.]
    """
    x, y, width, height = _split(regions)
    return _join(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


@compiled()
def to_cxcywh(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes as `(centre x, centre y, width, height)`, the format of YOLO and DETR.

    Args:
      regions: boxes, `[..., 4]`. An inverted box gives a negative width or height.

    Returns:
      `[..., 4]`. The centre is `x1 + width / 2`, after the cast, so that it neither wraps
      in uint8 nor overflows in float16.

    Example:
      >>> print(to_cxcywh(jnp.array([200, 10, 220, 30], dtype=jnp.uint8)))
      [210.  20.  20.  20.]
    """
    x1, y1, x2, y2 = _split(regions)
    width, height = x2 - x1, y2 - y1
    return _join(x1 + width / 2, y1 + height / 2, width, height)


@compiled()
def from_yxyx(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes from `(y1, x1, y2, x2)`, TensorFlow's format.

    Args:
      regions: `[..., 4]`.

    Returns:
      Boxes, `[..., 4]`. The conversion is its own inverse.

    Example:
      >>> print(from_yxyx(jnp.array([20, 10, 60, 40])))
      [10. 20. 40. 60.]
    """
    y1, x1, y2, x2 = _split(regions)
    return _join(x1, y1, x2, y2)


@compiled()
def to_yxyx(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes as `(y1, x1, y2, x2)`, TensorFlow's format.

    Args:
      regions: boxes, `[..., 4]`.

    Returns:
      `[..., 4]`. The conversion is its own inverse.

    Example:
      >>> print(to_yxyx(jnp.array([10, 20, 40, 60])))
      [20. 10. 60. 40.]
    """
    x1, y1, x2, y2 = _split(regions)
    return _join(y1, x1, y2, x2)


@compiled()
def from_inclusive(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes from the indices of their first and last pixels, PASCAL VOC's format.

    A pixel covers [i, i + 1), so the last index plus one is the right edge. Code that adds
    1 to widths instead counts the same areas; `iou` of converted boxes equals its `+1` form.

    Args:
      regions: `(first column, first row, last column, last row)`, `[..., 4]`, in pixels.

    Returns:
      Boxes, `[..., 4]`, in pixels.

    Example:
      >>> print(area(from_inclusive(jnp.array([5, 5, 5, 5]))))
      1.0
    """
    x1, y1, x2, y2 = _split(regions)
    return _join(x1, y1, x2 + 1, y2 + 1)


@compiled()
def to_inclusive(regions: Real[ArrayLike, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Boxes as the indices of their first and last pixels, PASCAL VOC's format.

    Args:
      regions: boxes, `[..., 4]`, in pixels. An empty box ends one pixel before its start.

    Returns:
      `(first column, first row, last column, last row)`, `[..., 4]`.

    Example:
      >>> print(to_inclusive(jnp.array([5, 5, 6, 6])))
      [5. 5. 5. 5.]
    """
    x1, y1, x2, y2 = _split(regions)
    return _join(x1, y1, x2 - 1, y2 - 1)


@compiled()
def clip(
    regions: Real[ArrayLike, "*batch 4"],
    height: Real[ArrayLike, ""] | float,
    width: Real[ArrayLike, ""] | float,
) -> Float[Array, "*batch 4"]:
    """Boxes cut at the borders of an image.

    Args:
      regions: boxes, `[..., 4]`.
      height: of the image, in the boxes' unit; a number, which may be traced.
      width: of the image.

    Returns:
      Boxes, `[..., 4]`, in [0, width] x [0, height]. A box outside becomes an empty box on
      the border.

    Gradient:
      1 inside, 0 outside the image, a half on its border.

    Example:
      >>> print(clip(jnp.array([-5.0, 10.0, 50.0, 90.0]), height=60, width=80))
      [ 0. 10. 50. 60.]
    """
    x1, y1, x2, y2 = _split(regions)
    height, width = _limit("height", height, x1), _limit("width", width, x1)
    return _join(
        jnp.minimum(jnp.maximum(x1, 0), width),
        jnp.minimum(jnp.maximum(y1, 0), height),
        jnp.minimum(jnp.maximum(x2, 0), width),
        jnp.minimum(jnp.maximum(y2, 0), height),
    )


@compiled()
def is_valid(
    regions: Real[ArrayLike, "*batch 4"], *, min_size: Real[ArrayLike, ""] | float = 0.0
) -> Bool[Array, "*batch"]:
    """Which boxes have finite corners, a positive width and a positive height.

    Args:
      regions: boxes, `[..., 4]`.
      min_size: the least width and height, in the boxes' unit; a number.

    Returns:
      bool, `[...]`; a mask to give as `where`.

    Example:
      >>> print(is_valid(jnp.array([[0.0, 0.0, 4.0, 3.0], [4.0, 0.0, 0.0, 3.0]])))
      [ True False]
    """
    (boxes,) = _corners.cast(regions=regions)
    x1, y1, x2, y2 = _corners.split(boxes)
    least = _limit("min_size", min_size, x1)
    width, height = x2 - x1, y2 - y1
    finite = jnp.isfinite(boxes).all(axis=-1)
    return finite & (width > 0) & (height > 0) & (width >= least) & (height >= least)


def check_values(
    regions: Real[ArrayLike, "*batch 4"], *, where: Bool[ArrayLike, "*batch"] | None = None
) -> None:
    """Raises ValueError naming the first box that is not `is_valid`; for use on the host.

    Functions on boxes never raise for values: a step that runs on a device cannot, and an
    assert inside training stops it for one bad prediction. Check a data set once, here.

    Args:
      regions: boxes, `[..., 4]`.
      where: bool, `[...]`; boxes where it is False are not looked at.

    Raises:
      ValueError: a box with NaN, infinite, equal or swapped corners; says which and how many.
      TypeError: under `jit`, where there are no values to look at.

    Example:
      >>> check_values(jnp.array([[0.0, 0.0, 4.0, 3.0], [4.0, 0.0, 0.0, 3.0]]))
      Traceback (most recent call last):
      ...
      ValueError: regions[1] is [4.0, 0.0, 0.0, 3.0]: x2 must exceed x1 (1 of 2 boxes is invalid)
    """
    _checks.is_concrete("regions", regions)
    bad = ~np.asarray(is_valid(regions))
    if where is not None:
        _checks.is_concrete("where", where)
        _checks.mask("where", where, bad.shape)
        bad &= np.asarray(where)
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    # As the functions here see them: float32 may not tell two corners apart.
    (cast,) = _corners.cast(regions=jnp.asarray(regions))
    x1, _, x2, _ = box = np.asarray(cast)[index].tolist()
    if not all(np.isfinite(box)):
        reason = "corners must be finite"
    else:
        reason = "x2 must exceed x1" if x2 <= x1 else "y2 must exceed y1"
    place = f"[{', '.join(map(str, index))}]" if index else ""
    count = f"{bad.sum()} of {bad.size} boxes {'is' if bad.sum() == 1 else 'are'} invalid"
    raise ValueError(f"regions{place} is {box}: {reason} ({count})")


def _split(regions: ArrayLike) -> Corners:
    return _corners.split(*_corners.cast(regions=regions))


def _join(*coordinates: Array) -> Array:
    return _corners.join(Corners(*coordinates))


def _limit(name: str, value: ArrayLike | float, like: Array) -> Array:
    return _checks.scalar(name, value).astype(like.dtype)
