"""Targets for training a detector: which anchor, or prediction, learns which truth.

What holds for every function here, and is not repeated below:

- **One image.** `[A, ...]` anchors or predictions and `[M, 4]` truths, boxes in one unit of
  length; batches by `jax.vmap`.
- **Masks.** `where`, bool `[M]`, is False for padded truths: they are never assigned,
  whatever they hold. `anchor_where`, bool `[A]`, is False for anchors that do not count, such
  as those that reach over the image: they are ignored. Without truths all others are
  negative.
- **No match** is an overlap, score or cost that is not a finite number, and a truth whose
  label is none of the classes of the scores, 0 to K - 1.
- **Ties** go to the lower index, of anchors and of truths.
- **Memory** is of the order of A x M at most, and never A x M x classes.
- **Gradient.** None: these are targets, under `stop_gradient`.
"""

import functools
from typing import Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Integer, Real, Shaped

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._math import product, safe_divide
from jaxiou._typing import ArrayLike
from jaxiou.assignment import Matching, maximum_matching
from jaxiou.pairing import Overlap, best_match, masked, pairwise, take

__all__ = ["max_iou", "atss", "simota", "task_aligned", "set_matching", "Assignment"]

Number: TypeAlias = Real[ArrayLike, ""] | float


class Assignment(NamedTuple):
    """What each anchor is to learn: a truth, background, or nothing.

    Attributes:
      indices: the truth of each anchor, int32 `[A]`; -1 where it has none.
      valid: bool, `[A]`; the positive anchors, which have a truth.
      ignored: bool, `[A]`; anchors that are neither positive nor negative.
      quality: `[A]`, in [0, 1] for overlaps in that range: what a classifier is to answer,
        0 where there is no truth.
    """

    indices: Int[Array, "..."]
    valid: Bool[Array, "..."]
    ignored: Bool[Array, "..."]
    quality: Float[Array, "..."]

    def take(self, x: Shaped[ArrayLike, "..."], fill: float = 0) -> Shaped[Array, "..."]:
        """The rows of `x` that belong to each anchor's truth, `fill` where it has none.

        Args:
          x: `[..., M, *rest]`, one row for each truth: its box or label.
          fill: what stands where `valid` is False; indexing with -1 would give the last row.

        Returns:
          `[..., A, *rest]`, of the type of `x`.
        """
        return take(x, self.indices, self.valid, fill)


@compiled(static=("low_quality", "overlap"))
def max_iou(
    anchors: Real[ArrayLike, "a 4"],
    truths: Real[ArrayLike, "m 4"],
    *,
    positive: Number = 0.7,
    negative: Number = 0.3,
    low_quality: bool = True,
    overlap: Overlap = boxes.iou,
    where: Bool[ArrayLike, " m"] | None = None,
    anchor_where: Bool[ArrayLike, " a"] | None = None,
) -> Assignment:
    """Each anchor learns the truth that it overlaps most, if it overlaps it enough.

    An overlap q of `positive` or more makes an anchor positive, one below `negative` makes
    it negative; between them it is ignored. With `low_quality`, an anchor that overlaps some
    truth as much as any anchor does is positive too, for a truth that no anchor fits well.

    Args:
      anchors: boxes `(x1, y1, x2, y2)`, `[A, 4]`.
      truths: boxes, `[M, 4]`.
      positive: the least overlap of a positive; it may be traced. 0.5 in RetinaNet.
      negative: negatives overlap less; it may be traced. 0.4 in RetinaNet.
      low_quality: whether the best anchors of each truth are positive in any case.
      overlap: of an anchor and a truth.
      where: bool, `[M]`; False for padded truths.
      anchor_where: bool, `[A]`; False for anchors that do not count.

    Returns:
      An `Assignment`; its quality is the overlap with the anchor's truth.

    At the edges:
      The best anchors of a truth are all that are equal to the highest overlap, if that is
      above 0. Each still learns the truth that it overlaps most itself, as in detectron2
      and torchvision; mmdet gives it the truth that it is the best of.

    Example:
      >>> anchors = jnp.array([[0.0, 0, 4, 4], [0, 0, 4, 2], [9, 9, 10, 10]])
      >>> print(max_iou(anchors, jnp.array([[0.0, 0, 4, 5]]), positive=0.5).indices)
      [ 0 -1 -1]

    Reference:
      Ren et al., "Faster R-CNN", NeurIPS 2015, https://arxiv.org/abs/1506.01497.
    """
    given = _given(anchors, truths, where, anchor_where)
    positive, negative = _numbers(given, positive=positive, negative=negative)
    if given.pairs.size == 0:
        return _none(given)
    overlap = _finite(overlap)
    match = best_match(overlap)(given.anchors, given.truths, where=given.where[None])
    matched = match.valid & given.anchor_where
    valid = matched & (match.values >= positive)
    if low_quality:
        valid = valid | (matched & _best_of_some_truth(given, overlap))
    ignored = matched & (match.values >= negative) & ~valid
    return _assignment(given, jnp.where(valid, match.indices, -1), match.values, ignored)


@compiled(static=("level_sizes", "candidates", "overlap"))
def atss(
    anchors: Real[ArrayLike, "a 4"],
    truths: Real[ArrayLike, "m 4"],
    *,
    level_sizes: tuple[int, ...],
    candidates: int = 9,
    overlap: Overlap = boxes.iou,
    where: Bool[ArrayLike, " m"] | None = None,
    anchor_where: Bool[ArrayLike, " a"] | None = None,
) -> Assignment:
    """Adaptive training sample selection: each truth sets its own threshold.

    The candidates of a truth are the anchors of each level whose centres lie nearest to
    its own. Those are positive that overlap it by the mean of the candidates' overlaps plus
    their standard deviation (of n - 1) or more, and have their centre within it.

    Args:
      anchors: boxes `(x1, y1, x2, y2)`, `[A, 4]`, level after level.
      truths: boxes, `[M, 4]`.
      level_sizes: how many anchors each level of the pyramid has; they sum to A.
      candidates: anchors of a level for a truth; all of a level that has fewer.
      overlap: of an anchor and a truth.
      where: bool, `[M]`; False for padded truths.
      anchor_where: bool, `[A]`; False for anchors that do not count, which are never among
        the candidates.

    Returns:
      An `Assignment`; its quality is the overlap with the anchor's truth.

    At the edges:
      An anchor that is positive for several truths learns the one that it overlaps most.
      A centre on the edge of a truth is not within it. One candidate has deviation 0.

    Example:
      >>> anchors = jnp.array([[0.0, 0, 4, 4], [4, 0, 8, 4], [0, 0, 8, 8]])
      >>> truths = jnp.array([[0.0, 0, 5, 4]])
      >>> print(atss(anchors, truths, level_sizes=(2, 1), candidates=2).indices)
      [ 0 -1 -1]

    Reference:
      Zhang et al., "Bridging the Gap Between Anchor-based and Anchor-free Detection via
      Adaptive Training Sample Selection", CVPR 2020, https://arxiv.org/abs/1912.02424.
    """
    given = _given(anchors, truths, where, anchor_where)
    _checks.count("candidates", candidates)
    for size in level_sizes:
        _checks.count("level_sizes", size)
    if sum(level_sizes) != len(given.anchors):
        raise ValueError(
            f"level_sizes must sum to the {len(given.anchors)} anchors, got {list(level_sizes)}"
        )
    if given.pairs.size == 0:
        return _none(given)
    centres = boxes.to_cxcywh(given.anchors)[:, :2]
    x, y = (boxes.to_cxcywh(given.truths)[:, i] for i in range(2))
    dx, dy = centres[:, :1] - x[None], centres[:, 1:] - y[None]
    distances = product(dx, dx) + product(dy, dy)  # equal ones stay equal
    pairs = pairwise(_finite(overlap))(given.anchors, given.truths)
    nearness = jnp.where(given.pairs & jnp.isfinite(distances), -distances, -jnp.inf)
    levels = jnp.split(nearness, np.cumsum(level_sizes)[:-1])
    near = jnp.concatenate(
        [_rank(level, candidates) < candidates for level in levels if len(level)]
    )
    near = near & (pairs > -jnp.inf)

    number = near.sum(axis=0, dtype=jnp.int32).astype(pairs.dtype)
    mean = safe_divide(jnp.where(near, pairs, 0).sum(axis=0), number)
    # The mean of equal overlaps is that overlap, which rounding would leave them below.
    least, most = (
        jnp.where(near, pairs, jnp.inf).min(axis=0),
        jnp.where(near, pairs, -jnp.inf).max(axis=0),
    )
    mean = jnp.clip(mean, least, most)
    spread = jnp.where(near, pairs - mean[None], 0) ** 2
    deviation = jnp.sqrt(safe_divide(spread.sum(axis=0), jnp.maximum(number - 1, 1)))
    claims = near & (pairs >= (mean + deviation)[None]) & _inside(centres, given.truths)
    return _claimed(given, claims, claims, pairs, pairs)


@compiled(static=("candidates", "overlap"))
def simota(
    predictions: Real[ArrayLike, "a 4"],
    truths: Real[ArrayLike, "m 4"],
    scores: Real[ArrayLike, "a k"],
    labels: Integer[ArrayLike, " m"],
    *,
    centres: Real[ArrayLike, "a 2"],
    strides: Real[ArrayLike, "#a"],
    radius: Number = 2.5,
    candidates: int = 10,
    overlap_weight: Number = 3.0,
    overlap: Overlap = boxes.iou,
    where: Bool[ArrayLike, " m"] | None = None,
    anchor_where: Bool[ArrayLike, " a"] | None = None,
) -> Assignment:
    """SimOTA: each truth takes as many of the cheapest predictions as it overlaps in sum.

    The cost of a pair is the binary cross entropy of the scores with the truth's class, less
    3 ln IoU. Predictions take part whose cell lies in the box or near the centre of some
    truth; a truth prefers those whose cell is in its own box and near its own centre, at any
    cost. It takes the k cheapest, k being the sum of its ten highest overlaps, cut to an
    integer, and 1 at least.

    Args:
      predictions: boxes `(x1, y1, x2, y2)`, `[A, 4]`.
      truths: boxes, `[M, 4]`.
      scores: probabilities of the classes, `[A, K]`; YOLOX has the root of class times
        objectness here.
      labels: the class of each truth, integers `[M]`.
      centres: of the predictions' cells, `(x, y)`, `[A, 2]`.
      strides: the size of the cells, `[A]` or `[1]`.
      radius: how near the centre of a truth is, in strides, in x and in y.
      candidates: how many overlaps are summed, and the most that a truth takes.
      overlap_weight: what -ln IoU counts.
      overlap: of a prediction and a truth, in [0, 1].
      where: bool, `[M]`; False for padded truths.
      anchor_where: bool, `[A]`; False for predictions that do not count.

    Returns:
      An `Assignment`; its quality is the overlap with the prediction's truth.

    At the edges:
      A prediction that several truths take learns the one at which it is cheapest, which
      may be a truth that did not take it, as in YOLOX. Its own box and centre come before
      cost without a large number added to it. Probabilities and overlaps below 1e-8 count
      as 1e-8 under the logarithm.

    Example:
      >>> predictions = jnp.array([[0.0, 0, 4, 4], [0, 0, 3, 4], [9, 9, 10, 10]])
      >>> centres = jnp.array([[2.0, 2], [2, 3], [9, 9]])
      >>> truths, labels = jnp.array([[0.0, 0, 4, 4]]), jnp.array([0])
      >>> scores = jnp.array([[0.9], [0.8], [0.9]])
      >>> options = {"centres": centres, "strides": jnp.array([1.0])}
      >>> print(simota(predictions, truths, scores, labels, **options).indices)
      [ 0 -1 -1]

    Reference:
      Ge et al., "YOLOX: Exceeding YOLO Series in 2021", https://arxiv.org/abs/2107.08430.
    """
    given, classes, labels = _predicted(predictions, truths, scores, labels, where, anchor_where)
    centres, strides = _points(given, centres), _strides(given, strides)
    radius, overlap_weight = _numbers(given, radius=radius, overlap_weight=overlap_weight)
    _checks.count("candidates", candidates)
    if given.pairs.size == 0:
        return _none(given)
    x, y = (boxes.to_cxcywh(given.truths)[:, i] for i in range(2))
    away = jnp.maximum(jnp.abs(centres[:, :1] - x[None]), jnp.abs(centres[:, 1:] - y[None]))
    inside = given.pairs & _inside(centres, given.truths)
    central = given.pairs & (away < (radius * strides)[:, None])
    takes_part = (inside | central).any(axis=1)

    pairs = pairwise(overlap)(given.anchors, given.truths)
    no, yes = (-jnp.log(jnp.maximum(x, FLOOR)) for x in (1 - classes, classes))
    entropy = no.sum(axis=1)[:, None] + _of_class(yes - no, labels)
    costs = entropy - overlap_weight * jnp.log(jnp.maximum(pairs, FLOOR))
    allowed = given.pairs & takes_part[:, None] & jnp.isfinite(pairs) & jnp.isfinite(costs)
    first = allowed & inside & central
    pairs = jnp.where(allowed, pairs, 0)

    best = _rank(pairs, candidates) < candidates
    number = jnp.maximum(jnp.floor(jnp.where(best, pairs, 0).sum(axis=0)), 1).astype(jnp.int32)
    number = jnp.minimum(number, candidates)[None]
    # The others come after all that are first.
    before = first.sum(axis=0, dtype=jnp.int32)[None]
    rank_first, rank = (
        _rank(jnp.where(x, -costs, -jnp.inf), candidates) for x in (first, allowed & ~first)
    )
    claims = (rank_first < number) | (rank < number - before)
    return _claimed(given, claims, allowed, -costs, pairs, first)


@compiled(static=("candidates", "overlap"))
def task_aligned(
    predictions: Real[ArrayLike, "a 4"],
    truths: Real[ArrayLike, "m 4"],
    scores: Real[ArrayLike, "a k"],
    labels: Integer[ArrayLike, " m"],
    *,
    centres: Real[ArrayLike, "a 2"],
    alpha: Number = 1.0,
    beta: Number = 6.0,
    candidates: int = 13,
    overlap: Overlap = boxes.iou,
    where: Bool[ArrayLike, " m"] | None = None,
    anchor_where: Bool[ArrayLike, " a"] | None = None,
) -> Assignment:
    r"""Task-aligned assignment: each truth takes the predictions that are good at both tasks.

    $$t = s^\alpha \, q^\beta$$

    of the score s for the truth's class and the overlap q, 0 if negative. A truth takes those
    with the highest t among the predictions whose cell has its centre within it.

    Args:
      predictions: boxes `(x1, y1, x2, y2)`, `[A, 4]`.
      truths: boxes, `[M, 4]`.
      scores: probabilities of the classes, `[A, K]`.
      labels: the class of each truth, integers `[M]`.
      centres: of the predictions' cells, `(x, y)`, `[A, 2]`.
      alpha: the power of the score; 0.5 in YOLOv8 and its successors.
      beta: the power of the overlap.
      candidates: predictions for a truth; 10 in YOLOv8 and its successors.
      overlap: of a prediction and a truth; `boxes.ciou` in YOLOv8 and its successors.
      where: bool, `[M]`; False for padded truths.
      anchor_where: bool, `[A]`; False for predictions that do not count.

    Returns:
      An `Assignment`; its quality is t, scaled so that the highest of each truth is the
      highest overlap among the predictions that learn it.

    At the edges:
      A prediction that several truths take learns the one that it overlaps most of those that
      it may learn, as in ultralytics; in mmdet, of those that take it. A pair of t = 0 is no
      match, so a truth that nothing overlaps has no prediction; ultralytics then takes those
      of the lowest index. A centre on the edge of a truth is not within it.

    Example:
      >>> predictions = jnp.array([[0.0, 0, 4, 4], [0, 0, 3, 4], [9, 9, 10, 10]])
      >>> centres = jnp.array([[2.0, 2], [2, 3], [9, 9]])
      >>> truths, labels = jnp.array([[0.0, 0, 4, 4]]), jnp.array([0])
      >>> scores = jnp.array([[0.5], [0.8], [0.9]])
      >>> assigned = task_aligned(predictions, truths, scores, labels, centres=centres)
      >>> print(assigned.indices, assigned.quality.round(2))
      [ 0  0 -1] [1.   0.28 0.  ]

    Reference:
      Feng et al., "TOOD: Task-aligned One-stage Object Detection", ICCV 2021,
      https://arxiv.org/abs/2108.07755.
    """
    given, classes, labels = _predicted(predictions, truths, scores, labels, where, anchor_where)
    centres = _points(given, centres)
    alpha, beta = _numbers(given, alpha=alpha, beta=beta)
    _checks.count("candidates", candidates)
    if given.pairs.size == 0:
        return _none(given)
    pairs = pairwise(overlap)(given.anchors, given.truths)
    aligned = _of_class(classes, labels) ** alpha * jnp.maximum(pairs, 0) ** beta
    allowed = given.pairs & _inside(centres, given.truths) & jnp.isfinite(aligned) & (aligned > 0)
    aligned, pairs = jnp.where(allowed, aligned, 0), jnp.where(allowed, pairs, 0)

    claims = allowed & (_rank(aligned, candidates) < candidates)
    assigned = _claimed(given, claims, allowed, pairs, pairs)
    # Of those that have stayed with each truth, the highest metric and the highest overlap.
    own = assigned.indices[:, None] == _places(given.truths)[None]
    aligned, pairs = jnp.where(own, aligned, 0), jnp.where(own, pairs, 0)
    scale = safe_divide(pairs.max(axis=0), aligned.max(axis=0))
    return assigned._replace(quality=(aligned * scale[None]).max(axis=1))


@compiled(static=("overlap", "solver"))
def set_matching(
    predictions: Real[ArrayLike, "a 4"],
    truths: Real[ArrayLike, "m 4"],
    scores: Real[ArrayLike, "a k"],
    labels: Integer[ArrayLike, " m"],
    *,
    class_weight: Number = 1.0,
    l1_weight: Number = 5.0,
    overlap_weight: Number = 2.0,
    overlap: Overlap = boxes.giou,
    solver: Literal["optax", "scipy"] = "optax",
    where: Bool[ArrayLike, " m"] | None = None,
    anchor_where: Bool[ArrayLike, " a"] | None = None,
) -> Matching:
    """The set matching of DETR: every truth gets one prediction of its own, at least cost.

    The cost of a pair is -p + 5 L1 - 2 GIoU: the probability p of the truth's class, and the
    distance of the boxes in centre, width and height, summed over the four.

    Args:
      predictions: boxes `(x1, y1, x2, y2)`, `[A, 4]`; the weights below are for coordinates
        in units of the image, 0 to 1.
      truths: boxes, `[M, 4]`.
      scores: probabilities of the classes, `[A, K]`.
      labels: the class of each truth, integers `[M]`.
      class_weight: what the probability counts.
      l1_weight: what the distance counts.
      overlap_weight: what the overlap counts.
      overlap: of a prediction and a truth.
      solver: as in `assignment.maximum_matching`.
      where: bool, `[M]`; False for padded truths.
      anchor_where: bool, `[A]`; False for predictions that do not count.

    Returns:
      A `Matching` with predictions as rows and truths as columns; `total` is the cost of
      the pairs with a minus.

    At the edges:
      With more truths than predictions, some truths go without. A prediction with NaN is
      never matched, and the others are matched as if it were not there.

    Example:
      >>> predictions = jnp.array([[0.0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1]])
      >>> truths, labels = jnp.array([[0.5, 0.5, 1, 0.9]]), jnp.array([0])
      >>> print(set_matching(predictions, truths, jnp.array([[0.9], [0.8]]), labels).columns)
      [-1  0]

    Reference:
      Carion et al., "End-to-End Object Detection with Transformers", ECCV 2020,
      https://arxiv.org/abs/2005.12872.
    """
    given, classes, labels = _predicted(predictions, truths, scores, labels, where, anchor_where)
    class_weight, l1_weight, overlap_weight = _numbers(
        given, class_weight=class_weight, l1_weight=l1_weight, overlap_weight=overlap_weight
    )
    if given.pairs.size == 0:
        return maximum_matching(given.pairs.astype(classes.dtype), solver=solver)
    a, b = boxes.to_cxcywh(given.anchors), boxes.to_cxcywh(given.truths)
    distance = sum(jnp.abs(a[:, i, None] - b[None, :, i]) for i in range(4))
    worth = class_weight * _of_class(classes, labels) - l1_weight * distance
    worth = worth + overlap_weight * pairwise(overlap)(given.anchors, given.truths)
    return maximum_matching(worth, where=given.pairs, solver=solver)


FLOOR = 1e-8
"""The probability and the overlap below which SimOTA's logarithms are taken to be flat."""


class _Given(NamedTuple):
    """Anchors and truths with zeros where they do not count, and which do."""

    anchors: Array
    truths: Array
    anchor_where: Array
    where: Array

    @property
    def pairs(self) -> Array:
        return self.anchor_where[:, None] & self.where[None]


def _given(
    anchors: ArrayLike,
    truths: ArrayLike,
    where: ArrayLike | None,
    anchor_where: ArrayLike | None,
    name: str = "anchors",
    also: tuple[ArrayLike, ...] = (),
) -> _Given:
    """The checked sets, in the float type that these and `also` call for."""
    for what, x in ((name, anchors), ("truths", truths)):
        _checks.one_set(what, x, 1)
        _checks.are_regions((4,), "one box a row", **{what: x})
    anchors, truths = jnp.asarray(anchors), jnp.asarray(truths)
    masks = []
    for what, mask, x in (("where", where, truths), ("anchor_where", anchor_where, anchors)):
        mask = jnp.ones_like(x, bool, shape=x.shape[:1]) if mask is None else mask
        _checks.mask(what, mask, x.shape[:1])
        masks.append(jnp.broadcast_to(mask, x.shape[:1]))
    where, anchor_where = masks
    dtype = _checks.working_dtype(anchors, truths, *also)
    anchors, truths = (
        jax.lax.stop_gradient(masked(x, mask).astype(dtype))
        for x, mask in ((anchors, anchor_where), (truths, where))
    )
    return _Given(anchors, truths, anchor_where, where)


def _numbers(given: _Given, **numbers: ArrayLike | float) -> list[Array]:
    dtype = given.anchors.dtype
    return [_checks.scalar(name, x).astype(dtype) for name, x in numbers.items()]


def _predicted(
    predictions: ArrayLike,
    truths: ArrayLike,
    scores: ArrayLike,
    labels: ArrayLike,
    where: ArrayLike | None,
    anchor_where: ArrayLike | None,
) -> tuple[_Given, Array, Array]:
    """The checked sets, where truths whose label is no class do not count; scores; labels."""
    _checks.table("scores", scores)
    given = _given(predictions, truths, where, anchor_where, "predictions", (scores,))
    count = len(given.anchors)
    _checks.exact_shape("scores", scores, (count, scores.shape[1]), "one row a prediction")
    _checks.labels("labels", labels, len(given.truths), "one label a truth")
    labels = jnp.asarray(labels).astype(jnp.int32)
    is_class = (labels >= 0) & (labels < scores.shape[1])
    given = given._replace(where=given.where & is_class)
    return given, _counted(given, scores), labels


def _of_class(values: Array, labels: Array) -> Array:
    """The column of each truth's class, `[A, M]`, of values `[A, K]`; 0 where K is 0."""
    if values.size == 0:
        return jnp.zeros_like(values, shape=(len(values), len(labels)))
    return jnp.take(values, labels, axis=1, mode="clip")


def _points(given: _Given, centres: ArrayLike) -> Array:
    _checks.is_array("centres", centres)
    _checks.is_real("centres", centres)
    _checks.exact_shape("centres", centres, (len(given.anchors), 2), "one centre a prediction")
    return _counted(given, centres)


def _strides(given: _Given, strides: ArrayLike) -> Array:
    count = len(given.anchors)
    _checks.is_array("strides", strides)
    _checks.is_real("strides", strides)
    if strides.shape != (1,):
        _checks.exact_shape("strides", strides, (count,), "one stride a prediction, or one for all")
    return _counted(given, jnp.broadcast_to(strides, (count,)))


def _counted(given: _Given, x: ArrayLike) -> Array:
    """`x`, one row a prediction, with zeros for those that do not count."""
    x = masked(jnp.asarray(x), given.anchor_where)
    return jax.lax.stop_gradient(x.astype(given.anchors.dtype))


def _places(x: Array) -> Array:
    return jnp.arange(x.shape[0], dtype=jnp.int32)


def _inside(points: Array, regions: Array) -> Array:
    """Which points `[A, 2]` lie within which boxes `[M, 4]`, and not on an edge, `[A, M]`."""
    x, y = points[:, :1], points[:, 1:]
    x1, y1, x2, y2 = (regions[None, :, i] for i in range(4))
    return (x1 < x) & (x < x2) & (y1 < y) & (y < y2)


@functools.cache
def _finite(overlap: Overlap) -> Overlap:
    """The overlap, and minus infinity, which matches nothing, where it is not finite."""

    def finite(a, b):
        value = overlap(a, b)
        return jnp.where(jnp.isfinite(value), value, -jnp.inf)

    return finite


def _rank(values: Array, count: int) -> Array:
    """The place of each value among the `count` greatest of its column, int32, from 0.

    `count` for all others, and for minus infinity. Of equals the first comes first.

    Not `top_k`, which XLA cannot shard over a batch, and whose indices would have to be
    scattered to a table: on CPU the loop of reductions takes twice its time.
    """
    at = _places(values)[:, None]

    def step(i, rank):
        left = jnp.where(rank == count, values, -jnp.inf)
        best = left.max(axis=0)[None]
        first = jnp.where((left == best) & (best > -jnp.inf), at, len(values)).min(axis=0)
        return jnp.where(at == first[None], jnp.asarray(i, jnp.int32), rank)

    return jax.lax.fori_loop(0, count, step, jnp.full_like(values, count, jnp.int32))


def _best_of_some_truth(given: _Given, overlap: Overlap) -> Array:
    """Which anchors overlap some truth as much as any anchor does, and more than 0, `[A]`."""
    count = len(given.truths)
    with_all = jax.vmap(overlap, (0, None))

    def column(j):
        counts = given.anchor_where & given.where[j]
        return jnp.where(counts, with_all(given.anchors, given.truths[j]), -jnp.inf)

    def step(j, carry):
        # Carried, and so stored: computed twice, a number might not equal itself.
        best, values = carry
        best = best | ((values == values.max()) & (values > 0))
        return best, column(jnp.minimum(j + 1, count - 1))

    return jax.lax.fori_loop(0, count, step, (jnp.zeros_like(given.anchor_where), column(0)))[0]


def _claimed(
    given: _Given,
    claims: Array,
    rivals: Array,
    worth: Array,
    quality: Array,
    first: Array | None = None,
) -> Assignment:
    """Gives each anchor to the truth that claims it, or that it is worth most to.

    Args:
      given: the anchors.
      claims: which truths claim which anchors, bool `[A, M]`.
      rivals: among which truths an anchor that several claim goes to one, bool `[A, M]`.
      worth: `[A, M]`.
      quality: `[A, M]`.
      first: pairs that come before all others, bool `[A, M]`.
    """
    several = claims.sum(axis=1, dtype=jnp.int32) > 1
    among = jnp.where(several[:, None], rivals, claims)
    if first is not None:
        some = (among & first).any(axis=1)[:, None]
        among = among & (first | ~some)
    worth = jnp.where(among, worth, -jnp.inf)
    best = among & (worth == worth.max(axis=1)[:, None])
    count = len(given.truths)
    truths = _places(given.truths)[None]
    indices = jnp.where(best, truths, count).min(axis=1)
    values = jnp.where(truths == indices[:, None], quality, -jnp.inf).max(axis=1)
    indices = jnp.where(indices < count, indices, -1)
    # None is ignored, which a constant would not say where the batch is sharded.
    return _assignment(given, indices, values, indices < -1)


def _assignment(given: _Given, indices: Array, quality: Array, ignored: Array) -> Assignment:
    valid = indices >= 0
    quality = jax.lax.stop_gradient(jnp.where(valid, quality, 0))
    return Assignment(indices, valid, ignored | ~given.anchor_where, quality)


def _none(given: _Given) -> Assignment:
    """Of no anchors or no truths."""
    none = jnp.full_like(given.anchor_where, -1, jnp.int32)
    return _assignment(given, none, none.astype(given.anchors.dtype), given.anchor_where & False)
