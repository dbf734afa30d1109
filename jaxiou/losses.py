"""Losses `1 - overlap`, for any overlap, unreduced.

What holds for every function here, and is not repeated below:

- **Arguments.** `predictions` and `targets`, regions whose leading axes broadcast, in the
  conventions of the overlap's module (`boxes` for all that are named here). Both have a
  gradient; training uses that of the predictions.
- **Result.** One loss per pair, `[...]`, float32 or wider; `mean` reduces.
- **Masking.** `where` is bool, of the result's rank, and broadcasts to it. Where it is
  False the loss and its gradient are 0, whatever the regions hold, NaN included: they are
  replaced by zeros before any arithmetic. Masking a loss afterwards would leave NaN in
  the gradient.
- **Empty regions** have overlap 0, so their `iou_loss` is 1. Padding belongs under `where`.

The losses of label maps, from `soft_jaccard_loss` on, are those of `segmentation_losses`, which
states their conventions.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real, Shaped

from jaxiou import _checks, _corners, boxes, variants
from jaxiou._compiled import compiled
from jaxiou._math import absolute, maximum, minimum, positive_part, safe_divide, safe_power
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, masked, over_leading, region_rank_of
from jaxiou.segmentation_losses import (
    dice_loss,
    focal_tversky_loss,
    generalized_dice_loss,
    lovasz_hinge_loss,
    lovasz_softmax_loss,
    soft_jaccard_loss,
    tversky_loss,
)

__all__ = [
    "iou_loss",
    "giou_loss",
    "diou_loss",
    "ciou_loss",
    "eiou_loss",
    "extended_iou_loss",
    "bounded_iou_loss",
    "wiou_v2_loss",
    "wiou_v3_loss",
    "update_running_mean",
    "overlap_loss",
    "mean",
    "soft_jaccard_loss",
    "dice_loss",
    "generalized_dice_loss",
    "tversky_loss",
    "focal_tversky_loss",
    "lovasz_softmax_loss",
    "lovasz_hinge_loss",
]

LOG_FLOOR = 1e-6
"""The IoU below which `-log IoU` is taken to be flat."""


@compiled(static=("form",))
def iou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    form: Literal["linear", "log", "square"] = "linear",
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    """How far two boxes are from coinciding, by their `boxes.iou` q.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      form: "linear" is `1 - q`; "log" is `-log q` (UnitBox); "square" is `1 - q^2`.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 1], and in [0, 13.82] for "log". 0 means the boxes coincide.

    At the edges:
      Disjoint boxes: 1, or for "log" `-log 1e-6`, as q is taken to be at least 1e-6 there.

    Gradient:
      0 for boxes that do not meet, and for "log" where q is below 1e-6: where boxes start
      apart, `giou_loss` is the one that moves them.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([0.0, 0.0, 2.0, 1.0])
      >>> print(iou_loss(a, b), f"{iou_loss(a, b, form='log'):.4f}", iou_loss(a, b, form="square"))
      0.5 0.6931 0.75

    Reference:
      Yu et al., "UnitBox: An Advanced Object Detection Network", ACM MM 2016,
      https://arxiv.org/abs/1608.01471.
    """
    forms: dict[str, Callable[[Array], Array]] = {
        "linear": lambda q: 1 - q,
        "log": lambda q: -jnp.log(jnp.where(q < LOG_FLOOR, LOG_FLOOR, q)),
        "square": lambda q: 1 - q**2,
    }
    _checks.one_of("form", form, forms)
    return box_loss(lambda p, t: forms[form](boxes.iou(p, t)), predictions, targets, where)


@compiled()
def giou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    """`1 - boxes.giou`: a distance of two boxes that has a slope also where they are apart.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 2]. 0 means the boxes coincide.

    At the edges:
      1 for a point with itself, as its `giou` is 0.

    Gradient:
      Where the boxes are apart, it shrinks the enclosing box and widens the prediction.

    Example:
      >>> print(giou_loss(jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([3.0, 0.0, 4.0, 1.0])))
      1.5

    Reference:
      Rezatofighi et al., CVPR 2019, https://arxiv.org/abs/1902.09630.
    """
    return box_loss(lambda p, t: 1 - boxes.giou(p, t), predictions, targets, where)


@compiled()
def diou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    """`1 - boxes.diou`: draws the centres together where boxes are apart.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 2]. 0 means the boxes coincide.

    At the edges:
      1 for a point with itself, 2 for two distinct points.

    Gradient:
      That of `boxes.diou`, negated.

    Example:
      >>> print(f"{diou_loss(jnp.array([0., 0., 1., 1.]), jnp.array([3., 1., 4., 3.])):.2f}")
      1.45

    Reference:
      Zheng et al., AAAI 2020, https://arxiv.org/abs/1911.08287.
    """
    return box_loss(lambda p, t: 1 - boxes.diou(p, t), predictions, targets, where)


@compiled()
def ciou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    """`1 - boxes.ciou`: draws centres together and aspect ratios towards each other.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 2.5] but for rounding. 0 means the boxes coincide.

    At the edges:
      1 for a point with itself.

    Gradient:
      That of `boxes.ciou`, negated, with its alpha under `stop_gradient`.

    Example:
      >>> print(f"{ciou_loss(jnp.array([0., 0., 2., 1.]), jnp.array([0., 0., 1., 2.])):.4f}")
      0.7629

    Reference:
      Zheng et al., AAAI 2020, https://arxiv.org/abs/1911.08287.
    """
    return box_loss(lambda p, t: 1 - boxes.ciou(p, t), predictions, targets, where)


@functools.cache
def overlap_loss(overlap: Overlap, *, region_rank: int | None = None) -> Callable[..., Array]:
    """The loss `1 - overlap` of any overlap, the library's or your own.

    Args:
      overlap: a function of two single regions that JAX can differentiate.
      region_rank: as in `pairwise`: None reads it off the overlap, else 1.

    Returns:
      `loss(predictions, targets, *, where=None)` for regions `[..., *region]`, unreduced.
      The same overlap gives the same function, so it compiles once.

    At the edges:
      1 less what `overlap` gives there; 0 where `where` is False.

    Gradient:
      That of `overlap`, negated.

    Example:
      >>> from jaxiou import boxes
      >>> dice_loss = overlap_loss(boxes.dice)
      >>> print(dice_loss(jnp.array([0.0, 0.0, 3.0, 1.0]), jnp.array([0.0, 0.0, 1.0, 1.0])))
      0.5
    """
    rank = region_rank_of(overlap, region_rank)

    @compiled()
    def loss(
        predictions: Shaped[ArrayLike, "..."],
        targets: Shaped[ArrayLike, "..."],
        *,
        where: Bool[ArrayLike, "..."] | None = None,
    ) -> Float[Array, "..."]:
        return masked_loss(lambda p, t: 1 - overlap(p, t), rank, predictions, targets, where)

    return loss


@compiled()
def mean(
    values: Real[ArrayLike, "..."], *, where: Bool[ArrayLike, "..."] | None = None
) -> Float[Array, ""]:
    """The mean of the values that count, and 0, not NaN, when none does.

    Args:
      values: any shape.
      where: bool, of the rank of `values`, broadcasting to it; values that count.

    Returns:
      A number, float32 or wider: the sum over the count, the count taken to be at least 1.

    Gradient:
      `1 / count` for values that count, 0 for the others, whatever they hold.

    Example:
      >>> values = jnp.array([1.0, 2.0, jnp.nan])
      >>> print(mean(values, where=jnp.array([True, True, False])))
      1.5
      >>> print(mean(values, where=jnp.zeros(3, bool)))
      0.0
    """
    (values,) = _checks.regions((), "numbers", values=values)
    if where is None:
        where = jnp.ones_like(values, bool)
    _checks.mask("where", where, values.shape)
    count = jnp.broadcast_to(where, values.shape).sum(dtype=values.dtype)
    return jnp.where(where, values, 0).sum() / jnp.maximum(count, 1)


def box_loss(
    loss: Overlap, predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None
) -> Array:
    """`masked_loss` of boxes, whose errors name the arguments of the public function."""
    _corners.check(predictions=predictions, targets=targets)
    return masked_loss(loss, 1, predictions, targets, where)


def masked_loss(
    loss: Overlap,
    rank: int,
    predictions: ArrayLike,
    targets: ArrayLike,
    where: ArrayLike | None,
) -> Array:
    """`loss` of every pair that counts, 0 for the others, whatever they hold."""
    for name, x in (("predictions", predictions), ("targets", targets)):
        _checks.is_array(name, x)
        _checks.trailing_shape(name, x, (None,) * rank, "regions")
    shape = _checks.leading_shape(rank, predictions=predictions, targets=targets)
    predictions, targets = _checks.same_rank(predictions, targets)
    if where is None:
        return over_leading(loss, rank)(predictions, targets)
    _checks.mask("where", where, shape)
    pairs = (masked(x, where) for x in (predictions, targets))
    return jnp.where(where, over_leading(loss, rank)(*pairs), 0)


@compiled(static=("gamma",))
def eiou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    gamma: float | int = 0.0,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    r"""`1 - variants.eiou`, and with `gamma` its focal form, which heeds good boxes most.

    .. math:: \mathrm{IoU}^\gamma (1 - \mathrm{EIoU})

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      gamma: 0 for the plain loss, 0.5 for the paper's Focal-EIoU.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 3.25]. 0 means the boxes coincide, and for `gamma` above 0 also that
      they do not meet.

    At the edges:
      1 for a point with itself, 2 for two distinct points; the focal form is 0 for both, and
      for all boxes without a common area.

    Gradient:
      That of `variants.eiou`, negated, times the weight. The weight is under `stop_gradient`:
      its own slope is infinite at IoU 0, and it would lower the loss by parting the boxes.
      Ports differ in this.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 4.0, 4.0]), jnp.array([0.0, 0.0, 4.0, 1.0])
      >>> print(f"{eiou_loss(a, b):.4f} {eiou_loss(a, b, gamma=0.5):.4f}")
      1.3828 0.6914

    Reference:
      Zhang et al., "Focal and Efficient IOU Loss for Accurate Bounding Box Regression",
      Neurocomputing 2022, https://arxiv.org/abs/2101.08158.
    """
    gamma = _checks.positive("gamma", float(gamma)) if gamma != 0 else 0.0

    def loss(p: Array, t: Array) -> Array:
        plain = 1 - variants.eiou(p, t)
        if gamma == 0:
            return plain
        return jax.lax.stop_gradient(safe_power(boxes.iou(p, t), gamma)) * plain

    return box_loss(loss, predictions, targets, where)


@compiled(static=("smooth",))
def extended_iou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    smooth: float | int = 0.1,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    r"""`x = 1 - variants.extended_iou`, made quadratic near 0 so that it lands softly.

    .. math:: x^2 / (2 s) \text{ for } x < s, \quad x - s / 2 \text{ beyond}

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      smooth: s, where the parabola ends; 0.1 in the paper.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 2 - s/2]. 0 means the boxes coincide.

    At the edges:
      1 - s/2 for touching boxes and for a point with itself, 2 - s/2 for two points in
      general position.

    Gradient:
      That of `variants.extended_iou`, negated, times x/s below s.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([2.0, 0.0, 3.0, 1.0])
      >>> print(f"{extended_iou_loss(a, b):.4f}")
      1.2833

    Reference:
      Peng and Yu, IEEE Transactions on Image Processing 2021,
      https://arxiv.org/abs/2112.01793. Early copies of the code compare the IoU with s, not
      x, weigh the linear part by 1 - s, and the whole by the union.
    """
    smooth = _checks.positive("smooth", float(smooth))

    def loss(p: Array, t: Array) -> Array:
        return _smooth_l1(1 - variants.extended_iou(p, t), smooth)

    return box_loss(loss, predictions, targets, where)


@compiled(static=("beta",))
def bounded_iou_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    beta: float | int = 0.2,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    r"""Four upper bounds of the IoU, one for each way to be wrong, as a sum of losses.

    The IoU if only the centre's x, its y, the width or the height were wrong:

    .. math::
      B_x = \max\Bigl(0, \frac{w_t - 2 |d_x|}{w_t + 2 |d_x|}\Bigr), \quad
      B_w = \min\Bigl(\frac{w_p}{w_t}, \frac{w_t}{w_p}\Bigr)

    and likewise in y and h. Each gives :math:`z = 1 - B`, counted as
    :math:`z^2 / (2 \beta)` below beta and :math:`z - \beta / 2` beyond.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      beta: where the parabola ends, at most 1; 0.2 is mmdet's.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 4 - 2 beta]. 0 means the boxes coincide.

    At the edges:
      A side that is 0 has bounds of 0, with another side of 0 too, so an empty box of no
      width costs at least 1 - beta/2; a point with itself costs 4 - 2 beta.

    Gradient:
      Finite. The terms of the centre have none where it is half a target's side away or
      more: boxes that start apart in x are not drawn together in x.

    Example:
      >>> a, b = jnp.array([1.0, 0.0, 5.0, 4.0]), jnp.array([0.0, 0.0, 4.0, 4.0])
      >>> print(f"{bounded_iou_loss(a, b):.4f}")
      0.5667

    Reference:
      Tychsen-Smith and Petersson, "Improving Object Localization with Fitness NMS and Bounded
      IoU Loss", CVPR 2018, https://arxiv.org/abs/1711.00164. mmdet adds 1e-3 to the
      denominators.
    """
    beta = _checks.positive("beta", float(beta))

    def loss(p: Array, t: Array) -> Array:
        prediction, target = _corners.corners(predictions=p, targets=t)
        offsets = map(absolute, _corners.center_offset(prediction, target))
        sides = zip(_corners.sides(prediction), _corners.sides(target), strict=True)
        total = jnp.zeros_like(prediction.x1)
        for offset, (side, wanted) in zip(offsets, sides, strict=True):
            place = safe_divide(positive_part(wanted - 2 * offset), wanted + 2 * offset)
            size = safe_divide(minimum(side, wanted), maximum(side, wanted))
            total = total + _smooth_l1(1 - place, beta) + _smooth_l1(1 - size, beta)
        return total

    return box_loss(loss, predictions, targets, where)


@compiled(static=("gamma",))
def wiou_v2_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    running_mean: Real[ArrayLike, ""] | float,
    gamma: float | int = 0.5,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    r"""Wise-IoU v2: `1 - variants.wiou`, weighted up for boxes worse than the average.

    .. math:: (L^* / \bar{L})^\gamma (1 - \mathrm{WIoU})

    with L* the IoU loss of the pair and L-bar its running mean over training.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      running_mean: L-bar, a number above 0 that you carry from step to step, from 1, with
        `update_running_mean`; may be traced. 0 makes every loss 0.
      gamma: the power, 0.5 in the paper.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, e / L-bar^gamma]. 0 means the boxes coincide.

    At the edges:
      As `variants.wiou`: L-bar^-gamma for a point with itself, e times that for two
      distinct points.

    Gradient:
      That of `variants.wiou`, negated, times the weight, which is under `stop_gradient`.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([0.0, 0.0, 2.0, 1.5])
      >>> print(f"{wiou_v2_loss(a, b, running_mean=1.0):.4f}")
      0.1260

    Reference:
      Tong et al., "Wise-IoU: Bounding Box Regression Loss with Dynamic Focusing Mechanism",
      2023, https://arxiv.org/abs/2301.10051.
    """
    gamma = _checks.positive("gamma", float(gamma))
    weight = functools.partial(safe_power, exponent=gamma)
    return _wise_loss(weight, running_mean, predictions, targets, where)


@compiled(static=("alpha", "delta"))
def wiou_v3_loss(
    predictions: Real[ArrayLike, "*#batch 4"],
    targets: Real[ArrayLike, "*#batch 4"],
    *,
    running_mean: Real[ArrayLike, ""] | float,
    alpha: float | int = 1.9,
    delta: float | int = 3.0,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "*batch"]:
    r"""Wise-IoU v3: `1 - variants.wiou`, weighted towards boxes of ordinary quality.

    .. math::
      \frac{\beta}{\delta \alpha^{\beta - \delta}} (1 - \mathrm{WIoU}), \quad
      \beta = L^* / \bar{L}

    with L* the IoU loss of the pair and L-bar its running mean over training. The weight is
    0 for perfect boxes, largest at beta = 1 / ln alpha, 1 at beta = delta, and falls beyond.

    Args:
      predictions: boxes, `[..., 4]`.
      targets: boxes, `[..., 4]`.
      running_mean: L-bar, a number above 0 that you carry from step to step, from 1, with
        `update_running_mean`; may be traced. 0 makes every loss 0.
      alpha: base of the power, above 1.
      delta: the beta at which a box has weight 1.
      where: bool, `[...]`; pairs that count.

    Returns:
      `[...]`, in [0, 3.57] for the default settings. 0 means the boxes coincide.

    At the edges:
      As `variants.wiou`, times the weight.

    Gradient:
      That of `variants.wiou`, negated, times the weight, which is under `stop_gradient`.

    Example:
      A training step returns the running mean beside what it trains; the first one is 1.

      >>> @jax.jit
      ... def step(predictions, running_mean, targets):
      ...     def total(predictions):
      ...         return mean(wiou_v3_loss(predictions, targets, running_mean=running_mean))
      ...     errors = iou_loss(predictions, targets)
      ...     running_mean = update_running_mean(running_mean, errors, momentum=0.5)
      ...     return predictions - jax.grad(total)(predictions), running_mean
      >>> start, targets = jnp.array([[0.0, 0.0, 2.0, 1.0]]), jnp.array([[0.0, 0.0, 2.0, 2.0]])
      >>> predictions, running_mean = step(start, jnp.array(1.0), targets)
      >>> print(running_mean)
      0.75

    Reference:
      Tong et al., 2023, https://arxiv.org/abs/2301.10051; alpha 1.9 and delta 3 are those of
      its experiments, the authors' later code has 1.7 and 2.7.
    """
    alpha, delta = _checks.positive("alpha", float(alpha)), _checks.positive("delta", float(delta))
    if alpha <= 1:
        raise ValueError(f"alpha must be above 1, got {alpha}")

    def weight(beta: Array) -> Array:
        return beta / delta * alpha ** (delta - beta)

    return _wise_loss(weight, running_mean, predictions, targets, where)


@compiled(static=("momentum",))
def update_running_mean(
    running_mean: Real[ArrayLike, ""] | float,
    values: Real[ArrayLike, "..."],
    *,
    momentum: float | int = 0.01,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, ""]:
    """The running mean after one more batch: `(1 - momentum) old + momentum mean(values)`.

    Args:
      running_mean: the old one, a number. Wise-IoU starts from 1.
      values: the batch's, any shape; for Wise-IoU its `iou_loss`.
      momentum: the batch's share, in (0, 1].
      where: bool, of the rank of `values`, broadcasting to it; values that count.

    Returns:
      A number, float32 or wider; the old one where no value counts.

    Gradient:
      None: it is state, under `stop_gradient`.

    Example:
      >>> print(update_running_mean(1.0, jnp.array([0.2, 0.4]), momentum=0.1))
      0.93
    """
    momentum = _checks.positive("momentum", float(momentum))
    batch = jax.lax.stop_gradient(mean(values, where=where))
    old = jax.lax.stop_gradient(_checks.scalar("running_mean", running_mean)).astype(batch.dtype)
    some = values.size > 0 if where is None else where.any()
    return jnp.where(some, (1 - momentum) * old + momentum * batch, old)


def _wise_loss(
    weight: Callable[[Array], Array],
    running_mean: ArrayLike | float,
    predictions: ArrayLike,
    targets: ArrayLike,
    where: ArrayLike | None,
) -> Array:
    usual = _checks.scalar("running_mean", running_mean)

    def loss(p: Array, t: Array) -> Array:
        own = 1 - boxes.iou(p, t)
        level = safe_divide(own, usual.astype(own.dtype))
        return jax.lax.stop_gradient(weight(level)) * (1 - variants.wiou(p, t))

    return box_loss(loss, predictions, targets, where)


def _smooth_l1(x: Array, width: float) -> Array:
    return jnp.where(x < width, x**2 / (2 * width), x - width / 2)
