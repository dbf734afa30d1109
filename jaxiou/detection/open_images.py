"""Open Images' average precision, as TensorFlow's object_detection has it.

What holds for every function here, and is not repeated below:

- **Group-of boxes** stand for many objects that were not told apart; they are the truths with
  `crowd`. All others are plain.
- **The rule.** A detection chooses, of the plain truths of its class in its image, the one that it
  overlaps most; of equal ones the first. If that overlap reaches the threshold, and the truth is
  difficult (`ignored`), the detection does not count; else the best detection of those that chose
  this truth is right. Every other detection that lies within a group-of box of its class, with a
  share of its own area that reaches the threshold, leaves the list. What remains is wrong.
- **The weight** of group-of boxes is 0 in the plain metric, where they only take detections away,
  and 1 in the Challenge, where a group-of box is a truth like others: it has to be found, and
  the best of the detections that it takes away stays, as right.
- **Regions** are of any kind that `overlap` and `group_overlap` know: boxes `(x1, y1, x2, y2)`,
  relative or in pixels, by default. A detection's share is `ioa`, divided by its own area.
- **Order.** Equal scores are ranked by image, then by row. A score of NaN is one of -inf, and an
  overlap of NaN is none.
- **Afterwards** all goes as in VOC from 2010 on: `accumulate` and `summarize` are those of `voc`.
- **Precision.** `average_precision` gives TensorFlow's numbers to the last bit, in float64 on the
  host. The others are for use inside of `jit`; what float32 changes, `voc` says.

Before the evaluation come `expand_hierarchy`, which says of a cat that it is an animal too, and in
the Challenge `keep_verified`, as images are not annotated for every class.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Real

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.detection import _curves, _exact
from jaxiou.detection._curves import AveragePrecision, Curves
from jaxiou.detection.matching import Matches, check, overlap_table
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table
from jaxiou.detection.voc import accumulate, summarize
from jaxiou.pairing import Overlap

__all__ = [
    "expand_hierarchy",
    "verified_classes",
    "keep_verified",
    "evaluate",
    "accumulate",
    "summarize",
    "average_precision",
    "AveragePrecision",
    "Curves",
]


def expand_hierarchy(
    table: Table, *, ancestors: Bool[np.ndarray, "k k"], also_detections: bool = False
) -> Table:
    """A copy of every truth for each of the classes above its own.

    Args:
      table: the rows of a data set.
      ancestors: `ancestors[k]` says of which classes k is a kind, at any distance; from
        `readers.open_images`, for example.
      also_detections: whether they are copied as well, as mmdetection does; TensorFlow leaves it
        to the detector to find an animal where it finds a cat.

    Returns:
      A `Table` in NumPy. Copies come right behind their row, classes rising.

    Raises:
      TypeError: inside of `jit`: the number of rows depends on their labels.

    At the edges:
      Rows of classes without ancestors stay as they are. Where an image has a truth of the class
      above already, the copy is a further one, as in the reference.

    Example:
      >>> row, one = np.zeros(1, np.int32), np.ones(1, bool)
      >>> found = Detections(np.ones((1, 4)), np.ones(1), row + 2, one)
      >>> table = Table(found, row, GroundTruth(np.ones((1, 4)), row + 2, one), row, 1)
      >>> above = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 0]], bool)
      >>> print(expand_hierarchy(table, ancestors=above).truths.labels)
      [2 0 1]

    Reference:
      Kuznetsova et al., "The Open Images Dataset V4", IJCV 2020, https://arxiv.org/abs/1811.00982.
    """
    _exact.refuse_tracers(table=tuple(table))
    _check_ancestors(ancestors)
    truths, truth_images = _expanded(table.truths, table.truth_images, ancestors)
    table = table._replace(truths=truths, truth_images=truth_images)
    if not also_detections:
        return table
    found, images = _expanded(table.detections, table.detection_images, ancestors)
    return table._replace(detections=found, detection_images=images)


def _check_ancestors(ancestors: np.ndarray) -> None:
    _checks.is_array("ancestors", ancestors)
    if ancestors.ndim != 2 or ancestors.shape[0] != ancestors.shape[1]:
        raise ValueError(f"ancestors must have shape [K, K], got {list(ancestors.shape)}")
    _checks.mask("ancestors", ancestors, ancestors.shape)


def _expanded(side: Any, images: ArrayLike, ancestors: np.ndarray) -> tuple[Any, np.ndarray]:
    labels = np.asarray(side.labels)
    known = (labels >= 0) & (labels < len(ancestors))
    own = np.where(known, labels, 0)
    # Its own class first, in column 0, and those above it.
    wanted = np.ones((len(labels), 1 + len(ancestors)), bool)
    wanted[:, 1:] = ancestors[own] & known[:, None] & ~np.eye(len(ancestors), dtype=bool)[own]
    rows, column = np.nonzero(wanted)
    copies = jax.tree.map(lambda x: np.asarray(x)[rows], side)
    copies = copies._replace(labels=np.where(column, column - 1, labels[rows]).astype(np.int32))
    return copies, np.asarray(images)[rows]


def verified_classes(
    positive: Bool[np.ndarray, "images k"],
    negative: Bool[np.ndarray, "images k"],
    *,
    ancestors: Bool[np.ndarray, "k k"] | None = None,
) -> Bool[np.ndarray, "images k"]:
    """Of which classes it is known whether an image shows them, from what people verified.

    Who sees a cat sees an animal; who sees no animal sees no cat.

    Args:
      positive: which classes were verified to be there, bool `[images, K]`.
      negative: which classes were verified not to be there.
      ancestors: as for `expand_hierarchy`; None: there are none.

    Returns:
      Bool, `[images, K]`, for `keep_verified` and `average_precision`.

    Example:
      >>> cat_is_animal = np.array([[0, 0], [1, 0]], bool)
      >>> one, none = np.eye(2, dtype=bool), np.zeros((2, 2), bool)
      >>> print(verified_classes(one, none, ancestors=cat_is_animal)[1])
      [ True  True]

    Reference:
      Kuznetsova et al., "The Open Images Dataset V4", IJCV 2020, https://arxiv.org/abs/1811.00982.
    """
    for name, x in {"positive": positive, "negative": negative}.items():
        _checks.is_concrete(name, x)
        _checks.mask(name, x, positive.shape)
    if ancestors is None:
        return positive | negative
    _check_ancestors(ancestors)
    above = ancestors.astype(np.float32)  # of floats the product is a fast one
    return positive | negative | (positive @ above > 0) | (negative @ above.T > 0)


@compiled()
def keep_verified(
    detections: Detections, truths: GroundTruth, *, verified: Bool[ArrayLike, "*batch k"]
) -> Detections:
    """Leaves out detections of classes of which it is not known whether an image shows them.

    Args:
      detections: `[..., D]`.
      truths: `[..., G]`, which say that their classes are there.
      verified: of which classes it is known, for each image, bool `[..., K]`.

    Returns:
      The detections; `valid` is False where the class is neither verified nor that of a truth.

    At the edges:
      An image without truths and verified classes has no detections left.

    Example:
      >>> ones = jnp.ones(2, bool)
      >>> found = Detections(None, jnp.ones(2), jnp.array([2, 1], jnp.int32), ones)
      >>> truths = GroundTruth(None, jnp.array([2], jnp.int32), ones[:1])
      >>> print(keep_verified(found, truths, verified=jnp.zeros(3, bool)).valid)
      [ True False]

    Reference:
      Kuznetsova et al., "The Open Images Dataset V4", IJCV 2020, https://arxiv.org/abs/1811.00982.
    """
    check(detections, truths)
    _checks.is_array("verified", verified)
    _checks.mask("verified", verified, (*detections.valid.shape[:-1], verified.shape[-1]))
    labels = jnp.asarray(detections.labels)[..., :, None]
    present = (labels == truths.labels[..., None, :]) & truths.valid[..., None, :]
    classes = jax.lax.broadcasted_iota(
        labels.dtype, (*labels.shape[:-1], verified.shape[-1]), labels.ndim - 1
    )
    checked = (labels == classes) & jnp.asarray(verified)[..., None, :]
    known = present.any(axis=-1) | checked.any(axis=-1)
    return detections._replace(valid=jnp.asarray(detections.valid) & known)


@compiled(static=("thresholds", "group_weight", "overlap", "group_overlap"))
def evaluate(
    detections: Detections,
    truths: GroundTruth,
    *,
    thresholds: tuple[float, ...] = (0.5,),
    group_weight: int = 0,
    overlap: Overlap = boxes.iou,
    group_overlap: Overlap = boxes.ioa,
    overlaps: Real[ArrayLike, "*batch d g"] | None = None,
) -> Matches:
    """Which detections of an image, or of a batch of images, are right.

    Args:
      detections: `[..., D]`.
      truths: `[..., G]`; `crowd` says which are group-of boxes, `ignored` which are difficult.
      thresholds: up to 32 of them in [0, 1], a tuple; each holds for both overlaps.
      group_weight: 0, or 1 as in the Challenge.
      overlap: a function of two regions, for plain truths.
      group_overlap: a function of a detection and a group-of box.
      overlaps: a ready table, `[..., D, G]`, in place of regions and overlaps, by the one for
        group-of boxes in their columns.

    Returns:
      `Matches` with one area range. Detections that leave the list are matched and ignored.

    Raises:
      ValueError: fields whose shapes do not belong together, thresholds out of range, or another
        weight.

    At the edges:
      A difficult group-of box takes detections away and leaves none; in TensorFlow one would stay,
      as the finding of what need not be found. Scores may be 0 or less; in TensorFlow a group-of
      box is not found by these. Without truths all detections are wrong.

    Example:
      >>> ones = jnp.ones(2, bool), jnp.zeros(2, jnp.int32)
      >>> regions = jnp.array([[0, 0, 2, 2], [3, 0, 5, 2]])
      >>> found = Detections(regions, jnp.array([0.5, 0.9]), ones[1], ones[0])
      >>> group = jnp.array([[0, 0, 9, 9]])
      >>> truths = GroundTruth(group, ones[1][:1], ones[0][:1], crowd=ones[0][:1])
      >>> print(evaluate(found, truths, group_weight=1).ignored[:, 0])
      [1 0]

    Reference:
      Kuznetsova et al., "The Open Images Dataset V4", IJCV 2020, https://arxiv.org/abs/1811.00982,
      and `per_image_evaluation` of TensorFlow's object_detection.
    """
    _curves.check_thresholds(thresholds)
    _checks.one_of("group_weight", group_weight, (0, 1))
    table = overlap_table(
        detections, truths, overlap=overlap, crowd_overlap=group_overlap, overlaps=overlaps
    )
    difficult = _curves.flags(truths.ignored, truths.valid)
    group = _curves.flags(truths.crowd, truths.valid)
    ranks = _curves.class_ranks(detections)
    nothing = np.uint32(0)

    values, chosen = _curves.first_best(jnp.where(group[..., None, :], -1, table))
    reached = _curves.reached(values, thresholds, strict=False)
    excused = jnp.where(_curves.of_chosen(difficult, chosen), reached, nothing)
    right = _curves.first_of_chosen(reached & ~excused, chosen, ranks)

    values, chosen = _curves.first_best(jnp.where(group[..., None, :], table, -1))
    within = _curves.reached(values, thresholds, strict=False) & ~right & ~excused
    found = _curves.first_of_chosen(within, chosen, ranks)
    counts = _curves.of_chosen(~difficult, chosen) & (group_weight == 1)
    found = jnp.where(counts, found, nothing)
    return _curves.to_matches(
        detections,
        truths,
        ranks=ranks,
        right=right | found,
        excused=excused | (within & ~found),
        wanted=~difficult & (~group | (group_weight == 1)),
        num_thresholds=len(thresholds),
    )


def average_precision(
    batches: Sequence[Images],
    *,
    num_classes: int,
    thresholds: tuple[float, ...] = (0.5,),
    group_weight: int = 0,
    overlap: Overlap = boxes.iou,
    group_overlap: Overlap = boxes.ioa,
    verified: Bool[np.ndarray, "images k"] | None = None,
    num_images: int | None = None,
) -> AveragePrecision:
    """Average precision of a data set: TensorFlow's numbers to the last bit.

    Args:
      batches: from `packing.pack`.
      num_classes: K.
      thresholds: up to 32 of them, a tuple.
      group_weight: 0, or 1 as in the Challenge.
      overlap: for plain truths; batches with tables use neither.
      group_overlap: for group-of boxes.
      verified: of which classes it is known whether an image shows them, bool `[num_images, K]`, as
        in the Challenge: detections of others are left out. None keeps all.
      num_images: how many images there are; None takes the highest index and one.

    Returns:
      `AveragePrecision` in NumPy and float64, whether x64 is on or not.

    Raises:
      TypeError: inside of `jit`, or `verified` that is not boolean.
      ValueError: `verified` of another shape.

    At the edges:
      As for the functions above, whose counts these are.

    Example:
      >>> from jaxiou.detection.packing import pack
      >>> regions, place = np.array([[0.0, 0.0, 9.0, 9.0]]), np.zeros(1, np.int32)
      >>> found = Detections(regions, np.array([0.5]), place, np.ones(1, bool))
      >>> truths = GroundTruth(regions, place, np.ones(1, bool))
      >>> result = average_precision(pack(Table(found, place, truths, place, 1)), num_classes=2)
      >>> print(result.mean, result.by_class)
      [1.] [[ 1. nan]]

    Reference:
      As for `evaluate`.
    """
    settings: dict[str, Any] = {
        "thresholds": thresholds,
        "group_weight": group_weight,
        "overlap": overlap,
        "group_overlap": group_overlap,
    }

    _exact.refuse_tracers(batches=batches, verified=verified)
    if verified is not None:
        total = num_images or 0
        if num_images is None:
            highest = (np.asarray(batch.indices).max(initial=-1) for batch in batches)
            total = max((int(x) + 1 for x in highest), default=0)
        _checks.is_array("verified", verified)
        if verified.dtype != np.bool_:
            raise TypeError(f"verified must be boolean, got dtype {verified.dtype}")
        # There may be rows for images behind the last one of the batches.
        shape = (max(total, *verified.shape[:1], 0), num_classes)
        _checks.exact_shape("verified", verified, shape, "images, classes")

    def matched(batch: Images) -> Matches:
        found = batch.detections
        if verified is not None:
            found = keep_verified(found, batch.truths, verified=verified[np.asarray(batch.indices)])
        return evaluate(found, batch.truths, overlaps=batch.overlaps, **settings)

    matches = _exact.collect(matched, batches, num_images=num_images)
    return _curves.exact_summary(
        matches,
        num_classes=num_classes,
        num_thresholds=len(thresholds),
        points="all",
        mean=lambda x: float(np.nanmean(x)),
    )
