"""COCO's average precision: boxes, masks, boundaries, keypoints, and any overlap of your own.

    batches = packing.pack(table)
    scores = coco.average_precision(batches, num_classes=80).summary

This is the exact mode: twelve numbers equal to pycocotools' to the last bit, on the host and in
float64. Inside `jit`, `evaluate` matches a batch of images, `accumulate` takes the matches of all
of them, and `summarize` gives the numbers. In float32 an overlap within rounding of a threshold may
fall to the other side of it: of the 734 detections of cocoapi's sample one does, and AP is 0.504234
in place of 0.504581; all else differs by 2e-6 at most.

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

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks
from jaxiou._compiled import compiled, overlap
from jaxiou._math import product
from jaxiou._typing import ArrayLike
from jaxiou.detection import _summaries, matching, precision
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Detections, GroundTruth, Images
from jaxiou.detection.precision import RECALLS, Curves
from jaxiou.pairing import Overlap

__all__ = [
    "average_precision",
    "keypoint_average_precision",
    "evaluate",
    "accumulate",
    "summarize",
    "box_iou",
    "box_ioa",
    "THRESHOLDS",
    "AREA_RANGES",
    "MAX_DETECTIONS",
    "KEYPOINT_AREA_RANGES",
    "KEYPOINT_MAX_DETECTIONS",
    "Result",
    "Summary",
    "KeypointSummary",
]

THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
"""Of overlap; the ninth is 0.8999999999999999."""

AREA_RANGES = ((0.0, 1e10), (0.0, 32.0**2), (32.0**2, 96.0**2), (96.0**2, 1e10))
"""All, small, medium, large, in squared pixels."""

MAX_DETECTIONS = (1, 10, 100)
"""In an image, of a class."""

KEYPOINT_AREA_RANGES = (AREA_RANGES[0], *AREA_RANGES[2:])
"""All, medium and large: COCO has no keypoints of small people."""

KEYPOINT_MAX_DETECTIONS = (20,)
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


class KeypointSummary(NamedTuple):
    """The ten numbers that COCO publishes for keypoints; -1 where there was nothing to find.

    Attributes:
      ap: over the thresholds from 0.5 to 0.95, at most 20 detections, as are all.
      ap50: at the threshold 0.5.
      ap75: at the threshold 0.75.
      ap_medium: of truths from 32^2 to 96^2 pixels.
      ap_large: from there on.
      ar: recall over the thresholds.
      ar50: at the threshold 0.5.
      ar75: at the threshold 0.75.
      ar_medium: of medium truths.
      ar_large: of large ones.
    """

    ap: Float[ArrayLike, ""]
    ap50: Float[ArrayLike, ""]
    ap75: Float[ArrayLike, ""]
    ap_medium: Float[ArrayLike, ""]
    ap_large: Float[ArrayLike, ""]
    ar: Float[ArrayLike, ""]
    ar50: Float[ArrayLike, ""]
    ar75: Float[ArrayLike, ""]
    ar_medium: Float[ArrayLike, ""]
    ar_large: Float[ArrayLike, ""]


class Result(NamedTuple):
    """What the exact mode gives, in NumPy.

    Attributes:
      summary: the twelve numbers, or the ten of keypoints.
      per_class: the average precision of each class over thresholds, `[K]`; NaN without truths.
      curves: precision, recall and scores behind them.
      matches: what became of each detection and truth, at the first 32 thresholds.
    """

    summary: Summary | KeypointSummary
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
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312; `bbIou` of its evaluator, pycocotools.
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
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312; `bbIou` of its evaluator, pycocotools.
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
      detections: `[..., D]`; regions, and `areas` unless they are boxes for `box_iou`.
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
      [[[1 1 1 1]]]

    Reference:
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312, and its evaluator, pycocotools.
    """
    matching.check(detections, truths, overlaps)
    if class_agnostic:
        detections, truths, overlaps = _one_class(detections, truths, overlaps)
    outside = _outside("detections", detections, area_ranges, overlap)
    truth_outside = _outside("truths", truths, area_ranges, overlap)
    table = matching.overlap_table(
        detections, truths, overlap=overlap, crowd_overlap=crowd_overlap, overlaps=overlaps
    )
    ignored = jnp.zeros_like(truths.valid)
    for mask in (truths.crowd, truths.ignored):
        ignored = ignored if mask is None else ignored | mask
    if detections.ignored is not None:
        outside = outside | jnp.asarray(detections.ignored)[..., None]
    return matching.greedy(
        table,
        detections,
        truths,
        thresholds=thresholds,
        truth_ignored=ignored[..., None] | truth_outside,
        unmatched_ignored=outside,
        max_detections=max_detections,
    )


def _outside(
    name: str,
    side: Detections | GroundTruth,
    ranges: tuple[tuple[float, float], ...],
    overlap: Overlap,
) -> Array:
    """Whether the area of each region is outside of each range, `[..., rows, A]`."""
    if not ranges:
        raise ValueError("area_ranges must be one or more pairs")
    areas = side.areas
    if areas is None:
        # Corners have four numbers too, and an area that is not the product of the last two.
        if (
            side.regions is None
            or side.regions.shape[side.valid.ndim :] != (4,)
            or overlap is not box_iou
        ):
            raise ValueError(
                f"{name} must have areas: only those of boxes x, y, width, height, which "
                f"coco.box_iou takes, are known"
            )
        # Cast first: the area of small integers does not fit in them.
        regions = jnp.asarray(side.regions).astype(_checks.working_dtype(side.regions))
        areas = product(regions[..., 2], regions[..., 3])
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

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> curves = accumulate(evaluate(found, truth), num_classes=1)
      >>> print(curves.recall.shape, curves.recall[0, 0, 0])
      (10, 1, 4, 3) [1. 1. 1.]
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
      curves: from `accumulate`.
      thresholds: those that were matched at.

    Returns:
      `Summary`; -1 where nothing was to be found. Of other area ranges and limits than COCO's, the
      first range is "all", the next three are "small" to "large", and precision is that of the last
      limit; -1 for what is missing.

    At the edges:
      No truths at all: -1 everywhere.

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> summary = summarize(accumulate(evaluate(found, truth), num_classes=1))
      >>> print(summary.ap, summary.ap_small, summary.ap_large)
      1.0 1.0 -1.0
    """
    _summaries.check_thresholds(curves, thresholds)
    return _summary(curves, thresholds, _summaries.mean_of_present)


def _summary(curves: Curves, thresholds: tuple[float, ...], mean) -> Summary:
    areas, limits = curves.recall.shape[-2:]

    def ap(x, area=0):
        return mean(x[..., area, -1] if area < areas else x[:0])

    def ar(area, limit):
        fits = area < areas and limit < limits
        return mean(curves.recall[:, :, area, limit] if fits else curves.recall[:0])

    return Summary(
        ap(curves.precision),
        *(ap(_summaries.at_threshold(curves.precision, thresholds, x)) for x in (0.5, 0.75)),
        *(ap(curves.precision, area) for area in (1, 2, 3)),
        *(ar(0, limit) for limit in (0, 1, 2)),
        *(ar(area, limits - 1) for area in (1, 2, 3)),
    )


def _keypoint_summary(curves: Curves, thresholds: tuple[float, ...], mean) -> KeypointSummary:
    return KeypointSummary(
        *(
            mean(part[..., area, -1])
            for x in (curves.precision, curves.recall)
            for part, area in (
                (x, 0),
                (_summaries.at_threshold(x, thresholds, 0.5), 0),
                (_summaries.at_threshold(x, thresholds, 0.75), 0),
                (x, 1),
                (x, 2),
            )
        )
    )


def average_precision(
    batches: Sequence[Images],
    *,
    num_classes: int,
    overlap: Overlap = box_iou,
    crowd_overlap: Overlap = box_ioa,
    thresholds: tuple[float, ...] = THRESHOLDS,
    area_ranges: tuple[tuple[float, float], ...] = AREA_RANGES,
    max_detections: tuple[int, ...] = MAX_DETECTIONS,
    recalls: tuple[float, ...] = RECALLS,
    class_agnostic: bool = False,
) -> Result:
    """COCO's numbers for a whole data set: equal to pycocotools' to the last bit.

    Args:
      batches: from `packing.pack`, or of your own making; an image that occurs twice counts once.
      num_classes: K.
      overlap: a function of two regions; bits equal those of pycocotools with its own only.
      crowd_overlap: the one with crowds.
      thresholds: any number of them.
      area_ranges: pairs of the least and the greatest area.
      max_detections: limits for an image and class, rising.
      recalls: where precision is read, rising.
      class_agnostic: whether all is one class, as with `useCats = 0`.

    Returns:
      `Result`, of NumPy arrays in float64.

    Raises:
      TypeError: inside `jit`; the message says what to call there.

    At the edges:
      No images, no truths: -1 everywhere. pycocotools takes `ap` at the limit 100 alone, and has -1
      without it; here it is at the last limit.

    Example:
      >>> one, label = jnp.ones((1, 1), bool), jnp.zeros((1, 1), jnp.int32)
      >>> box, score = jnp.array([[[0.0, 0.0, 9.0, 9.0]]]), jnp.array([[0.5]])
      >>> found, truth = Detections(box, score, label, one), GroundTruth(box, label, one)
      >>> batch = Images(found, truth, jnp.zeros(1, jnp.int32))
      >>> result = average_precision([batch], num_classes=2)
      >>> print(result.summary.ar_100, result.per_class.round(6))
      1.0 [ 1. nan]
    """
    parts = _summaries.matched(
        evaluate,
        batches,
        overlap=overlap,
        crowd_overlap=crowd_overlap,
        thresholds=thresholds,
        area_ranges=area_ranges,
        max_detections=max(max_detections),
        class_agnostic=class_agnostic,
    )
    curves = _summaries.accumulated(
        parts,
        num_classes=1 if class_agnostic else num_classes,
        max_detections=max_detections,
        recalls=recalls,
    )
    summary = _summary(curves, thresholds, _summaries.exact_mean)
    return Result(summary, _summaries.per_class(curves), curves, parts[0][1])


def keypoint_average_precision(
    batches: Sequence[Images],
    *,
    num_classes: int,
    thresholds: tuple[float, ...] = THRESHOLDS,
) -> Result:
    """COCO's numbers for keypoints, from the object keypoint similarity as `overlaps`.

    Args:
      batches: from `packing.pack` with the overlaps that `readers.coco.load` gives.
      num_classes: K.
      thresholds: any number of them.

    Returns:
      `Result`, with a `KeypointSummary`.

    Raises:
      TypeError: inside `jit`; the message says what to call there.

    At the edges:
      No images, no truths: -1 everywhere. The similarity has an exponential, which differs between
      platforms in the last bits.

    Example:
      >>> from jaxiou.readers import coco as files
      >>> from jaxiou.detection.packing import pack
      >>> person = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "area": 81}
      >>> person |= {"num_keypoints": 17, "keypoints": [4, 4, 2] * 17}
      >>> truths = {"images": [{"id": 1}], "categories": [{"id": 1}], "annotations": [person]}
      >>> loaded = files.from_dicts(truths, [person | {"score": 0.5}], kind="keypoints")
      >>> batches = pack(loaded.table, overlaps=loaded.overlaps)
      >>> print(keypoint_average_precision(batches, num_classes=1).summary.ar)
      1.0
    """
    parts = _summaries.matched(
        evaluate,
        batches,
        thresholds=thresholds,
        area_ranges=KEYPOINT_AREA_RANGES,
        max_detections=max(KEYPOINT_MAX_DETECTIONS),
    )
    curves = _summaries.accumulated(
        parts, num_classes=num_classes, max_detections=KEYPOINT_MAX_DETECTIONS, recalls=RECALLS
    )
    summary = _keypoint_summary(curves, thresholds, _summaries.exact_mean)
    return Result(summary, _summaries.per_class(curves), curves, parts[0][1])
