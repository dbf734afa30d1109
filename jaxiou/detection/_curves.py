"""What evaluators without interpolated recall share: VOC, Open Images and their kin.

A detection chooses one truth before anything is matched, so nothing is carried from one detection
to the next: the first by score, of those that chose a truth, has it. A class's curve has one point
for each of its detections, and is held as counts, integers to the end.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from jaxiou import _checks, _sums
from jaxiou._compiled import compiled
from jaxiou._math import per_pair
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact
from jaxiou.detection.matching import Matches, ranks_by_score, sort_keys
from jaxiou.detection.packing import Detections, GroundTruth

MOST_THRESHOLDS = 32
"""Thresholds are bits of a word."""

GRID = np.arange(0.0, 1.1, 0.1)
"""Where VOC 2007 reads the precision."""

ABOVE = np.flatnonzero(np.arange(11) / 10 < GRID).astype(np.int32)
"""3, 6 and 7: a recall of exactly 0.3, 0.6 or 0.7 lies below its point of the grid."""


class Curves(NamedTuple):
    """The points of all curves, one for each detection, N of them, class after class.

    Within a class scores fall; of equal ones the earlier image and then the lower row is first.

    Attributes:
      scores: `[N]`; -inf behind the last.
      labels: the class of each point, rising, int32 `[N]`; -1 behind the last.
      true_positives: of the class, of this score and before, int32 `[T, N]`.
      false_positives: likewise.
      truth_counts: how many truths of each class are to be found, int32 `[K]`.
    """

    scores: Float[ArrayLike, "*batch n"]
    labels: Int32[ArrayLike, "*batch n"]
    true_positives: Int32[ArrayLike, "*batch t n"]
    false_positives: Int32[ArrayLike, "*batch t n"]
    truth_counts: Int32[ArrayLike, "*batch k"]


class AveragePrecision(NamedTuple):
    """Average precision at T thresholds, of K classes, and the N points of their curves.

    Attributes:
      mean: over the classes that have truths, `[T]`, in [0, 1], best at 1; NaN if none has.
      by_class: the average precision of each class, `[T, K]`; NaN for a class without truths, 0
        for one without detections.
      precision: the share of the detections up to each point that are right, `[T, N]`; 0 where
        none counts yet.
      recall: the share of the truths that they find, `[T, N]`; NaN where there are none.
      scores: of each point, `[N]`, falling within a class.
      labels: the class of each point, rising, int32 `[N]`; -1 behind the last.
    """

    mean: Float[ArrayLike, "*batch t"]
    by_class: Float[ArrayLike, "*batch t k"]
    precision: Float[ArrayLike, "*batch t n"]
    recall: Float[ArrayLike, "*batch t n"]
    scores: Float[ArrayLike, "*batch n"]
    labels: Int32[ArrayLike, "*batch n"]


# Matching ----------------------------------------------------------------------------------


def check_thresholds(thresholds: tuple[float, ...]) -> None:
    if not 1 <= len(thresholds) <= MOST_THRESHOLDS:
        raise ValueError(f"thresholds must be 1 to {MOST_THRESHOLDS}, got {len(thresholds)}")
    for threshold in thresholds:
        if not 0 <= threshold <= 1:
            raise ValueError(f"thresholds must lie in 0 to 1, got {threshold}")


def first_best(table: Array) -> tuple[Array, Array]:
    """Of each row `[..., D, G]` the greatest number and its place; of equal ones the first.

    -1 and G if there is no column. One reduction gives both, so that they belong together.
    """
    axis = table.ndim - 1
    places = jax.lax.broadcasted_iota(jnp.int32, table.shape, axis)

    def better(one, other):
        (x, i), (y, j) = one, other
        keep = (x > y) | ((x == y) & (i < j))
        return jnp.where(keep, x, y), jnp.where(keep, i, j)

    start = np.array(-1, table.dtype), np.array(table.shape[axis], np.int32)
    best, place = jax.lax.reduce((table, places), start, better, (axis,))
    return best, place


def reached(values: Array, thresholds: tuple[float, ...], *, strict: bool) -> Array:
    """Bits of the thresholds that each value exceeds, or reaches if not `strict`."""
    words = jnp.zeros_like(values, jnp.uint32)
    for bit, threshold in enumerate(thresholds):
        limit = np.array(threshold, values.dtype)
        passes = values > limit if strict else values >= limit
        words = words | jnp.where(passes, np.uint32(1 << bit), np.uint32(0))
    return words


def of_chosen(flags: ArrayLike, chosen: Array) -> Array:
    """The flag of the truth that each detection chose; False if it chose none."""
    places = np.arange(flags.shape[-1], dtype=np.int32).reshape((1,) * chosen.ndim + (-1,))
    return (jnp.asarray(flags)[..., None, :] & (chosen[..., None] == places)).any(axis=-1)


def first_of_chosen(words: Array, chosen: Array, ranks: Array) -> Array:
    """The bits of `words` that no detection of the same choice and a better rank has."""
    rivals = chosen[..., :, None] == chosen[..., None, :]
    rivals &= ranks[..., :, None] < ranks[..., None, :]
    others = jnp.where(rivals, words[..., :, None], np.uint32(0))
    taken = jax.lax.reduce(others, np.uint32(0), jax.lax.bitwise_or, (others.ndim - 2,))
    return words & ~taken


def to_matches(
    detections: Detections,
    truths: GroundTruth,
    *,
    ranks: Array,
    right: Array,
    excused: Array,
    wanted: Array,
    num_thresholds: int,
) -> Matches:
    """Matches of bits: of what is right, and of what leaves the list.

    Args:
      detections: as given.
      truths: as given.
      ranks: from `class_ranks`.
      right: `[..., D]`, true positives.
      excused: `[..., D]`, neither true nor false.
      wanted: bool, `[..., G]`, truths that have to be found.
      num_thresholds: how many bits there are.
    """
    valid, rows = jnp.asarray(detections.valid), jnp.asarray(truths.valid)
    matched, ignored = right | excused, excused
    if detections.ignored is not None:
        every = np.uint32(2**num_thresholds - 1)
        ignored = ignored | jnp.where(detections.ignored, ~matched & every, np.uint32(0))
    return Matches(
        jnp.where(valid, sort_keys(detections.scores), -jnp.inf),
        jnp.where(valid, detections.labels, -1).astype(jnp.int32),
        ranks,
        valid,
        jnp.where(valid, matched, np.uint32(0))[..., None],
        jnp.where(valid, ignored, np.uint32(0))[..., None],
        jnp.where(rows, truths.labels, -1).astype(jnp.int32),
        (wanted & rows)[..., None],
    )


def class_ranks(detections: Detections) -> Array:
    """Places by falling score among the detections of a class in an image."""
    return ranks_by_score(detections.scores, detections.valid, detections.labels)


def flags(x: ArrayLike | None, like: ArrayLike) -> Array:
    """An optional field of flags; None: none of them."""
    return jnp.zeros_like(jnp.asarray(like), bool) if x is None else jnp.asarray(x)


# Counting ----------------------------------------------------------------------------------


@compiled(static=("num_classes", "num_thresholds"))
def accumulate(matches: Matches, *, num_classes: int, num_thresholds: int) -> Curves:
    """The curves of all classes: one sort, and counts."""
    _checks.count("num_classes", num_classes, 1)
    _checks.count("num_thresholds", num_thresholds, 1)
    labels = jnp.asarray(matches.labels).ravel()
    known = (labels >= 0) & (labels < num_classes) & jnp.asarray(matches.valid).ravel()
    labels = jnp.where(known, labels, num_classes)
    scores = jnp.where(known, jnp.asarray(matches.scores).ravel(), -jnp.inf)
    matched, ignored = (jnp.asarray(x)[..., 0].ravel() for x in (matches.matched, matches.ignored))
    labels, falling, matched, ignored = jax.lax.sort(
        (labels, -scores, matched, ignored), num_keys=2, is_stable=True
    )
    known = labels < num_classes
    true, false = matched & ~ignored, ~matched & ~ignored

    def counted(words):
        bits = (words[None] >> np.arange(num_thresholds, dtype=np.uint32)[:, None]) & 1
        return _count_in_class((bits != 0) & known[None], labels)

    wanted = jnp.asarray(matches.truth_labels)[..., None].ravel()
    counts = jnp.asarray(matches.truth_counts)[..., 0].ravel()
    of_class = wanted[:, None] == jnp.arange(num_classes, dtype=jnp.int32)[None]
    return Curves(
        -falling,
        jnp.where(known, labels, -1),
        counted(true),
        counted(false),
        (of_class & counts[:, None]).sum(axis=0, dtype=jnp.int32),
    )


def _count_in_class(x: Array, labels: Array) -> Array:
    """How many of `[T, N]` are true up to each point, from the first of its class on."""
    x = x.astype(jnp.int32)
    total = jnp.cumsum(x, axis=1, dtype=jnp.int32)
    new = jnp.concatenate([jnp.ones_like(labels[:1], bool), labels[1:] != labels[:-1]])
    # The count before a class's first point; it never falls, so the last one is the greatest.
    before = jnp.where(new[None], total - x, 0)
    return total - jax.lax.cummax(before, axis=1)


# Precision and its mean --------------------------------------------------------------------


class Ratios(NamedTuple):
    """Precision and recall of each point, `[T, N]`."""

    precision: Any
    recall: Any


def ratios(curves: Curves, dtype: np.dtype) -> Ratios:
    """Precision, 0 where nothing counts yet, and recall, NaN where there is nothing to find."""
    true, false = (jnp.asarray(x) for x in (curves.true_positives, curves.false_positives))
    ranked = true + false
    precision = true.astype(dtype) / jnp.maximum(ranked, 1).astype(dtype)
    labels, truths = jnp.asarray(curves.labels), jnp.asarray(curves.truth_counts)
    wanted = jnp.where(labels >= 0, truths[jnp.maximum(labels, 0)], 0)[None].astype(dtype)
    found = true.astype(dtype)
    recall = found / per_pair(jnp.where(wanted > 0, wanted, jnp.nan), found)
    return Ratios(precision, recall)


def envelope(precision: Array, labels: Array) -> Array:
    """Of each point `[T, N]` the highest precision of its class from there on.

    By windows that double, in log N passes: an `associative_scan`, which knows of classes too,
    takes as long but ten times longer to compile.
    """
    count = labels.shape[0]
    if count < 2:
        return precision
    places = jnp.arange(count, dtype=jnp.int32)

    def step(i, highest):
        behind = places + (1 << i)
        there = jnp.minimum(behind, count - 1)
        same = (behind < count) & (labels[there] == labels)
        return jnp.where(same[None], jnp.maximum(highest, highest[:, there]), highest)

    return jax.lax.fori_loop(np.int32(0), np.int32((count - 1).bit_length()), step, precision)


def class_areas(curves: Curves, precision: Array) -> Array:
    """The area under each envelope, `[T, K]`; NaN for classes without truths."""
    true, labels = jnp.asarray(curves.true_positives), jnp.asarray(curves.labels)
    truths = jnp.asarray(curves.truth_counts)
    new = jnp.concatenate([jnp.ones_like(labels[:1], bool), labels[1:] != labels[:-1]])
    before = jnp.where(new[None], 0, jnp.roll(true, 1, axis=1))
    highest = jnp.where(true > before, envelope(precision, labels), 0)
    places = jnp.where(labels >= 0, labels, truths.shape[0])
    total = jnp.zeros_like(highest, shape=(truths.shape[0], true.shape[0]))
    total = total.at[places].add(highest.T, mode="drop").T
    return _over(total, truths)


def class_points(curves: Curves, precision: Array) -> Array:
    """The mean of VOC 2007's eleven precisions, `[T, K]`; NaN for classes without truths."""
    true, labels = jnp.asarray(curves.true_positives), jnp.asarray(curves.labels)
    truths = jnp.asarray(curves.truth_counts)
    wanted = jnp.maximum(truths[jnp.maximum(labels, 0)], 1)[None]
    # Which points of the grid a recall reaches, in integers: a float32 recall would reach 0.3.
    tenths = jnp.minimum(10 * true // wanted, 10)
    exact = 10 * true == tenths * wanted
    below = exact & (tenths[None] == ABOVE[:, None, None]).any(axis=0)
    tenths = jnp.where(below, tenths - 1, tenths)
    places = jnp.where(labels >= 0, labels, truths.shape[0])[:, None]
    rows = np.arange(true.shape[0], dtype=np.int32)[None]
    highest = jnp.zeros_like(precision, shape=(truths.shape[0], true.shape[0], len(GRID)))
    highest = highest.at[places, rows, tenths.T].max(precision.T, mode="drop")
    highest = jax.lax.cummax(highest, axis=2, reverse=True)
    eleventh = highest / per_pair(jnp.full_like(highest[0, 0, 0], len(GRID)), highest)
    total = eleventh[..., 0]
    for i in range(1, len(GRID)):  # in the order of the reference
        total = total + eleventh[..., i]
    return jnp.where(truths > 0, total.T, jnp.nan)


def _over(total: Array, truths: Array) -> Array:
    wanted = truths.astype(total.dtype)[None]
    return total / per_pair(jnp.where(wanted > 0, wanted, jnp.nan), total)


def mean_over_classes(values: Array, truths: ArrayLike) -> Array:
    """The mean of `[T, K]` over classes with truths, `[T]`; NaN if there are none."""
    present = jnp.asarray(truths) > 0
    count = present.sum(dtype=jnp.int32).astype(values.dtype)
    total = jnp.where(present[None], values, 0).sum(axis=1)
    return total / per_pair(jnp.where(count > 0, count, jnp.nan)[None], total)


def summary(curves: Curves, points: str | int) -> AveragePrecision:
    """Average precision in the type of scores: float64 where x64 is on."""
    precision, recall = ratios(curves, _sums.score_dtype())
    by_class = (class_areas if points == "all" else class_points)(curves, precision)
    mean = mean_over_classes(by_class, curves.truth_counts)
    points_of = jnp.asarray(curves.scores), jnp.asarray(curves.labels)
    return AveragePrecision(mean, by_class, precision, recall, *points_of)


# The same on the host ----------------------------------------------------------------------


def exact_ratios(curves: Curves) -> Ratios:
    """`ratios` in float64, each operation rounded as the references round it."""
    labels, truths = np.asarray(curves.labels), np.asarray(curves.truth_counts)
    true, false = (np.asarray(x, np.float64) for x in curves[2:4])
    precision = true / np.maximum(true + false, np.finfo(np.float64).eps)
    wanted = np.where(labels >= 0, truths[labels], 0)
    recall = true / np.where(wanted > 0, wanted, np.nan)
    return Ratios(precision, recall)


def exact_by_class(
    curves: Curves, exact: Ratios, integrate: Callable[[np.ndarray, np.ndarray], float]
) -> np.ndarray:
    """A function of the recall and precision of one curve for every class, `[T, K]`."""
    labels, truths = np.asarray(curves.labels), np.asarray(curves.truth_counts)
    result = np.full((len(exact.precision), len(truths)), np.nan)
    last = int((labels >= 0).sum())
    starts = np.searchsorted(labels[:last], np.arange(len(truths) + 1))
    for k in np.flatnonzero(truths > 0):
        points = slice(starts[k], starts[k + 1])
        for t, (recall, precision) in enumerate(zip(exact.recall, exact.precision, strict=True)):
            result[t, k] = integrate(recall[points], precision[points])
    return result


def exact_area(recall: np.ndarray, precision: np.ndarray) -> float:
    """The area under the envelope, summed over the steps of the recall as NumPy sums."""
    recall = np.concatenate([[0.0], recall, [1.0]])
    precision = np.concatenate([[0.0], precision, [0.0]])
    highest = np.maximum.accumulate(precision[::-1])[::-1]
    steps = np.flatnonzero(recall[1:] != recall[:-1])
    return float(np.sum((recall[steps + 1] - recall[steps]) * highest[steps + 1]))


def exact_points(recall: np.ndarray, precision: np.ndarray) -> float:
    """VOC 2007's mean of eleven precisions, added one after the other."""
    total = 0.0
    for least in GRID:
        total = total + precision[recall >= least].max(initial=0.0) / 11.0
    return float(total)


def check_points(points: object) -> None:
    _checks.one_of("points", points, ("all", 11))


def exact_summary(
    matches: Matches,
    *,
    num_classes: int,
    num_thresholds: int,
    points: str | int,
    mean: Callable[[np.ndarray], float],
) -> AveragePrecision:
    """`accumulate` and `summary` in float64, with the sums that the references take.

    Args:
      matches: of all images, in NumPy.
      num_classes: K.
      num_thresholds: T.
      points: "all" or 11.
      mean: of the average precision of all classes, `[K]`, some of them NaN but not all.
    """
    count = functools.partial(accumulate, num_classes=num_classes, num_thresholds=num_thresholds)
    curves = _exact.run(count, matches)
    exact = exact_ratios(curves)
    by_class = exact_by_class(curves, exact, exact_area if points == "all" else exact_points)
    some = (np.asarray(curves.truth_counts) > 0).any()
    means = np.array([mean(x) if some else np.nan for x in by_class])
    return AveragePrecision(means, by_class, *exact, curves.scores, curves.labels)
