"""What a detector does at one score: what it takes for what, and its precision, recall and F1.

What holds here, and is not repeated below:

- **All is counted**, none of it is read off a curve: the curves of average precision are
  interpolated, and their precision is too high.
- **A score is a limit that is reached**: a detection counts whose score is `score` or more, so that
  detections of equal scores are all in or all out. A score of NaN reaches none.
- **Leading axes** are images, or batches of them; the counts are those of all of them. They add.
- **A ratio of nothing**, 0/0, is NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int32, Real

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._histogram import classes_or, is_class, pair_counts
from jaxiou._typing import ArrayLike
from jaxiou.assignment import greedy_matching
from jaxiou.detection import matching
from jaxiou.detection._across_classes import may_excuse, over_images, split, table_of_all
from jaxiou.detection.matching import MOST_THRESHOLDS, Matches
from jaxiou.detection.packing import Detections, GroundTruth
from jaxiou.pairing import Overlap

__all__ = ["confusion_matrix", "at_score", "best_f1", "OperatingPoint"]


class OperatingPoint(NamedTuple):
    """A detector with a limit of scores, class by class, `[K]`.

    Attributes:
      scores: the limits. Infinity takes no detection at all.
      precision: the share of detections that are right, in [0, 1]; NaN without any.
      recall: the share of truths that are found, in [0, 1]; NaN without any.
      f1: the harmonic mean of the two, in [0, 1]; NaN without detections and truths.
      true_positives: detections that are right.
      false_positives: detections that are wrong.
      false_negatives: truths that are not found.
    """

    scores: Float[Array, " k"]
    precision: Float[Array, " k"]
    recall: Float[Array, " k"]
    f1: Float[Array, " k"]
    true_positives: Int32[Array, " k"]
    false_positives: Int32[Array, " k"]
    false_negatives: Int32[Array, " k"]


@compiled(static=("num_classes", "overlap", "crowd_overlap"))
def confusion_matrix(
    detections: Detections,
    truths: GroundTruth,
    *,
    num_classes: int,
    threshold: Real[ArrayLike, ""] | float = 0.5,
    score: Real[ArrayLike, ""] | float = 0.25,
    overlap: Overlap = boxes.iou,
    crowd_overlap: Overlap = boxes.ioa,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
) -> Int32[Array, "rows columns"]:
    """How many objects of each class are detected as each class.

    In each image, whatever the classes are, the pair of a detection and a truth that overlap most
    is matched, then the best pair of those that are left, as long as pairs overlap by the
    threshold.

    Args:
      detections: `[..., D]`.
      truths: `[..., G]`.
      num_classes: K, static.
      threshold: the least overlap of a pair, above 0; it may be traced.
      score: detections that score less do not take part; it may be traced.
      overlap: a function of two regions, static.
      crowd_overlap: the one for crowds, of a detection and a crowd, static.
      overlaps: a ready table, `[..., D, G]`, in place of both.

    Returns:
      int32, `[K + 1, K + 1]`: rows are targets, columns are detections. The last row has detections
      without a truth, the last column truths without a detection; both have 0 in common.

    At the edges:
      Of pairs that overlap as much, the one whose detection scores higher is matched, then that of
      the lower detection, then that of the lower truth. An image without truths has all of its
      detections in the last row. No images, or images without rows: zeros.

      Truths that are crowds or ignored are in no row. A detection without a match that overlaps one
      of its class by the threshold is in no column either; if the label of that truth is negative,
      whatever its own class is. Other rows whose label is no class do not take part.

    Example:
      >>> labels, valid = jnp.array([0, 1]), jnp.ones(2, bool)
      >>> regions = jnp.array([[0.0, 0.0, 2.0, 2.0], [4.0, 0.0, 6.0, 2.0]])
      >>> truths = GroundTruth(regions, labels, valid)
      >>> detections = Detections(regions, jnp.array([0.9, 0.8]), jnp.array([1, 1]), valid)
      >>> print(confusion_matrix(detections, truths, num_classes=2))
      [[0 1 0]
       [0 1 0]
       [0 0 0]]

    Reference:
      As ultralytics (https://github.com/ultralytics/ultralytics), whose columns are targets, and
      supervision (https://github.com/roboflow/supervision) count. Their limits are to be passed,
      not reached, and a detection whose best truth goes to a better one has no second choice.
    """
    _checks.count("num_classes", num_classes, 1)
    threshold, score = (
        _checks.scalar(name, x) for name, x in {"threshold": threshold, "score": score}.items()
    )
    table = table_of_all(detections, truths, overlap, crowd_overlap, overlaps)
    threshold = threshold.astype(table.dtype)
    scores = jnp.asarray(detections.scores)
    labels = classes_or(num_classes, jnp.asarray(detections.labels), num_classes)
    # Compared in one type, as strict promotion has it.
    dtype = _checks.working_dtype(scores)
    takes_part = (labels < num_classes) & detections.valid
    takes_part &= scores.astype(dtype) >= score.astype(dtype)
    regular, excusing = split(truths)
    truth_labels = jnp.asarray(truths.labels)
    regular &= is_class(truth_labels, num_classes)

    def image(table, scores, labels, takes_part, truth_labels, regular, excusing):
        order = jnp.argsort(-matching.sort_keys(scores), stable=True)  # so that ties go by score
        table, labels, takes_part = table[order], labels[order], takes_part[order]
        where = takes_part[:, None] & regular[None]
        pairs = greedy_matching(table, where=where, minimum=threshold)
        excused = excusing[None] & (table >= threshold) & may_excuse(labels, truth_labels)
        counts = takes_part & (pairs.valid | ~excused.any(axis=1))
        missed = regular & (pairs.rows < 0)
        targets = pairs.take(truth_labels, fill=num_classes).astype(jnp.int32)
        rows = jnp.where(counts, targets, -1), jnp.where(missed, truth_labels, -1)
        columns = labels, jnp.full_like(rows[1], num_classes, jnp.int32)
        return jnp.concatenate([x.astype(jnp.int32) for x in rows]), jnp.concatenate(columns)

    rows, columns = over_images(image, table.ndim - 2)(
        table, scores, labels, takes_part, truth_labels, regular, excusing
    )
    return pair_counts(rows, columns, (num_classes + 1, num_classes + 1))


@compiled(static=("num_classes", "threshold_index", "area_index"))
def at_score(
    matches: Matches,
    *,
    num_classes: int,
    score: Real[ArrayLike, "#k"] | Real[ArrayLike, ""] | float,
    threshold_index: int = 0,
    area_index: int = 0,
) -> OperatingPoint:
    """Precision, recall and F1 of each class, of the detections that score `score` or more.

    A match does not depend on detections that score less, so that matches of all detections serve
    every score.

    Args:
      matches: `[..., D]` and `[..., G]`, from `evaluate` of any protocol.
      num_classes: K, static.
      score: one for all classes, or one for each, `[K]`; it may be traced.
      threshold_index: which of the thresholds that were matched at, static.
      area_index: which of the area ranges, static.

    Returns:
      `OperatingPoint`, float32 or the float64 of the scores.

    At the edges:
      No images, or a class without rows: counts of 0 and ratios of NaN. Detections that are ignored
      count nowhere. With x64 off, scores of float64 are compared as float32.

    Example:
      >>> from jaxiou.detection import coco
      >>> valid = jnp.ones((1, 2), bool)
      >>> regions = jnp.array([[[0.0, 0.0, 2.0, 2.0], [4.0, 0.0, 6.0, 2.0]]])
      >>> truths = GroundTruth(regions, jnp.array([[0, 0]]), valid)
      >>> found = Detections(regions, jnp.array([[0.9, 0.4]]), jnp.array([[0, 0]]), valid)
      >>> point = at_score(coco.evaluate(found, truths), num_classes=1, score=0.5)
      >>> print(point.precision, point.recall)
      [1.] [0.5]
    """
    rows, truths = _rows(matches, num_classes, threshold_index, area_index)
    limit = jnp.asarray(score)
    _checks.is_real("score", limit)
    if limit.ndim:
        _checks.exact_shape("score", limit, (num_classes,), "one number a class, or one for all")
    # Always true; so that the limits are sharded as the counts are.
    limit = jnp.where(truths >= 0, limit.astype(rows.scores.dtype), jnp.nan)
    # One row more for what is no class, which reaches nothing.
    limits = jnp.concatenate([limit, jnp.full_like(limit[:1], jnp.nan)])
    taken = rows.counts & (rows.scores >= limits[rows.labels])
    counts = pair_counts(rows.labels, rows.correct.astype(jnp.int32), (num_classes, 2), where=taken)
    return _point(limit, counts[:, 1], counts.sum(axis=1, dtype=jnp.int32), truths)


@compiled(static=("num_classes", "threshold_index", "area_index"))
def best_f1(
    matches: Matches,
    *,
    num_classes: int,
    threshold_index: int = 0,
    area_index: int = 0,
) -> OperatingPoint:
    """The score at which F1 is highest, class by class, and what the detector does there.

    Args:
      matches: of all images, `[..., D]` and `[..., G]`, from `evaluate` of any protocol.
      num_classes: K, static.
      threshold_index: which of the thresholds that were matched at, static.
      area_index: which of the area ranges, static.

    Returns:
      `OperatingPoint`, what `at_score` gives at `scores`; each of these is that of a detection.

    At the edges:
      Equal F1: the higher score. No right detection: infinity, where none is taken, so that F1 is
      0, or NaN for a class without truths. F1 is compared as a float of the type of the scores: in
      float32 the best may be 6e-8 higher. Scores that a cast to it makes equal are equal.

    Example:
      >>> from jaxiou.detection import coco
      >>> valid = jnp.ones((1, 2), bool)
      >>> regions = jnp.array([[[0.0, 0.0, 2.0, 2.0], [4.0, 0.0, 6.0, 2.0]]])
      >>> truths = GroundTruth(regions, jnp.array([[0, 0]]), valid)
      >>> found = Detections(regions, jnp.array([[0.9, 0.4]]), jnp.array([[0, 0]]), valid)
      >>> point = best_f1(coco.evaluate(found, truths), num_classes=1)
      >>> print(point.scores, point.f1)
      [0.4] [1.]
    """
    rows, truths = _rows(matches, num_classes, threshold_index, area_index)
    count = rows.scores.size
    if not count:
        nothing = jnp.zeros_like(truths)
        limit = jnp.full_like(truths, jnp.inf, rows.scores.dtype)
        return _point(limit, nothing, nothing, truths)
    known = rows.counts & (rows.scores == rows.scores)
    labels = jnp.where(known, rows.labels, num_classes)
    keys = labels, -rows.scores, rows.correct.astype(jnp.int32)
    labels, scores, correct = jax.lax.sort(keys, num_keys=2, is_stable=True)
    places = jnp.arange(count, dtype=jnp.int32)
    ends = pair_counts(labels, jnp.zeros_like(labels), (num_classes + 1, 1))[:, 0].cumsum()
    starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]]).astype(jnp.int32)[labels]
    total = jnp.concatenate([jnp.zeros_like(places[:1]), jnp.cumsum(correct, dtype=jnp.int32)])
    right, taken = total[places + 1] - total[starts], places + 1 - starts

    # Where the next one scores less, or is of another class: what scores as much is in.
    following = jnp.minimum(places + 1, count - 1)
    last = (labels[following] != labels) | (scores[following] != scores) | (places == following)
    dtype = scores.dtype
    with_rest = jnp.concatenate([truths, jnp.zeros_like(truths[:1])])
    f1 = 2 * right.astype(dtype) / (taken + with_rest[labels]).astype(dtype)
    f1 = jnp.where(last & (labels < num_classes), f1, 0)
    best = jnp.zeros((num_classes + 1,), dtype).at[labels].max(f1)
    is_best = (f1 > 0) & (f1 == best[labels])
    first = jnp.full((num_classes + 1,), count, jnp.int32)
    first = first.at[labels].min(jnp.where(is_best, places, count))[:-1]
    found, place = first < count, jnp.minimum(first, count - 1)
    return _point(
        jnp.where(found, -scores[place], jnp.inf),
        jnp.where(found, right[place], 0),
        jnp.where(found, taken[place], 0),
        truths,
    )


class _Rows(NamedTuple):
    """Detections of all images, `[N]`."""

    scores: Array
    labels: Array
    """K for what is no class."""
    counts: Array
    correct: Array


def _rows(
    matches: Matches, num_classes: int, threshold_index: int, area_index: int
) -> tuple[_Rows, Array]:
    """The detections at one threshold and area; the number of truths of each class, `[K]`."""
    _checks.count("num_classes", num_classes, 1)
    _checks.members("threshold_index", threshold_index, MOST_THRESHOLDS)
    _checks.members("area_index", area_index, matches.matched.shape[-1])

    def bit(words: ArrayLike) -> Array:
        word = jnp.asarray(words)[..., area_index].reshape(-1)
        return (word >> threshold_index & 1).astype(bool)

    matched, ignored = bit(matches.matched), bit(matches.ignored)
    labels = classes_or(num_classes, jnp.asarray(matches.labels).reshape(-1), num_classes)
    counts = jnp.asarray(matches.valid).reshape(-1) & ~ignored & (labels < num_classes)
    scores = jnp.asarray(matches.scores).reshape(-1)
    scores = scores.astype(_checks.working_dtype(scores))
    truth_labels = jnp.asarray(matches.truth_labels).reshape(-1)
    truth_counts = jnp.asarray(matches.truth_counts)[..., area_index].reshape(-1)
    truths = pair_counts(
        truth_labels, jnp.zeros_like(truth_labels), (num_classes, 1), where=truth_counts
    )
    return _Rows(scores, labels, counts, matched), truths[:, 0]


def _point(scores: Array, right: Array, taken: Array, truths: Array) -> OperatingPoint:
    """From what is right, what is taken, and what there is."""

    def ratio(part: Array, whole: Array) -> Array:
        quotient = part.astype(scores.dtype) / jnp.maximum(whole, 1).astype(scores.dtype)
        return jnp.where(whole > 0, quotient, jnp.nan)

    return OperatingPoint(
        scores,
        ratio(right, taken),
        ratio(right, truths),
        ratio(2 * right, taken + truths),
        right,
        taken - right,
        truths - right,
    )
