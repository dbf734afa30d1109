r"""Oriented boxes `(cx, cy, w, h, angle)`, `[..., 5]`, compared as Gaussians, not as areas.

A box stands for the Gaussian with its centre as the mean and the covariance
:math:`R \, \mathrm{diag}((w/k)^2, (h/k)^2) R^T`, with R the turn by `angle`. What is made of two
Gaussians is smooth everywhere and has a slope where boxes do not meet, which is why detectors of
oriented objects train with it. `mgiou`, of projections, is used in the same way and lives here too.

What holds for every function here:

- **Format.** The angle in radians, turning +x towards +y; any unit of length. Boxes
  `(w, h, angle)`, `(w, h, angle + pi)` and `(h, w, angle + pi / 2)` are the same one.
- **Types and shapes** as in `boxes`: cast to float32 or wider before any arithmetic, leading
  axes broadcast. A box of NaN makes its own results NaN, and no others.
- **Likenesses and distances.** `prob_iou`, `kf_iou`, `mgiou` grow as boxes agree: `pairwise`,
  `nms`, `losses.overlap_loss` take them. Distances fall to exactly 0; `likeness` makes an
  overlap of one. Both are symmetric to the last bit, but for `kld`.
- **Precision.** No determinant is formed as a difference and no epsilon is added: sums of squares
  all through, so thin boxes and nearly equal ones keep their digits.
- **Squares have no angle.** A Gaussian with equal sides is round: a square equals itself turned
  by any angle, with a likeness of 1 and gradient 0 in the angle. `rotated.iou` sees the turn.
- **Empty boxes.** A negative side counts as 0. A Gaussian needs two sides above 0: each function
  says what it gives without, and has gradient 0 there. So it has where a side or an offset
  exceeds another side 4e9 times (1e77 times in float64).
- **Gradients** are finite. A distance has a minimum at equal boxes, its square root the tip of a
  cone; both have gradient 0 there. Nothing is under `stop_gradient`.

References: the functions say theirs. Published code forms :math:`ab - c^2` for determinants and
adds 1e-7 or 1e-3 to what may vanish, which makes distances of equal boxes differ from 0 and NaN
of thin ones in half precision.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks
from jaxiou._compiled import overlap
from jaxiou._math import (
    absolute,
    maximum,
    minimum,
    positive_part,
    product,
    safe_divide,
    safe_sqrt,
)
from jaxiou._typing import ArrayLike

__all__ = [
    "prob_iou",
    "kf_iou",
    "mgiou",
    "bhattacharyya",
    "gwd",
    "normalized_gwd",
    "kld",
    "jd",
    "kld_max",
    "kld_min",
    "likeness",
]

Boxes: TypeAlias = Real[ArrayLike, "*#batch 5"]
Values: TypeAlias = Float[Array, "*batch"]
Distance = Callable[[Boxes, Boxes], Values]
Form: TypeAlias = Literal["linear", "sqrt", "log1p", "log1p_sqrt"]


@overlap(region_rank=1)
def prob_iou(a: Boxes, b: Boxes) -> Values:
    r"""ProbIoU: one minus the Hellinger distance of the two boxes' Gaussians.

    .. math:: \mathrm{ProbIoU} = 1 - \sqrt{1 - e^{-B}}

    with B the `bhattacharyya` distance, k = sqrt 12: the Gaussian has the variances of points
    spread evenly over the box.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1]. 1 means the Gaussians coincide: exactly, for a
      box with itself.

    At the edges:
      It is no area: two 10 x 10 squares that touch have 0.1186, and a square has 1 with itself
      at 45 degrees. An empty box has 0 with every box. Far boxes have 0 by underflow alone.

    Gradient:
      Steepest beside equal boxes, where it has the tip of a cone and gradient 0.
      `losses.overlap_loss(prob_iou)` is the paper's loss L1; it is flat for boxes far apart, and
      L2, the distance itself, is not: `likeness(distance=bhattacharyya, form="linear", tau=None)`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 10.0, 10.0, 0.0]), jnp.array([10.0, 0.0, 10.0, 10.0, 0.0])
      >>> print(f"{prob_iou(a, b):.4f}")
      0.1186

    Reference:
      Llerena et al., "Gaussian Bounding Boxes and Probabilistic Intersection-over-Union for
      Object Detection", 2021, https://arxiv.org/abs/2106.06072. ultralytics' `probiou` adds 1e-3
      inside the root, so that equal boxes have 0.968.
    """
    pair = _pair(a=a, b=b)
    likeness = 1 - safe_sqrt(-jnp.expm1(-_bhattacharyya(pair)))
    return jnp.where(pair.empty, 0, likeness)


@overlap(region_rank=1)
def kf_iou(a: Boxes, b: Boxes) -> Values:
    r"""KFIoU: the overlap of the two Gaussians as a Kalman filter merges them, centres moved.

    .. math::
      \mathrm{KFIoU} = \frac{V_3}{V_1 + V_2 - V_3}, \quad
      V_i = \sqrt{\det \Sigma_i}, \quad \Sigma_3 = (\Sigma_1^{-1} + \Sigma_2^{-1})^{-1}

    It compares sizes and angles, and takes the centres as equal: train those beside it.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1/3]. **1/3, not 1**, means that the sides agree.

    At the edges:
      0 where one box is empty. Boxes far apart have what they have at one place.

    Gradient:
      Finite; 0 at equal sides and angles, and 0 in the centres. The paper's losses follow from
      that of `losses.overlap_loss(kf_iou)`, x: `jnp.expm1(x)`, and `-jnp.log1p(-x)`, which is
      infinite for empty boxes. x is at least 2/3.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 2.0, 0.0]), jnp.array([9.0, 9.0, 4.0, 2.0, 0.5])
      >>> print(f"{kf_iou(a, a):.4f} {kf_iou(a, b):.4f}")
      0.3333 0.3076

    Reference:
      Yang et al., "The KFIoU Loss for Rotated Object Detection", ICLR 2023,
      https://arxiv.org/abs/2201.12558.
    """
    pair = _pair(a=a, b=b)
    (r1, q1), (r2, q2) = pair.first, pair.second
    # det(S1 + S2) is (V1 + V2)^2 and what shape and angle add, so equal boxes give exactly 1/3.
    total = product(r1, q1) + product(r2, q2)
    shape = safe_divide(_unlike(pair)[1], total)
    stretch_1, stretch_2 = _stretches(pair)
    turned = pair.sin**2 * product(safe_divide(stretch_1, total), safe_divide(stretch_2, total))
    shares = product(safe_divide(product(r1, q1), total), safe_divide(product(r2, q2), total))
    merged = shares / jnp.sqrt(1 + (shape**2 + turned))
    return merged / (1 - merged)


@overlap(region_rank=1)
def mgiou(a: Boxes, b: Boxes) -> Values:
    r"""Marginalised GIoU: the mean GIoU of the boxes' shadows on the normals of their edges.

    .. math::
      \mathrm{MGIoU} = \frac{1}{4} \sum_{n} \frac{\min(\max_a, \max_b) - \max(\min_a, \min_b)}
        {\max(\max_a, \max_b) - \min(\min_a, \min_b)}

    over the two normals n of each box, of the intervals to which the boxes project. It needs no
    area and no Gaussian, sees the angle of a square, and has a slope where boxes do not meet.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [-1, 1]. 1 means the boxes coincide.

    At the edges:
      Two equal points give 0, as every ratio is 0/0; distinct points -1. An empty box counts as
      the point or segment that it is.

    Gradient:
      Finite; 0 where the boxes coincide. Kinks where ends of two shadows coincide, and where
      edges of the boxes are parallel: the mean of the slopes. The paper's loss is half of
      `losses.overlap_loss(mgiou)`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([3.0, 0.0, 2.0, 2.0, 0.0])
      >>> print(f"{mgiou(a, b):.1f}")
      0.4

    Reference:
      Le et al., "Marginalized Generalized IoU (MGIoU): A Unified Objective Function for
      Optimizing Any Convex Parametric Shapes", 2025, https://arxiv.org/abs/2504.16443.
    """
    first, second = _boxes(a=a, b=b)
    dx, dy = first.x - second.x, first.y - second.y
    turn = first.angle - second.angle
    cos, sin = absolute(jnp.cos(turn)), absolute(jnp.sin(turn))

    def shadows(box: _Box, other: _Box) -> Array:
        along, across = _turned(dx, dy, box)
        u = _interval_giou(along, box.width, other.width * cos + other.height * sin)
        return u + _interval_giou(across, box.height, other.width * sin + other.height * cos)

    return (shadows(first, second) + shadows(second, first)) / 4


@overlap(region_rank=1)
def bhattacharyya(a: Boxes, b: Boxes) -> Values:
    r"""Bhattacharyya distance of the two boxes' Gaussians, with ProbIoU's variances.

    .. math::
      B = \frac{1}{4} d^T (\Sigma_1 + \Sigma_2)^{-1} d +
        \frac{1}{2} \ln \frac{\det(\Sigma_1 + \Sigma_2)}{4 \sqrt{\det \Sigma_1 \det \Sigma_2}}

    with d the offset of the centres and k = sqrt 12.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, at least 0. 0 means the Gaussians coincide: exactly, for a box
      with itself. It does not depend on the unit of length.

    At the edges:
      Infinite where one box is empty, but 0 for two equal ones.

    Gradient:
      Quadratic in small differences, linear in none: 0 where the boxes coincide.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 6.0, 4.0, 0.0]), jnp.array([2.0, 0.0, 6.0, 4.0, 0.0])
      >>> print(f"{bhattacharyya(a, b):.4f}")
      0.1667

    Reference:
      Bhattacharyya, "On a measure of divergence between two statistical populations", Bulletin of
      the Calcutta Mathematical Society 1943. As a loss: Llerena et al., 2021,
      https://arxiv.org/abs/2106.06072. mmrotate's `bcd_loss` has k = 2.
    """
    return _bhattacharyya(_pair(a=a, b=b))


@overlap(region_rank=1)
def gwd(a: Boxes, b: Boxes) -> Values:
    r"""Squared Wasserstein distance of the two boxes' Gaussians, k = 2.

    .. math::
      W^2 = |d|^2 + \mathrm{tr}\bigl(\Sigma_1 + \Sigma_2 -
        2 (\Sigma_1^{1/2} \Sigma_2 \Sigma_1^{1/2})^{1/2}\bigr)

    with d the offset of the centres.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, at least 0, in squared units of length. 0 means the Gaussians
      coincide: exactly, for a box with itself.

    At the edges:
      Finite for empty boxes: of two points it is their squared distance, of a point and a box
      with the same centre :math:`(w^2 + h^2) / 4`.

    Gradient:
      0 where the boxes coincide; twice the offset in the centres. In the slope of sides and
      angle, an empty box leaves out what turning costs.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 6.0, 4.0, 0.0]), jnp.array([3.0, 4.0, 8.0, 4.0, 0.0])
      >>> print(gwd(a, b))
      26.0

    Reference:
      Yang et al., "Rethinking Rotated Object Detection with Gaussian Wasserstein Distance Loss",
      ICML 2021, https://arxiv.org/abs/2101.11952.
    """
    return _squared_wasserstein(_pair(a=a, b=b))


@overlap(region_rank=1)
def normalized_gwd(a: Boxes, b: Boxes) -> Values:
    r"""`gwd` over the geometric mean of the boxes' areas: a number without unit.

    .. math:: W^2 / \sqrt{w_a h_a w_b h_b}

    Its root is the distance that mmrotate's `gwd_loss` starts from,
    :math:`W / (2 (\det \Sigma_1 \det \Sigma_2)^{1/8})`: `likeness(distance=normalized_gwd,
    form="log1p_sqrt")` is one minus that loss.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, at least 0. 0 means the Gaussians coincide: exactly, for a box
      with itself.

    At the edges:
      Infinite where one box is empty, but 0 for two equal ones.

    Gradient:
      0 where the boxes coincide. Growing both boxes lowers it where they lie apart.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 4.0, 0.0]), jnp.array([3.0, 4.0, 4.0, 4.0, 0.0])
      >>> print(normalized_gwd(a, b))
      1.5625

    Reference:
      Yang et al., ICML 2021, https://arxiv.org/abs/2101.11952, in mmrotate's normalised form.
    """
    pair = _sized(_pair(a=a, b=b))
    (r1, q1), (r2, q2) = pair.first, pair.second
    mean = jnp.sqrt(product(r1, q1)) * jnp.sqrt(product(r2, q2))
    return _or_infinite(pair, safe_divide(_squared_wasserstein(pair), mean))


@overlap(region_rank=1)
def kld(predictions: Boxes, targets: Boxes) -> Values:
    r"""Kullback-Leibler divergence of the target's Gaussian from the prediction's, k = 2.

    .. math::
      \mathrm{KL}(t \| p) = \frac{1}{2} \Bigl( d^T \Sigma_p^{-1} d +
        \mathrm{tr}(\Sigma_p^{-1} \Sigma_t) + \ln \frac{\det \Sigma_p}{\det \Sigma_t} - 2 \Bigr)

    with d the offset of the centres. Not symmetric: offsets count in sides of the prediction.

    Args:
      predictions: oriented boxes, `[..., 5]`, whose covariance is inverted.
      targets: oriented boxes; leading axes broadcast against those of `predictions`.

    Returns:
      One number per pair, `[...]`, at least 0. 0 means the Gaussians coincide: exactly, for a box
      with itself. It does not depend on the unit of length.

    At the edges:
      Infinite where one box is empty, but 0 for two equal ones.

    Gradient:
      0 where the boxes coincide. The angle's slope grows with the aspect ratio.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([1.0, 0.0, 2.0, 2.0, 0.0])
      >>> print(kld(a, b))
      0.5

    Reference:
      Yang et al., "Learning High-Precision Bounding Box for Rotated Object Detection via
      Kullback-Leibler Divergence", NeurIPS 2021, https://arxiv.org/abs/2106.01883. mmrotate's
      `kld_loss` takes a root first: `likeness(distance=kld, form="log1p_sqrt")`.
    """
    pair = _sized(_pair(predictions=predictions, targets=targets))
    return _or_infinite(pair, _divergence(pair))


@overlap(region_rank=1)
def jd(a: Boxes, b: Boxes) -> Values:
    """Jeffreys divergence of the two boxes' Gaussians: the mean of `kld` both ways.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, at least 0. 0 means the Gaussians coincide.

    At the edges:
      As `kld`.

    Gradient:
      As that of `kld`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([2.0, 0.0, 4.0, 4.0, 0.0])
      >>> print(jd(a, b))
      2.375

    Reference:
      Yang et al., NeurIPS 2021, https://arxiv.org/abs/2106.01883; mmrotate's `jd_loss`.
    """
    pair = _sized(_pair(a=a, b=b))
    return _or_infinite(pair, (_divergence(pair) + _divergence(_swapped(pair))) / 2)


@overlap(region_rank=1)
def kld_max(a: Boxes, b: Boxes) -> Values:
    """The greater of `kld` both ways: no box may ignore the other.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, at least 0. 0 means the Gaussians coincide.

    At the edges:
      As `kld`.

    Gradient:
      That of the greater; where both are equal, the mean of the two.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([2.0, 0.0, 4.0, 4.0, 0.0])
      >>> print(kld_max(a, b) == kld(a, b))
      True

    Reference:
      Yang et al., NeurIPS 2021, https://arxiv.org/abs/2106.01883; mmrotate's `kld_symmax_loss`.
    """
    pair = _sized(_pair(a=a, b=b))
    return _or_infinite(pair, maximum(_divergence(pair), _divergence(_swapped(pair))))


@overlap(region_rank=1)
def kld_min(a: Boxes, b: Boxes) -> Values:
    """The lesser of `kld` both ways.

    Args:
      a: oriented boxes, `[..., 5]`.
      b: oriented boxes; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, at least 0. 0 means the Gaussians coincide.

    At the edges:
      As `kld`.

    Gradient:
      That of the lesser; where both are equal, the mean of the two.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0, 0.0]), jnp.array([2.0, 0.0, 4.0, 4.0, 0.0])
      >>> print(kld_min(a, b) == kld(b, a))
      True

    Reference:
      Yang et al., NeurIPS 2021, https://arxiv.org/abs/2106.01883; mmrotate's `kld_symmin_loss`.
    """
    pair = _sized(_pair(a=a, b=b))
    return _or_infinite(pair, minimum(_divergence(pair), _divergence(_swapped(pair))))


def likeness(
    *, distance: Distance = gwd, form: Form = "log1p", tau: float | int | None = 1.0
) -> Distance:
    r"""An overlap made of a distance, so that losses, `pairwise` and `nms` take it.

    .. math:: \frac{1}{\tau + f(D)}, \quad \text{or} \quad 1 - f(D) \text{ for } \tau = \text{None}

    `losses.overlap_loss` of it is the published loss: :math:`1 - 1 / (\tau + f(D))` of GWD and
    KLD, or :math:`f(D)` itself, such as ProbIoU's L2.

    Args:
      distance: `gwd`, `normalized_gwd`, `kld`, `jd`, `kld_max`, `kld_min`, `bhattacharyya`, or
        another function of two regions, at least 0.
      form: f: "linear" D, "sqrt" its root, "log1p" ln(1 + D), "log1p_sqrt" ln(1 + sqrt D), which
        is mmrotate's default.
      tau: above 0; the papers try 1 to 3. None takes f(D) off 1.

    Returns:
      An overlap `f(a, b)`, `[...]`, in [0, 1/tau], or in (-inf, 1] for None. 1/tau, or 1, means
      that the distance is 0. Equal settings give the same object.

    At the edges:
      0 where the distance is infinite: of empty boxes, but for two equal ones. For None it is
      -inf there: leave them out with `where`.

    Gradient:
      Finite. Forms with a root have the tip of a cone at distance 0, and gradient 0 there.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 2.0, 0.0]), jnp.array([1.0, 1.0, 4.0, 2.0, 0.0])
      >>> print(f"{likeness(distance=gwd, form='sqrt', tau=1.0)(a, b):.4f}")
      0.4142

    Reference:
      Yang et al., ICML 2021, https://arxiv.org/abs/2101.11952, and NeurIPS 2021,
      https://arxiv.org/abs/2106.01883.
    """
    return _likeness(distance, form, None if tau is None else _checks.positive("tau", float(tau)))


_FORMS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "sqrt": safe_sqrt,
    "log1p": jnp.log1p,
    "log1p_sqrt": lambda x: jnp.log1p(safe_sqrt(x)),
}


@functools.cache
def _likeness(distance: Distance, form: Form, tau: float | None) -> Distance:
    _checks.one_of("form", form, _FORMS)

    @overlap(region_rank=getattr(distance, "region_rank", 1))
    def value(a: Boxes, b: Boxes) -> Values:
        far = _FORMS[form](distance(a, b))
        return 1 - far if tau is None else 1 / (tau + far)

    return value


# Boxes taken apart.


class _Box(NamedTuple):
    x: Array
    y: Array
    width: Array
    height: Array
    angle: Array


class _Pair(NamedTuple):
    """Two boxes, each by its longer and its shorter side.

    With the longer side first, S2 and all other terms are sums of squares.

    Attributes:
      first: the sides of the first box, in units of length.
      second: those of the second.
      offset: of the centres, along x and y.
      along: the same along the longer side of each box.
      across: along the shorter side.
      cos: of the angle between the longer sides.
      sin: likewise.
      empty: whether one of the boxes has a side of 0.
      far: whether the offset or a side exceeds a side of the other beyond what can be squared.
      equal: whether nothing tells the Gaussians apart.
    """

    first: tuple[Array, ...]
    second: tuple[Array, ...]
    offset: tuple[Array, ...]
    along: tuple[Array, ...]
    across: tuple[Array, ...]
    cos: Array
    sin: Array
    empty: Array
    far: Array
    equal: Array


def _boxes(**regions: ArrayLike) -> tuple[_Box, ...]:
    cast = _checks.regions((5,), "one oriented box a row", **regions)

    def split(x: Array) -> _Box:
        columns = jax.lax.split(x, (1,) * 5, axis=x.ndim - 1)
        box = _Box(*(jax.lax.squeeze(column, (x.ndim - 1,)) for column in columns))
        return box._replace(width=positive_part(box.width), height=positive_part(box.height))

    return tuple(map(split, cast))


def _turned(dx: Array, dy: Array, box: _Box) -> tuple[Array, ...]:
    """An offset along the width and the height of a box."""
    cos, sin = jnp.cos(box.angle), jnp.sin(box.angle)
    return dx * cos + dy * sin, dy * cos - dx * sin


def _pair(**regions: ArrayLike) -> _Pair:
    one, two = boxes = _boxes(**regions)
    dx, dy = one.x - two.x, one.y - two.y
    tall = [box.height > box.width for box in boxes]

    def ordered(sides: tuple[Array, ...], tall: Array) -> tuple[Array, ...]:
        x, y = sides
        # Not a maximum: at equal sides, all that belongs to one side must go the same way.
        return jnp.where(tall, y, x), jnp.where(tall, x, y)

    first, second = (
        ordered((box.width, box.height), t) for box, t in zip(boxes, tall, strict=True)
    )
    offsets = [ordered(_turned(dx, dy, box), t) for box, t in zip(boxes, tall, strict=True)]
    quarter = jnp.where(tall[0], 1, 0) - jnp.where(tall[1], 1, 0)
    turn = (one.angle - two.angle) + (quarter * jnp.asarray(math.pi / 2, dx.dtype))
    sin = jnp.sin(turn)

    sides = (*first, *second)
    least = functools.reduce(jnp.minimum, sides)
    largest = functools.reduce(jnp.maximum, (*sides, jnp.abs(dx), jnp.abs(dy)))
    round_ = (first[0] == first[1]) | (second[0] == second[1])
    limit = float(jnp.finfo(dx.dtype).max) ** 0.25
    return _Pair(
        first,
        second,
        (dx, dy),
        (offsets[0][0], offsets[1][0]),
        (offsets[0][1], offsets[1][1]),
        jnp.cos(turn),
        sin,
        least <= 0,
        largest / limit > least,
        (dx == 0)
        & (dy == 0)
        & (first[0] == second[0])
        & (first[1] == second[1])
        & ((sin == 0) | round_),
    )


def _swapped(pair: _Pair) -> _Pair:
    return pair._replace(
        first=pair.second, second=pair.first, along=pair.along[::-1], across=pair.across[::-1]
    )


def _sized(pair: _Pair) -> _Pair:
    """The pair, with boxes that cannot be compared replaced by equal ones, and in one scale.

    The results do not depend on the scale, which is held constant in the derivative. It is a
    power of two, so that differences of sides stay exact.
    """
    bad = pair.empty | pair.far
    longest = jnp.where(bad, 1, jnp.maximum(pair.first[0], pair.second[0]))
    longest = jax.lax.stop_gradient(longest)
    scale = jnp.ldexp(jnp.ones_like(longest), jnp.frexp(longest)[1])

    def scaled(x: Array, other: int) -> Array:
        return jnp.where(bad, other, x) / scale

    return pair._replace(
        first=tuple(scaled(x, 1) for x in pair.first),
        second=tuple(scaled(x, 1) for x in pair.second),
        offset=tuple(scaled(x, 0) for x in pair.offset),
        along=tuple(scaled(x, 0) for x in pair.along),
        across=tuple(scaled(x, 0) for x in pair.across),
    )


def _or_infinite(pair: _Pair, distance: Array) -> Array:
    """`distance`, and infinity where the pair was replaced by `_sized`, but 0 for equal boxes."""
    bad = pair.empty | pair.far
    return jnp.where(bad, jnp.where(pair.equal, 0, jnp.inf), distance)


def _turn_term(pair: _Pair) -> Array:
    """S2: what turning the longer sides apart costs."""
    return pair.sin**2 * product(*_stretches(pair))


def _stretches(pair: _Pair) -> tuple[Array, ...]:
    """How far each Gaussian is from round: the difference of its squared sides."""
    (r1, q1), (r2, q2) = pair.first, pair.second
    return (r1 - q1) * (r1 + q1), (r2 - q2) * (r2 + q2)


def _unlike(pair: _Pair) -> tuple[Array, Array]:
    """By how much the areas of the sides differ, and their shapes: r1 q1 - r2 q2, r1 q2 - q1 r2.

    From differences of sides, which are exact where the boxes are nearly equal.
    """
    (r1, q1), (r2, q2) = pair.first, pair.second
    by_longer, by_shorter = (r1 - r2) * (q1 + q2), (q1 - q2) * (r1 + r2)
    return (by_longer + by_shorter) / 2, (by_longer - by_shorter) / 2


def _excess(pair: _Pair) -> Array:
    """E of det(S1 + S2) = 4 r1 q1 r2 q2 + E, exactly 0 for equal boxes."""
    size, shape = _unlike(pair)
    return (size**2 + shape**2) + _turn_term(pair)


def _determinant(pair: _Pair) -> Array:
    (r1, q1), (r2, q2) = pair.first, pair.second
    return 4 * product(product(r1, q1), product(r2, q2)) + _excess(pair)


def _bhattacharyya(whole: _Pair) -> Array:
    pair = _sized(whole)
    (r1, q1), (r2, q2) = pair.first, pair.second
    # d^T adj(S1 + S2) d: in two dimensions the adjugate of a sum is the sum of adjugates.
    adjugate = ((q1 * pair.along[0]) ** 2 + (r1 * pair.across[0]) ** 2) + (
        (q2 * pair.along[1]) ** 2 + (r2 * pair.across[1]) ** 2
    )
    determinant = _determinant(pair)
    limit = float(jnp.finfo(adjugate.dtype).max) ** 0.5
    far = adjugate / limit > determinant
    offset = 3 * safe_divide(jnp.where(far, 0, adjugate), determinant)
    spread = safe_divide(_excess(pair), 4 * product(product(r1, q1), product(r2, q2)))
    distance = jnp.where(far, jnp.inf, offset + jnp.log1p(spread) / 2)
    return _or_infinite(pair, distance)


def _squared_wasserstein(pair: _Pair) -> Array:
    (r1, q1), (r2, q2) = pair.first, pair.second
    dx, dy = pair.offset
    straight, crossed = r1 * r2 + q1 * q2, product(r1, q2) + product(q1, r2)
    root = safe_sqrt((pair.cos * straight) ** 2 + (pair.sin * crossed) ** 2)
    turned = 2 * safe_divide(_turn_term(pair), straight + root)
    return (dx**2 + dy**2) + ((r1 - r2) ** 2 + (q1 - q2) ** 2 + turned) / 4


def _divergence(pair: _Pair) -> Array:
    """KL(second || first)."""
    (rp, qp), (rt, qt) = pair.first, pair.second
    along, across = pair.along[0] / rp, pair.across[0] / qp
    area = rp * qp
    stretch_p, stretch_t = (x / area for x in _stretches(pair))
    turned = pair.sin**2 * stretch_p * stretch_t
    sizes = _change(rp, rt) + _change(qp, qt)
    return (4 * (along**2 + across**2) + sizes + turned) / 2


@jax.custom_jvp
def _change(p: Array, t: Array) -> Array:
    """`u - log(1 + u)` with 1 + u = (t / p)^2, to full precision where both are nearly equal.

    There by the series of the inverse hyperbolic tangent of u / (2 + u).
    """
    change = (t - p) / p
    u = change * (2 + change)
    near = jnp.abs(u) < 0.25
    small = jnp.where(near, u, 0)
    s = small / (2 + small)
    series = jnp.zeros_like(s)
    for k in range(10, -1, -1):
        series = series * s**2 + 1 / (2 * k + 3)
    return jnp.where(near, small * s - 2 * s**3 * series, u - 2 * jnp.log(t / p))


@_change.defjvp
def _change_jvp(primals, tangents):
    (p, t), (dp, dt) = primals, tangents
    change = (t - p) / p
    return _change(p, t), 2 * change * (2 + change) * (dt / t - dp / p)


def _interval_giou(offset: Array, one: Array, other: Array) -> Array:
    """GIoU of two intervals, from their lengths and the offset of their middles.

    Where they do not meet, what they share is less than nothing: the gap.
    """
    apart, half = absolute(offset), (one + other) / 2
    shared = minimum(minimum(one, other), half - apart)
    return safe_divide(shared, maximum(maximum(one, other), half + apart))
