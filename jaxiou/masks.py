"""Instance masks, `[..., H, W]`: areas, overlaps, boxes and boundaries.

What holds for every function here, and is not repeated below:

- **Format.** A mask is an image of bools or of numbers of any type; what is not 0 is inside.
  Both masks of a pair have one height and one width. A label map, whose pixels say which of
  many segments they belong to, is no mask: only `label_boundary` takes one.
- **Counts** are of pixels, exact, int32: up to 2^30 pixels an image. Ratios of counts are
  float32, or float64 if one of the masks holds 64-bit numbers.
- **Shapes.** Leading axes broadcast as in NumPy. For all pairs of two sets, `pairwise`, which
  makes of every overlap here one matrix product per tile of pixels.
- **Empty masks** overlap nothing, themselves included: every ratio is then 0.
- **NaN** counts as inside. Where the result is a float, a mask with NaN in it makes its own
  results NaN, and no others.
- **Gradients** are 0: a count does not change with a small change of a pixel. For a loss on
  probabilities take the soft losses.

The overlaps carry `region_rank = 2`, which tells `pairwise`, NMS and everything else that
one region is two trailing axes.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Integer, Shaped

from jaxiou import _checks
from jaxiou._compiled import compiled, overlap
from jaxiou._math import carry_nan, per_pair, safe_divide
from jaxiou._typing import ArrayLike

__all__ = [
    "area",
    "intersection",
    "union",
    "iou",
    "ioa",
    "dice",
    "to_boxes",
    "boundary",
    "boundary_iou",
    "label_boundary",
]

TILE = 2**14
"""How many pixels one matrix product sums over: few enough to be exact in float32, and for
the tiles of two sets, cast to floats, to stay in the cache."""

Masks = Shaped[ArrayLike, "*#batch h w"]


@compiled()
def area(regions: Shaped[ArrayLike, "*batch h w"]) -> Int32[Array, "*batch"]:
    """Number of pixels inside each mask.

    Args:
      regions: masks, `[..., H, W]`.

    Returns:
      int32, `[...]`, at least 0.

    Example:
      >>> print(area(jnp.array([[0, 1, 1], [0, 0, 7]])))
      3
    """
    (mask,) = _checked(regions=regions)
    return _counts(mask, jnp.zeros_like(mask, shape=mask.shape[-2:])).first


@overlap(region_rank=2)
def intersection(a: Masks, b: Masks) -> Int32[Array, "*batch"]:
    """Number of pixels that lie inside both masks.

    Args:
      a: masks, `[..., H, W]`.
      b: masks; leading axes broadcast against those of `a`.

    Returns:
      int32, one count per pair, `[...]`.

    Example:
      >>> print(intersection(jnp.array([[1, 1, 0]]), jnp.array([[0, 1, 1]])))
      1
    """
    return _counts(*_checked(a=a, b=b)).shared


@overlap(region_rank=2)
def union(a: Masks, b: Masks) -> Int32[Array, "*batch"]:
    """Number of pixels that lie inside at least one of two masks.

    Args:
      a: masks, `[..., H, W]`.
      b: masks; leading axes broadcast against those of `a`.

    Returns:
      int32, one count per pair, `[...]`.

    Example:
      >>> print(union(jnp.array([[1, 1, 0]]), jnp.array([[0, 1, 1]])))
      3
    """
    return _counts(*_checked(a=a, b=b)).union


@overlap(region_rank=2)
def iou(a: Masks, b: Masks) -> Float[Array, "*batch"]:
    r"""Intersection over union (Jaccard index): pixels in both over pixels in either.

    .. math:: \mathrm{IoU} = |A \cap B| / |A \cup B|

    Args:
      a: masks, `[..., H, W]`.
      b: masks; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means equal masks, and is exact.

    At the edges:
      0 where one of the masks is empty, or both are. NaN in a mask makes its pairs NaN.

    Gradient:
      0.

    Example:
      >>> print(f"{iou(jnp.array([[1, 1, 0]]), jnp.array([[0, 1, 1]])):.4f}")
      0.3333

    Reference:
      Jaccard, "The distribution of the flora in the alpine zone", New Phytologist 1912.
      The values are those of pycocotools' `iou` of run-length codes, which are float64.
    """
    counts = _counts(*_checked(a=a, b=b))
    return _ratio(counts.shared, counts.union, a, b)


@overlap(region_rank=2)
def ioa(a: Masks, b: Masks) -> Float[Array, "*batch"]:
    r"""Intersection over area: how much of `a` lies within `b`. Not symmetric.

    .. math:: \mathrm{IoA} = |A \cap B| / |A|

    It is COCO's overlap with a crowd region: `pairwise(ioa)(detections, crowds)`.

    Args:
      a: masks, `[..., H, W]`, whose area divides.
      b: masks; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means `a` lies within `b`.

    At the edges:
      0 for an empty `a`. NaN in a mask makes its pairs NaN.

    Gradient:
      0.

    Example:
      >>> a, b = jnp.array([[1, 1, 0, 0]]), jnp.array([[0, 1, 1, 1]])
      >>> print(ioa(a, b), f"{ioa(b, a):.4f}")
      0.5 0.3333

    Reference:
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312; pycocotools' `iou` with `iscrowd`.
    """
    counts = _counts(*_checked(a=a, b=b))
    return _ratio(counts.shared, counts.first, a, b)


@overlap(region_rank=2)
def dice(a: Masks, b: Masks) -> Float[Array, "*batch"]:
    r"""Dice coefficient (F1 of pixels): twice the shared pixels over the sum of the areas.

    .. math:: \mathrm{Dice} = 2 |A \cap B| / (|A| + |B|) = 2\,\mathrm{IoU} / (1 + \mathrm{IoU})

    Args:
      a: masks, `[..., H, W]`.
      b: masks; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means equal masks.

    At the edges:
      0 wherever the IoU is 0. NaN in a mask makes its pairs NaN.

    Gradient:
      0.

    Example:
      >>> print(dice(jnp.array([[1, 1, 0]]), jnp.array([[0, 1, 1]])))
      0.5

    Reference:
      Dice, "Measures of the Amount of Ecologic Association Between Species", Ecology 1945.
    """
    counts = _counts(*_checked(a=a, b=b))
    return _ratio(2 * counts.shared, counts.first + counts.second, a, b)


@compiled()
def to_boxes(regions: Shaped[ArrayLike, "*batch h w"]) -> Float[Array, "*batch 4"]:
    """The smallest box around each mask: its first pixels, and one past its last.

    Args:
      regions: masks, `[..., H, W]`.

    Returns:
      Boxes `(x1, y1, x2, y2)` as in `boxes`, `[..., 4]`, in pixels, so that a mask of one
      pixel has a box of area 1. An empty mask has the box of zeros, one with NaN that of NaN.

    Example:
      >>> print(to_boxes(jnp.array([[0, 1, 1], [0, 0, 1]])))
      [1. 0. 3. 2.]

    Reference:
      pycocotools' `toBbox`, which gives `(x, y, width, height)`.
    """
    (mask,) = _checked(regions=regions)
    x1, x2 = _extent(mask.astype(bool).any(axis=-2))
    y1, y2 = _extent(mask.astype(bool).any(axis=-1))
    dtype = _checks.working_dtype(regions)
    return jnp.stack([_carry_nan(x.astype(dtype), mask) for x in (x1, y1, x2, y2)], axis=-1)


@compiled(static=("ratio",))
def boundary(
    regions: Shaped[ArrayLike, "*batch h w"], *, ratio: float = 0.02
) -> Bool[Array, "*batch h w"]:
    """The pixels of each mask that lie within a small distance of its contour.

    These are the pixels of the mask whose square of `2 d + 1` pixels leaves the mask or the
    image: what `d` erosions by a square of 3 take away. `d` is `ratio` times the diagonal
    of the image, rounded as Python does, half to even, and 1 at least.

    Args:
      regions: masks, `[..., H, W]`; the image is all of H and W, padding included.
      ratio: the width of the boundary over the diagonal of the image, a Python float above 0.

    Returns:
      bool, `[..., H, W]`. All of the mask, if `ratio` is so large that nothing is left inside.

    Example:
      >>> print(boundary(jnp.ones((3, 4), bool)).astype(int))
      [[1 1 1 1]
       [1 0 0 1]
       [1 1 1 1]]

    Reference:
      Cheng et al., "Boundary IoU: Improving Object-Centric Image Segmentation Evaluation",
      CVPR 2021, https://arxiv.org/abs/2103.16562.
    """
    (mask,) = _checked(regions=regions)
    inside = mask.astype(bool)
    return inside & _label_boundary(inside, ratio)


@functools.cache
def boundary_iou(*, ratio: float = 0.02) -> Callable[[Array, Array], Array]:
    r"""Boundary IoU: the IoU of the boundaries of two masks.

    .. math:: |A_d \cap B_d| / |A_d \cup B_d|

    with :math:`A_d` the `boundary` of A. It grades the contour of large objects, to which
    the mask IoU is blind, and becomes the mask IoU as d grows. As a score of detections and
    in panoptic quality the authors take the smaller of the two.

    Args:
      ratio: as in `boundary`. Equal ratios give the same function.

    Returns:
      An overlap `f(a, b)` of masks `[..., H, W]`, `[...]`, in [0, 1]. 1 means equal masks.

    At the edges:
      0 where one of the masks is empty, or both are. NaN in a mask makes its pairs NaN.

    Gradient:
      0.

    Example:
      >>> a = jnp.ones((4, 4), bool)
      >>> print(f"{boundary_iou()(a, a.at[0].set(False)):.4f}")
      0.5714

    Reference:
      Cheng et al., "Boundary IoU: Improving Object-Centric Image Segmentation Evaluation",
      CVPR 2021, https://arxiv.org/abs/2103.16562.
    """
    ratio = _checks.positive("ratio", ratio)

    @overlap(region_rank=2)
    def value(a: Masks, b: Masks) -> Float[Array, "*batch"]:
        counts = _counts(*(boundary(mask, ratio=ratio) for mask in _checked(a=a, b=b)))
        return _ratio(counts.shared, counts.union, a, b)

    return value


@compiled(static=("ratio",))
def label_boundary(
    labels: Integer[ArrayLike, "*batch h w"], *, ratio: float = 0.02
) -> Bool[Array, "*batch h w"]:
    """The pixels within a small distance of another label, or of the edge of the image.

    It is the `boundary` of every label of a map at once: `label_boundary(labels)` where
    `labels == k` is `boundary(labels == k)`, at a cost that does not depend on how many
    labels there are, and hardly on `ratio`.

    Args:
      labels: integers, `[..., H, W]`. Void and ignored labels are labels like any other.
      ratio: as in `boundary`.

    Returns:
      bool, `[..., H, W]`.

    Example:
      >>> labels = jnp.array([[3, 3, 3, 7, 7]] * 3)
      >>> print(label_boundary(labels).astype(int)[1])
      [1 0 1 1 1]

    Reference:
      Cheng et al., CVPR 2021, https://arxiv.org/abs/2103.16562, as in `boundary`.
    """
    _checks.is_array("labels", labels)
    _checks.is_integer("labels", labels)
    _checks.trailing_shape("labels", labels, (None, None), "a label map")
    return _label_boundary(jnp.asarray(labels), ratio)


def _label_boundary(labels: Array, ratio: float) -> Array:
    height, width = labels.shape[-2:]
    diagonal = math.sqrt(height**2 + width**2)
    distance = min(_checks.positive("ratio", ratio) * diagonal, height + width)
    d = max(1, round(distance))
    if min(height, width) <= 2 * d:
        return jnp.ones_like(labels, bool)
    # Inside is a pixel whose column shows one label over its window, and each row of the
    # window too.
    alike = labels[..., :, 1:] == labels[..., :, :-1]
    rows = _all_of(2 * d + 1, _all_of(2 * d, alike, -1), -2)
    middle = labels[..., :, d : width - d]
    column = _all_of(2 * d, middle[..., 1:, :] == middle[..., :-1, :], -2)
    around = [(0, 0)] * (labels.ndim - 2) + [(d, d), (d, d)]
    return jnp.pad(~(rows & column), around, constant_values=True)


def _all_of(length: int, x: Array, axis: int) -> Array:
    """Whether `length` neighbours along an axis are all True, in log2(length) passes."""
    covered = 1
    while covered < length:
        step, size = min(covered, length - covered), x.shape[axis]
        first = jax.lax.slice_in_dim(x, 0, size - step, axis=axis)
        x = first & jax.lax.slice_in_dim(x, step, size, axis=axis)
        covered += step
    return x


def _checked(**arrays: ArrayLike) -> tuple[Array, ...]:
    """Masks of one size and one rank, without gradient."""
    first = next(iter(arrays.values()))
    for name, x in arrays.items():
        _checks.is_array(name, x)
        if x.dtype != np.bool_:
            _checks.is_real(name, x)
        _checks.trailing_shape(name, x, (None, None), "one mask an image")
        _checks.trailing_shape(name, x, first.shape[-2:], "masks of one size")
    _checks.leading_shape(2, **arrays)
    return tuple(map(jax.lax.stop_gradient, _checks.same_rank(*arrays.values())))


class _Counts(NamedTuple):
    """Pixels of pairs of masks, int32: inside both, inside the first, inside the second."""

    shared: Array
    first: Array
    second: Array

    @property
    def union(self) -> Array:
        return self.first + self.second - self.shared


def _counts(a: Array, b: Array) -> _Counts:
    """The counts as matrix products over the pixels, which is what pairs of two sets need.

    The masks are cast to floats tile by tile, as they would take many times their memory as a
    whole. Areas are products with ones: XLA on CPU sums an axis by way of an array of int32.
    """
    a, b = (x.reshape(*x.shape[:-2], math.prod(x.shape[-2:])) for x in (a, b))
    whole = a.shape[-1] // TILE * TILE

    def add(i, counts):
        parts = (jax.lax.dynamic_slice_in_dim(x, i * TILE, TILE, axis=-1) for x in (a, b))
        return _Counts(*(x + y for x, y in zip(counts, _products(*parts), strict=True)))

    rest = _products(a[..., whole:], b[..., whole:])
    return jax.lax.fori_loop(np.int32(0), np.int32(whole // TILE), add, rest) if whole else rest


def _products(a: Array, b: Array) -> _Counts:
    # 0 and 1 are exact in bfloat16, for which accelerators have units that sum in float32.
    return jax.lax.platform_dependent(
        a,
        b,
        cpu=functools.partial(_products_in, jnp.dtype(jnp.float32)),
        default=functools.partial(_products_in, jnp.dtype(jnp.bfloat16)),
    )


def _products_in(dtype: np.dtype, a: Array, b: Array) -> _Counts:
    a, b = (x.astype(bool).astype(dtype) for x in (a, b))
    ones = jnp.ones(a.shape[-1:], dtype)
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    pairs = product("...p,...p->...", a, b)
    areas = (product("...p,p->...", x, ones) for x in (a, b))
    return _Counts(*(x.astype(jnp.int32) for x in (pairs, *areas)))


def _ratio(part: Array, whole: Array, *masks: ArrayLike) -> Array:
    """`part / whole`, 0 for 0 / 0, and NaN where one of the masks of the pair holds NaN."""
    dtype = _checks.working_dtype(*masks)
    part, whole = part.astype(dtype), whole.astype(dtype)
    value = safe_divide(part, per_pair(whole, part))
    for mask in _checks.same_rank(*masks):
        value = _carry_nan(value, mask)
    return value


def _carry_nan(value: Array, mask: Array) -> Array:
    if not jnp.issubdtype(mask.dtype, jnp.floating):
        return value
    greatest = jax.lax.stop_gradient(mask).max(axis=(-2, -1), initial=0)
    return carry_nan(value, greatest.astype(value.dtype))


def _extent(occupied: Array) -> tuple[Array, Array]:
    """The first place that is occupied along the last axis, and one past the last."""
    if occupied.shape[-1] == 0:
        none = jnp.zeros(occupied.shape[:-1], jnp.int32)
        return none, none
    first = jax.lax.argmax(occupied, occupied.ndim - 1, jnp.int32)
    behind = jax.lax.argmax(jnp.flip(occupied, -1), occupied.ndim - 1, jnp.int32)
    found = occupied.any(axis=-1)
    return jnp.where(found, first, 0), jnp.where(found, occupied.shape[-1] - behind, 0)
