"""LVIS average precision: COCO's matching where only some classes are annotated in each image.

    batches = lvis.pack(table, negative=negative, not_exhaustive=not_exhaustive)
    scores = lvis.average_precision(batches, num_classes=1203, frequencies=frequencies).summary

What differs from `coco`:

- **Federated.** A detection takes part if its class has a truth in the image, or is known to be
  absent from it (`negative`). Where the truths of a class are not all annotated (`not_exhaustive`),
  a detection without match does not count. `federate` says so of a batch.
- **Limit.** The 300 best detections of an image, of all classes together; none for each class.
- **No area**, or an infinite one: a truth or a detection does not take part; it does take a place
  among the 300.
- **No crowds**; a truth's `ignored` is honoured.
- **Frequencies.** Average precision is also given for rare, common and frequent classes.

Boxes, areas and ties are as in `coco`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Real

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.detection import _summaries, coco, matching, packing, precision
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table
from jaxiou.detection.precision import RECALLS, Curves
from jaxiou.pairing import Overlap

__all__ = [
    "average_precision",
    "pack",
    "federate",
    "evaluate",
    "accumulate",
    "summarize",
    "MAX_DETECTIONS",
    "Result",
    "Summary",
]

MAX_DETECTIONS = 300
"""In an image, of all classes."""


class Summary(NamedTuple):
    """The thirteen numbers that LVIS publishes; -1 where there was nothing to find.

    Attributes:
      ap: over the thresholds from 0.5 to 0.95.
      ap50: at the threshold 0.5.
      ap75: at the threshold 0.75.
      ap_small: of truths of up to 32^2 pixels.
      ap_medium: from there up to 96^2.
      ap_large: from there on.
      ap_rare: `ap` over rare classes.
      ap_common: over common classes.
      ap_frequent: over frequent classes.
      ar: recall over the thresholds.
      ar_small: that of small truths.
      ar_medium: that of medium ones.
      ar_large: that of large ones.
    """

    ap: Float[ArrayLike, ""]
    ap50: Float[ArrayLike, ""]
    ap75: Float[ArrayLike, ""]
    ap_small: Float[ArrayLike, ""]
    ap_medium: Float[ArrayLike, ""]
    ap_large: Float[ArrayLike, ""]
    ap_rare: Float[ArrayLike, ""]
    ap_common: Float[ArrayLike, ""]
    ap_frequent: Float[ArrayLike, ""]
    ar: Float[ArrayLike, ""]
    ar_small: Float[ArrayLike, ""]
    ar_medium: Float[ArrayLike, ""]
    ar_large: Float[ArrayLike, ""]


class Result(NamedTuple):
    """What the exact mode gives, in NumPy.

    Attributes:
      summary: the thirteen numbers.
      per_class: the average precision of each class over thresholds, `[K]`; NaN without truths.
      curves: precision, recall and scores behind them, with one limit.
      matches: what became of each detection and truth, at the first 32 thresholds.
    """

    summary: Summary
    per_class: Float[np.ndarray, " k"]
    curves: Curves
    matches: Matches


def pack(
    table: Table,
    *,
    negative: Bool[np.ndarray, "images k"],
    not_exhaustive: Bool[np.ndarray, "images k"],
    max_detections: int | None = MAX_DETECTIONS,
    overlaps: Sequence[np.ndarray] | None = None,
    batch_size: int = packing.BATCH,
) -> list[Images]:
    """A data set as batches of federated images: `packing.pack` after `federate`.

    Args:
      table: the rows.
      negative: which classes are known to be absent from each image, `[images, K]`.
      not_exhaustive: the classes whose truths are not all annotated there.
      max_detections: in an image, of all classes; None: all.
      overlaps: as in `packing.pack`.
      batch_size: images in a batch.

    Returns:
      Batches in NumPy.

    Raises:
      ValueError: tables of another shape than images and classes.

    At the edges:
      No images: no batches.

    Example:
      >>> found = Detections(np.ones((1, 4)), np.ones(1), np.zeros(1, np.int32), np.ones(1, bool))
      >>> truths = GroundTruth(np.ones((0, 4)), np.zeros(0, np.int32), np.ones(0, bool))
      >>> table = Table(found, np.zeros(1, np.int32), truths, np.zeros(0, np.int32), num_images=1)
      >>> unknown = np.zeros((1, 2), bool)
      >>> print(pack(table, negative=unknown, not_exhaustive=unknown)[0].detections.valid.any())
      False
    """
    batches = packing.pack(table, overlaps=overlaps, batch_size=batch_size)
    for name, x in {"negative": negative, "not_exhaustive": not_exhaustive}.items():
        _checks.is_array(name, x)
        if x.ndim != 2 or len(x) != table.num_images:
            raise ValueError(
                f"{name} must have shape [{table.num_images}, classes], got {list(x.shape)}"
            )
        labels = np.concatenate([table.detections.labels, table.truths.labels])
        if len(labels) and not 0 <= labels.min() <= labels.max() < x.shape[1]:
            raise ValueError(
                f"{name} must have a column for every label, which lie in {labels.min()} to "
                f"{labels.max()}, got shape {list(x.shape)}"
            )
    return [
        batch._replace(
            detections=_federate(
                np,
                batch.detections,
                batch.truths,
                negative[batch.indices],
                not_exhaustive[batch.indices],
                max_detections,
            )
        )
        for batch in batches
    ]


@compiled(static=("max_detections",))
def federate(
    detections: Detections,
    truths: GroundTruth,
    *,
    negative: Bool[ArrayLike, "*batch k"],
    not_exhaustive: Bool[ArrayLike, "*batch k"],
    max_detections: int | None = MAX_DETECTIONS,
) -> Detections:
    """Detections with `valid` and `ignored` as the annotations of each image have it.

    Args:
      detections: `[..., D]`.
      truths: `[..., G]`.
      negative: which classes are known to be absent from the image, `[..., K]`.
      not_exhaustive: the classes whose truths are not all annotated, `[..., K]`.
      max_detections: in an image, of all classes; None: all.

    Returns:
      The detections; those that do not take part are not valid.

    At the edges:
      A class with a truth in the image takes part, whatever `negative` says.

    Example:
      >>> found = Detections(None, jnp.ones(2), jnp.array([0, 1], jnp.int32), jnp.ones(2, bool))
      >>> truth = GroundTruth(None, jnp.zeros(1, jnp.int32), jnp.ones(1, bool))
      >>> none = jnp.zeros(3, bool)
      >>> print(federate(found, truth, negative=none, not_exhaustive=none).valid)
      [ True False]
    """
    matching.check(detections, truths)
    return _federate(jnp, detections, truths, negative, not_exhaustive, max_detections)


def _federate(xp, detections, truths, negative, not_exhaustive, max_detections) -> Detections:
    labels = detections.labels
    valid = xp.asarray(detections.valid)
    if max_detections is not None:
        rank = _ranks if xp is np else matching.ranks_by_score
        valid = valid & (rank(detections.scores, valid) < max_detections)

    def has(table):
        """Of each detection's class."""
        return xp.take_along_axis(xp.asarray(table), xp.where(valid, labels, 0), axis=-1)

    same = labels[..., :, None] == truths.labels[..., None, :]
    annotated = (same & _with_area(xp, truths).valid[..., None, :]).any(axis=-1)
    ignored = valid & has(not_exhaustive)
    if detections.ignored is not None:
        ignored = ignored | detections.ignored
    return detections._replace(valid=valid & (annotated | has(negative)), ignored=ignored)


def _ranks(scores: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """`matching.ranks_by_score` on the host, where scores of 64 bits keep them."""
    keys = np.where(valid & (scores == scores), -scores.astype(np.float64), np.inf)
    keys = np.where(valid, np.minimum(keys, np.finfo(np.float64).max), np.inf)
    order = np.argsort(keys, axis=-1, kind="stable")
    return np.argsort(order, axis=-1, kind="stable")


def _with_area(xp, side):
    """Without what has no area, or an infinite one, which lvis-api does not load."""
    if side.areas is None and side.regions is None:
        return side._replace(valid=xp.asarray(side.valid))
    areas = side.areas
    if areas is None:
        regions = xp.asarray(side.regions)
        regions = regions.astype(_checks.working_dtype(regions))
        areas = regions[..., 2] * regions[..., 3]
    areas = xp.asarray(areas)
    return side._replace(valid=xp.asarray(side.valid) & (areas > 0) & (areas < np.inf))


@compiled(static=("overlap", "thresholds", "area_ranges"))
def evaluate(
    detections: Detections,
    truths: GroundTruth,
    *,
    overlap: Overlap = coco.box_iou,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
    thresholds: tuple[float, ...] = coco.THRESHOLDS,
    area_ranges: tuple[tuple[float, float], ...] = coco.AREA_RANGES,
) -> Matches:
    """Matches the detections of each image with its truths.

    Args:
      detections: `[..., D]`, from `federate`.
      truths: `[..., G]`; those that are `ignored` need not be found. Crowds are none.
      overlap: a function of two regions.
      overlaps: `[..., D, G]` in its place.
      thresholds: up to 32, static.
      area_ranges: pairs of the least and the greatest area, static.

    Returns:
      `Matches`, without gradient.

    At the edges:
      As `coco.evaluate`.

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> print(evaluate(found, truth, thresholds=(0.5, 0.75)).matched)
      [[[3 3 3 3]]]

    Reference:
      Gupta et al., "LVIS: A Dataset for Large Vocabulary Instance Segmentation", CVPR 2019,
      https://arxiv.org/abs/1908.03195, and its evaluator, lvis-api.
    """
    matching.check(detections, truths, overlaps)
    return coco.evaluate(
        _with_area(jnp, detections),
        _with_area(jnp, truths)._replace(crowd=None),
        overlap=overlap,
        crowd_overlap=overlap,
        overlaps=overlaps,
        thresholds=thresholds,
        area_ranges=area_ranges,
        max_detections=precision.ALL,
    )


def accumulate(
    matches: Matches,
    *,
    num_classes: int,
    num_thresholds: int = len(coco.THRESHOLDS),
    recalls: tuple[float, ...] = RECALLS,
) -> Curves:
    """Precision and recall of all images, as `coco.accumulate` with one limit.

    Args:
      matches: `[I, D]`, images in ascending order.
      num_classes: K.
      num_thresholds: T, those that `evaluate` matched at.
      recalls: where the precision is read.

    Returns:
      `precision.Curves`.

    At the edges:
      A class without truths: -1.

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> print(accumulate(evaluate(found, truth), num_classes=1).recall[0, 0, :, 0])
      [ 1.  1. -1. -1.]
    """
    return precision.accumulate(
        matches, num_classes=num_classes, num_thresholds=num_thresholds, recalls=recalls
    )


def summarize(
    curves: Curves,
    *,
    frequencies: Sequence[str],
    thresholds: tuple[float, ...] = coco.THRESHOLDS,
) -> Summary:
    """The thirteen numbers, as means of the entries that are there.

    Args:
      curves: from `accumulate`, with the four area ranges.
      frequencies: of each class, "r", "c" or "f".
      thresholds: those that were matched at; 0.5 and 0.75 may be missing.

    Returns:
      `Summary`; -1 where nothing was to be found.

    At the edges:
      No class of a frequency: -1.

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> curves = accumulate(evaluate(found, truth), num_classes=1)
      >>> print(summarize(curves, frequencies="f").ap_frequent)
      1.0
    """
    _summaries.check_thresholds(curves, thresholds)
    return _summary(jnp, curves, frequencies, thresholds, _summaries.mean_of_present)


def _summary(xp, curves: Curves, frequencies, thresholds: tuple[float, ...], mean) -> Summary:
    shape = curves.recall.shape
    if shape[2:] != (len(coco.AREA_RANGES), 1) or len(frequencies) != shape[1]:
        raise ValueError(
            f"curves must have {len(coco.AREA_RANGES)} areas and 1 limit, and as many classes as "
            f"frequencies, got {list(shape[2:])}, {shape[1]} and {len(frequencies)}"
        )
    for x in frequencies:
        _checks.one_of("frequencies", x, ("r", "c", "f"))

    def ap_of(kind):
        # Not by indices, which would gather what lies on several devices.
        mask = np.array([x == kind for x in frequencies]).reshape(1, 1, -1, 1)
        return mean(xp.where(mask, curves.precision[:, :, :, 0], -1))

    return Summary(
        mean(curves.precision[:, :, :, 0]),
        mean(_summaries.at_threshold(curves.precision, thresholds, 0.5)[:, :, 0]),
        mean(_summaries.at_threshold(curves.precision, thresholds, 0.75)[:, :, 0]),
        *(mean(curves.precision[:, :, :, area]) for area in (1, 2, 3)),
        *map(ap_of, ("r", "c", "f")),
        *(mean(curves.recall[:, :, area]) for area in (0, 1, 2, 3)),
    )


def average_precision(
    batches: Sequence[Images],
    *,
    num_classes: int,
    frequencies: Sequence[str],
    overlap: Overlap = coco.box_iou,
    thresholds: tuple[float, ...] = coco.THRESHOLDS,
) -> Result:
    """LVIS's numbers for a whole data set: equal to lvis-api's to the last bit.

    Args:
      batches: from `pack`; an image that occurs twice counts once.
      num_classes: K.
      frequencies: of each class, "r", "c" or "f".
      overlap: a function of two regions.
      thresholds: any number of them.

    Returns:
      `Result`, of NumPy arrays in float64.

    Raises:
      TypeError: inside `jit`; the message says what to call there.

    At the edges:
      No images, no truths: -1 everywhere.

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> batch = Images(found, truth, jnp.zeros(1, jnp.int32))
      >>> result = average_precision([batch], num_classes=1, frequencies="r")
      >>> print(result.summary.ar, result.summary.ap_common)
      1.0 -1.0
    """
    parts = _summaries.matched(
        evaluate,
        batches,
        overlap=overlap,
        thresholds=thresholds,
        area_ranges=coco.AREA_RANGES,
    )
    curves = _summaries.accumulated(
        parts, num_classes=num_classes, max_detections=(precision.ALL,), recalls=RECALLS
    )
    summary = _summary(np, curves, frequencies, thresholds, _summaries.exact_mean)
    return Result(summary, _summaries.per_class(curves), curves, parts[0][1])
