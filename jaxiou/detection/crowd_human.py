"""CrowdHuman's average precision and log-average miss rate, as its toolkit and mmdetection have it.

What holds for every function here, and is not repeated below:

- **The rule.** By falling score, a detection takes of the truths that are free the one that it
  overlaps most, by more than the threshold; of equal ones the first. If there is none, and more
  than that share of its own area lies within an ignored region, it leaves the list. Else it is
  wrong.
- **Ignored** regions are truths with `ignored` or `crowd`: they need not be found and are never
  used up. In CrowdHuman these are all but persons, and persons so marked.
- **Regions** are of any kind that the overlaps know. Those of the data set are first to be cut at
  the border of their image, truths and detections alike.
- **Order.** Equal scores are ranked by image, then by row. A score of NaN is one of -inf, and an
  overlap of NaN is none.
- **Precision.** `average_precision` is the rule in float64, on the host. mmdetection computes
  overlaps in float32, so that it may differ where one lies within 1e-7 of a threshold.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks, _sums, boxes
from jaxiou._compiled import compiled
from jaxiou._math import per_pair
from jaxiou._typing import ArrayLike
from jaxiou.detection import _curves, _exact
from jaxiou.detection._curves import Curves
from jaxiou.detection.matching import Matches, greedy, overlap_table
from jaxiou.detection.packing import Detections, GroundTruth, Images
from jaxiou.detection.voc import accumulate
from jaxiou.pairing import Overlap

__all__ = ["evaluate", "accumulate", "summarize", "average_precision", "Scores", "Curves"]

REFERENCES = (0.01, 0.0178, 0.0316, 0.0562, 0.1, 0.1778, 0.3162, 0.5623, 1.0)
"""False positives per image at which the miss rate is read."""


class Scores(NamedTuple):
    """Scores of K classes at T thresholds, `[T, K]`; NaN for a class without truths.

    Attributes:
      average_precision: the area under the points of precision over recall, in [0, 1], best at 1.
      miss_rate: MR^-2, the geometric mean of the miss rates at nine numbers of false positives per
        image, in [0, 1], best at 0.
      recall: the share of the truths that is found, in [0, 1], best at 1.
    """

    average_precision: Float[ArrayLike, "*batch t k"]
    miss_rate: Float[ArrayLike, "*batch t k"]
    recall: Float[ArrayLike, "*batch t k"]


@compiled(static=("thresholds", "overlap", "ignored_overlap"))
def evaluate(
    detections: Detections,
    truths: GroundTruth,
    *,
    thresholds: tuple[float, ...] = (0.5,),
    overlap: Overlap = boxes.iou,
    ignored_overlap: Overlap = boxes.ioa,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
) -> Matches:
    """Which detections of an image, or of a batch of images, are right.

    Args:
      detections: `[..., D]`.
      truths: `[..., G]`.
      thresholds: up to 32 of them in [0, 1), a tuple; each has to be exceeded by both overlaps.
      overlap: a function of two regions.
      ignored_overlap: a function of a detection and an ignored region.
      overlaps: a ready table, `[..., D, G]`, in place of regions and overlaps, by the one for
        ignored regions in their columns.

    Returns:
      `Matches` with one area range. Detections that leave the list are matched and ignored.

    Raises:
      ValueError: fields whose shapes do not belong together, or thresholds out of range.

    At the edges:
      Without truths all detections are wrong. Zero images, rows or truths are fine.

    Example:
      >>> ones = jnp.ones(2, bool), jnp.zeros(2, jnp.int32)
      >>> regions = jnp.array([[0, 0, 9, 9], [0, 0, 9, 8]])
      >>> found = Detections(regions, jnp.array([0.5, 0.9]), ones[1], ones[0])
      >>> truths = GroundTruth(regions[:1], ones[1][:1], ones[0][:1])
      >>> print(evaluate(found, truths).matched[:, 0])
      [0 1]

    Reference:
      Shao et al., "CrowdHuman: A Benchmark for Detecting Human in a Crowd", 2018,
      https://arxiv.org/abs/1805.00123.
    """
    _curves.check_thresholds(thresholds)
    if max(thresholds) == 1:
        raise ValueError("thresholds must be below 1, as they have to be exceeded")
    ignored = _curves.flags(truths.ignored, truths.valid)
    ignored = ignored | _curves.flags(truths.crowd, truths.valid)
    truths = truths._replace(crowd=ignored)
    table = overlap_table(
        detections, truths, overlap=overlap, crowd_overlap=ignored_overlap, overlaps=overlaps
    )
    # COCO's matching, which of equal overlaps takes the last and lets a threshold be reached.
    least = np.nextafter(np.array(thresholds, table.dtype), np.array(1, table.dtype))
    rows = truths.valid.ndim - 1
    backwards = jax.tree.map(lambda x: jnp.flip(jnp.asarray(x), rows), truths)
    matches = greedy(
        jnp.flip(table, -1),
        detections,
        backwards,
        thresholds=tuple(least.tolist()),
        truth_ignored=backwards.crowd[..., None],
        unmatched_ignored=_curves.flags(detections.ignored, detections.valid)[..., None],
    )
    return matches._replace(
        truth_labels=jnp.flip(matches.truth_labels, rows),
        truth_counts=jnp.flip(matches.truth_counts, rows),
    )


@compiled(static=("num_images",))
def summarize(curves: Curves, *, num_images: int) -> Scores:
    r"""Average precision, miss rate and recall of every class.

    .. math:: AP = \sum_{i > 1} (r_i - r_{i-1}) (p_i + p_{i-1}) / 2 \qquad
      MR^{-2} = \exp \Bigl( \frac{1}{9} \sum_f \log m(f) \Bigr)

    with m(f) the share of the truths that is missed at the first point with f false positives per
    image or more, or at the last point. The precision is as it is, without an envelope, and the
    part before the first point is left out.

    Args:
      curves: from `accumulate`.
      num_images: of the data set, those without rows included.

    Returns:
      `Scores`, in float64 where x64 is on.

    At the edges:
      A class without truths is NaN. Without detections AP is 0 and all is missed; the toolkit's
      miss rate is NaN there. A miss rate is 0 if nothing is missed at one of the nine.

    Example:
      >>> curves = Curves(
      ...     scores=jnp.array([0.9, 0.8, 0.7]),
      ...     labels=jnp.array([0, 0, 0], jnp.int32),
      ...     true_positives=jnp.array([[1, 1, 2]], jnp.int32),
      ...     false_positives=jnp.array([[0, 1, 1]], jnp.int32),
      ...     truth_counts=jnp.array([4], jnp.int32),
      ... )
      >>> scores = summarize(curves, num_images=1)
      >>> print(f"{scores.average_precision[0, 0]:.4f} {scores.miss_rate[0, 0]:.4f}")
      0.1458 0.7500

    Reference:
      As for `evaluate`; the miss rate: Dollár et al., "Pedestrian Detection: An Evaluation of the
      State of the Art", TPAMI 2012.
    """
    _checks.count("num_images", num_images, 1)
    dtype = _sums.score_dtype()
    precision = _curves.ratios(curves, dtype).precision
    true, false = (jnp.asarray(x) for x in (curves.true_positives, curves.false_positives))
    labels, truths = jnp.asarray(curves.labels), jnp.asarray(curves.truth_counts)
    places = jnp.where(labels >= 0, labels, truths.shape[0])

    # The point before, if it is of the same class and something counts by then.
    same = jnp.concatenate([jnp.zeros_like(labels[:1], bool), labels[1:] == labels[:-1]])
    behind = same[None] & (jnp.roll(true + false, 1, axis=1) > 0)
    steps = jnp.where(behind, true - jnp.roll(true, 1, axis=1), 0).astype(dtype)
    strips = steps * (precision + jnp.roll(precision, 1, axis=1)) / 2
    total = jnp.zeros_like(strips, shape=(truths.shape[0], true.shape[0]))
    total = total.at[places].add(strips.T, mode="drop").T

    # What is found before so many false positives: those of a reference are a wrong detection.
    limits = jnp.asarray(_limits(num_images))[:, None, None]
    found = jnp.where(false[None] < limits, true[None], 0).transpose(2, 0, 1)
    none = jnp.zeros_like(found, shape=(truths.shape[0], *found.shape[1:]))
    found = none.at[places].max(found, mode="drop").transpose(1, 2, 0)  # [9, T, K]
    last = jnp.zeros_like(true, shape=(truths.shape[0], true.shape[0]))
    last = last.at[places].max(true.T, mode="drop").T

    def share(x: Array) -> Array:
        x = x.astype(dtype)
        wanted = truths.reshape((1,) * (x.ndim - 1) + truths.shape).astype(dtype)
        return x / per_pair(jnp.where(wanted > 0, wanted, jnp.nan), x)

    missed = share(truths[None, None] - found)
    return Scores(share(total), jnp.exp(jnp.log(missed).mean(axis=0)), share(last))


def _limits(num_images: int) -> np.ndarray:
    """The least numbers of false positives that reach the references, as float64 decides it."""
    limits = [int(reference * num_images) for reference in REFERENCES]
    for i, reference in enumerate(REFERENCES):
        while limits[i] / num_images < reference:
            limits[i] += 1
        while limits[i] and (limits[i] - 1) / num_images >= reference:
            limits[i] -= 1
    return np.array(limits, np.int32)


def average_precision(
    batches: Sequence[Images],
    *,
    num_classes: int = 1,
    thresholds: tuple[float, ...] = (0.5,),
    overlap: Overlap = boxes.iou,
    ignored_overlap: Overlap = boxes.ioa,
    num_images: int | None = None,
) -> Scores:
    """Average precision, miss rate and recall of a data set, in float64.

    Args:
      batches: from `packing.pack`.
      num_classes: K.
      thresholds: up to 32 of them, a tuple.
      overlap: for truths that count; batches with tables use neither.
      ignored_overlap: for ignored regions.
      num_images: how many images there are; None takes the highest index and one.

    Returns:
      `Scores` in NumPy and float64, whether x64 is on or not.

    Raises:
      TypeError: inside of `jit`.

    At the edges:
      As for the functions above, whose counts these are.

    Example:
      >>> from jaxiou.detection.packing import Table, pack
      >>> regions, place = np.array([[0.0, 0.0, 9.0, 9.0]]), np.zeros(1, np.int32)
      >>> found = Detections(regions, np.array([0.5]), place, np.ones(1, bool))
      >>> truths = GroundTruth(regions, place, np.ones(1, bool))
      >>> print(average_precision(pack(Table(found, place, truths, place, 1))).miss_rate)
      [[0.]]

    Reference:
      As for `evaluate` and `summarize`.
    """
    settings: dict[str, Any] = {
        "thresholds": thresholds,
        "overlap": overlap,
        "ignored_overlap": ignored_overlap,
    }
    matches = _exact.collect(
        lambda batch: evaluate(batch.detections, batch.truths, overlaps=batch.overlaps, **settings),
        batches,
        num_images=num_images,
    )
    count = max(len(matches.valid), 1)

    def counted(matches: Matches) -> Curves:
        return accumulate(matches, num_classes=num_classes, num_thresholds=len(thresholds))

    curves = _exact.run(counted, matches)
    scores = np.full((3, len(thresholds), num_classes), np.nan)
    for k in np.flatnonzero(curves.truth_counts > 0):
        own = curves.labels == k
        for t in range(len(thresholds)):
            true, false = (x[t, own].astype(np.float64) for x in curves[2:4])
            scores[:, t, k] = _of_curve(true, false, int(curves.truth_counts[k]), count)
    return Scores(*scores)


def _of_curve(true: np.ndarray, false: np.ndarray, total: int, num_images: int) -> tuple[Any, ...]:
    """The three scores of one curve, with the sums that the toolkit takes."""
    listed = np.diff(true + false, prepend=0) > 0
    true, false = true[listed], false[listed]
    if not len(true):
        return 0.0, 1.0, 0.0
    recall, precision, per_image = true / total, true / (true + false), false / num_images
    strips = np.diff(recall) * ((precision[:-1] + precision[1:]) / 2)
    area = np.add.accumulate(strips)[-1] if len(strips) else 0.0
    places = np.minimum(np.searchsorted(per_image, REFERENCES), len(true) - 1)
    with np.errstate(divide="ignore"):
        return area, np.exp(np.log(1.0 - recall[places]).mean()), recall[-1]
