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
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Real

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, over_leading, region_rank_of

__all__ = ["iou_loss", "giou_loss", "diou_loss", "ciou_loss", "overlap_loss", "mean"]

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
    return masked_loss(lambda p, t: forms[form](boxes.iou(p, t)), 1, predictions, targets, where)


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
    return masked_loss(lambda p, t: 1 - boxes.giou(p, t), 1, predictions, targets, where)


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
    return masked_loss(lambda p, t: 1 - boxes.diou(p, t), 1, predictions, targets, where)


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
      `[...]`, in [0, 3). 0 means the boxes coincide.

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
    return masked_loss(lambda p, t: 1 - boxes.ciou(p, t), 1, predictions, targets, where)


@functools.cache
def overlap_loss(overlap: Overlap, *, region_rank: int | None = None) -> Callable[..., Array]:
    """The loss `1 - overlap` of any overlap, the library's or your own.

    Args:
      overlap: a function of two single regions that JAX can differentiate.
      region_rank: as in `pairwise`: None reads it off the overlap, else 1.

    Returns:
      `loss(predictions, targets, *, where=None)` for regions `[..., *region]`, unreduced.
      The same overlap gives the same function, so it compiles once.

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
        predictions: Real[ArrayLike, "..."],
        targets: Real[ArrayLike, "..."],
        *,
        where: Bool[ArrayLike, "..."] | None = None,
    ) -> Array:
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
    counts = where.reshape(where.shape + (1,) * rank)
    pairs = (jnp.where(counts, x, 0) for x in (predictions, targets))
    return jnp.where(where, over_leading(loss, rank)(*pairs), 0)
