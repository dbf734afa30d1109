"""Removing duplicates among scored regions, for any overlap, on static shapes.

What holds for every function here, and is not repeated below:

- **Arguments.** `regions`, `[N, *region]`, and `scores`, `[N]`, of one image; batches by
  `jax.vmap`. `overlap` is any function of two single regions, compiled in: write it once,
  not as a lambda in a loop.
- **Order.** Higher scores come first; equal ones keep the lower index first. Regions that
  score NaN or -inf, or that `where` leaves out, are never kept and suppress nothing,
  whatever they hold.
- **Thresholds** are compared strictly, in the type of the overlap, and may be traced. An
  overlap of NaN is above none.
- **Labels.** With `labels`, integers `[N]`, regions of different labels do not meet.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, Real, Shaped

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._greedy import Item, greedy
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, masked, region_rank_of, take

__all__ = ["nms", "nms_from_overlaps", "Selection"]


class Selection(NamedTuple):
    """Which regions are kept, best first.

    Attributes:
      indices: their places in the input, int32 `[max_outputs]`; -1 where `valid` is False.
      valid: bool, `[max_outputs]`; True for those that are kept, which come first.
    """

    indices: Int[Array, "..."]
    valid: Bool[Array, "..."]

    def take(self, x: Shaped[ArrayLike, "..."], fill: float = 0) -> Shaped[Array, "..."]:
        """The rows of `x` that belong to what is kept, `fill` behind it.

        Args:
          x: `[..., N, *rest]`, one row for each region of the input: its box, score or label.
          fill: what stands where `valid` is False; indexing with -1 would give the last row.

        Returns:
          `[..., max_outputs, *rest]`, of the type of `x`.
        """
        return take(x, self.indices, self.valid, fill)


@compiled(static=("max_outputs", "overlap"))
def nms(
    regions: Shaped[ArrayLike, "n *region"],
    scores: Real[ArrayLike, " n"],
    *,
    threshold: Real[ArrayLike, ""] | float,
    max_outputs: int,
    overlap: Overlap = boxes.iou,
    labels: Int[ArrayLike, " n"] | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
    min_score: Real[ArrayLike, ""] | float | None = None,
) -> Selection:
    """Greedy non-maximum suppression: the best region, then the best that it leaves, and on.

    A region is kept unless one that is kept and comes before it overlaps it by more than
    `threshold`. The result is that of the sequential algorithm, for every threshold.

    Args:
      regions: `[N, *region]`, such as boxes `(x1, y1, x2, y2)`.
      scores: `[N]`.
      threshold: the overlap above which the lower score goes; it may be traced.
      max_outputs: how many to keep at most, and the length of the result. Memory is of the
        order of `N + max_outputs`, and work of N times the number kept.
      overlap: of a region that is kept and one that comes later; `boxes.diou` makes it
        DIoU-NMS. What a lower score loses its place for is *larger*.
      labels: integers `[N]`; regions of different labels do not suppress each other.
      where: bool, `[N]`; False leaves a region out.
      min_score: regions that score less are left out.

    Returns:
      A `Selection` of `max_outputs` places.

    At the edges:
      Strict: at an overlap of exactly `threshold` both are kept. Empty boxes overlap
      nothing, and stay. A region of NaN suppresses none, and stays if its score is a
      number. No regions at all: nothing is valid.

    Gradient:
      None: a choice. That of what is taken with it flows to the rows that are kept.

    Example:
      >>> regions = jnp.array([[0.0, 0, 4, 4], [0, 0, 4, 5], [6, 6, 9, 9]])
      >>> kept = nms(regions, jnp.array([0.7, 0.9, 0.8]), threshold=0.5, max_outputs=3)
      >>> print(kept.indices, kept.valid)
      [ 1  2 -1] [ True  True False]

    Reference:
      Neubeck, Van Gool, "Efficient Non-Maximum Suppression", ICPR 2006; tiles against a
      buffer of kept boxes. torchvision's `nms` gives the same indices, of dynamic length.
    """
    rank = region_rank_of(overlap, None)
    _checks.one_set("regions", regions, rank)
    region = jax.ShapeDtypeStruct(regions.shape[1:], regions.dtype)
    _checks.one_number("overlap", jax.eval_shape(overlap, region, region))
    scores = _ranks(scores, regions.shape[:1], where, min_score)
    regions = jax.lax.stop_gradient(masked(regions, scores > -jnp.inf))
    limit = _checks.scalar("threshold", threshold)
    # Items last, so that one coordinate of many boxes lies side by side.
    axis = -1 if rank == 1 else 0

    def suppresses(a, b):
        value = overlap(a[1], b[1])
        return value > limit.astype(value.dtype)

    items = regions.T if axis == -1 else regions
    return _select(items, axis, suppresses, scores, labels, max_outputs)


@compiled(static=("max_outputs",))
def nms_from_overlaps(
    overlaps: Real[ArrayLike, "n n"],
    scores: Real[ArrayLike, " n"],
    *,
    threshold: Real[ArrayLike, ""] | float,
    max_outputs: int,
    labels: Int[ArrayLike, " n"] | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
    min_score: Real[ArrayLike, ""] | float | None = None,
) -> Selection:
    """`nms` by a table of overlaps that exists already.

    Args:
      overlaps: `[N, N]`; row i says how much region i, if it is kept, overlaps the others.
      scores: `[N]`.
      threshold: the overlap above which the lower score goes; it may be traced.
      max_outputs: how many to keep at most, and the length of the result.
      labels: integers `[N]`; regions of different labels do not suppress each other.
      where: bool, `[N]`; False leaves a region out.
      min_score: regions that score less are left out.

    Returns:
      A `Selection` of `max_outputs` places.

    At the edges:
      As in `nms`. Rows and columns of regions that are left out may hold anything.

    Gradient:
      None, as in `nms`.

    Example:
      >>> table = jnp.array([[1.0, 0.8, 0.0], [0.8, 1.0, 0.6], [0.0, 0.6, 1.0]])
      >>> scores = jnp.array([0.9, 0.8, 0.7])
      >>> print(nms_from_overlaps(table, scores, threshold=0.5, max_outputs=2).indices)
      [0 2]
    """
    total = scores.shape[0]
    _checks.is_array("overlaps", overlaps)
    _checks.is_real("overlaps", overlaps)
    _checks.exact_shape("overlaps", overlaps, (total, total), "one row and one column a score")
    scores = _ranks(scores, (total,), where, min_score)
    table = jax.lax.stop_gradient(jnp.asarray(overlaps))
    table = table.astype(_checks.working_dtype(table))
    above = table > _checks.scalar("threshold", threshold).astype(table.dtype)
    return _select((), (), lambda a, b: above[a[0], b[0]], scores, labels, max_outputs)


def _ranks(
    scores: ArrayLike,
    shape: tuple[int, ...],
    where: ArrayLike | None,
    min_score: ArrayLike | float | None,
) -> Array:
    """The scores, `[N]`, and -inf for regions that take no part."""
    _checks.is_array("scores", scores)
    _checks.is_real("scores", scores)
    _checks.exact_shape("scores", scores, shape, "one score a region")
    scores = jnp.asarray(scores).astype(_checks.working_dtype(scores))
    live = scores == scores
    if where is not None:
        _checks.mask("where", where, shape)
        live = live & where
    if min_score is not None:
        live = live & (scores >= _checks.scalar("min_score", min_score).astype(scores.dtype))
    return jax.lax.stop_gradient(jnp.where(live, scores, -jnp.inf))


def _select(
    items: Item,
    axes: Any,
    suppresses: Callable[[tuple[Array, Item], tuple[Array, Item]], Array],
    scores: Array,
    labels: ArrayLike | None,
    max_outputs: int,
) -> Selection:
    """`greedy` over items that have labels besides, if there are any."""
    _checks.count("max_outputs", max_outputs)
    meet = suppresses
    if labels is not None:
        _checks.is_array("labels", labels)
        _checks.is_integer("labels", labels)
        _checks.exact_shape("labels", labels, scores.shape, "one label a region")
        items, axes = (items, jnp.asarray(labels)), (axes, 0)

        def meet(a, b):
            (i, (first, label)), (j, (second, other)) = a, b
            return suppresses((i, first), (j, second)) & (label == other)

    indices = greedy(items, scores, meet, axes=axes, max_outputs=max_outputs)
    return Selection(indices, indices >= 0)
