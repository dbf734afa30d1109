"""COCO's average precision: boxes, masks, boundaries, keypoints, and any overlap of your own.

    batches = packing.pack(table)
    scores = coco.average_precision(batches, num_classes=80).summary

This is the exact mode: twelve numbers equal to pycocotools' to the last bit, on the host and in
float64. Inside `jit`, `evaluate` matches a batch of images, `accumulate` takes the matches of all
of them, and `summarize` gives the numbers; in float32 an overlap within rounding of a threshold may
fall to the other side of it.

What holds here, and is pycocotools' rule:

- **Boxes** are `(x, y, width, height)` rows, as in COCO's files. With another `overlap`, regions
  are what that overlap takes; `boxes.iou` with `boxes.ioa` for crowds takes corners.
- **Areas** of truths are the annotation's, which for boxes too is that of the mask; those of
  detections are width times height. Both ends of an area range belong to it.
- **Limits** of detections are for each image and class.
- **Ties.** Of equal scores the earlier image, then the earlier row comes first; of equal overlaps
  the last truth is taken.
- **NaN.** An overlap of NaN is no match (to pycocotools it is one). A score of NaN is -inf.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks
from jaxiou._compiled import compiled, overlap
from jaxiou._math import product
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact, matching, precision
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images
from jaxiou.detection.precision import RECALLS, Curves
from jaxiou.pairing import Overlap

__all__ = [
    "average_precision",
    "evaluate",
    "accumulate",
    "summarize",
    "box_iou",
    "box_ioa",
    "THRESHOLDS",
    "AREA_RANGES",
    "MAX_DETECTIONS",
    "Result",
    "Summary",
]

THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""Of overlap; the ninth is 0.8999999999999999."""

AREA_RANGES = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
"""All, small, medium, large, in squared pixels."""

MAX_DETECTIONS = (1, 10, 100)
"""In an image, of a class."""


class Summary(NamedTuple):
    """The twelve numbers that COCO publishes; -1 where there was nothing to find.

    Attributes:
      ap: over the thresholds from 0.5 to 0.95, at most 100 detections, as are those that follow.
      ap50: at the threshold 0.5.
      ap75: at the threshold 0.75.
      ap_small: of truths of up to 32^2 pixels.
      ap_medium: from there up to 96^2.
      ap_large: from there on.
      ar_1: recall with at most 1 detection in an image and class, over the thresholds.
      ar_10: with at most 10.
      ar_100: with at most 100.
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
    ar_1: Float[ArrayLike, ""]
    ar_10: Float[ArrayLike, ""]
    ar_100: Float[ArrayLike, ""]
    ar_small: Float[ArrayLike, ""]
    ar_medium: Float[ArrayLike, ""]
    ar_large: Float[ArrayLike, ""]


class Result(NamedTuple):
    """What the exact mode gives, in NumPy.

    Attributes:
      summary: the twelve numbers.
      per_class: the average precision of each class over thresholds, `[K]`; NaN without truths.
      curves: precision, recall and scores behind them.
      matches: what became of each detection and truth, at the first 32 thresholds.
    """

    summary: Summary
    per_class: Float[np.ndarray, " k"]
    curves: Curves
    matches: Matches


@overlap(region_rank=1)
def box_iou(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    """IoU of boxes `(x, y, width, height)`, operation by operation as pycocotools computes it.

    Args:
      a: detections, `[..., 4]`.
      b: truths, likewise.

    Returns:
      One number per pair, `[...]`, from 0 to 1 and a few spacings, which rounding adds.

    At the edges:
      Boxes that only touch: 0. Negative widths: 0.

    Gradient:
      None is promised; for losses take `boxes.iou`.

    Example:
      >>> print(box_iou(jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([1.0, 0.0, 2.0, 2.0])))
      0.33333334

    Reference:
      `bbIou` of https://github.com/cocodataset/cocoapi.
    """
    shared, first, second = _shared(a, b)
    return _ratio(shared, first + second - shared)


@overlap(region_rank=1)
def box_ioa(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    """The share of box `a` that lies in box `b`, which is COCO's overlap with a crowd.

    Args:
      a: detections, `[..., 4]`.
      b: truths, likewise.

    Returns:
      One number per pair, `[...]`, from 0 to 1 and a few spacings.

    At the edges:
      Boxes that only touch: 0. Negative widths: 0.

    Gradient:
      None is promised; for losses take `boxes.ioa`.

    Example:
      >>> print(box_ioa(jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([1.0, 0.0, 9.0, 9.0])))
      0.5

    Reference:
      `bbIou` of https://github.com/cocodataset/cocoapi.
    """
    shared, first, _ = _shared(a, b)
    return _ratio(shared, first)


def _shared(a: ArrayLike, b: ArrayLike) -> tuple[Array, Array, Array]:
    """The intersection and both areas. Each product is rounded once, as in a program in C."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = (
        tuple(x[..., side] for side in range(4))
        for x in _checks.regions((4,), "boxes x, y, width, height", a=a, b=b)
    )
    width = jnp.minimum(ax + aw, bx + bw) - jnp.maximum(ax, bx)
    height = jnp.minimum(ay + ah, by + bh) - jnp.maximum(ay, by)
    shared = jnp.where((width > 0) & (height > 0), product(width, height), 0)
    # Areas of a pair, not of a box: what is ready-made, XLA may contract.
    return shared, product(aw, ah), product(bw, bh)


def _ratio(part: Array, whole: Array) -> Array:
    """Nothing shared is 0, whatever the areas are."""
    return jnp.where(part > 0, part / jnp.where(part > 0, whole, 1), part)


@compiled(
    static=(
        "overlap",
        "crowd_overlap",
        "thresholds",
        "area_ranges",
        "max_detections",
        "class_agnostic",
    )
)
def evaluate(
    detections: Detections,
    truths: GroundTruth,
    *,
    overlap: Overlap = box_iou,
    crowd_overlap: Overlap = box_ioa,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
    thresholds: tuple[float, ...] = THRESHOLDS,
    area_ranges: tuple[tuple[float, float], ...] = AREA_RANGES,
    max_detections: int = MAX_DETECTIONS[-1],
    class_agnostic: bool = False,
) -> Matches:
    """Matches the detections of each image with its truths.

    Args:
      detections: `[..., D]`; regions, and `areas` where regions are not boxes of four numbers.
      truths: `[..., G]`, likewise. `crowd` and `ignored` truths need not be found.
      overlap: a function of two regions.
      crowd_overlap: the one with crowds.
      overlaps: `[..., D, G]` in place of both, with crowds by their own rule.
      thresholds: up to 32, static.
      area_ranges: pairs of the least and the greatest area, static.
      max_detections: of a class in an image, static.
      class_agnostic: whether all is one class; labels of the result are then 0.

    Returns:
      `Matches`, without gradient.

    Raises:
      ValueError: regions without areas, and arrays whose shapes do not belong together.

    At the edges:
      No detections, no truths: none matched. Rows that are not valid may hold anything.

    Example:
      >>> one = jnp.zeros((1, 1), jnp.int32), jnp.ones((1, 1), bool)
      >>> box = jnp.array([[[0.0, 0.0, 10.0, 10.0]]])
      >>> found = Detections(box * 0.9, jnp.ones((1, 1)), *one)
      >>> print(evaluate(found, GroundTruth(box, *one), thresholds=(0.5, 0.9)).matched)
      [[[1 1 0 0]]]

    Reference:
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312, and its evaluator, pycocotools.
    """
    if class_agnostic:
        detections, truths, overlaps = _one_class(detections, truths, overlaps)
    table = matching.overlap_table(
        detections, truths, overlap=overlap, crowd_overlap=crowd_overlap, overlaps=overlaps
    )
    ignored = jnp.zeros_like(truths.valid)
    for mask in (truths.crowd, truths.ignored):
        ignored = ignored if mask is None else ignored | mask
    outside = _outside("detections", detections, area_ranges)
    if detections.ignored is not None:
        outside = outside | jnp.asarray(detections.ignored)[..., None]
    return matching.greedy(
        table,
        detections,
        truths,
        thresholds=thresholds,
        truth_ignored=ignored[..., None] | _outside("truths", truths, area_ranges),
        unmatched_ignored=outside,
        max_detections=max_detections,
    )


def _outside(
    name: str, side: Detections | GroundTruth, ranges: tuple[tuple[float, float], ...]
) -> Array:
    """Whether the area of each region is outside of each range, `[..., rows, A]`."""
    if not ranges:
        raise ValueError("area_ranges must be one or more pairs")
    areas = side.areas
    if areas is None:
        if side.regions is None or side.regions.shape[side.valid.ndim :] != (4,):
            raise ValueError(f"{name} must have areas, as their regions are not boxes")
        areas = product(jnp.asarray(side.regions)[..., 2], jnp.asarray(side.regions)[..., 3])
    areas = jnp.asarray(areas)[..., None].astype(_checks.working_dtype(areas))
    low, high = np.array(ranges, areas.dtype).T
    shape = (1,) * (areas.ndim - 1) + (len(ranges),)
    return (areas < low.reshape(shape)) | (areas > high.reshape(shape))


def _one_class(detections: Detections, truths: GroundTruth, overlaps: ArrayLike | None):
    """All as class 0, in the order of their classes, in which pycocotools puts them in a row."""

    def sorted_by_label(side):
        order = jnp.argsort(side.labels, axis=-1, stable=True)

        def rows(x, axis=side.valid.ndim - 1):
            at = order.reshape(*order.shape, *(1,) * (x.ndim - order.ndim))
            return jnp.take_along_axis(jnp.asarray(x), at, axis=axis)

        return jax.tree.map(rows, side)._replace(labels=jnp.zeros_like(side.labels)), order

    detections, d = sorted_by_label(detections)
    truths, g = sorted_by_label(truths)
    if overlaps is not None:
        overlaps = jnp.take_along_axis(jnp.asarray(overlaps), d[..., :, None], axis=-2)
        overlaps = jnp.take_along_axis(overlaps, g[..., None, :], axis=-1)
    return detections, truths, overlaps


def accumulate(
    matches: Matches,
    *,
    num_classes: int,
    num_thresholds: int = len(THRESHOLDS),
    max_detections: tuple[int, ...] = MAX_DETECTIONS,
    recalls: tuple[float, ...] = RECALLS,
) -> Curves:
    """`precision.accumulate` with COCO's settings: precision and recall of all images.

    Args:
      matches: `[I, D]`, images in ascending order.
      num_classes: K.
      num_thresholds: T, those that `evaluate` matched at.
      max_detections: limits, rising; up to that of `evaluate`.
      recalls: where the precision is read.

    Returns:
      `precision.Curves`.

    At the edges:
      A class without truths: -1.
    """
    return precision.accumulate(
        matches,
        num_classes=num_classes,
        num_thresholds=num_thresholds,
        max_detections=max_detections,
        recalls=recalls,
    )


def summarize(curves: Curves, *, thresholds: tuple[float, ...] = THRESHOLDS) -> Summary:
    """The twelve numbers, as means of the entries that are there.

    Args:
      curves: from `accumulate`, with COCO's four area ranges and three limits.
      thresholds: those that were matched at; 0.5 and 0.75 may be missing.

    Returns:
      `Summary`; -1 where nothing was to be found, or a threshold is missing.

    At the edges:
      No truths at all: -1 everywhere.
    """
    return _summary(curves, thresholds, mean_of_present)


def _summary(curves: Curves, thresholds: tuple[float, ...], mean) -> Summary:
    areas, limits = curves.recall.shape[-2:]
    if areas != len(AREA_RANGES) or limits != len(MAX_DETECTIONS):
        raise ValueError(
            f"curves must have {len(AREA_RANGES)} areas and {len(MAX_DETECTIONS)} limits to be "
            f"summarized as COCO's, got {areas} and {limits}"
        )

    return Summary(
        mean(curves.precision[:, :, :, 0, -1]),
        mean(at_threshold(curves.precision, thresholds, 0.5)[:, :, 0, -1]),
        mean(at_threshold(curves.precision, thresholds, 0.75)[:, :, 0, -1]),
        *(mean(curves.precision[:, :, :, area, -1]) for area in (1, 2, 3)),
        *(mean(curves.recall[:, :, 0, limit]) for limit in range(limits)),
        *(mean(curves.recall[:, :, area, -1]) for area in (1, 2, 3)),
    )


def at_threshold(x: Any, thresholds: tuple[float, ...], threshold: float) -> Any:
    """The part of `x`, `[T, ...]`, at one threshold; none of it, `[0, ...]`, if it is missing."""
    which = [t for t, given in enumerate(thresholds) if abs(given - threshold) < 1e-9]
    return x[which[0]] if which else x[:0].reshape(0, *x.shape[2:])


def mean_of_present(x: Array) -> Array:
    """Of the entries above -1; -1 if there are none."""
    counts = x > -1
    number = jnp.maximum(counts.sum(dtype=jnp.int32), 1).astype(x.dtype)
    return jnp.where(counts.any(), jnp.where(counts, x, 0).sum() / number, -1)


def exact_mean(x: Any) -> np.float64:
    """`mean_of_present` in NumPy's own order of additions."""
    present = x[x > -1]
    return np.mean(present) if present.size else np.float64(-1)


def per_class(curves: Curves) -> np.ndarray:
    """The mean precision of each class, without limits of area and with the last of detections."""
    classes = range(curves.precision.shape[2])
    means = np.array([exact_mean(curves.precision[:, :, k, 0, -1]) for k in classes])
    return np.where(means < 0, np.nan, means)


def average_precision(
    batches: Sequence[Images],
    *,
    num_classes: int,
    overlap: Overlap = box_iou,
    crowd_overlap: Overlap = box_ioa,
    thresholds: tuple[float, ...] = THRESHOLDS,
    class_agnostic: bool = False,
) -> Result:
    """COCO's numbers for a whole data set: equal to pycocotools' to the last bit.

    Args:
      batches: from `packing.pack`, or of your own making; an image that occurs twice counts once.
      num_classes: K.
      overlap: a function of two regions; bits equal those of pycocotools with its own only.
      crowd_overlap: the one with crowds.
      thresholds: any number of them.
      class_agnostic: whether all is one class, as with `useCats = 0`.

    Returns:
      `Result`, of NumPy arrays in float64.

    Raises:
      TypeError: inside `jit`; the message says what to call there.

    At the edges:
      No images, no truths: -1 everywhere.
    """
    parts = matched(
        batches,
        overlap=overlap,
        crowd_overlap=crowd_overlap,
        thresholds=thresholds,
        class_agnostic=class_agnostic,
    )
    curves = accumulated(parts, num_classes=1 if class_agnostic else num_classes)
    summary = _summary(curves, thresholds, exact_mean)
    return Result(summary, per_class(curves), curves, parts[0][1])


@functools.lru_cache(maxsize=64)
def _evaluator(**settings):
    return jax.jit(
        lambda batch: evaluate(batch.detections, batch.truths, overlaps=batch.overlaps, **settings)
    )


def matched(
    batches: Sequence[Images],
    *,
    overlap: Overlap = box_iou,
    crowd_overlap: Overlap = box_ioa,
    thresholds: tuple[float, ...] = THRESHOLDS,
    area_ranges: tuple[tuple[float, float], ...] = AREA_RANGES,
    max_detections: int = MAX_DETECTIONS[-1],
    class_agnostic: bool = False,
    num_images: int | None = None,
) -> list[tuple[int, Matches]]:
    """The matches of all images in float64, for each 32 thresholds and how many they are."""
    if not thresholds:
        raise ValueError("thresholds must be one or more numbers")
    starts = range(0, len(thresholds), matching.MOST_THRESHOLDS)
    parts = [tuple(thresholds[start : start + matching.MOST_THRESHOLDS]) for start in starts]
    return [
        (
            len(part),
            _exact.collect(
                _evaluator(
                    overlap=overlap,
                    crowd_overlap=crowd_overlap,
                    thresholds=part,
                    area_ranges=tuple(area_ranges),
                    max_detections=max_detections,
                    class_agnostic=class_agnostic,
                ),
                batches,
                areas=len(area_ranges),
                num_images=num_images,
            ),
        )
        for part in parts
    ]


def accumulated(
    parts: list[tuple[int, Matches]],
    *,
    num_classes: int,
    max_detections: tuple[int, ...] = MAX_DETECTIONS,
    recalls: tuple[float, ...] = RECALLS,
) -> Curves:
    """The curves of `matched`, over all thresholds."""
    curves = (
        precision.accumulate_exactly(
            matches,
            num_classes=num_classes,
            num_thresholds=count,
            max_detections=max_detections,
            recalls=recalls,
        )
        for count, matches in parts
    )
    return Curves(*(np.concatenate(x) for x in zip(*curves, strict=True)))
