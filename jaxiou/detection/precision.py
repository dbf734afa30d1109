"""Precision over recall of every class, as COCO and LVIS interpolate it.

Detections are ranked once, by class and falling score, images in order. After that all is counting
in integers: which recall a number of true positives reaches is decided by comparing products, and
the envelope of the precision is a maximum scattered to the recalls that are asked for.
"""

import fractions
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxiou import _checks, _sums
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact
from jaxiou.detection.matching import MOST_THRESHOLDS, Matches

__all__ = ["accumulate", "accumulate_exactly", "RECALLS", "Curves"]

RECALLS = tuple(np.linspace(0, 1, 101).tolist())
"""Where COCO and LVIS read the precision; ten of them are a spacing above the decimal."""

ONE = 1 - 2.0**-52
"""The precision of the first detection, where it is right: the reference adds 2^-52 to the number
of detections, which 1 alone feels."""

ALL = np.iinfo(np.int32).max
"""No limit of detections."""


class Curves(NamedTuple):
    """Precision, recall and scores: T thresholds, R recalls, K classes, A areas, M limits.

    Attributes:
      precision: the highest at this recall or above, `[T, R, K, A, M]`; -1 where a class has no
        truth.
      recall: of all detections, `[T, K, A, M]`; likewise.
      scores: of the detection that reaches each recall, `[T, R, K, A, M]`; likewise, and 0 where
        none reaches it.
    """

    precision: Float[ArrayLike, "*t r k a m"]
    recall: Float[ArrayLike, "*t k a m"]
    scores: Float[ArrayLike, "*t r k a m"]


class _Reached(NamedTuple):
    """What is found, for each area, limit, threshold, class and recall, `[A, M, T, K, R]`."""

    precision: ArrayLike
    rows: ArrayLike
    """Which row reaches each recall; the number of rows, if none does."""
    found: ArrayLike
    """True positives, `[A, M, T, K]`."""


@compiled(static=("num_classes", "num_thresholds", "max_detections", "recalls"))
def accumulate(
    matches: Matches,
    *,
    num_classes: int,
    num_thresholds: int,
    max_detections: tuple[int, ...] = (ALL,),
    recalls: tuple[float, ...] = RECALLS,
) -> Curves:
    """Precision at each recall, from the matches of all images.

    Args:
      matches: `[I, D]`, images in the order in which equal scores are ranked.
      num_classes: K.
      num_thresholds: T, those that were matched at.
      max_detections: how many of a class count in an image, M limits, rising.
      recalls: R, rising; fractions of up to a thousandth, such as 0.01.

    Returns:
      `Curves`, in float64 where x64 is on.

    At the edges:
      A class without truths that count: -1. Without detections: 0. Equal scores are ranked by
      image, then by row. Exact up to 21 million truths of a class.

    Example:
      >>> row, truth = np.ones((1, 1), bool), np.zeros((1, 1), np.int32)
      >>> words = np.array([[[1]]], np.uint32), np.array([[[0]]], np.uint32)
      >>> matches = Matches(np.array([[0.5]]), truth, truth, row, *words, truth, row[..., None])
      >>> print(accumulate(matches, num_classes=1, num_thresholds=1).recall.ravel())
      [1.]
    """
    _check_settings(num_classes, num_thresholds, max_detections, recalls)
    if 0 in matches.labels.shape:  # One row that takes no part, so that no axis is empty.
        empty = jax.tree.map(lambda x: jnp.zeros((1, 1, *x.shape[2:]), x.dtype), matches)
        matches = empty._replace(
            truth_labels=matches.truth_labels, truth_counts=matches.truth_counts
        )
    areas = matches.matched.shape[-1]
    labels = jnp.asarray(matches.labels).reshape(-1)
    count = labels.shape[0]
    labels = jnp.where(jnp.asarray(matches.valid).reshape(-1), labels, num_classes)
    labels = jnp.where((labels >= 0) & (labels < num_classes), labels, num_classes)
    scores = jnp.asarray(matches.scores).reshape(-1)
    places = jnp.arange(count, dtype=jnp.int32)
    labels, _, order = jax.lax.sort((labels, -scores, places), num_keys=2, is_stable=True)
    matched, ignored = (
        jnp.asarray(x).reshape(count, areas)[order] for x in (matches.matched, matches.ignored)
    )
    ranked = labels, jnp.asarray(matches.ranks).reshape(-1)[order], matched, ignored
    truths = _truths(matches, num_classes)
    capacity = max(matches.truth_labels.size, 1)
    needed = _needed(truths, recalls)
    starts = _starts(labels, num_classes)
    reached = _reached(ranked, starts, truths, needed, max_detections, num_thresholds, capacity)
    return _curves(jnp, reached, scores[order], starts, truths, needed)


def accumulate_exactly(
    matches: Matches,
    *,
    num_classes: int,
    num_thresholds: int,
    max_detections: tuple[int, ...] = (ALL,),
    recalls: tuple[float, ...] = RECALLS,
) -> Curves:
    """`accumulate` on the host, in float64: the numbers of pycocotools to the last bit.

    Args:
      matches: `[I, D]`, of NumPy arrays.
      num_classes: K.
      num_thresholds: T.
      max_detections: M limits, rising.
      recalls: R, rising, of any kind.

    Returns:
      `Curves` of NumPy arrays.

    Raises:
      TypeError: inside `jit`.

    At the edges:
      As `accumulate`.

    Example:
      >>> row, truth = np.ones((1, 1), bool), np.zeros((1, 1), np.int32)
      >>> words = np.array([[[1]]], np.uint32), np.array([[[0]]], np.uint32)
      >>> matches = Matches(np.array([[0.5]]), truth, truth, row, *words, truth, row[..., None])
      >>> curves = accumulate_exactly(matches, num_classes=1, num_thresholds=1)
      >>> print(curves.scores.min(), curves.recall.ravel())
      0.5 [1.]
    """
    _exact.refuse_tracers(matches=matches)
    _check_settings(num_classes, num_thresholds, max_detections, recalls)
    truths = _counted_truths(matches, num_classes)
    labels, scores, ranks, valid = (
        np.asarray(x).reshape(-1)
        for x in (matches.labels, matches.scores, matches.ranks, matches.valid)
    )
    matched, ignored = (
        np.asarray(x).reshape(-1, x.shape[-1]) for x in (matches.matched, matches.ignored)
    )
    order = _ranking(labels, scores, valid & (labels >= 0) & (labels < num_classes))
    needed = _needed_exactly(truths, recalls)
    labels, ranks = labels[order], ranks[order]
    starts = np.searchsorted(labels, np.arange(num_classes + 1))
    reached = _reached_on_host(
        labels,
        ranks,
        order,
        matched,
        ignored,
        starts,
        truths,
        needed,
        max_detections,
        num_thresholds,
    )
    return _curves(np, reached, scores[order], starts, truths, needed)


def _check_settings(
    num_classes: int,
    num_thresholds: int,
    max_detections: tuple[int, ...],
    recalls: tuple[float, ...],
) -> None:
    _checks.count("num_classes", num_classes, 1)
    _checks.count("num_thresholds", num_thresholds, 1)
    if num_thresholds > MOST_THRESHOLDS:
        raise ValueError(f"num_thresholds must be {MOST_THRESHOLDS} or less, got {num_thresholds}")
    limits = _checks.integers("max_detections", max_detections)
    for limit in limits:
        _checks.count("max_detections", limit)
    if not limits or list(limits) != sorted(limits):
        raise ValueError(f"max_detections must be one or more rising limits, got {limits}")
    if not recalls or list(recalls) != sorted(recalls):
        raise ValueError(f"recalls must be one or more rising numbers, got {recalls!r}")


def _truths(matches: Matches, num_classes: int) -> Array:
    """How many there are to find, `[A, K]`."""
    labels = jnp.asarray(matches.truth_labels).reshape(-1)
    labels = jnp.where((labels >= 0) & (labels < num_classes), labels, num_classes)
    counts = jnp.asarray(matches.truth_counts).astype(jnp.int32)
    counts = counts.reshape(-1, counts.shape[-1])
    total = jnp.zeros((num_classes, counts.shape[1]), jnp.int32)
    return total.at[labels].add(counts, mode="drop").T


def _counted_truths(matches: Matches, num_classes: int) -> np.ndarray:
    """`_truths` on the host."""
    labels = np.asarray(matches.truth_labels).reshape(-1)
    counts = np.asarray(matches.truth_counts)
    counts = counts.reshape(-1, counts.shape[-1])
    known = (labels >= 0) & (labels < num_classes)
    rows = [np.bincount(labels[known & x], minlength=num_classes) for x in counts.T]
    return np.stack(rows).astype(np.int32)


def _ranking(labels: np.ndarray, scores: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Rows by class, then by falling score, then as they were; those alone that `where` has.

    Sorting numbers takes a fifth of the time of sorting places by two keys. So class, score and row
    become one number: of the score as many bits as are left, which are enough for scores that came
    from float32 or have eight digits. If they are not, places are sorted.
    """
    rows = np.flatnonzero(where)
    falling = -scores[rows].astype(np.float64)
    labels = labels[rows]
    # As integers, doubles rise with their values once the negative ones are turned round.
    signed = (falling + 0.0).view(np.int64)
    signed ^= (signed >> 63) & np.iinfo(np.int64).max
    bits = signed.view(np.uint64) ^ np.uint64(1 << 63)
    of_row = max(len(rows) - 1, 1).bit_length()
    of_label = max(int(labels.max(initial=0)), 1).bit_length()
    of_score = 64 - of_row - of_label
    keys = labels.astype(np.uint64) << np.uint64(of_row + of_score)
    keys |= (bits >> np.uint64(64 - of_score)) << np.uint64(of_row)
    keys |= np.arange(len(rows), dtype=np.uint64)
    keys.sort()
    order = (keys & np.uint64((1 << of_row) - 1)).astype(np.int64)
    keys >>= np.uint64(of_row)
    alike, ordered = keys[1:] == keys[:-1], falling[order]
    if (alike & (ordered[1:] != ordered[:-1])).any():
        order = np.lexsort((falling, labels))
    return rows[order]


def _needed(truths: Array, recalls: tuple[float, ...]) -> Array:
    """How many true positives reach each recall, `[A, K, R]`, in integers.

    Of a recall p/q, c of n reach it if `c q >= p n`; if both are equal, c / n is the double next to
    p/q, and reaches the recall unless that is a spacing above it.
    """
    parts = [fractions.Fraction(recall).limit_denominator(1000) for recall in recalls]
    for part, recall in zip(parts, recalls, strict=True):
        if abs(float(part) - recall) > 1e-12:
            raise ValueError(f"recalls must be fractions of up to a thousandth, got {recall}")
    above = np.array([[[r > float(p) for p, r in zip(parts, recalls, strict=True)]]])
    p = np.array([[[part.numerator for part in parts]]], np.int32)
    q = np.array([[[part.denominator for part in parts]]], np.int32)
    products = truths[..., None] * p
    whole = -(-products // q)
    return whole + (above & (whole * q == products)).astype(jnp.int32)


def _needed_exactly(truths: np.ndarray, recalls: tuple[float, ...]) -> np.ndarray:
    """The same for any recalls, by the division itself."""
    limits, counts = np.asarray(recalls, np.float64), truths[..., None]
    least = np.maximum(np.floor(limits * counts) - 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(3):
            least = np.where(least / counts < limits, least + 1, least)
    return least.astype(np.int32)


def _starts(labels: Array, num_classes: int) -> Array:
    """The first row of each class, and of what has none, `[K + 1]`."""
    counts = jnp.zeros((num_classes + 1,), jnp.int32).at[labels].add(1)
    return jnp.cumsum(counts, dtype=jnp.int32) - counts


def _reached(
    ranked: tuple[Array, ...],
    starts: Array,
    truths: Array,
    needed: Array,
    limits: tuple[int, ...],
    num_thresholds: int,
    capacity: int,
) -> _Reached:
    """Walks the ranking, once for every area and limit."""
    areas, num_classes, num_recalls = needed.shape
    labels, ranks, matched, ignored = ranked
    count = labels.shape[0]
    dtype = _sums.score_dtype()
    first = starts[labels]
    places = jnp.arange(count, dtype=jnp.int32)
    bits = np.arange(num_thresholds, dtype=np.uint32)[:, None]

    # Which recall the c-th true positive of a class reaches, in one row of all truths.
    offsets = jnp.cumsum(truths, axis=1, dtype=jnp.int32) - truths
    reachable = jnp.maximum(needed, 1) <= truths[..., None]
    steps = offsets[..., None] + jnp.maximum(needed, 1) - 1
    steps = jnp.where(reachable, steps, capacity)
    jumps = jnp.zeros((areas, capacity), jnp.int32)
    jumps = jax.vmap(lambda x, at: x.at[at.reshape(-1)].add(1, mode="drop"))(jumps, steps)
    heights = jnp.cumsum(jumps, axis=1, dtype=jnp.int32)

    def within_class(x: Array) -> Array:
        """Sums along the rows that begin anew with each class."""
        total = jnp.cumsum(x, axis=1, dtype=jnp.int32)
        return total - jnp.where(first[None] > 0, total[:, first - 1], 0)

    def of_area(matched, ignored, heights, offsets):
        base = jnp.append(offsets, 0)[labels]
        floor = jnp.where(base > 0, heights[base - 1], 0)

        def of_limit(limit):
            live = (ranks < limit)[None]
            counted = (~ignored[None] >> bits) & live.astype(jnp.uint32)
            true = counted & (matched[None] >> bits)
            c = within_class(true)
            n = within_class(counted)
            precision = c.astype(dtype) / jnp.maximum(n, 1).astype(dtype)
            if dtype == np.float64:
                precision = jnp.where((c == 1) & (n == 1), ONE, precision)
            height = heights[jnp.clip(base[None] + c - 1, 0, capacity - 1)] - floor[None] - 1
            at = jnp.where((true == 1) & (height >= 0), labels[None] * num_recalls + height, -1)
            at = jnp.where(at >= 0, at, num_classes * num_recalls)
            size = num_thresholds, num_classes * num_recalls
            over = jax.vmap(lambda x, at, y: x.at[at].max(y, mode="drop"))
            under = jax.vmap(lambda x, at: x.at[at].min(places, mode="drop"))
            shape = num_thresholds, num_classes, num_recalls
            # A class's last row has counted all of it.
            last = starts[1:] - 1
            found = jnp.where((last >= starts[:-1])[None], c[:, jnp.maximum(last, 0)], 0)
            return _Reached(
                jax.lax.cummax(
                    over(jnp.zeros(size, dtype), at, precision).reshape(shape), 2, reverse=True
                ),
                jax.lax.cummin(
                    under(jnp.full(size, count, jnp.int32), at).reshape(shape), 2, reverse=True
                ),
                found,
            )

        return jax.lax.map(of_limit, jnp.asarray(limits, jnp.int32))

    return jax.lax.map(lambda x: of_area(*x), (matched.T, ignored.T, heights, offsets))


def _reached_on_host(
    labels: np.ndarray,
    ranks: np.ndarray,
    order: np.ndarray,
    matched: np.ndarray,
    ignored: np.ndarray,
    starts: np.ndarray,
    truths: np.ndarray,
    needed: np.ndarray,
    limits: tuple[int, ...],
    num_thresholds: int,
) -> _Reached:
    """`_reached` in NumPy, which visits true positives alone: a tenth of its time on a CPU.

    The bits are in the order of rows, and `order` ranks them: most are never looked at.
    """
    areas, num_classes, num_recalls = needed.shape
    shape = areas, len(limits), num_thresholds
    precision = np.zeros((*shape, num_classes * num_recalls))
    rows = np.full((*shape, num_classes * num_recalls), len(labels))
    found = np.zeros((*shape, num_classes), np.int64)

    # Of what is never matched it is enough to know how much of it is above each of the others.
    every = np.uint32(2**num_thresholds - 1)
    plain = np.ones(len(matched), bool)
    for area in range(areas):
        bits = ignored[:, area]
        plain &= (matched[:, area] == 0) & ((bits == 0) | (bits == every))
    own = np.flatnonzero(~plain[order])
    matched_rows, ignored_rows = matched[order[own]], ignored[order[own]]
    own_labels, own_ranks = labels[own], ranks[own]
    own_starts = np.searchsorted(own_labels, np.arange(num_classes))
    counted_at = [ranks < limit for limit in limits]

    def visit(area: int) -> None:
        false = (plain & (ignored[:, area] == 0))[order]
        own_matched, own_ignored = matched_rows[:, area].copy(), ignored_rows[:, area].copy()
        offsets = np.cumsum(truths[area]) - truths[area]
        least = np.maximum(needed[area], 1)
        steps = (offsets[:, None] + least - 1)[least <= truths[area][:, None]]
        heights = np.append(0, np.cumsum(np.bincount(steps, minlength=truths[area].sum())))
        heights, floors = heights[1:], heights[offsets]
        total = np.zeros(len(labels) + 1, np.int32)
        for which, limit in enumerate(limits):
            np.cumsum(false & counted_at[which], dtype=np.int32, out=total[1:])
            before = total[own] - total[starts[:-1]][own_labels]
            live = own_ranks < limit
            for t in range(num_thresholds):
                bit = np.uint32(1 << t)
                counted = live & ((own_ignored & bit) == 0)
                true = np.flatnonzero(counted & ((own_matched & bit) != 0))
                if not len(true):
                    continue
                label = own_labels[true]
                found[area, which, t] = np.bincount(label, minlength=num_classes)
                ends = np.cumsum(found[area, which, t])
                c = np.arange(1, len(true) + 1) - (ends - found[area, which, t])[label]
                sums = np.append(0, np.cumsum(counted, dtype=np.int32))
                n = sums[true + 1] - sums[own_starts][label] + before[true]
                p = c / n
                p[(c == 1) & (n == 1)] = ONE
                # Not past the end, if there are more than there is to find.
                place = np.minimum(offsets[label] + c, len(heights)) - 1
                height = heights[place] - floors[label] - 1
                # Along the ranking, what is reached rises: equal places stand together.
                reaches = np.flatnonzero(height >= 0)
                at = label[reaches] * num_recalls + height[reaches]
                firsts = np.flatnonzero(np.diff(at, prepend=-1))
                if len(firsts):
                    at = at[firsts]
                    precision[area, which, t, at] = np.maximum.reduceat(p[reaches], firsts)
                    rows[area, which, t, at] = own[true[reaches[firsts]]]

    with ThreadPoolExecutor(_exact.THREADS) as pool:  # NumPy lets the other one run
        list(pool.map(visit, range(areas)))
    precision, rows = (
        x.reshape(*shape, num_classes, num_recalls)[..., ::-1] for x in (precision, rows)
    )
    return _Reached(
        np.maximum.accumulate(precision, axis=-1)[..., ::-1],
        np.minimum.accumulate(rows, axis=-1)[..., ::-1],
        found,
    )


def _curves(xp, reached: _Reached, scores, starts, truths, needed) -> Curves:
    """The curves in the reference's order of axes, in NumPy or in JAX."""
    present = (truths > 0)[:, None, None]
    precision = xp.where(present[..., None], reached.precision, -1)
    found = reached.found.astype(precision.dtype)
    # Not by a broadcast array: XLA would multiply by its reciprocal.
    divisor = xp.maximum(truths, 1)[:, None, None].astype(precision.dtype)
    recall = xp.where(present, found / xp.where(found == found, divisor, 1), -1)
    with_none = xp.append(scores, xp.zeros((1,), scores.dtype))
    first = with_none[xp.where(starts[1:] > starts[:-1], starts[:-1], len(scores))]
    at = with_none[xp.minimum(reached.rows, len(scores))]
    at = xp.where((needed > 0)[:, None, None], at, first.reshape(1, 1, 1, -1, 1))
    at = xp.where(present[..., None], at, -1)
    return Curves(
        precision.transpose(2, 4, 3, 0, 1),
        recall.transpose(2, 3, 0, 1),
        at.transpose(2, 4, 3, 0, 1),
    )
