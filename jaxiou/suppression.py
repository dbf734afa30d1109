"""Removing, rescoring or merging duplicates among scored regions, on static shapes.

`nms` removes regions that repeat a better one; `soft_nms` and `matrix_nms` lower their
scores; `weighted_boxes_fusion` and `non_maximum_merging` make one region of several. What
holds for every function here, and is not repeated below:

- **One image.** `regions`, `[N, *region]`, and `scores`, `[N]`; N may be 0. Batches by
  `jax.vmap`.
- **Any overlap**, the library's or your own, called as `overlap(better, worse)`. It is
  compiled in: write it once, not as a lambda in a loop.
- **Order.** Best first; of equal scores the lower index. `min_score` is the least that stays.
- **Left out** are regions where `where` is False, whatever they hold, and those that score
  NaN or -inf. A region with NaN in it is kept for its score and meets none.
- **Thresholds** are strict: an overlap has to exceed them. They may be traced, and are
  compared in the type of the overlap.
- **Labels.** With `labels`, integers `[N]`, regions of different labels do not meet.
- **Sizes.** Results have `max_outputs` rows, a Python int; behind the last valid one they
  are 0, and indices -1.
- **Gradients** of regions and scores pass through the arithmetic. Which regions are chosen,
  and in which order, has none.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, Real, Shaped

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._fusion import (
    MATRIX_DECAYS,
    SOFT_DECAYS,
    Groups,
    clusters,
    decay_by,
    decided,
    soft_steps,
    suppressed,
    with_gradient_of,
)
from jaxiou._greedy import Item, greedy
from jaxiou._math import safe_divide
from jaxiou._scored import (
    classes,
    interact,
    like,
    numbers,
    overlap_table,
    ranking,
    ranks,
    scored,
)
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, masked, take

__all__ = [
    "nms",
    "nms_from_overlaps",
    "soft_nms",
    "matrix_nms",
    "weighted_boxes_fusion",
    "non_maximum_merging",
    "Selection",
    "Rescored",
    "Merged",
]


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


class Rescored(NamedTuple):
    """Regions with lowered scores, best first.

    Attributes:
      scores: `[max_outputs]`; 0 where `selection.valid` is False.
      selection: which regions they belong to; `selection.take(regions)` gives them.
    """

    scores: Float[Array, "..."]
    selection: Selection


class Merged(NamedTuple):
    """Regions that are each made of one or more of the input, best first.

    Attributes:
      regions: `[max_outputs, *region]`; 0 where `selection.valid` is False.
      scores: `[max_outputs]`; 0 where `selection.valid` is False.
      selection: the best region of each group; `selection.take(labels)` gives its label.
    """

    regions: Shaped[Array, "..."]
    scores: Float[Array, "..."]
    selection: Selection


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
    given = scored(overlap, max_outputs, regions, scores, labels, where, min_score)
    limit = _checks.scalar("threshold", threshold)
    # Boxes last, so that one coordinate of many lies side by side.
    regions, axis = (given.regions.T, -1) if given.regions.ndim == 2 else (given.regions, 0)
    axes = jax.tree.map(lambda _: 0, given)._replace(regions=axis)

    def suppresses(a, b):
        value = overlap(a[1].regions, b[1].regions)
        return interact(a[1], b[1]) & (value > limit.astype(value.dtype))

    return _kept(given._replace(regions=regions), axes, given.scores, suppresses, max_outputs)


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
    _checks.table("overlaps", overlaps)
    _checks.rows("scores", scores, ())
    total = scores.shape[0]
    _checks.exact_shape("overlaps", overlaps, (total, total), "one row and one column a score")
    _checks.count("max_outputs", max_outputs)
    scores = ranks(scores, total, where, min_score, _checks.working_dtype(scores))
    table = jax.lax.stop_gradient(jnp.asarray(overlaps))
    table = table.astype(_checks.working_dtype(table))
    above = table > _checks.scalar("threshold", threshold).astype(table.dtype)
    labels = classes(labels, total)

    def suppresses(a, b):
        (i, label), (j, other) = a, b
        return above[i, j] if label is None else above[i, j] & (label == other)

    axes = jax.tree.map(lambda _: 0, labels)
    return _kept(labels, axes, scores, suppresses, max_outputs)


@compiled(static=("max_outputs", "method", "overlap"))
def soft_nms(
    regions: Shaped[ArrayLike, "n *region"],
    scores: Real[ArrayLike, " n"],
    *,
    max_outputs: int,
    method: Literal["gaussian", "linear"] = "gaussian",
    sigma: Real[ArrayLike, ""] | float = 0.5,
    threshold: Real[ArrayLike, ""] | float = 0.3,
    min_score: Real[ArrayLike, ""] | float = 0.001,
    overlap: Overlap = boxes.iou,
    labels: Int[ArrayLike, " n"] | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
) -> Rescored:
    """Lowers each region's score by its overlaps with all that are better.

    The best region is taken, the scores of the others are multiplied by a decay of their
    overlap with it, and so on with the best of what is left. Memory is of order N, and of
    `max_outputs^2` where a gradient is taken.

    Args:
      regions: `[N, *region]`.
      scores: `[N]`, at least 0.
      max_outputs: how many regions are taken at most.
      method: "gaussian" decays by `exp(-overlap^2 / sigma)`, "linear" by `1 - overlap` where
        the overlap exceeds `threshold`.
      sigma: how slowly "gaussian" decays, above 0.
      threshold: of "linear".
      min_score: a region whose score falls below it is dropped, and lowers no others; 0
        drops none.
      overlap: a function of two single regions; 0 or less, and NaN, count as apart.
      labels: integers, `[N]`; None lets all regions interact.
      where: bool, `[N]`; regions that count.

    Returns:
      `Rescored(scores, selection)`, in the order in which regions are taken, so that scores
      do not rise.

    At the edges:
      A region that meets no better one keeps its score. One that equals a better one is
      left with `exp(-1 / sigma)` of it, and with 0 by "linear".

    Gradient:
      Of a score by the region's own, and by the overlaps with those that were taken before.

    Example:
      >>> regions = jnp.array([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.0], [8.0, 8.0, 9.0, 9.0]])
      >>> scores = jnp.array([1.0, 0.8, 0.5])
      >>> scores, selection = soft_nms(regions, scores, max_outputs=3, method="linear")
      >>> print(scores, selection.indices)
      [1.  0.5 0.2] [0 2 1]

    Reference:
      Bodla et al., "Soft-NMS: Improving Object Detection With One Line of Code", ICCV 2017,
      https://arxiv.org/abs/1704.04503. The paper's "linear" starts at the threshold; here it
      starts above it, like every threshold of this library.
    """
    given = scored(overlap, max_outputs, regions, scores, labels, where, min_score)
    decay = decay_by(SOFT_DECAYS, method, given)
    settings = numbers(given, sigma=sigma, threshold=threshold)
    (least,) = numbers(given, min_score=min_score)

    # The steps have no gradient: it would keep a number for each step and region. If one is
    # wanted, it is that of the same product over those alone that were taken.
    held = jax.lax.stop_gradient((given, settings, least))
    indices, lowered = soft_steps(*held, decay, overlap, given.length(max_outputs))
    valid = lowered > -jnp.inf
    taken = given.take(indices, valid)
    decays = decay(overlap_table(overlap, taken), *settings)
    product, _ = jax.lax.scan(lambda x, row: (x * row, None), taken.scores, decays)
    values = with_gradient_of(product, jnp.where(valid, lowered, 0))
    return Rescored(_fit(values, max_outputs), _selection(indices, valid, max_outputs))


@compiled(static=("max_outputs", "method", "candidates", "overlap"))
def matrix_nms(
    regions: Shaped[ArrayLike, "n *region"],
    scores: Real[ArrayLike, " n"],
    *,
    max_outputs: int,
    method: Literal["gaussian", "linear"] = "gaussian",
    sigma: Real[ArrayLike, ""] | float = 2.0,
    min_score: Real[ArrayLike, ""] | float = 0.05,
    candidates: int = 500,
    overlap: Overlap = boxes.iou,
    labels: Int[ArrayLike, " n"] | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
) -> Rescored:
    """Lowers all scores at once, by overlaps with better regions that are none's duplicate.

    With `o_ij` the overlap of regions i and j, the score of j is multiplied by the least of
    `decay(o_ij) / decay(c_i)` over the better regions i, where `c_i` is the greatest overlap
    of i with one better still: the more i is a duplicate itself, the less it counts. It is
    Soft-NMS without its steps, from a table of `candidates^2` overlaps.

    Args:
      regions: `[N, *region]`.
      scores: `[N]`, at least 0.
      max_outputs: how many regions are returned at most.
      method: "gaussian" is `decay(o) = exp(-sigma o^2)`, "linear" is `1 - o`.
      sigma: how fast "gaussian" decays; note that `soft_nms` divides by its own.
      min_score: regions whose lowered score is below it are dropped; 0 drops none.
      candidates: how many regions, those of the highest scores, are looked at; an int of 1
        or more.
      overlap: a function of two single regions; 0 or less, and NaN, count as apart.
      labels: integers, `[N]`; None lets all regions interact.
      where: bool, `[N]`; regions that count.

    Returns:
      `Rescored(scores, selection)`, by falling lowered score; of equal ones the lower index
      first.

    At the edges:
      A region that meets no better one keeps its score. One that equals the best is left
      with `exp(-sigma)` of it, and with 0 by "linear", where `c_i = 1` divides nothing: an
      exact duplicate lowers no other score.

    Gradient:
      Of a score by the region's own and by the two overlaps that decide; where several
      decide equally, they share it.

    Example:
      >>> regions = jnp.array([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.0], [8.0, 8.0, 9.0, 9.0]])
      >>> scores = jnp.array([1.0, 0.8, 0.5])
      >>> scores, selection = matrix_nms(regions, scores, max_outputs=3, method="linear")
      >>> print(scores, selection.indices)
      [1.  0.5 0.2] [0 2 1]

    Reference:
      Wang et al., "SOLOv2: Dynamic and Fast Instance Segmentation", NeurIPS 2020,
      https://arxiv.org/abs/2003.10152.
    """
    given = scored(overlap, max_outputs, regions, scores, labels, where, min_score)
    quotient = decay_by(MATRIX_DECAYS, method, given)
    sigma, least = numbers(given, sigma=sigma, min_score=min_score)
    _checks.count("candidates", candidates, least=1)
    # Sorted, as XLA cannot shard a batch of top_k.
    indices = ranking(given.scores, given.places)[: given.length(candidates)]
    valid = jnp.take(given.scores, indices) > -jnp.inf
    taken = given.take(indices, valid)
    table = overlap_table(overlap, taken)
    held, o, s = jax.lax.stop_gradient((taken.scores, table, sigma))
    lowered = held * quotient(o, o.max(axis=0)[:, None], s).min(axis=0)
    values = with_gradient_of(decided(taken, table, quotient, sigma), lowered)
    valid &= values >= least
    values = jnp.where(valid, values, 0)
    order = ranking(jnp.where(valid, values, -jnp.inf), indices)
    indices, valid, values = (jnp.take(x, order) for x in (indices, valid, values))
    return Rescored(_fit(values, max_outputs), _selection(indices, valid, max_outputs))


@compiled(static=("max_outputs", "overlap"))
def weighted_boxes_fusion(
    regions: Shaped[ArrayLike, "n *region"],
    scores: Real[ArrayLike, " n"],
    *,
    threshold: Real[ArrayLike, ""] | float = 0.55,
    max_outputs: int,
    num_models: Real[ArrayLike, ""] | float = 1,
    overlap: Overlap = boxes.iou,
    labels: Int[ArrayLike, " n"] | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
    min_score: Real[ArrayLike, ""] | float | None = None,
) -> Merged:
    """Fuses what several models found: clusters of regions become their weighted means.

    Best first, each region joins the cluster whose mean so far it overlaps most, if by more
    than `threshold`, and else begins a cluster; of equal overlaps the cluster begun first
    counts. A cluster's region is the mean of its members weighted by their scores, and its
    score is `mean(scores) * min(num_models, members) / num_models`: what few of the models
    found counts less. Work is of order N * `max_outputs`, memory of N + `max_outputs`.

    Args:
      regions: `[N, *region]`, of all models together, such as boxes or keypoints: finite
        numbers whose mean means something, which an angle's does not.
      scores: `[N]`, at least 0. To weigh the models, multiply each one's scores by a weight;
        the mean of the models' weights has to be 1.
      threshold: what an overlap has to exceed.
      max_outputs: how many clusters there can be. Once as many are begun, which the best
        regions do, a region that fits none of them is dropped; N loses none.
      num_models: how many models the regions come from; a number above 0.
      overlap: a function of two single regions, here of a mean and a region.
      labels: integers, `[N]`; None lets all regions interact.
      where: bool, `[N]`; regions that count.
      min_score: regions of a lower score are left out; None takes all.

    Returns:
      `Merged(regions, scores, selection)`, by falling fused score, where `selection` has the
      best member of each cluster; of equal scores, that of lower index first.

    At the edges:
      Equal regions fuse to exactly themselves. Members of score 0 do not move the mean, and
      a cluster of nothing else is its first member. An empty box overlaps none, and so is
      its own cluster; the original drops it.

    Gradient:
      That of the means, with the clusters held as they are.

    Example:
      >>> regions = jnp.array([[0.0, 0.0, 4.0, 4.0], [0.0, 0.0, 4.0, 3.0], [8.0, 8.0, 9.0, 9.0]])
      >>> scores = jnp.array([0.75, 0.25, 0.5])
      >>> fused, scores, _ = weighted_boxes_fusion(regions, scores, max_outputs=2, num_models=2)
      >>> print(fused, scores)
      [[0.   0.   4.   3.75]
       [8.   8.   9.   9.  ]] [0.5  0.25]

    Reference:
      Solovyev et al., "Weighted boxes fusion: Ensembling boxes from different object detection
      models", Image and Vision Computing 2021, https://arxiv.org/abs/1910.13302; confidence
      "avg" of the authors' package ensemble-boxes, for boxes of any unit.
    """
    given = scored(overlap, max_outputs, regions, scores, labels, where, min_score)
    threshold, models = numbers(given, threshold=threshold, num_models=num_models)
    given = given._replace(regions=given.regions.astype(given.scores.dtype))
    held = jax.lax.stop_gradient((given, threshold))
    groups = clusters(*held, overlap, given.length(max_outputs))

    # Means of differences from each group's best, which are exactly 0 for equal regions.
    best = groups.take_best(given)
    weights = jnp.where(groups.member, given.scores, 0)
    shifts = masked(given.regions, groups.member) - groups.spread(best.regions)
    total, members = groups.sum(weights), groups.sum(groups.member.astype(weights.dtype))
    moved = groups.sum(like(weights, shifts) * shifts)
    fused = best.regions + safe_divide(moved, like(total, moved))
    values = safe_divide(total, members) * jnp.minimum(models, members) / models
    return _merged(fused, values, groups, max_outputs)


@compiled(static=("max_outputs", "overlap", "merge"))
def non_maximum_merging(
    regions: Shaped[ArrayLike, "n *region"],
    scores: Real[ArrayLike, " n"],
    *,
    threshold: Real[ArrayLike, ""] | float,
    max_outputs: int,
    overlap: Overlap = boxes.iou,
    merge: Callable[[Array, Array], Array] = boxes.enclosing,
    labels: Int[ArrayLike, " n"] | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
    min_score: Real[ArrayLike, ""] | float | None = None,
) -> Merged:
    """Greedy suppression in which a region absorbs those that it suppresses.

    What `nms` keeps, in its order and with its scores, but each region merged with all that
    it suppressed: pieces of one object, found in overlapping crops of an image, become one.
    Work is of order N * `max_outputs`, memory of N + `max_outputs`.

    Args:
      regions: `[N, *region]`.
      scores: `[N]`.
      threshold: what an overlap has to exceed.
      max_outputs: how many groups there are at most, those of the highest scores.
      overlap: a function of two single regions.
      merge: a function of two single regions that gives one, and that is associative and
        commutative, as the grouping of its calls is not said. `boxes.enclosing` gives the box
        around a group; for masks take `jnp.maximum`.
      labels: integers, `[N]`; None lets all regions interact.
      where: bool, `[N]`; regions that count.
      min_score: regions of a lower score are left out; None takes all.

    Returns:
      `Merged(regions, scores, selection)`: a score is that of the group's best region, and
      `selection` is what `nms` gives.

    At the edges:
      A region that suppresses none is as it was. Overlaps are those of the regions given, not
      of merged ones, so a chain is not drawn into one group.

    Gradient:
      That of `merge`, with the groups held as they are; of a score by its own region's, 1.

    Example:
      >>> regions = jnp.array([[0.0, 0.0, 4.0, 4.0], [1.0, 0.0, 5.0, 4.0], [8.0, 8.0, 9.0, 9.0]])
      >>> scores = jnp.array([0.75, 0.5, 0.25])
      >>> merged, scores, _ = non_maximum_merging(regions, scores, threshold=0.5, max_outputs=2)
      >>> print(merged, scores)
      [[0. 0. 5. 4.]
       [8. 8. 9. 9.]] [0.75 0.25]

    Reference:
      The grouping is that of `box_non_max_merge` in Roboflow's supervision,
      https://github.com/roboflow/supervision, which also takes overlaps equal to the
      threshold, and gives a group the mean of its scores weighted by area.
    """
    given = scored(overlap, max_outputs, regions, scores, labels, where, min_score)
    (threshold,) = numbers(given, threshold=threshold)
    one = jax.ShapeDtypeStruct(given.regions.shape[1:], given.regions.dtype)
    merged = jax.eval_shape(merge, one, one)
    _checks.one_region("merge", merged, one.shape)
    given = given._replace(regions=given.regions.astype(merged.dtype))
    held = jax.lax.stop_gradient((given, threshold))
    groups = suppressed(*held, overlap, given.length(max_outputs))
    rows = masked(given.regions, groups.member)
    values = groups.take_best(given).scores
    return _merged(groups.reduce(merge, rows), values, groups, max_outputs)


def _merged(regions: Array, scores: Array, groups: Groups, max_outputs: int) -> Merged:
    order = ranking(jnp.where(groups.valid, scores, -jnp.inf), groups.best)
    regions, scores = masked(regions, groups.valid), masked(scores, groups.valid)
    return Merged(
        _fit(jnp.take(regions, order, axis=0), max_outputs),
        _fit(jnp.take(scores, order), max_outputs),
        _selection(jnp.take(groups.best, order), jnp.take(groups.valid, order), max_outputs),
    )


def _selection(indices: Array, valid: Array, size: int) -> Selection:
    return Selection(_fit(jnp.where(valid, indices, -1), size, -1), _fit(valid, size))


def _fit(x: Array, size: int, fill: int = 0) -> Array:
    """The first `size` rows of `x`, and `fill` behind the last that it has."""
    x = x[:size]
    rows = jnp.full_like(x, fill, shape=(size - x.shape[0], *x.shape[1:]))
    return jnp.concatenate([x, rows])


def _kept(
    items: Item,
    axes: Any,
    scores: Array,
    suppresses: Callable[[tuple[Array, Item], tuple[Array, Item]], Array],
    max_outputs: int,
) -> Selection:
    items, scores = jax.lax.stop_gradient((items, scores))
    indices = greedy(items, scores, suppresses, axes=axes, max_outputs=max_outputs)
    return Selection(indices, indices >= 0)
