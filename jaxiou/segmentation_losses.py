"""Losses of segmentation: IoU and its relatives, of label maps and the scores of classes.

What holds for every function here but the binary `lovasz_hinge_loss`, and is not repeated:

- **Arguments.** `predictions`, `[..., H, W, K]`, has one score for each class on its last axis.
  `activation` says what makes probabilities of them: "softmax" and "sigmoid" of logits, in
  float32 or wider; "none" if they are probabilities. `targets` is a label map, integers
  `[..., H, W]`, or, for all but the Lovasz losses, one number in [0, 1] for each class,
  `[..., H, W, K]`: soft labels, several classes in one pixel, or with K = 1 a binary mask.
- **Result.** The pixels along `axis`, as `predictions` numbers its axes, are pooled: one number
  for each image by default, `[...]`, float32 or wider, and for the batch with
  `axis=(0, 1, 2)`. It is a mean over classes: those "present" in the pooled target, "all",
  or a tuple of them.
- **Pixels that do not count** change neither value nor gradient, whatever is predicted there,
  NaN included: those where `where`, bool, `[..., H, W]`, is False; those whose label is in
  `ignore` or is no class (negative, or K and more, such as 255). A class in `ignore` is no
  class of the mean either. Where no class is left, the loss and its gradient are 0.
- **No epsilon.** A perfect prediction has loss 0, and a hard one the loss of its counts: a class
  that is neither in the target nor predicted has loss 0 where it counts, one that is predicted
  and not in the target has loss 1, and without `smooth` no gradient.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, Real, Shaped

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._math import (
    absolute,
    never_negative,
    places,
    positive_part,
    safe_divide,
    safe_power,
)
from jaxiou._typing import ArrayLike

__all__ = [
    "soft_jaccard_loss",
    "dice_loss",
    "generalized_dice_loss",
    "tversky_loss",
    "focal_tversky_loss",
    "lovasz_softmax_loss",
    "lovasz_hinge_loss",
]

Activation: TypeAlias = Literal["softmax", "sigmoid", "none"]
Classes: TypeAlias = Literal["present", "all"] | tuple[int, ...]
Integers: TypeAlias = int | tuple[int, ...]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "softmax": jax.nn.softmax,
    "sigmoid": jax.nn.sigmoid,
    "none": lambda probabilities: probabilities,
}
OPTIONS = ("activation", "axis", "ignore", "classes")


@compiled(static=(*OPTIONS, "smooth"))
def soft_jaccard_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Shaped[ArrayLike, "..."],
    *,
    activation: Activation = "softmax",
    axis: Integers = (-3, -2),
    ignore: Integers = (),
    classes: Classes = "present",
    smooth: float | int = 0.0,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""One minus the IoU of probabilities, that of hard masks where they are 0 or 1.

    .. math:: \frac{\sum |r - p|}{\sum \max(r, p)}, \quad
      \text{with } \sum \min(r, p) \text{ for the intersection}

    Args:
      predictions: scores of the classes, `[..., H, W, K]`.
      targets: labels, `[..., H, W]`, or soft labels r, `[..., H, W, K]`.
      activation: what makes probabilities p of the scores.
      axis: the axes of pixels.
      ignore: labels that do not count.
      classes: those that the mean is over.
      smooth: added to intersection and union, in pixels.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, in [0, 1]. 0 means that probabilities and targets are equal.

    At the edges:
      As the module says. Soft labels of 1/2 have loss 0 against 1/2 and 1/2 against 1.

    Gradient:
      In a pixel where p = r it is 0, the middle of the two slopes.

    Example:
      >>> p = jnp.array([[[0.75, 0.25], [0.25, 0.75]]])  # 1 x 2 pixels, two classes
      >>> print(soft_jaccard_loss(p, jnp.array([[0, 1]]), activation="none"))
      0.4

    Reference:
      Wang et al., "Jaccard Metric Losses: Optimizing the Jaccard Index with Soft Labels",
      NeurIPS 2023, https://arxiv.org/abs/2302.05666. Other libraries take the sum of r p for the
      intersection, the same for hard labels; with soft ones that loss is not least at p = r.
    """
    sums = _sums(predictions, targets, activation, axis, ignore, classes, where)
    return _tversky_loss(sums, 1.0, 1.0, smooth)


@compiled(static=(*OPTIONS, "smooth"))
def dice_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Shaped[ArrayLike, "..."],
    *,
    activation: Activation = "softmax",
    axis: Integers = (-3, -2),
    ignore: Integers = (),
    classes: Classes = "present",
    smooth: float | int = 0.0,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""One minus the Dice score (F1) of probabilities, which heeds overlap twice.

    .. math:: \frac{\sum |r - p|}{\sum r + \sum p}

    Args:
      predictions: scores of the classes, `[..., H, W, K]`.
      targets: labels, `[..., H, W]`, or soft labels r, `[..., H, W, K]`.
      activation: what makes probabilities p of the scores.
      axis: the axes of pixels.
      ignore: labels that do not count.
      classes: those that the mean is over.
      smooth: added to numerator and denominator of the score, in pixels; 1 in optax.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, in [0, 1]. 0 means that probabilities and targets are equal.

    At the edges:
      As the module says.

    Gradient:
      In a pixel where p = r it is 0, the middle of the two slopes.

    Example:
      >>> p = jnp.array([[[0.75, 0.25], [0.25, 0.75]]])
      >>> print(dice_loss(p, jnp.array([[0, 1]]), activation="none"))
      0.25

    Reference:
      Milletari et al., "V-Net", 3DV 2016, https://arxiv.org/abs/1606.04797, with p in place of
      its squares; Wang et al., "Dice Semimetric Losses", MICCAI 2023,
      https://arxiv.org/abs/2303.16296, for soft labels.
    """
    sums = _sums(predictions, targets, activation, axis, ignore, classes, where)
    # Dice has 2 TP in its score where Tversky's has TP, so half of what is added to it.
    return _tversky_loss(sums, 0.5, 0.5, smooth / 2)


@compiled(static=OPTIONS)
def generalized_dice_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Shaped[ArrayLike, "..."],
    *,
    activation: Activation = "softmax",
    axis: Integers = (-3, -2),
    ignore: Integers = (),
    classes: Classes = "all",
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""Dice loss of all classes in one ratio, small classes weighted up.

    .. math::
      \frac{\sum_c w_c \sum |r_c - p_c|}{\sum_c w_c \sum (r_c + p_c)}, \quad
      w_c = \Bigl(\sum r_c\Bigr)^{-2}

    A class that is not in the target has the largest weight of those that are in the same
    pooled pixels, and weight 1 if none is: a loss never depends on other images.

    Args:
      predictions: scores of the classes, `[..., H, W, K]`.
      targets: labels, `[..., H, W]`, or soft labels r, `[..., H, W, K]`.
      activation: what makes probabilities p of the scores.
      axis: the axes of pixels.
      ignore: labels that do not count.
      classes: those that the sums are over; "all", unlike elsewhere, as a class that is absent
        but predicted has a gradient here.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, in [0, 1]. 0 means that probabilities and targets are equal.

    At the edges:
      1 for an empty target of which anything is predicted.

    Gradient:
      In a pixel where p = r it is 0, the middle of the two slopes.

    Example:
      >>> p = jnp.array([[[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]]])
      >>> print(f"{generalized_dice_loss(p, jnp.array([[0, 1, 1]]), activation='none'):.4f}")
      0.2941

    Reference:
      Sudre et al., "Generalised Dice Overlap as a Deep Learning Loss Function for Highly
      Unbalanced Segmentations", DLMIA 2017, https://arxiv.org/abs/1707.03237.
    """
    total, over, under, counts = _sums(
        predictions, targets, activation, axis, ignore, classes, where
    )
    present = counts & (total > 0)
    least = jnp.where(present, total, jnp.inf).min(-1, keepdims=True, initial=jnp.inf)
    # The weights over the largest of them: the squares of large areas would lose digits.
    share = jnp.where(present, least, 1) / jnp.where(present, total, 1)
    weight = jnp.where(counts, share**2, 0)
    wrong = (weight * (over + under)).sum(-1)
    return safe_divide(wrong, (2 * weight * never_negative(total - under)).sum(-1) + wrong)


@compiled(static=(*OPTIONS, "alpha", "beta", "smooth"))
def tversky_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Shaped[ArrayLike, "..."],
    *,
    alpha: float | int = 0.3,
    beta: float | int = 0.7,
    activation: Activation = "softmax",
    axis: Integers = (-3, -2),
    ignore: Integers = (),
    classes: Classes = "present",
    smooth: float | int = 0.0,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""One minus Tversky's index, which prices what is found too much and too little apart.

    .. math:: 1 - \frac{TP}{TP + \alpha FP + \beta FN}

    with the sums of :math:`\min(r, p)`, :math:`\max(p - r, 0)` and :math:`\max(r - p, 0)`.

    Args:
      predictions: scores of the classes, `[..., H, W, K]`.
      targets: labels, `[..., H, W]`, or soft labels r, `[..., H, W, K]`.
      alpha: price of false positives, above 0.
      beta: price of false negatives, above 0. With both 1 it is `soft_jaccard_loss`, with
        both 1/2 `dice_loss`.
      activation: what makes probabilities p of the scores.
      axis: the axes of pixels.
      ignore: labels that do not count.
      classes: those that the mean is over.
      smooth: added to numerator and denominator of the index, in pixels.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, in [0, 1]. 0 means that probabilities and targets are equal.

    At the edges:
      As the module says.

    Gradient:
      In a pixel where p = r it is 0, the middle of the two slopes.

    Example:
      >>> p, mask = jnp.array([[[0.5], [0.25]]]), jnp.array([[[1.0], [0.0]]])
      >>> print(tversky_loss(p, mask, alpha=0.5, beta=1.0, activation="none"))
      0.5555556

    Reference:
      Salehi et al., "Tversky Loss Function for Image Segmentation Using 3D Fully Convolutional
      Deep Networks", MLMI 2017, https://arxiv.org/abs/1706.05721; 0.3 and 0.7 are its best.
    """
    alpha, beta = _checks.positive("alpha", alpha), _checks.positive("beta", beta)
    sums = _sums(predictions, targets, activation, axis, ignore, classes, where)
    return _tversky_loss(sums, alpha, beta, smooth)


@compiled(static=(*OPTIONS, "gamma", "alpha", "beta", "smooth"))
def focal_tversky_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Shaped[ArrayLike, "..."],
    *,
    gamma: float | int = 0.75,
    alpha: float | int = 0.3,
    beta: float | int = 0.7,
    activation: Activation = "softmax",
    axis: Integers = (-3, -2),
    ignore: Integers = (),
    classes: Classes = "present",
    smooth: float | int = 0.0,
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""The Tversky loss of each class to a power, before the mean over classes.

    .. math:: \Bigl(1 - \frac{TP}{TP + \alpha FP + \beta FN}\Bigr)^\gamma

    Args:
      predictions: scores of the classes, `[..., H, W, K]`.
      targets: labels, `[..., H, W]`, or soft labels, `[..., H, W, K]`.
      gamma: the power itself, above 0. The paper writes 1/gamma for it, and found 4/3, which
        is 0.75 here, the best; below 1 it heeds classes that are nearly right, above 1 the
        others.
      alpha: price of false positives, above 0.
      beta: price of false negatives, above 0.
      activation: what makes probabilities of the scores.
      axis: the axes of pixels.
      ignore: labels that do not count.
      classes: those that the mean is over.
      smooth: added to numerator and denominator of the index, in pixels.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, in [0, 1]. 0 means that probabilities and targets are equal.

    At the edges:
      As the module says.

    Gradient:
      0 where the loss of a class is 0, for gamma below 1 too, whose slope is infinite there.

    Example:
      >>> p, mask = jnp.array([[[0.5], [0.25]]]), jnp.array([[[1.0], [0.0]]])
      >>> options = {"alpha": 0.5, "beta": 1.0, "activation": "none"}
      >>> print(f"{focal_tversky_loss(p, mask, gamma=2.0, **options):.4f}")
      0.3086

    Reference:
      Abraham and Khan, "A Novel Focal Tversky Loss Function with Improved Attention U-Net for
      Lesion Segmentation", ISBI 2019, https://arxiv.org/abs/1810.07842.
    """
    alpha, beta = _checks.positive("alpha", alpha), _checks.positive("beta", beta)
    sums = _sums(predictions, targets, activation, axis, ignore, classes, where)
    return _tversky_loss(sums, alpha, beta, smooth, _checks.positive("gamma", gamma))


@compiled(static=OPTIONS)
def lovasz_softmax_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Integer[ArrayLike, "..."] | Bool[ArrayLike, "..."],
    *,
    activation: Activation = "softmax",
    axis: Integers = (-3, -2),
    ignore: Integers = (),
    classes: Classes = "present",
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""The convex extension of one minus IoU, from sets of wrong pixels to sizes of errors.

    .. math:: \sum_k e_{\pi(k)} (J_k - J_{k-1}), \quad e = |r - p|

    with the errors of a class in falling order, and with J_k, J_0 = 0, the loss 1 - IoU of the
    class if the k pixels with the largest errors were wrong and all others right.

    Args:
      predictions: scores of the classes, `[..., H, W, K]`.
      targets: labels, `[..., H, W]`.
      activation: what makes probabilities p of the scores.
      axis: the axes of pixels.
      ignore: labels that do not count.
      classes: those that the mean is over.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, in [0, 1]. 0 means that the target has probability 1 everywhere.

    At the edges:
      One minus IoU for probabilities of 0 and 1. A class that is not in the target but counts
      has the largest error of all pixels.

    Gradient:
      `J_k - J_{k-1}` times the sign of p - r. Ties do not change the value. Of equal errors
      those of the class come before those outside of it; within either, pixels share alike.

    Example:
      >>> p = jnp.array([[[0.75, 0.25], [0.25, 0.75]]])
      >>> print(lovasz_softmax_loss(p, jnp.array([[0, 1]]), activation="none"))
      0.25

    Reference:
      Berman et al., "The Lovász-Softmax Loss: A Tractable Surrogate for the Optimization of the
      Intersection-over-Union Measure in Neural Networks", CVPR 2018,
      https://arxiv.org/abs/1705.08790.
    """
    p, r = _probabilities(predictions, targets, activation, ignore, where, soft=False)
    axes = _pixel_axes(axis, p.shape, p.ndim - 1)
    errors, inside = _rows(absolute(p - r), axes), _rows(r > 0, axes)
    counts = _counted_classes(inside.any(-1), classes, ignore)
    return _mean_over_classes(_lovasz_extension(errors, inside), counts)


@compiled(static=("axis", "ignore"))
def lovasz_hinge_loss(
    predictions: Real[ArrayLike, "..."],
    targets: Integer[ArrayLike, "..."] | Bool[ArrayLike, "..."],
    *,
    axis: Integers = (-2, -1),
    ignore: Integers = (),
    where: Bool[ArrayLike, "..."] | None = None,
) -> Float[Array, "..."]:
    r"""The Lovasz loss of binary masks with the errors of a support vector machine.

    .. math:: \sum_k \max(0, e_{\pi(k)}) (J_k - J_{k-1}), \quad e = 1 - f s

    as in `lovasz_softmax_loss`, with logits f and signs s, 1 in the mask and -1 outside.

    Args:
      predictions: logits, `[..., H, W]`, above 0 for the mask.
      targets: labels 0 and 1, or bool, `[..., H, W]`; other labels do not count.
      axis: the axes of pixels.
      ignore: labels that do not count.
      where: bool, `[..., H, W]`; pixels that count.

    Returns:
      `[...]`, 0 or more. 0 means that all logits are right by 1 or more.

    At the edges:
      For an empty mask the largest error alone. 0 where no pixel counts.

    Gradient:
      `J_k - J_{k-1}` times -s, and 0 for pixels right by 1 or more. Ties as in
      `lovasz_softmax_loss`.

    Example:
      >>> print(lovasz_hinge_loss(jnp.array([[2.0, -0.5, -3.0]]), jnp.array([[1, 1, 0]])))
      0.75

    Reference:
      Berman et al., CVPR 2018, https://arxiv.org/abs/1705.08790, equation 12.
    """
    _check(predictions, targets, where, classes=False)
    axes = _pixel_axes(axis, predictions.shape, predictions.ndim)
    labels, counts = _label_map(targets, predictions.shape, 2, ignore, where)
    scores = jnp.where(counts, predictions, jnp.zeros_like(predictions))
    scores = scores.astype(_checks.working_dtype(predictions))
    errors = positive_part(1 - jnp.where(labels == 1, scores, -scores))
    errors, inside = jnp.where(counts, errors, 0), counts & (labels == 1)
    return _lovasz_extension(_rows(errors, axes), _rows(inside, axes))


class _Sums(NamedTuple):
    """Sums over pixels, `[..., K]`, and which classes count.

    Attributes:
      total: of the target r.
      over: of max(p - r, 0), the false positives.
      under: of max(r - p, 0), the false negatives; what is left of the total is min(r, p).
      counts: bool.
    """

    total: Array
    over: Array
    under: Array
    counts: Array


def _sums(
    predictions: ArrayLike,
    targets: ArrayLike,
    activation: Activation,
    axis: Integers,
    ignore: Integers,
    classes: Classes,
    where: ArrayLike | None,
) -> _Sums:
    p, r = _probabilities(predictions, targets, activation, ignore, where)
    axes = _pixel_axes(axis, p.shape, p.ndim - 1)
    total, over, under = (x.sum(axes) for x in (r, positive_part(p - r), positive_part(r - p)))
    return _Sums(total, over, under, _counted_classes(total > 0, classes, ignore))


def _tversky_loss(
    sums: _Sums, alpha: float, beta: float, smooth: float, gamma: float = 1.0
) -> Array:
    wrong = alpha * sums.over + beta * sums.under
    right = never_negative(sums.total - sums.under)
    loss = safe_divide(wrong, right + wrong + _not_negative("smooth", smooth))
    return _mean_over_classes(loss if gamma == 1 else safe_power(loss, gamma), sums.counts)


@jax.custom_jvp
def _lovasz_extension(errors: Array, inside: Array) -> Array:
    """The Lovasz extension of 1 - IoU at errors of 0 or more, of pixels in the target or not.

    `[..., N]` and `[..., N]` give `[...]`. A pixel outside of the target with error 0 changes
    nothing, so that pixels that do not count can be made one.
    """
    return _sorted_extension(errors, inside)[0]


@_lovasz_extension.defjvp
def _lovasz_extension_jvp(primals, tangents):
    """The weights are constant almost everywhere, so the slope is their sum with the errors'."""
    value, keys, ordered, weights = _sorted_extension(*primals)
    by_pixel = jnp.take_along_axis(weights, places(ordered, keys), axis=-1)
    return value, (by_pixel * tangents[0]).sum(-1)


def _sorted_extension(errors: Array, inside: Array) -> tuple[Array, Array, Array, Array]:
    """The value, the key of each pixel, the keys in order, and the weight of each of these."""
    keys = _keys(errors, inside)
    ordered = jax.lax.sort(keys, is_stable=False)
    weights = _weights(ordered, errors.dtype)
    sizes = jax.lax.bitcast_convert_type(ordered >> 1, errors.dtype)
    return (sizes * weights).sum(-1), keys, ordered, weights


def _keys(errors: Array, inside: Array) -> Array:
    """Unsigned integers in the order of the errors, the last bit says whether `inside`.

    A float's bits are in its order if it is not negative, and its sign's is free. One array
    of integers sorts several times faster on a CPU than floats, or than a pair of arrays.
    """
    unsigned = jnp.uint64 if errors.dtype == np.float64 else jnp.uint32
    return (jax.lax.bitcast_convert_type(errors, unsigned) << 1) | inside.astype(unsigned)


def _weights(ordered: Array, dtype: np.dtype) -> Array:
    """By how much each pixel raises 1 - IoU when pixels turn wrong, the last key first.

    A pixel inside leaves the union U, `1 / U`; one outside takes it from U to U + 1 with the
    intersection I as it is, `I / U - I / (U + 1)`. Not the differences of 1 - IoU itself:
    in float32 they have one or two digits left in a large image. Equal keys share alike.
    """
    axis, count = ordered.ndim - 1, ordered.shape[-1]
    place = jnp.arange(count, dtype=jnp.int32).reshape((1,) * axis + (count,))
    place = place + jnp.zeros_like(ordered, jnp.int32)  # sharded alike
    starts = (place == 0) | (ordered != jnp.roll(ordered, 1, axis=-1))
    ends = (place == count - 1) | (ordered != jnp.roll(ordered, -1, axis=-1))
    first = jax.lax.cummax(jnp.where(starts, place, 0), axis=axis)
    last = jax.lax.cummin(jnp.where(ends, place, count), axis=axis, reverse=True)

    inside = (ordered & 1) == 1
    intersection = jnp.cumsum(inside, axis=-1, dtype=jnp.int32)  # all but those wrong by now
    union = intersection + count - 1 - jnp.where(inside, place, last)
    after = jnp.where(inside, union, intersection + count - first)
    # Without any target, the first wrong pixel takes the loss from 0 to 1.
    whole = inside | (union == 0)
    share = intersection.astype(dtype) / jnp.maximum(union, 1).astype(dtype)
    return jnp.where(whole, 1, share) / jnp.maximum(after, 1).astype(dtype)


def _probabilities(
    predictions: ArrayLike,
    targets: ArrayLike,
    activation: Activation,
    ignore: Integers,
    where: ArrayLike | None,
    soft: bool = True,
) -> tuple[Array, Array]:
    """Probabilities and targets, `[..., K]` in one float type, both 0 where nothing counts."""
    _check(predictions, targets, where, classes=True)
    _checks.one_of("activation", activation, ACTIVATIONS)
    *pixels, classes = shape = predictions.shape
    is_map = targets.ndim < len(shape) or not soft
    if classes == 1 and (is_map or activation == "softmax"):
        raise ValueError(
            f"predictions {list(shape)} of one class need a mask [..., 1] for targets and a "
            f"sigmoid, or `lovasz_hinge_loss`; for labels 0 and 1 there are two classes"
        )
    dtype = _checks.working_dtype(predictions)

    if not is_map:
        _checks.exact_shape("targets", targets, shape, "soft labels")
        if ignore != ():
            raise ValueError("ignore needs targets that are a label map; soft labels have `where`")
        counts = jnp.ones((1,) * len(shape), bool) if where is None else where[..., None]
        dtype = _checks.working_dtype(predictions, targets)
        r = jnp.where(counts, targets, jnp.zeros_like(targets)).astype(dtype)
    else:
        labels, counts = _label_map(targets, pixels, classes, ignore, where)
        counts = counts[..., None]
        names = jnp.arange(classes, dtype=labels.dtype).reshape((1,) * len(pixels) + (classes,))
        r = (counts & (labels[..., None] == names)).astype(dtype)

    # Before any arithmetic, a cast included, so that NaN where nothing counts goes no further.
    scores = jnp.where(counts, predictions, jnp.zeros_like(predictions)).astype(dtype)
    return jnp.where(counts, ACTIVATIONS[activation](scores), 0), r


def _check(
    predictions: ArrayLike, targets: ArrayLike, where: ArrayLike | None, *, classes: bool
) -> None:
    """Raises unless all are arrays, and `where` is a mask of the pixels of predictions."""
    _checks.is_array("predictions", predictions)
    _checks.is_real("predictions", predictions)
    if classes:
        _checks.trailing_shape("predictions", predictions, (None, None), "pixels and classes")
    if where is not None:
        _checks.mask("where", where, predictions.shape[: predictions.ndim - classes])
    _checks.is_array("targets", targets)


def _label_map(
    targets: ArrayLike,
    shape: Sequence[int],
    classes: int,
    ignore: Integers,
    where: ArrayLike | None,
) -> tuple[Array, Array]:
    """Labels as signed integers, and which of them count."""
    _checks.exact_shape("targets", targets, shape, "a label for each pixel")
    if targets.dtype != np.bool_:
        _checks.is_integer("targets", targets)
    # uint8 could not be compared with -1 or with 1000 classes.
    labels = jnp.asarray(targets)
    labels = labels.astype(jnp.int64 if labels.dtype.itemsize == 8 else jnp.int32)
    counts = (labels >= 0) & (labels < classes)
    for label in _checks.integers("ignore", ignore):
        if 0 <= label < classes:
            counts = counts & (labels != label)
    return labels, counts if where is None else counts & where


def _counted_classes(present: Array, classes: Classes, ignore: Integers) -> Array:
    """Which classes the mean is over, bool `[..., K]`."""
    count = present.shape[-1]
    chosen = np.ones(count, bool)
    if isinstance(classes, str):
        _checks.one_of("classes", classes, ("present", "all"))
    else:
        numbers = _checks.members("classes", classes, count)
        if not numbers:
            raise ValueError("classes must name a class, got ()")
        chosen = np.isin(np.arange(count), numbers)
    chosen &= ~np.isin(np.arange(count), _checks.integers("ignore", ignore))
    counts = jnp.asarray(chosen).reshape((1,) * (present.ndim - 1) + (count,))
    return counts & present if classes == "present" else jnp.broadcast_to(counts, present.shape)


def _mean_over_classes(loss: Array, counts: Array) -> Array:
    number = jnp.maximum(counts.sum(-1, dtype=loss.dtype), 1)
    return jnp.where(counts, loss, 0).sum(-1) / number


def _pixel_axes(axis: Integers, shape: Sequence[int], count: int) -> tuple[int, ...]:
    """The axes of pixels, counted from 0, which lie among the first `count` of `shape`."""
    numbers = _checks.integers("axis", axis)
    axes = tuple(sorted(a + len(shape) if a < 0 else a for a in numbers))
    if not axes or len(set(axes)) < len(axes) or not all(0 <= a < count for a in axes):
        raise ValueError(
            f"axis must name axes of pixels of predictions {list(shape)}, each once, got {axis}"
        )
    return axes


def _rows(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` with the axes of pixels moved to the end and made one."""
    kept = tuple(a for a in range(x.ndim) if a not in axes)
    sizes = [x.shape[a] for a in kept]
    return x.transpose(kept + axes).reshape(*sizes, math.prod(x.shape[a] for a in axes))


def _not_negative(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of 0 or more, got {value!r}")
    return float(value)
