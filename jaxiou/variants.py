r"""The research family of box overlaps: IoU with other penalties, powers and weights.

One minus an overlap is the loss of its paper: `losses.overlap_loss(variants.eiou)`. The
conventions are those of `boxes`: continuous corners `(x1, y1, x2, y2)`, `[..., 4]`, leading
axes that broadcast, inverted boxes collapsed, ratios 0/0 taken as 0, nothing added to a
denominator, NaN kept to its own pair, values and gradients finite over the same range.

What else holds for every function here:

- **Top.** A box with area gives exactly 1 with itself, and gradient 0.
- **Kinks.** Where two edges coincide, or an absolute value is 0, the one-sided slopes differ
  and their mean is returned. A side of length 0 has half the slope of an open one, and an
  inverted side none, so an inverted box is moved by its centre and corners alone.
- **Settings.** An overlap with parameters is made by a function of keywords,
  `nwd(constant=12.7)`. Equal settings give the same object, so it may be written where it
  is used without compiling again.

Published code often differs from the published formula. Each function follows its paper and
says what the known differences are.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks, _corners, boxes
from jaxiou._compiled import overlap
from jaxiou._corners import Corners
from jaxiou._math import absolute, maximum, product, safe_divide, safe_power, safe_sqrt
from jaxiou._typing import ArrayLike

__all__ = [
    "eiou",
    "siou",
    "alpha_iou",
    "wiou",
    "mpdiou",
    "inner_iou",
    "nwd",
    "powerful_iou",
    "powerful_iou_v2",
    "extended_iou",
]

Boxes: TypeAlias = Real[ArrayLike, "*#batch 4"]
Values: TypeAlias = Float[Array, "*batch"]
Overlap = Callable[[Boxes, Boxes], Values]
Factory = TypeVar("Factory", bound=Callable[..., Any])

FAR = 2.0**12
"""Edge distances, in sides of the target, beyond which `exp(-P)` is 0 in float64 too."""


def _configured(factory: Factory) -> Factory:
    """Caches a factory of overlaps on its settings, defaults filled in."""
    signature = inspect.signature(factory)
    cached = functools.cache(factory)

    @functools.wraps(factory)
    def configured(**settings):
        bound = signature.bind(**settings)
        bound.apply_defaults()
        # By keyword, and so in one order: 12 and 12.0 are one key, [480, 640] is (480, 640).
        return cached(
            **{k: tuple(v) if isinstance(v, list) else v for k, v in bound.arguments.items()}
        )

    return configured  # type: ignore[return-value]


@overlap(region_rank=1)
def eiou(a: Boxes, b: Boxes) -> Values:
    r"""Efficient IoU: the distance IoU, less penalties for unequal widths and heights.

    .. math::
      \mathrm{EIoU} = \mathrm{IoU} - \frac{\rho^2}{c_w^2 + c_h^2}
        - \frac{(w_a - w_b)^2}{c_w^2} - \frac{(h_a - h_b)^2}{c_h^2}

    with rho the distance of the centres and c_w, c_h the sides of the smallest box around
    both. Unlike the aspect ratio of `boxes.ciou`, the sides each have a slope of their own.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-2.25, 1]. 1 means the boxes coincide.

    At the edges:
      A point at the corner of a box gives -2.25: sides differ by all of c_w and c_h, and
      the centres by half. Two equal points give 0, two distinct points -1, disjoint boxes
      of one size what `boxes.diou` gives.

    Gradient:
      Finite; 0 where the boxes coincide. Nothing is under `stop_gradient`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 2.0]), jnp.array([1.0, 1.0, 3.0, 5.0])
      >>> print(f"{boxes.diou(a, b) - eiou(a, b):.2f}")
      0.41

    Reference:
      Zhang et al., "Focal and Efficient IOU Loss for Accurate Bounding Box Regression",
      Neurocomputing 2022, https://arxiv.org/abs/2101.08158; its focal form is
      `losses.eiou_loss`. Code copied from Wise-IoU's authors puts offsets of the centres
      where the differences of sides belong, and gives 0.16 in the example. What mmdet calls
      EIoU is `extended_iou`.
    """
    first, second = _corners.corners(a=a, b=b)
    (width_a, height_a), (width_b, height_b) = _corners.sides(first), _corners.sides(second)
    width, height = _corners.sides(_corners.enclosing(first, second))
    distance = _corners.iou(first, second) - _corners.center_penalty(first, second)
    # Divided before they are squared: squares of small sides leave a derivative no room.
    by_width = safe_divide(width_a - width_b, width)
    by_height = safe_divide(height_a - height_b, height)
    return distance - by_width**2 - by_height**2


@_configured
def siou(*, theta: float | int = 4.0) -> Overlap:
    r"""SCYLLA IoU: the IoU, less penalties for the offset, its angle, and the shapes.

    .. math::
      \mathrm{SIoU} = \mathrm{IoU} - \frac{\Delta + \Omega}{2}, \quad
      \Delta = \sum_{t = x, y} 1 - e^{-(2 - \Lambda) \rho_t}, \quad
      \Omega = \sum_{t = w, h} (1 - e^{-\omega_t})^\theta

    with :math:`\rho_x = (d_x / c_w)^2`, :math:`\rho_y = (d_y / c_h)^2` for the offset
    (d_x, d_y) of the centres and the sides c_w, c_h of the smallest box around both,
    :math:`\omega_w = |w_a - w_b| / \max(w_a, w_b)`, :math:`\omega_h` likewise, and
    :math:`\Lambda = 2 |d_x d_y| / (d_x^2 + d_y^2)`. The last is the paper's
    :math:`1 - 2 \sin^2(\arcsin(|d_y| / \rho) - \pi / 4)`, without an arcsine, whose slope
    is infinite for offsets along an axis.

    Args:
      theta: weight of the shapes' likeness; the paper uses 2 to 6.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 4]`, `[...]`, in [-1.0244, 1] for theta 4: the
      lower end is :math:`-(1 - e^{-2}) - (1 - e^{-1})^\theta`. 1 means the boxes coincide.

    At the edges:
      Equal centres: Lambda is 0, and it has no part in value or gradient. Two equal points
      give 0, two points apart along an axis :math:`-(1 - e^{-2})/2`, -0.432.

    Gradient:
      Finite; 0 where the boxes coincide. Lambda has kinks where the centres share an x or y
      (mean slope 0); for theta 1 equal sides are kinks too. Nothing is under
      `stop_gradient`. For theta below 1 the slope is infinite at equal sides, and 0 is
      returned; second derivatives overflow beside it.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 9.0, 9.0]), jnp.array([1.0, 1.0, 10.0, 10.0])
      >>> print(f"{2 * (boxes.iou(a, b) - siou()(a, b)):.4f}")
      0.0199

    Reference:
      Gevorgyan, "SIoU Loss: More Powerful Learning for Bounding Box Regression", 2022,
      https://arxiv.org/abs/2205.12740. mmdet's default has the sign of the exponent in Delta
      flipped, which rewards distance: -0.0201 in the example, falling as boxes part. YOLOv6
      and mmdet add eps to the offsets and clamp the arcsine.
    """
    power = _power(_checks.positive("theta", float(theta)))

    @overlap(region_rank=1)
    def value(a: Boxes, b: Boxes) -> Values:
        first, second = _corners.corners(a=a, b=b)
        dx, dy = _corners.center_offset(first, second)
        width, height = _corners.sides(_corners.enclosing(first, second))
        x, y = safe_divide(dx, width) ** 2, safe_divide(dy, height) ** 2
        # Lambda jumps at equal centres, where x and y silence it. Left out while they are
        # below rounding, it does not bring its slopes, 1 / offset, into a product with 0.
        apart = x + y > jnp.finfo(x.dtype).eps ** 2
        gamma = 2 - _angle(jnp.where(apart, dx, 0), jnp.where(apart, dy, 0))
        distance = -jnp.expm1(-gamma * x) - jnp.expm1(-gamma * y)
        shape = sum(
            power(-jnp.expm1(-safe_divide(absolute(s - t), maximum(s, t))))
            for s, t in zip(_corners.sides(first), _corners.sides(second), strict=True)
        )
        return _corners.iou(first, second) - (distance + shape) / 2

    return value


@_configured
def alpha_iou(
    *,
    alpha: float | int = 3.0,
    penalty: Literal["none", "giou", "diou", "ciou"] = "ciou",
) -> Overlap:
    r"""Alpha-IoU: the IoU and each penalty raised to a power.

    .. math::
      \alpha\text{-CIoU} = \mathrm{IoU}^\alpha - (\rho^2 / c^2)^\alpha - (\beta v)^\alpha

    with the terms of `boxes.ciou`, whose own alpha is called beta here. A power above 1
    steepens the loss for boxes that already agree.

    Args:
      alpha: the power, 3 in the paper. 1 gives `boxes.iou`, `giou`, `diou` or `ciou`.
      penalty: what is taken off. "none" leaves :math:`\mathrm{IoU}^\alpha`, which has no
        slope for disjoint boxes; "giou" takes the share of the enclosing box that neither
        covers; "diou" leaves the aspect ratio out.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 4]`, `[...]`: in [0, 1] for "none", [-1, 1] for
      "giou" and "diou", :math:`[-1 - 2^{-\alpha}, 1]` for "ciou". 1 means the boxes coincide.

    At the edges:
      Two equal points give 0, as every ratio is 0/0; two distinct points give -1 with
      "diou" and "ciou". Touching and disjoint boxes keep the penalties alone.

    Gradient:
      Finite; 0 where the boxes coincide. beta is under `stop_gradient`, as in `boxes.ciou`.
      For alpha below 1 a term has an infinite slope where it is 0, and 0 is returned; second
      derivatives overflow beside it.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 4.0]), jnp.array([0.0, 0.0, 4.0, 2.0])
      >>> print(alpha_iou(penalty="none")(a, b), f"{alpha_iou()(a, b):.4f}")
      0.125 0.1250

    Reference:
      He et al., "Alpha-IoU: A Family of Power Intersection over Union Losses for Bounding
      Box Regression", NeurIPS 2021, https://arxiv.org/abs/2110.13675. The authors' code adds
      eps inside the powers, defaults to 2, and raises the squares of dx, dy, c_w and c_h to
      the power before it adds them, which is another number.
    """
    power = _power(_checks.positive("alpha", float(alpha)))
    penalties: dict[str, tuple[Callable[[Corners, Corners], Array], ...]] = {
        "none": (),
        "giou": (_corners.area_penalty,),
        "diou": (_corners.center_penalty,),
        "ciou": (_corners.center_penalty, _corners.aspect_penalty),
    }
    _checks.one_of("penalty", penalty, penalties)

    @overlap(region_rank=1)
    def value(a: Boxes, b: Boxes) -> Values:
        first, second = _corners.corners(a=a, b=b)
        result = power(_corners.iou(first, second))
        for term in penalties[penalty]:
            result = result - power(term(first, second))
        return result

    return value


@overlap(region_rank=1)
def wiou(a: Boxes, b: Boxes) -> Values:
    r"""Wise-IoU v1: one minus the IoU loss, weighted by how far apart the centres are.

    .. math:: \mathrm{WIoU} = 1 - e^{\rho^2 / c^2} (1 - \mathrm{IoU})

    with rho the distance of the centres and c the diagonal of the smallest box around both.
    The weight is between 1 and e. Versions 2 and 3 of the loss depend on the running mean of
    training: `losses.wiou_v2_loss`, `losses.wiou_v3_loss`.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [1 - e, 1], 1 - e = -1.7183. 1 means the boxes coincide.

    At the edges:
      Two equal points give 0, two distinct points 1 - e. Boxes that only touch or are
      disjoint keep the weight alone.

    Gradient:
      c is under `stop_gradient`, as the paper has it, so this is not the slope of the value:
      nothing gains by growing the enclosing box. 0 where the boxes coincide.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([3.0, 1.0, 4.0, 3.0])
      >>> print(f"{wiou(a, b):.4f}")
      -0.5683

    Reference:
      Tong et al., "Wise-IoU: Bounding Box Regression Loss with Dynamic Focusing Mechanism",
      2023, https://arxiv.org/abs/2301.10051.
    """
    first, second = _corners.corners(a=a, b=b)
    dx, dy = _corners.center_offset(first, second)
    width, height = _corners.sides(_corners.enclosing(first, second))
    diagonal = jax.lax.stop_gradient(width**2 + height**2)
    weight = jnp.exp(safe_divide(dx**2 + dy**2, diagonal))
    return 1 - weight * (1 - _corners.iou(first, second))


@_configured
def mpdiou(*, image_size: tuple[float | int, float | int]) -> Overlap:
    r"""MPDIoU: the IoU, less the squared distances of two corners over the image's diagonal.

    .. math:: \mathrm{MPDIoU} = \mathrm{IoU} - (d_1^2 + d_2^2) / (H^2 + W^2)

    with d_1 the distance of the upper left corners and d_2 that of the lower right ones.

    Args:
      image_size: `(height, width)` of the picture, in the boxes' unit.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 4]`, `[...]`, in [-2, 1] for boxes within the
      picture, and without a lower bound beyond it. 1 means the boxes coincide.

    At the edges:
      Two equal points give 0: no area, no distance. Empty boxes keep the distances alone.
      The value for one pair differs from picture to picture.

    Gradient:
      Finite; 0 where the boxes coincide. Each corner is drawn to its counterpart however far
      apart the boxes are. Nothing is under `stop_gradient`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 30.0, 40.0]), jnp.array([30.0, 40.0, 60.0, 80.0])
      >>> print(mpdiou(image_size=(60, 80))(a, b))
      -0.5

    Reference:
      Ma and Xu, "MPDIoU: A Loss for Efficient and Accurate Bounding Box Regression", 2023,
      https://arxiv.org/abs/2307.07662. Ports put the size of a feature map, H * W or 640^2
      where the picture's belongs; there is no default to fall for.
    """
    _checks.trailing_shape("image_size", np.asarray(image_size), (2,), "height, width")
    height, width = (_checks.positive("image_size", float(side)) for side in image_size)

    @overlap(region_rank=1)
    def value(a: Boxes, b: Boxes) -> Values:
        first, second = _corners.corners(a=a, b=b)
        squares = sum((x - y) ** 2 for x, y in zip(first, second, strict=True))
        return _corners.iou(first, second) - squares / (height**2 + width**2)

    return value


@_configured
def inner_iou(*, ratio: float | int, base: Overlap = boxes.iou) -> Overlap:
    r"""Inner-IoU: an overlap whose IoU is that of both boxes scaled about their centres.

    .. math:: \text{Inner-}X = X - \mathrm{IoU} + \mathrm{IoU}_{\text{inner}}

    Smaller inner boxes part sooner and have steeper slopes where boxes almost agree; larger
    ones still overlap where the boxes themselves do not.

    Args:
      ratio: inner side over side. The paper tries 0.5 to 1.5; 1 gives `base` back.
      base: X, an overlap of boxes that broadcasts, such as `boxes.ciou` or `siou()`.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 4]`, `[...]`, in [0, 1] for `boxes.iou`, and from
      the lower end of `base` to 1 for one that is the IoU less penalties. 1 means the boxes
      coincide.

    At the edges:
      An empty box stays empty, so its inner IoU is 0; two equal points give what `base`
      gives. Boxes that touch are disjoint inside for ratios below 1.

    Gradient:
      Finite; that of `base`, with the slopes of the inner IoU in place of the IoU's: for a
      ratio above 1 not yet 0 where the boxes touch. 0 where the boxes coincide.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([2.0, 0.0, 4.0, 2.0])
      >>> print(inner_iou(ratio=0.5)(a, b), inner_iou(ratio=1.5)(a, b))
      0.0 0.2

    Reference:
      Zhang et al., "Inner-IoU: More Effective Intersection over Union Loss with Auxiliary
      Bounding Box", 2023, https://arxiv.org/abs/2311.02877.
    """
    half = _checks.positive("ratio", float(ratio)) / 2

    @overlap(region_rank=1)
    def value(a: Boxes, b: Boxes) -> Values:
        first, second = _corners.corners(a=a, b=b)
        # About the centre of `b`, so that a box far from the origin loses no bits: equal
        # boxes have equal inner boxes, however small.
        dx, dy = _corners.center_offset(first, second)
        width, height = (half * side for side in _corners.sides(first))
        inner_a = Corners(dx - width, dy - height, dx + width, dy + height)
        width, height = (half * side for side in _corners.sides(second))
        inner_b = Corners(-width, -height, width, height)
        inner = _corners.iou(inner_a, inner_b)
        if base is boxes.iou:
            return inner
        return base(a, b) - (_corners.iou(first, second) - inner)

    return value


@_configured
def nwd(*, constant: float | int) -> Overlap:
    r"""Normalised Wasserstein distance of the two boxes seen as Gaussians, as a likeness.

    .. math::
      \mathrm{NWD} = e^{-W / K}, \quad
      W^2 = d_x^2 + d_y^2 + \frac{(w_a - w_b)^2 + (h_a - h_b)^2}{4}

    with (d_x, d_y) the offset of the centres. It has a slope for boxes that do not meet and
    changes slowly for tiny ones, where one pixel decides the IoU.

    Args:
      constant: K, the mean object size of the data set in the boxes' unit: 12.7 for AI-TOD.

    Returns:
      An overlap `f(a, b)` of boxes `[..., 4]`, `[...]`, in [0, 1]: 0 by underflow alone,
      where W exceeds K about a hundred times. 1 means the boxes coincide.

    At the edges:
      It measures distance, not area: two equal points give 1, so padding belongs under
      `where`; two points 12.7 apart give 1/e for K = 12.7.

    Gradient:
      At most 1/K in each direction. W has the tip of a cone where the boxes coincide, and 0
      is returned there, the mean of its slopes. Nothing is under `stop_gradient`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 8.0, 8.0]), jnp.array([3.0, 4.0, 11.0, 12.0])
      >>> print(f"{nwd(constant=12.7)(a, b):.4f}")
      0.6746

    Reference:
      Wang et al., "A Normalized Gaussian Wasserstein Distance for Tiny Object Detection",
      2021, https://arxiv.org/abs/2110.13389. The authors' code adds 1e-7 inside the root,
      so that equal boxes give 0.99998, and uses 12.8; YOLO-FaceV2 leaves K = 1.
    """
    scale = _checks.positive("constant", float(constant))

    @overlap(region_rank=1)
    def value(a: Boxes, b: Boxes) -> Values:
        first, second = _corners.corners(a=a, b=b)
        dx, dy = _corners.center_offset(first, second)
        (width_a, height_a), (width_b, height_b) = _corners.sides(first), _corners.sides(second)
        halves = (width_a - width_b) / 2, (height_a - height_b) / 2
        return jnp.exp(-_length(dx, dy, *halves) / scale)

    return value


@overlap(region_rank=1)
def powerful_iou(predictions: Boxes, targets: Boxes) -> Values:
    r"""Powerful-IoU: the IoU, less a penalty for edges that lie apart, in target sides.

    .. math::
      \mathrm{PIoU} = \mathrm{IoU} - (1 - e^{-P^2}), \quad
      P = \frac{1}{4} \Bigl( \frac{d_{w1} + d_{w2}}{w_t} + \frac{d_{h1} + d_{h2}}{h_t} \Bigr)

    with d the distances of the left, right, upper and lower edges, and w_t, h_t the sides of
    the target. A prediction does not lower the penalty by growing.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, whose sides divide; leading axes broadcast against the predictions'.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the boxes coincide.

    At the edges:
      A side of the target that is 0 leaves its axis out of P, so an empty target gives 0 if
      it is a point, whatever the prediction. An empty prediction keeps P: a
      point at the target's centre gives :math:`e^{-1/4} - 1`.

    Gradient:
      Finite; 0 where the boxes coincide, and 0 by underflow where P exceeds 10 or so (27 in
      float64). Kinks where one edge coincides. Nothing is under `stop_gradient`.

    Example:
      >>> a, b = jnp.array([1.0, 0.0, 5.0, 4.0]), jnp.array([0.0, 0.0, 4.0, 4.0])
      >>> print(f"{powerful_iou(a, b):.4f}")
      0.5845

    Reference:
      Liu et al., "Powerful-IoU: More straightforward and faster bounding box regression loss
      with a nonmonotonic focusing mechanism", Neural Networks 2024,
      https://doi.org/10.1016/j.neunet.2023.11.041.
    """
    prediction, target = _corners.corners(predictions=predictions, targets=targets)
    penalty = 1 - jnp.exp(-(_edge_distance(prediction, target) ** 2))
    return _corners.iou(prediction, target) - penalty


@_configured
def powerful_iou_v2(*, attention: float | int = 1.3) -> Overlap:
    r"""Powerful-IoU v2: one minus its loss, which heeds boxes of middling quality most.

    .. math::
      1 - 3 x e^{-x^2} (1 - \mathrm{PIoU}), \quad x = \lambda e^{-P}

    with `powerful_iou` and its P. **Not a likeness**: the loss falls to 0 again for boxes far
    apart, so use it to train, never to match or to suppress.

    Args:
      attention: lambda, 1.3 in the paper.

    Returns:
      An overlap `f(predictions, targets)` of boxes `[..., 4]`, `[...]`, in [-0.868, 1] for
      1.3, in [-1.58, 1] for any other. 1 means that the boxes coincide, or are far apart.

    At the edges:
      As `powerful_iou`; a point as target gives :math:`1 - 3 \lambda e^{-\lambda^2}`, 0.280
      for 1.3.

    Gradient:
      Finite; 0 where the boxes coincide. The weight has a gradient too, as in the authors'
      code: beyond the distance of the largest loss, it pushes boxes apart.

    Example:
      >>> a, b = jnp.array([1.0, 0.0, 5.0, 4.0]), jnp.array([0.0, 0.0, 4.0, 4.0])
      >>> print(f"{powerful_iou_v2()(a, b):.4f}")
      0.6165

    Reference:
      Liu et al., Neural Networks 2024, https://doi.org/10.1016/j.neunet.2023.11.041.
    """
    attention = _checks.positive("attention", float(attention))

    @overlap(region_rank=1)
    def value(predictions: Boxes, targets: Boxes) -> Values:
        prediction, target = _corners.corners(predictions=predictions, targets=targets)
        distance = _edge_distance(prediction, target)
        loss = (1 - _corners.iou(prediction, target)) + (1 - jnp.exp(-(distance**2)))
        quality = attention * jnp.exp(-distance)
        return 1 - 3 * quality * jnp.exp(-(quality**2)) * loss

    return value


@overlap(region_rank=1)
def extended_iou(a: Boxes, b: Boxes) -> Values:
    r"""Extended IoU: the IoU, continued to negative values where boxes do not meet.

    .. math:: I / (|A| + |B| - I)

    where the intersection I has a sign. Its sides are right edge less left edge, lower less
    upper, so a gap is a negative side. Without a gap, I is their product. A gap in x counts
    as g times 2 m, with m the distance of the middle of the intersection's vertical extent
    from the upper edge of the box around both; a gap in y likewise, from its left edge; the
    two add up.

    Args:
      a: boxes, `[..., 4]`.
      b: boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the boxes coincide; boxes that meet
      have exactly `boxes.iou`; -1 is reached by empty boxes, and approached with distance.

    At the edges:
      Touching boxes give 0. Two equal points give 0 (0/0), as do two points on one
      axis-parallel line; two points in general position -1. The value of disjoint boxes
      changes when x or y is mirrored, as m is measured from one side; that is the published
      definition.

    Gradient:
      Finite; 0 where the boxes coincide. Touching boxes have the mean of the slopes on both
      sides. Nothing is under `stop_gradient`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([2.0, 0.0, 3.0, 1.0])
      >>> print(f"{extended_iou(a, b):.4f}")
      -0.3333

    Reference:
      Peng and Yu, "A Systematic IoU-Related Method: Beyond Simplified Regression for Better
      Localization", IEEE Transactions on Image Processing 2021,
      https://arxiv.org/abs/2112.01793; its smooth loss is `losses.extended_iou_loss`. mmdet
      and libfacedetection call it EIoU.
    """
    first, second = _corners.corners(a=a, b=b)
    shared, around = _corners.shared(first, second), _corners.enclosing(first, second)
    width, height = shared.x2 - shared.x1, shared.y2 - shared.y1
    x = (shared.x1 - around.x1) + (shared.x2 - around.x1)
    y = (shared.y1 - around.y1) + (shared.y2 - around.y1)
    # The published sum of four products of corner offsets equals this in all four cases.
    gaps = jnp.minimum(width, 0) * y + jnp.minimum(height, 0) * x
    signed = product(jnp.maximum(width, 0), jnp.maximum(height, 0)) + gaps
    ratio = safe_divide(signed, _corners.area(first) + _corners.area(second) - signed)
    return jnp.where(ratio > 1, 1, ratio)


def _power(exponent: float) -> Callable[[Array], Array]:
    """Raises numbers of at least 0 to a power above 0; whole powers are products."""
    if exponent.is_integer():
        return lambda x: x ** int(exponent)
    return lambda x: safe_power(x, exponent)


def _length(*offsets: Array) -> Array:
    """The Euclidean norm, with derivative 0 at 0.

    Taken relative to the largest offset, so that no square underflows. The largest may be
    held constant in the derivative: the norm does not depend on it.
    """
    largest, inverse = _largest(*offsets)
    return largest * safe_sqrt(sum((x * inverse) ** 2 for x in offsets))  # type: ignore[arg-type]


def _angle(dx: Array, dy: Array) -> Array:
    """SIoU's Lambda: |sin 2 phi| for an offset at an angle phi to the x axis, 0 without one."""
    _, inverse = _largest(dx, dy)
    x, y = absolute(dx) * inverse, absolute(dy) * inverse
    return safe_divide(2 * x * y, x**2 + y**2)


def _largest(*offsets: Array) -> tuple[Array, Array]:
    """The largest absolute value and its reciprocal (0 for 0), both without derivative."""
    largest = functools.reduce(jnp.maximum, map(jnp.abs, jax.lax.stop_gradient(offsets)))
    return largest, safe_divide(jnp.ones_like(largest), largest)


def _edge_distance(prediction: Corners, target: Corners) -> Array:
    """Powerful-IoU's P: mean distance of the edges, in sides of the target."""
    x1, y1, x2, y2 = (absolute(x - y) for x, y in zip(prediction, target, strict=True))
    width, height = _corners.sides(target)

    def in_sides(distance: Array, side: Array) -> Array:
        # 1e15 / 1e-15 has a derivative beyond float32, which exp(-P) = 0 would make NaN.
        furthest = FAR * side
        return safe_divide(jnp.where(distance > furthest, furthest, distance), side)

    return (in_sides(x1 + x2, width) + in_sides(y1 + y2, height)) / 4
