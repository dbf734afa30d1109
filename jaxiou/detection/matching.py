"""Which detections are right: the greedy matching of COCO and LVIS, at all thresholds at once.

All evaluators write down what they found in one form, `Matches`, whatever their rules are; from
there on, all go the same way. Classes meet through a mask only: an image is one row of
detections and one of truths, of all classes together.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Integer, Real, UInt32

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.detection.packing import Detections, GroundTruth
from jaxiou.pairing import Overlap, masked, pairwise

__all__ = ["greedy", "overlap_table", "ranks_by_score", "Matches"]

MOST_THRESHOLDS = 32
"""Thresholds are bits of a word."""


class Matches(NamedTuple):
    """What became of each detection and truth, image by image, `[B, D]` and `[B, G]`.

    Thresholds are bits of a word: bit t of `matched` is that of the t-th threshold. There are up to
    32 of them, and A area ranges; evaluators without area ranges have one.

    Attributes:
      scores: of detections; -inf where `valid` is False.
      labels: their classes; -1 where `valid` is False.
      ranks: place among the detections of their class in their image, by falling score.
      valid: which rows take part.
      matched: bits, `[B, D, A]`: it has a truth, which may be one that does not count.
      ignored: bits, `[B, D, A]`: neither right nor wrong. A detection is a true positive where it
        is matched and not ignored, a false positive where it is neither.
      truth_labels: classes of the truths; -1 where there is none.
      truth_counts: `[B, G, A]`, which truths have to be found.
    """

    scores: Float[ArrayLike, "*batch d"]
    labels: Int32[ArrayLike, "*batch d"]
    ranks: Int32[ArrayLike, "*batch d"]
    valid: Bool[ArrayLike, "*batch d"]
    matched: UInt32[ArrayLike, "*batch d areas"]
    ignored: UInt32[ArrayLike, "*batch d areas"]
    truth_labels: Int32[ArrayLike, "*batch g"]
    truth_counts: Bool[ArrayLike, "*batch g areas"]


@compiled(static=("overlap", "crowd_overlap"))
def overlap_table(
    detections: Detections,
    truths: GroundTruth,
    *,
    overlap: Overlap,
    crowd_overlap: Overlap | None = None,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
) -> Float[Array, "*batch d g"]:
    """The overlap of every detection with every truth of its image and class.

    Args:
      detections: `[..., D]`.
      truths: `[..., G]`.
      overlap: a function of two regions.
      crowd_overlap: the one for crowds; None takes `overlap`.
      overlaps: a ready table, `[..., D, G]`, in place of both.

    Returns:
      `[..., D, G]`; -1 where classes differ, a row is not valid, or the overlap is NaN.

    At the edges:
      Rows that are not valid may hold anything.

    Gradient:
      That of the overlap, where it is not -1.

    Example:
      >>> from jaxiou import boxes
      >>> ones = jnp.ones(1, bool), jnp.zeros(1, jnp.int32)
      >>> box = jnp.array([[0.0, 0.0, 2.0, 2.0]])
      >>> found = Detections(box, jnp.ones(1), ones[1], ones[0])
      >>> truth = GroundTruth(box / 2, ones[1], ones[0])
      >>> print(overlap_table(found, truth, overlap=boxes.iou))
      [[0.25]]
    """
    check(detections, truths, overlaps)
    valid = [jnp.asarray(side.valid) for side in (detections, truths)]
    if overlaps is not None:
        table = jnp.asarray(overlaps).astype(_checks.working_dtype(overlaps))
    elif detections.regions is None or truths.regions is None:
        raise ValueError("detections and truths must have regions, or overlaps must be given")
    else:
        a = masked(jnp.asarray(detections.regions), valid[0])
        b = masked(jnp.asarray(truths.regions), valid[1])
        table = pairwise(overlap)(a, b)
        if truths.crowd is not None and crowd_overlap is not None:
            crowd = jnp.asarray(truths.crowd)[..., None, :]
            table = jnp.where(crowd, pairwise(crowd_overlap)(a, b), table)
    same = detections.labels[..., :, None] == truths.labels[..., None, :]
    meets = same & valid[0][..., :, None] & valid[1][..., None, :] & (table == table)
    return jnp.where(meets, table, -1)


def check(detections: Detections, truths: GroundTruth, overlaps: ArrayLike | None = None) -> None:
    """Raises unless the fields of both have shapes that belong together."""
    sides: dict[str, Any] = {"detections": detections, "truths": truths}
    for name, side in sides.items():
        if not hasattr(side, "valid"):
            raise TypeError(f"{name} must have the fields of packing, got {type(side).__name__}")
        _checks.is_array(f"{name}.valid", side.valid)
        shape = side.valid.shape
        for field, x in side._asdict().items():
            if x is None:
                continue
            _checks.is_array(f"{name}.{field}", x)
            if field == "regions":
                _checks.rows(f"{name}.regions", x, shape[:-1], shape[-1])
                continue
            _checks.exact_shape(f"{name}.{field}", x, shape, "as valid")
            if field in ("valid", "crowd", "ignored"):
                _checks.mask(f"{name}.{field}", x, shape)
            elif field == "labels":
                _checks.is_integer(f"{name}.labels", x)
            else:
                _checks.is_real(f"{name}.{field}", x)
    if detections.valid.shape[:-1] != truths.valid.shape[:-1]:
        raise ValueError(
            f"detections and truths must have the same leading axes, got "
            f"{list(detections.valid.shape)} and {list(truths.valid.shape)}"
        )
    if overlaps is not None:
        _checks.is_array("overlaps", overlaps)
        _checks.is_real("overlaps", overlaps)
        shape = (*detections.valid.shape, truths.valid.shape[-1])
        _checks.exact_shape("overlaps", overlaps, shape, "detections and truths")


@compiled()
def ranks_by_score(
    scores: Real[ArrayLike, "*batch d"],
    valid: Bool[ArrayLike, "*batch d"],
    labels: Integer[ArrayLike, "*batch d"] | None = None,
) -> Int32[Array, "*batch d"]:
    """Each detection's place in its image by falling score: how many valid ones come before it.

    Args:
      scores: `[..., D]`.
      valid: which rows there are.
      labels: ranks are among those of one class; None ranks all together.

    Returns:
      `[..., D]`, from 0. Of equal scores the lower row comes first; NaN comes last, with -inf.

    At the edges:
      The rank of a row that is not valid means nothing.

    Example:
      >>> print(ranks_by_score(jnp.array([0.5, 0.9, 0.5]), jnp.ones(3, bool)))
      [1 0 2]
    """
    keys = jnp.asarray(sort_keys(scores))
    places = np.arange(keys.shape[-1], dtype=np.int32)
    above, below = keys[..., None, :], keys[..., :, None]
    earlier = places[None, :] < places[:, None]
    earlier = earlier.reshape((1,) * (keys.ndim - 1) + earlier.shape)
    before = (above > below) | ((above == below) & earlier)
    before = before & jnp.asarray(valid)[..., None, :]
    if labels is not None:
        before = before & (labels[..., None, :] == labels[..., :, None])
    return before.sum(axis=-1, dtype=jnp.int32)


def sort_keys(scores: ArrayLike) -> Array:
    """Scores without NaN."""
    scores = jnp.asarray(scores)
    scores = scores.astype(_checks.working_dtype(scores))
    return jax.lax.stop_gradient(jnp.where(scores == scores, scores, -jnp.inf))


@compiled(static=("thresholds", "max_detections"))
def greedy(
    overlaps: Float[Array, "*batch d g"],
    detections: Detections,
    truths: GroundTruth,
    *,
    thresholds: tuple[float, ...],
    truth_ignored: Bool[ArrayLike, "*batch g areas"],
    unmatched_ignored: Bool[ArrayLike, "*batch d areas"],
    max_detections: int | None = None,
) -> Matches:
    """Matches detections with truths as COCO does, one after the other by falling score.

    At each threshold a detection takes, of the truths of its class that are free and overlap it by
    the threshold or more, the one it overlaps most; of equal ones the last. Truths that are ignored
    are taken only where there is no other; a crowd is never used up. One pass serves any limit of
    detections an image, as what comes later changes nothing.

    Args:
      overlaps: from `overlap_table`.
      detections: `[..., D]`.
      truths: `[..., G]`; `crowd` says which are never used up.
      thresholds: up to 32, static.
      truth_ignored: `[..., G, A]`, in each area range; crowds are to be among them.
      unmatched_ignored: `[..., D, A]`, which detections do not count if they have no match.
      max_detections: how many of a class take part in an image, static; None: all.

    Returns:
      `Matches`, without gradient.

    At the edges:
      No detections, or no truths: rows that are not matched. A threshold of 1 is one less 1e-10,
      as in pycocotools.

    Example:
      >>> labels, valid = jnp.zeros(2, jnp.int32), jnp.ones(2, bool)
      >>> found = Detections(None, jnp.array([0.5, 0.9]), labels, valid)
      >>> truth = GroundTruth(None, labels[:1], valid[:1])
      >>> counts = {"truth_ignored": ~valid[:1, None], "unmatched_ignored": ~valid[:, None]}
      >>> table = jnp.array([[0.9], [0.6]])
      >>> print(greedy(table, found, truth, thresholds=(0.5, 0.75), **counts).matched)
      [[2]
       [1]]

    Reference:
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312, and its evaluator, pycocotools.
    """
    thresholds = _check_thresholds(thresholds)
    leading = detections.valid.shape[:-1]
    valid = jnp.asarray(detections.valid)
    ranks = ranks_by_score(detections.scores, valid, detections.labels)
    if max_detections is not None:
        valid = valid & (ranks < max_detections)
    crowd = jnp.zeros_like(truths.valid) if truths.crowd is None else jnp.asarray(truths.crowd)

    def flat(x: ArrayLike) -> Array:
        # Not -1, which no size stands for where an axis is empty.
        return jnp.asarray(x).reshape(math.prod(leading), *x.shape[len(leading) :])

    words = _match(
        flat(overlaps),
        flat(sort_keys(detections.scores)),
        flat(valid),
        flat(truth_ignored),
        flat(crowd),
        np.asarray(thresholds, overlaps.dtype),
    )
    matched, ignored = (x.reshape(*valid.shape, x.shape[-1]) for x in words)
    unmatched = jnp.where(unmatched_ignored, ~matched & _all_bits(len(thresholds)), 0)
    rows = valid[..., None]
    counts = jnp.asarray(truths.valid)[..., None] & ~jnp.asarray(truth_ignored)
    return Matches(
        jnp.where(valid, sort_keys(detections.scores), -jnp.inf),
        jnp.where(valid, detections.labels, -1).astype(jnp.int32),
        ranks,
        valid,
        jnp.where(rows, matched, 0),
        jnp.where(rows, ignored | unmatched, 0),
        jnp.where(truths.valid, truths.labels, -1).astype(jnp.int32),
        counts,
    )


def _check_thresholds(thresholds: tuple[float, ...]) -> tuple[float, ...]:
    """The thresholds as the matching compares them."""
    if not 1 <= len(thresholds) <= MOST_THRESHOLDS:
        raise ValueError(f"thresholds must be 1 to {MOST_THRESHOLDS}, got {len(thresholds)}")
    for threshold in thresholds:
        if not 0 < threshold <= 1:
            raise ValueError(f"thresholds must be above 0 and at most 1, got {threshold}")
    return tuple(min(float(threshold), 1 - 1e-10) for threshold in thresholds)


def _all_bits(count: int) -> np.ndarray:
    return np.array(2**count - 1, np.uint32)


class _Loop(NamedTuple):
    """Images are the last axis: what is done for all of them is one vector operation."""

    step: Array
    slots: Array
    """At which step each detection had its turn, `[B, D]`; one of the two below before that."""
    taken: Array
    """By truth, bits of the thresholds, `[G, A, B]`."""
    matched: Array
    """By step, `[D, A, B]`."""
    ignored: Array


WAITING, NEVER = -1, -2


def _match(
    overlaps: Array,
    scores: Array,
    valid: Array,
    truth_ignored: Array,
    crowd: Array,
    limits: np.ndarray,
) -> tuple[Array, Array]:
    """Bits of what is matched and of what is matched with an ignored truth, `[B, D, A]` each.

    Only the few detections that overlap a truth by the lowest threshold have a turn. In its turn a
    detection goes through the truths by falling overlap, for all thresholds at once.
    """
    images, rows, truths = overlaps.shape
    areas = truth_ignored.shape[-1]
    if not rows or not truths or not images:
        nothing = jnp.zeros((images, rows, areas), jnp.uint32)
        return nothing, nothing
    lowest = limits.min()
    candidate = valid & (overlaps.max(axis=-1) >= lowest)
    counts = jnp.moveaxis(~truth_ignored, 0, -1)  # [G, A, B]
    reusable = crowd.T[:, None, :]
    every = _all_bits(len(limits))
    places = np.arange(rows, dtype=np.int32)[None]
    truth_places = np.arange(truths, dtype=np.int32)[:, None]

    def turn(loop: _Loop) -> _Loop:
        waiting = loop.slots == WAITING
        best = jnp.where(waiting, scores, -jnp.inf).max(axis=1, keepdims=True)
        place = jnp.where(waiting & (scores == best), places, rows).min(axis=1, keepdims=True)
        row = jnp.take_along_axis(overlaps, place[:, :, None], axis=1, mode="clip")[:, 0].T
        row = jnp.where(rows > place.T, row, -1)  # [G, B]
        reached = jnp.zeros_like(row, jnp.uint32)
        for t, limit in enumerate(limits):
            reached = reached | jnp.where(row >= limit, np.uint32(1 << t), np.uint32(0))

        def choose(state):
            left, regular, spare, taken, held = state
            best = left.max(axis=0, keepdims=True)
            last = jnp.where(left == best, truth_places, -1).max(axis=0, keepdims=True)
            here = (truth_places == last) & (best >= lowest)
            free = reached[:, None] & (~taken | jnp.where(reusable, every, np.uint32(0)))
            free = jnp.where(here[:, None], free, 0)
            own = jnp.where(counts, free & regular[None], 0)
            other = jnp.where(counts, 0, free & spare[None])
            return (
                jnp.where(here, -1, left),
                regular & ~own.sum(axis=0, dtype=jnp.uint32),
                spare & ~other.sum(axis=0, dtype=jnp.uint32),
                taken | own,
                held | other,
            )

        wanted = jnp.zeros_like(loop.taken[0]) | every
        start = (row, wanted, wanted, loop.taken, jnp.zeros_like(loop.taken))
        _, regular, spare, taken, held = jax.lax.while_loop(
            lambda state: (state[0] >= lowest).any(), choose, start
        )
        # What was held goes to ignored truths where no other was found.
        ignored = ~spare & regular & every
        matched = (~regular & every) | ignored
        write = jax.lax.dynamic_update_index_in_dim
        return _Loop(
            loop.step + 1,
            jnp.where(places == place, loop.step, loop.slots),
            taken | (held & regular[None]),
            write(loop.matched, matched, loop.step, 0),
            write(loop.ignored, ignored, loop.step, 0),
        )

    # Of the data, in whatever way it lies on devices: the loop's values do so too.
    nothing = jnp.zeros_like(counts, jnp.uint32) + jnp.zeros_like(
        overlaps[None, None, :, 0, 0], jnp.uint32
    )
    by_step = jnp.zeros_like(overlaps[:, :, :1], jnp.uint32).transpose(1, 2, 0)
    by_step = jnp.concatenate([by_step] * areas, axis=1)
    start = _Loop(
        jnp.zeros_like(places[0, 0]) + 0 * candidate.sum(dtype=jnp.int32),
        jnp.where(candidate, WAITING, NEVER).astype(jnp.int32),
        nothing,
        by_step,
        by_step,
    )
    loop = jax.lax.while_loop(lambda loop: (loop.slots == WAITING).any(), turn, start)

    def by_row(x: Array) -> Array:
        x = jnp.take_along_axis(x.transpose(2, 0, 1), loop.slots[:, :, None], axis=1, mode="clip")
        return jnp.where(loop.slots[:, :, None] >= 0, x, 0)

    return by_row(loop.matched), by_row(loop.ignored)
