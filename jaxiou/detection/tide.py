"""TIDE: what kinds of errors a detector makes, and how much average precision each kind costs.

Every detection without a truth is an error of one kind, by its greatest overlap `o` with a truth of
its own class, and `x` with one of another class; the first that applies:

- **localisation**: `background <= o <= threshold`, the right class at the wrong place;
- **classification**: `x >= threshold`, the right place with the wrong class;
- **duplicate**: `o >= threshold`, with a truth that a better detection has taken;
- **background**: `o <= background` and `x <= background`, there is nothing;
- **both**: the class and the place are wrong.

A truth is **missed** if nothing has found it, and no error of localisation or classification would,
once mended. What a kind costs is what the average precision rises by if all errors of this kind are
mended and all others stay. The costs do not add up to what is missing to 1.

There are three doors. `evaluate` looks at images and `summarize` ranks and mends; both are pure.
`breakdown` does it all for a data set, on the host, in float64.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Real

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._histogram import classes_or
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact
from jaxiou.detection._across_classes import may_excuse, over_images, split, table_of_all
from jaxiou.detection.matching import ranks_by_score, sort_keys
from jaxiou.detection.packing import Detections, GroundTruth, Images
from jaxiou.pairing import Overlap

__all__ = ["breakdown", "evaluate", "summarize", "KINDS", "Errors", "Breakdown", "Counts"]

KINDS = ("correct", "classification", "localisation", "both", "duplicate", "background")
"""What a detection may be; `Errors.kinds` has places in it."""

CORRECT, CLASSIFICATION, LOCALISATION, BOTH, DUPLICATE, BACKGROUND = range(len(KINDS))

RECALLS = 101
"""At 0, 0.01, ..., 1 the precision is read."""


class Errors(NamedTuple):
    """What is wrong with each detection and truth, image by image, `[..., D]` and `[..., G]`.

    Attributes:
      scores: of detections; -inf where `kinds` is -1.
      labels: their classes; -1 where `kinds` is -1.
      kinds: which of `KINDS` each one is; -1 for rows that take no part.
      counted: whether it is a false positive if it is not correct; not where it is excused by a
        crowd or an ignored truth.
      mended: the class in which it is correct, once mended; -1 if it can only be taken away.
      truth_labels: classes of the truths that are to be found, -1 for all other rows.
      found: which truths are found.
      missed: which of the others no mended detection would find.
    """

    scores: Float[ArrayLike, "*batch d"]
    labels: Int32[ArrayLike, "*batch d"]
    kinds: Int32[ArrayLike, "*batch d"]
    counted: Bool[ArrayLike, "*batch d"]
    mended: Int32[ArrayLike, "*batch d"]
    truth_labels: Int32[ArrayLike, "*batch g"]
    found: Bool[ArrayLike, "*batch g"]
    missed: Bool[ArrayLike, "*batch g"]


class Counts(NamedTuple):
    """How many errors there are of each kind, int32.

    Attributes:
      classification: detections with the wrong class.
      localisation: detections at the wrong place.
      both: detections with the wrong class at the wrong place.
      duplicate: detections of what is found already.
      background: detections of nothing.
      missed: truths that no mended detection would find.
      false_positive: detections that are not correct and not excused. The five kinds above it
        have excused ones too, which may still be mended.
      false_negative: truths that are not found.
    """

    classification: Int32[ArrayLike, ""]
    localisation: Int32[ArrayLike, ""]
    both: Int32[ArrayLike, ""]
    duplicate: Int32[ArrayLike, ""]
    background: Int32[ArrayLike, ""]
    missed: Int32[ArrayLike, ""]
    false_positive: Int32[ArrayLike, ""]
    false_negative: Int32[ArrayLike, ""]


class Breakdown(NamedTuple):
    """Average precision, in [0, 1], and by how much it rises if all errors of a kind are mended.

    The first six costs are at least 0. The last two are of their own kind: all false positives are
    ranked last, or all truths that are not found are taken away.

    Attributes:
      ap: the mean over classes.
      classification: detections get the right class.
      localisation: detections get the right place.
      both: detections are taken away.
      duplicate: detections are taken away.
      background: detections are taken away.
      missed: truths are taken away.
      false_positive: perfect precision, with the recall as it is.
      false_negative: perfect recall, with the precision as it is.
      counts: how many there are of each.
    """

    ap: Float[ArrayLike, ""]
    classification: Float[ArrayLike, ""]
    localisation: Float[ArrayLike, ""]
    both: Float[ArrayLike, ""]
    duplicate: Float[ArrayLike, ""]
    background: Float[ArrayLike, ""]
    missed: Float[ArrayLike, ""]
    false_positive: Float[ArrayLike, ""]
    false_negative: Float[ArrayLike, ""]
    counts: Counts


def breakdown(
    batches: Sequence[Images],
    *,
    num_classes: int,
    threshold: float = 0.5,
    background: float = 0.1,
    max_detections: int = 100,
    overlap: Overlap = boxes.iou,
    crowd_overlap: Overlap = boxes.ioa,
) -> Breakdown:
    """The errors of a detector on a data set, on the host, in float64.

    Args:
      batches: from `packing.pack`. An image that occurs twice counts once.
      num_classes: K.
      threshold: the least overlap of a detection with its truth.
      background: the overlap up to which there is nothing.
      max_detections: how many of an image take part, of all classes together: the best.
      overlap: a function of two regions, where the batches have no tables.
      crowd_overlap: the one for crowds, of a detection and a crowd.

    Returns:
      `Breakdown` of NumPy numbers, equal to those of tidecv 1.0.1 up to the rounding of sums; there
      they are in percent.

    Raises:
      TypeError: inside `jit`; use `evaluate` and `summarize` there.

    At the edges:
      As `evaluate` and `summarize` have it.

    Example:
      >>> from jaxiou.detection.packing import Table, pack
      >>> regions, valid = np.array([[0.0, 0.0, 2.0, 2.0], [4.0, 0.0, 6.0, 2.0]]), np.ones(2, bool)
      >>> truths = GroundTruth(regions, np.array([0, 1]), valid)
      >>> found = Detections(regions, np.array([0.9, 0.8]), np.array([0, 0]), valid)
      >>> places = np.zeros(2, np.int32)
      >>> result = breakdown(pack(Table(found, places, truths, places, 1)), num_classes=2)
      >>> print(result.ap, result.classification, result.counts.classification)
      0.5 0.5 1

    Reference:
      Bolya et al., "TIDE: A General Toolbox for Identifying Object Detection Errors", ECCV 2020,
      https://arxiv.org/abs/2008.08115, and the authors' tidecv.
    """
    _exact.refuse_tracers(batches=batches)
    _checks.count("num_classes", num_classes, 1)

    def of_batch(batch: Images) -> Errors:
        return evaluate(
            batch.detections,
            batch.truths,
            threshold=threshold,
            background=background,
            max_detections=max_detections,
            overlap=overlap,
            crowd_overlap=crowd_overlap,
            overlaps=batch.overlaps,
        )

    batches = [_exact.wide(batch) for batch in batches]
    with ThreadPoolExecutor(_exact.THREADS) as pool:
        parts = list(pool.map(lambda batch: _exact.run(of_batch, batch), batches))
    errors = _together(parts, [np.asarray(batch.indices) for batch in batches])
    return _exact.run(lambda errors: summarize(errors, num_classes=num_classes), errors)


@compiled(static=("max_detections", "overlap", "crowd_overlap"))
def evaluate(
    detections: Detections,
    truths: GroundTruth,
    *,
    threshold: Real[ArrayLike, ""] | float = 0.5,
    background: Real[ArrayLike, ""] | float = 0.1,
    max_detections: int = 100,
    overlap: Overlap = boxes.iou,
    crowd_overlap: Overlap = boxes.ioa,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
) -> Errors:
    """What is wrong with each detection and each truth of images.

    By falling score, each detection takes of the free truths of its class the one that it overlaps
    most, if by the threshold. All others are errors.

    Args:
      detections: `[..., D]`; those that are `ignored` are excused where they have no truth.
      truths: `[..., G]`. Crowds and ignored truths need not be found, and excuse detections of
        their class without a truth that overlap them by more than the threshold; of any
        class if their label is negative.
      threshold: the least overlap of a detection with its truth, above 0; it may be traced.
      background: the overlap up to which there is nothing, above 0; it may be traced.
      max_detections: how many of an image take part, of all classes together: the best; static.
      overlap: a function of two regions, static.
      crowd_overlap: the one for crowds, of a detection and a crowd, static.
      overlaps: a ready table, `[..., D, G]`, in place of both.

    Returns:
      `Errors`.

    At the edges:
      Equal scores: the lower row has its turn first. Equal overlaps: the first truth, not COCO's
      last. Overlaps that are negative or NaN are 0. All detections of an image without truths to be
      found are errors of kind background. Scores of NaN come last.

    Example:
      >>> regions = jnp.array([[0.0, 0.0, 2.0, 2.0], [4.0, 0.0, 6.0, 2.0]])
      >>> labels, valid = jnp.array([0, 1]), jnp.ones(2, bool)
      >>> truths = GroundTruth(regions, labels, valid)
      >>> found = Detections(regions, jnp.array([0.9, 0.8]), jnp.array([0, 0]), valid)
      >>> errors = evaluate(found, truths)
      >>> print([KINDS[kind] for kind in errors.kinds], errors.mended)
      ['correct', 'classification'] [-1  1]

    Reference:
      Bolya et al., "TIDE: A General Toolbox for Identifying Object Detection Errors", ECCV 2020,
      https://arxiv.org/abs/2008.08115; as in tidecv 1.0.1, where an error of detections that
      are excused may be mended too.
    """
    _checks.count("max_detections", max_detections)
    table = table_of_all(detections, truths, overlap, crowd_overlap, overlaps)
    table = jax.lax.stop_gradient(table)
    limits = [
        _checks.scalar(name, x).astype(table.dtype)
        for name, x in {"threshold": threshold, "background": background}.items()
    ]
    labels, truth_labels = (
        jnp.asarray(side.labels).astype(jnp.int32) for side in (detections, truths)
    )
    scores, valid = sort_keys(detections.scores), jnp.asarray(detections.valid) & (labels >= 0)
    ranks = over_images(ranks_by_score, valid.ndim - 1)(scores, valid)
    valid &= ranks < max_detections
    excused = jnp.zeros_like(valid) if detections.ignored is None else valid & detections.ignored
    regular, excusing = split(truths)

    def image(*arrays: Array) -> tuple[Array, ...]:
        return _image(*limits, *arrays)

    size = table.shape[-1]
    if not size:  # One that is not there, so that no axis is empty.
        table, truth_labels, regular, excusing = (
            jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
            for x in (table, truth_labels, regular, excusing)
        )
    kinds, excused, mended, found, missed = over_images(image, table.ndim - 2)(
        table, ranks, labels, valid, excused, truth_labels, regular, excusing
    )
    return Errors(
        jnp.where(valid, scores, -jnp.inf),
        jnp.where(valid, labels, -1),
        kinds,
        valid & ~excused,
        mended,
        jnp.where(regular, truth_labels, -1)[..., :size],
        found[..., :size],
        missed[..., :size],
    )


def _image(
    threshold: Array,
    background: Array,
    table: Array,
    ranks: Array,
    labels: Array,
    valid: Array,
    excused: Array,
    truth_labels: Array,
    regular: Array,
    excusing: Array,
) -> tuple[Array, ...]:
    """Kinds, who is excused, and what is mended, `[D]`; what is found and missed, `[G]`."""
    rows, size = table.shape
    places = jnp.arange(size, dtype=jnp.int32)
    same = labels[:, None] == truth_labels[None]
    own = jnp.where(same & regular[None], jnp.maximum(table, 0), 0)
    other = jnp.where(~same & regular[None], jnp.maximum(table, 0), 0)

    def turn(free: Array, row: Array) -> tuple[Array, Array]:
        row = jnp.where(free, row, 0)
        hit = (places == _first(row)) & (row >= threshold)
        return free & ~hit, hit.any()

    order = jnp.argsort(jnp.where(valid, ranks, rows), stable=True)
    in_order = jnp.where(valid[:, None], own, 0)[order]
    free, hits = jax.lax.scan(turn, regular, in_order)
    hit = valid & hits[jnp.minimum(ranks, max(rows - 1, 0))] if rows else valid
    used, errors = regular & ~free, valid & ~hit
    over = excusing[None] & (table > threshold) & may_excuse(labels, truth_labels)
    excused = errors & (excused | over.any(axis=1))

    most_own, most_other = own.max(axis=1), other.max(axis=1)
    most_taken = jnp.where(used[None], own, 0).max(axis=1)
    localisation = (most_own >= background) & (most_own <= threshold)
    nothing = jnp.maximum(most_own, most_other) <= background
    kinds = jnp.where(nothing, np.int32(BACKGROUND), np.int32(BOTH))
    for applies, kind in (
        (most_taken >= threshold, DUPLICATE),
        (most_other >= threshold, CLASSIFICATION),
        (localisation, LOCALISATION),
        (~regular.any()[None], BACKGROUND),
        (hit, CORRECT),
        (~valid, -1),
    ):
        kinds = jnp.where(applies, kind, kinds)

    # The truth that an error would find, once mended: that of the best of all that would.
    wanted = jnp.where(
        kinds == LOCALISATION, _first(own), jnp.where(kinds == CLASSIFICATION, _first(other), -1)
    )
    would = (wanted[:, None] == places[None]) & ~used[None]
    best = jnp.where(would, ranks[:, None], rows).min(axis=0, initial=rows)
    mends = would & (ranks[:, None] == best[None])
    mended = jnp.where(mends, truth_labels[None], -1).max(axis=1)
    return kinds, excused, mended, used, regular & ~used & ~would.any(axis=0)


def _first(x: Array) -> Array:
    """The first place of the greatest along the last axis."""
    return jax.lax.argmax(x, x.ndim - 1, jnp.int32)


@compiled(static=("num_classes",))
def summarize(errors: Errors, *, num_classes: int) -> Breakdown:
    r"""The average precision, and by how much it rises if all errors of a kind are mended.

    .. math:: \mathrm{AP} = \frac{1}{101} \sum_{r = 0, 0.01, \ldots, 1} \max_{R \ge r} P(R)

    at one threshold of overlap, and the mean over classes that have a truth or a detection. A class
    with detections alone has 0; COCO leaves it out.

    Args:
      errors: of all images, `[..., D]` and `[..., G]`; equal scores are ranked in their order.
      num_classes: K, static; other labels are left out.

    Returns:
      `Breakdown`, float32 or the float64 of the scores.

    At the edges:
      No truths and no detections at all: NaN, with counts of 0. A mend that leaves neither: NaN;
      tidecv divides by 0. No truths, or no detections: an average precision of 0.
      Of equal scores, once anything is mended, errors come before correct detections, as in tidecv;
      so the costs of errors that do not occur may be other than 0. Exact up to 21 million truths
      of a class.

    Example:
      >>> regions = jnp.array([[0.0, 0.0, 2.0, 2.0], [4.0, 0.0, 6.0, 2.0]])
      >>> labels, valid = jnp.array([0, 0]), jnp.ones(2, bool)
      >>> truths = GroundTruth(regions, labels, valid)
      >>> found = Detections(regions + 0.5, jnp.array([0.9, 0.8]), labels, valid)
      >>> result = summarize(evaluate(found, truths), num_classes=1)
      >>> print(result.ap, result.localisation, result.counts.localisation)
      0.0 1.0 2

    Reference:
      Bolya et al., "TIDE: A General Toolbox for Identifying Object Detection Errors", ECCV 2020,
      https://arxiv.org/abs/2008.08115; as in tidecv 1.0.1.
    """
    _checks.count("num_classes", num_classes, 1)
    flat = [jnp.asarray(x).reshape(-1) for x in errors]
    scores, labels, kinds, counted, mended, truth_labels, found, missed = flat
    labels, mended, truth_labels = (
        classes_or(num_classes, x, num_classes) for x in (labels, mended, truth_labels)
    )
    kinds = jnp.where(labels < num_classes, kinds.astype(jnp.int32), -1)
    dtype = _checks.working_dtype(scores)
    scores = scores.astype(dtype)
    truths, missed, lost = (
        _per_class(truth_labels, where, num_classes)
        for where in (truth_labels >= 0, missed, ~found)
    )

    # As it is, with errors first among equal scores, and that with classes mended.
    late = (kinds == CORRECT).astype(jnp.int32)
    moved = jnp.where((kinds == CLASSIFICATION) & (mended < num_classes), mended, labels)
    nothing = labels ^ labels  # zeros that are sharded as the labels are
    places = nothing + jnp.arange(scores.size, dtype=jnp.int32)
    columns = [labels, labels, moved], [-scores] * 3, [nothing, late, late], [places] * 3
    ranked, _, _, order = jax.lax.sort([jnp.stack(x) for x in columns], num_keys=3, is_stable=True)

    def precision(plan: _Plan) -> Array:
        here, place = ranked[plan.ranking], order[plan.ranking]
        kind = kinds[place]
        mends = (kind == plan.mends) & (kind > CORRECT)
        right = (kind == CORRECT) | (mends & (mended[place] < num_classes))
        wrong = (kind > CORRECT) & counted[place] & ~mends
        positives = truths - plan.missed * missed - plan.lost * lost
        occurs = _per_class(here, wrong, num_classes) > 0
        # What is ranked last lowers no precision that counts.
        return _mean_ap(here, right, wrong & (plan.wrong > 0), positives, occurs, dtype)

    ap, *mended_aps = jax.lax.map(precision, _PLANS)
    costs = [jnp.maximum(x - ap, 0) for x in mended_aps[:6]] + [x - ap for x in mended_aps[6:]]
    counts = [(kinds == kind).sum(dtype=jnp.int32) for kind in range(1, len(KINDS))]
    wrong = ((kinds > CORRECT) & counted).sum(dtype=jnp.int32)
    counts += [x.sum(dtype=jnp.int32) for x in (missed, wrong, lost)]
    return Breakdown._make((ap, *costs, Counts(*counts)))


class _Plan(NamedTuple):
    """What is done before the average precision is taken."""

    ranking: np.ndarray
    mends: np.ndarray
    """The kind of errors that are mended; 0 for none."""
    missed: np.ndarray
    """1 if missed truths are taken away."""
    lost: np.ndarray
    """1 if all truths that are not found are taken away."""
    wrong: np.ndarray
    """0 if what is wrong is ranked last."""


_PLANS = _Plan(
    *np.array(
        [
            (0, 0, 0, 0, 1),
            (2, CLASSIFICATION, 0, 0, 1),
            (1, LOCALISATION, 0, 0, 1),
            (1, BOTH, 0, 0, 1),
            (1, DUPLICATE, 0, 0, 1),
            (1, BACKGROUND, 0, 0, 1),
            (1, 0, 1, 0, 1),
            (1, 0, 0, 0, 0),
            (1, 0, 0, 1, 1),
        ],
        np.int32,
    ).T
)


def _mean_ap(
    labels: Array, right: Array, wrong: Array, positives: Array, occurs: Array, dtype: np.dtype
) -> Array:
    """The mean over classes that have truths, or detections that are right or `occurs`.

    Args:
      labels: of detections by class and falling score, `[N]`; K for what is left out.
      right: whether each is correct; `wrong` whether it is not; the others do not count.
      positives: how many truths there are of each class, `[K]`.
    """
    num_classes = positives.shape[0]

    def in_class(x: Array) -> tuple[Array, Array]:
        """How many up to each row, and in all of each class."""
        totals = _per_class(labels, x, num_classes)
        before = jnp.concatenate([totals[:1] * 0, jnp.cumsum(totals, dtype=jnp.int32)])
        return jnp.cumsum(x, dtype=jnp.int32) - before[labels], totals

    (found, rights), (others, _) = in_class(right), in_class(wrong)
    # Divided by an array of rows, the quotient is rounded once.
    reached = found.astype(dtype) / jnp.maximum(found + others, 1).astype(dtype)
    rest = jnp.concatenate([positives, positives[:1] * 0])
    # The highest recall of the grid that `found` reaches: no float decides it.
    recall = (RECALLS - 1) * found // jnp.maximum(rest[labels], 1)
    recall = jnp.clip(recall, 0, RECALLS - 1)
    grid = jnp.zeros((num_classes + 1, RECALLS), dtype)
    grid = grid.at[labels, recall].max(jnp.where(right, reached, 0))[:-1]
    curve = jax.lax.cummax(grid, axis=1, reverse=True)
    there = (positives > 0) | (rights > 0) | occurs
    count = there.sum(dtype=jnp.int32)
    total = jnp.where(there, curve.sum(axis=1) / RECALLS, 0).sum()
    mean = total / jnp.maximum(count, 1).astype(dtype)
    return jnp.where(count > 0, mean, jnp.nan)


def _per_class(labels: Array, where: Array, num_classes: int) -> Array:
    """How often each class occurs; other labels are `num_classes`."""
    counts = jnp.zeros((num_classes + 1,), jnp.int32)
    return counts.at[labels].add(where.astype(jnp.int32))[:-1]


def _together(parts: Sequence[Errors], indices: Sequence[np.ndarray]) -> Errors:
    """Errors of batches, each image at its place; an image in no batch is one without rows."""
    num_images = max((int(places.max(initial=-1)) + 1 for places in indices), default=0)

    def field(fill: float, *xs: np.ndarray) -> np.ndarray:
        width = max((x.shape[1] for x in xs), default=0)
        full = np.full((num_images, width), fill, xs[0].dtype if xs else type(fill))
        for x, places in zip(xs, indices, strict=True):
            full[places[places >= 0], : x.shape[1]] = x[places >= 0]
        return full

    fills = -np.inf, -1, -1, False, -1, -1, False, False
    return Errors(*(field(*xs) for xs in zip(fills, *parts, strict=True)))
