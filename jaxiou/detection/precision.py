"""Precision over recall of every class, as COCO and LVIS interpolate it.

Detections are ranked once, by class and falling score, images in order. After that all is counting
in integers: which recall a number of true positives reaches is decided by comparing products, and
the envelope of the precision is a maximum scattered to the recalls that are asked for.
"""

import fractions
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32, UInt32

from jaxiou import _checks, _sums
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact
from jaxiou.detection.matching import Matches

__all__ = ["accumulate", "accumulate_exactly", "RECALLS", "Curves"]

RECALLS = tuple(np.linspace(0, 1, 101).tolist())
"""Where COCO and LVIS read the precision; ten of them are a spacing above the decimal."""

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


class _Rows(NamedTuple):
    """Detections in their ranking, N of them."""

    labels: Int32[ArrayLike, " n"]
    """K for what takes no part."""
    ranks: Int32[ArrayLike, " n"]
    matched: UInt32[ArrayLike, "n a"]
    ignored: UInt32[ArrayLike, "n a"]
    before: Int32[ArrayLike, "a m n"]
    """False positives of the class above each, that are not rows themselves."""


class _Reached(NamedTuple):
    """What is found: of each threshold, class, area and limit."""

    precision: Array
    rows: Array
    """Which row reaches each recall; the number of rows, if none does."""
    found: Array
    """True positives."""


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
    """
    check_settings(num_classes, max_detections, recalls)
    areas = matches.matched.shape[-1]
    labels = jnp.asarray(matches.labels).reshape(-1)
    count = labels.shape[0]
    labels = jnp.where(jnp.asarray(matches.valid).reshape(-1), labels, num_classes)
    labels = jnp.where((labels >= 0) & (labels < num_classes), labels, num_classes)
    scores = jnp.asarray(matches.scores).reshape(-1)
    places = jnp.arange(count, dtype=jnp.int32)
    labels, _, order = jax.lax.sort((labels, -scores, places), num_keys=2, is_stable=True)
    matched, ignored = (
        jnp.asarray(x).reshape(-1, areas)[order] for x in (matches.matched, matches.ignored)
    )
    rows = _Rows(
        labels,
        jnp.asarray(matches.ranks).reshape(-1)[order],
        matched,
        ignored,
        jnp.zeros((areas, len(max_detections), 1), jnp.int32),
    )
    truths = _truths(matches, num_classes)
    capacity = matches.truth_labels.size
    needed = _needed(truths, recalls)
    reached = _reached(rows, truths, needed, max_detections, num_thresholds, capacity)
    starts = _starts(labels, num_classes)
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
    """
    _exact.refuse_tracers(matches=matches)
    check_settings(num_classes, max_detections, recalls)
    areas = matches.matched.shape[-1]
    truths = _exact.run(_truths, matches, num_classes)
    labels, scores, ranks, valid = (
        np.asarray(x).reshape(-1)
        for x in (matches.labels, matches.scores, matches.ranks, matches.valid)
    )
    matched, ignored = (
        np.asarray(x).reshape(-1, areas) for x in (matches.matched, matches.ignored)
    )
    order = ranking(labels, scores, valid & (labels >= 0) & (labels < num_classes))
    labels, scores, ranks = labels[order], scores[order], ranks[order]
    starts = np.searchsorted(labels, np.arange(num_classes + 1))

    # Precision changes at matches only. Of all others it is enough to know how many there are.
    every = np.uint32(2**num_thresholds - 1)
    plain = ((matched == 0) & ((ignored == 0) | (ignored == every))).all(axis=1)
    own = np.flatnonzero(~plain[order])
    own_labels = labels[own]
    before = np.zeros((areas, len(max_detections), len(own)), np.int32)
    for area in range(areas):
        false = (plain & (ignored[:, area] == 0))[order]
        for which, limit in enumerate(max_detections):
            total = np.concatenate([[0], np.cumsum(false & (ranks < limit), dtype=np.int32)])
            before[area, which] = total[own] - total[starts[own_labels]]

    size = _padded_size(len(own))
    rows = _Rows(
        _padded(own_labels, size, num_classes),
        _padded(ranks[own], size, 0),
        _padded(matched[order[own]], size, 0),
        _padded(ignored[order[own]], size, 0),
        np.pad(before, [(0, 0), (0, 0), (0, size - len(own))]),
    )
    needed = _needed_exactly(truths, recalls)
    capacity = _padded_size(int(truths.sum(axis=1).max()))
    reached = _exact.run(
        _reached_exactly, rows, truths, needed, tuple(max_detections), num_thresholds, capacity
    )
    reached = reached._replace(rows=np.append(own, len(labels))[reached.rows.clip(max=len(own))])
    return _curves(np, reached, scores, starts, truths, needed)


def check_settings(
    num_classes: int, max_detections: tuple[int, ...], recalls: tuple[float, ...]
) -> None:
    _checks.count("num_classes", num_classes, 1)
    for limit in _checks.integers("max_detections", max_detections):
        _checks.count("max_detections", limit)
    if not recalls or list(recalls) != sorted(recalls):
        raise ValueError(f"recalls must be one or more rising numbers, got {recalls!r}")


def _truths(matches: Matches, num_classes: int) -> Array:
    """How many there are to find, `[A, K]`."""
    labels = jnp.asarray(matches.truth_labels).reshape(-1)
    labels = jnp.where((labels >= 0) & (labels < num_classes), labels, num_classes)
    counts = jnp.asarray(matches.truth_counts).reshape(labels.shape[0], -1).astype(jnp.int32)
    total = jnp.zeros((num_classes, counts.shape[1]), jnp.int32)
    return total.at[labels].add(counts, mode="drop").T


def ranking(labels: np.ndarray, scores: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Rows by class, then by falling score, then as they were; those alone that `where` has.

    As fast as sorting numbers, where sorting places by two keys takes four times as long: scores
    become their places among all scores, and class, score and row one integer.
    """
    rows = np.flatnonzero(where)
    falling = -scores[rows]
    order = np.argsort(falling)
    ordered = falling[order]
    places = np.empty(len(rows), np.uint64)
    places[order] = np.concatenate([[0], np.cumsum(ordered[1:] != ordered[:-1])])[: len(rows)]
    bits = np.uint64(max(len(rows), 1).bit_length())
    keys = (labels[rows].astype(np.uint64) << bits | places) << bits
    keys |= np.arange(len(rows), dtype=np.uint64)
    keys.sort()
    return rows[(keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)]


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
    rows: _Rows,
    truths: Array,
    needed: Array,
    limits: tuple[int, ...],
    num_thresholds: int,
    capacity: int,
) -> _Reached:
    """Walks the ranking, for every area and limit, `[A, M, T, K, R]`."""
    areas, num_classes, num_recalls = needed.shape
    labels, ranks = jnp.asarray(rows.labels), jnp.asarray(rows.ranks)
    count = labels.shape[0]
    dtype = _sums.score_dtype()
    starts = _starts(labels, num_classes)
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

    def of_area(matched, ignored, before, heights, offsets):
        base = jnp.append(offsets, 0)[labels]
        floor = jnp.where(base > 0, heights[base - 1], 0)

        def of_limit(limit, before):
            live = (ranks < limit)[None]
            counted = (~ignored[None] >> bits) & live.astype(jnp.uint32)
            true = counted & (matched[None] >> bits)
            c = within_class(true)
            n = within_class(counted) + before[None]
            precision = c.astype(dtype) / jnp.maximum(n, 1).astype(dtype)
            if dtype == np.float64:  # the reference adds 2^-52 to n, which 1 alone feels
                precision = jnp.where((c == 1) & (n == 1), 1 - 2.0**-52, precision)
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

        return jax.lax.map(lambda x: of_limit(*x), (np.asarray(limits, np.int32), before))

    before = jnp.broadcast_to(rows.before, (areas, len(limits), rows.before.shape[-1]))
    by_area = jnp.asarray(rows.matched).T, jnp.asarray(rows.ignored).T, before, heights, offsets
    return jax.lax.map(lambda x: of_area(*x), by_area)


_reached_exactly = jax.jit(_reached, static_argnums=(3, 4, 5))


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


def _padded_size(count: int) -> int:
    """One of a few sizes, as each is a program to compile: eighths of a power of two."""
    step = 2 ** max(int(np.ceil(np.log2(max(count, 1)))) - 3, 7)
    return max(-(-count // step), 1) * step


def _padded(x: np.ndarray, size: int, fill: int) -> np.ndarray:
    full = np.full((size, *x.shape[1:]), fill, x.dtype)
    full[: len(x)] = x
    return full
