"""Metrics that are summed over batches, devices and processes, as pure functions of a state.

A `Metric` is five functions. A state is a NamedTuple of arrays: it goes through `jit`, `scan`
and `shard_map`, may be donated, and is saved by any checkpoint library.

    metric = metrics.mean_iou(num_classes=19, ignore=255)
    state = metric.init()
    for predictions, targets in batches:
        state = metric.update(state, predictions, targets)
    print(metric.compute(state).mean)

What holds for every metric here, and is not repeated below:

- **Counts are exact** up to 2^64 - 1 without 64-bit types, in any order of batches and merges. The
  arrays in a state hold them in four parts of 16 bits each, `[4, ...]`; `to_numpy` gives plain
  numbers. Sums of floats hold what rounding left over too, `[2, ...]`, and carry the error of
  twice the digits.
- **Scores** are float32, and float64 under `jax.enable_x64(True)`, each sum rounded once.
- **Sharding.** In `jit`, `update` takes batches that are sharded and needs nothing more. In
  `shard_map`, each device updates a state of its own, from `init`, and `reduce` adds them.
  Merge the result with what there was before outside, or on one device's share only.
- **Factories are cached**: equal settings give the same functions, which compile once.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Integer, UInt32

from jaxiou import _checks, _counts, _scores, _sums, panoptic, protocols, segmentation
from jaxiou._compiled import compiled
from jaxiou._scores import Absent, Ignore
from jaxiou._typing import ArrayLike
from jaxiou.detection import coco
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Images
from jaxiou.pairing import Overlap
from jaxiou.panoptic import PanopticCounts, PanopticQuality
from jaxiou.protocols import Protocol, Scores
from jaxiou.tracking import clear, hota, identity
from jaxiou.tracking.packing import Sequence

__all__ = [
    "Metric",
    "mean_iou",
    "dice",
    "semantic_segmentation",
    "panoptic_quality",
    "tracking",
    "coco_average_precision",
    "to_numpy",
    "ConfusionCounts",
    "PanopticState",
    "TrackingState",
    "AveragePrecisionState",
    "ClassScores",
    "PanopticScores",
    "TrackingScores",
]


class Metric(NamedTuple):
    """Five pure functions of a state.

    Attributes:
      init: `init() -> state` of nothing seen, in fresh arrays.
      update: `update(state, *batch, where=None) -> state` with a batch added.
      merge: `merge(state, state) -> state`: both; associative and commutative.
      reduce: `reduce(state, axis_name) -> state`: the sum over a mesh axis, in `shard_map`.
      compute: `compute(state)`: the scores.
    """

    init: Callable[[], Any]
    update: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    reduce: Callable[[Any, str], Any]
    compute: Callable[[Any], Any]


class ConfusionCounts(NamedTuple):
    """The state of the metrics of label maps.

    Attributes:
      matrix: pixels by target and predicted class, limbs of `[K, K + 1]`, as `confusion_matrix`.
      ignored: target pixels with an ignored label.
      invalid: target pixels with a label that is neither a class nor ignored.
    """

    matrix: UInt32[Array, "4 classes columns"]
    ignored: UInt32[Array, "4"]
    invalid: UInt32[Array, "4"]


class PanopticState(NamedTuple):
    """The state of `panoptic_quality`, for each class.

    Attributes:
      iou: the sum of the IoU of the matches, and what rounding left over.
      true_positives: matches, limbs.
      false_positives: predicted segments without match, limbs.
      false_negatives: target segments without match, limbs.
    """

    iou: Float[Array, "2 classes"]
    true_positives: UInt32[Array, "4 classes"]
    false_positives: UInt32[Array, "4 classes"]
    false_negatives: UInt32[Array, "4 classes"]


class TrackingState(NamedTuple):
    """The state of `tracking`: the counts of its parts, each as limbs or as a sum with its rest.

    Attributes:
      hota: as `tracking.hota.Counts`.
      clear: as `tracking.clear.Counts`.
      identity: as `tracking.identity.Counts`.
    """

    hota: hota.Counts
    clear: clear.Counts
    identity: identity.Counts


class AveragePrecisionState(NamedTuple):
    """The state of `coco_average_precision`: a table with a place for every image.

    Attributes:
      seen: which images there were, bool `[I]`.
      matches: what became of their detections and truths, `[I, D]` and `[I, G]`.
    """

    seen: Bool[Array, " images"]
    matches: Matches


class ClassScores(NamedTuple):
    """A score of each class, and their mean.

    Attributes:
      mean: over the classes.
      per_class: `[classes]`.
    """

    mean: Float[Array, ""]
    per_class: Float[Array, " classes"]


class PanopticScores(NamedTuple):
    """Panoptic quality over three sets of classes.

    Attributes:
      all: over all classes that occur.
      things: over those of them that are things.
      stuff: over the others.
    """

    all: PanopticQuality
    things: PanopticQuality
    stuff: PanopticQuality


class TrackingScores(NamedTuple):
    """What trackers are compared by.

    Attributes:
      hota: localisation, detection and association, at 19 thresholds.
      clear: MOTA and its parts.
      identity: IDF1 and its parts.
    """

    hota: hota.Scores
    clear: clear.Scores
    identity: identity.Scores


@functools.cache
def mean_iou(
    num_classes: int,
    *,
    ignore: Ignore = (),
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Metric:
    """IoU of each class over all that was seen, and its mean: the mIoU of the data set.

    Args:
      num_classes: classes are 0 to `num_classes - 1`.
      ignore: target labels that do not count, one or several, in range or not.
      absent: what a class is that is neither in the targets nor predicted, as in `segmentation`.
      classes: those that the mean is over; None takes all that are not ignored.

    Returns:
      A `Metric`. `update(state, predictions, targets, *, where=None)` takes label maps of any
      equal shape, and `where` of their rank, which broadcasts: `valid[:, None, None]` leaves
      out images that fill up a batch. The state is a `ConfusionCounts`, and `compute` gives
      `ClassScores`.

    At the edges:
      Nothing seen: NaN, or what `absent` says.

    Example:
      >>> metric = mean_iou(2, ignore=255)
      >>> state = metric.init()
      >>> state = metric.update(state, jnp.array([0, 1, 1, 1]), jnp.array([0, 0, 1, 255]))
      >>> print(metric.compute(state).mean)
      0.5
    """
    return _of_classes("iou", num_classes, ignore, absent, classes)


@functools.cache
def dice(
    num_classes: int,
    *,
    ignore: Ignore = (),
    absent: Absent = "exclude",
    classes: tuple[int, ...] | None = None,
) -> Metric:
    """Dice score (F1) of each class over all that was seen, and its mean.

    Args:
      num_classes: classes are 0 to `num_classes - 1`.
      ignore: as in `mean_iou`.
      absent: as in `mean_iou`.
      classes: as in `mean_iou`.

    Returns:
      A `Metric`, used as that of `mean_iou`.

    At the edges:
      Nothing seen: NaN, or what `absent` says.

    Example:
      >>> metric = dice(2)
      >>> state = metric.update(metric.init(), jnp.array([0, 1, 1]), jnp.array([0, 0, 1]))
      >>> print(f"{metric.compute(state).mean:.4f}")
      0.6667
    """
    return _of_classes("dice", num_classes, ignore, absent, classes)


@functools.cache
def semantic_segmentation(protocol: Protocol) -> Metric:
    """All scores that a benchmark's protocol defines, over all that was seen.

    Args:
      protocol: such as `protocols.CITYSCAPES`.

    Returns:
      A `Metric`, used as that of `mean_iou`; `compute` gives `protocols.Scores`.

    At the edges:
      As the protocol has it.

    Example:
      >>> metric = semantic_segmentation(protocols.VOC)
      >>> state = metric.update(metric.init(), jnp.array([0, 1, 1]), jnp.array([0, 1, 255]))
      >>> print(metric.compute(state).pixel_accuracy)
      1.0
    """

    def compute(state: ConfusionCounts) -> Scores:
        return protocols.scores_of(_counted(state), protocol)

    return _of_label_maps(protocol.num_classes, protocol.ignore, compute)


@functools.cache
def panoptic_quality(
    num_classes: int,
    *,
    things: tuple[int, ...] = (),
    threshold: float = 0.5,
    boundary_ratio: float | None = None,
) -> Metric:
    """Panoptic quality over all images that were seen: for all classes, things and stuff.

    Args:
      num_classes: classes are 0 to `num_classes - 1`.
      things: the classes that are things; the others are stuff.
      threshold: as in `panoptic.panoptic_counts`.
      boundary_ratio: likewise.

    Returns:
      A `Metric`. `update(state, predictions, targets, prediction_labels, target_labels, *,
      crowd=None, target_areas=None, where=None)` takes what `panoptic_counts` takes, with a
      leading axis of images; `where`, bool `[B]`, leaves out images that fill up a batch. The
      state is a `PanopticState`, and `compute` gives `PanopticScores`.

    At the edges:
      No class of a set seen: NaN.

    Example:
      >>> metric = panoptic_quality(2, things=(1,))
      >>> maps, labels = jnp.array([[[0, 0, 1]]]), jnp.array([[0, 1]])
      >>> state = metric.update(metric.init(), maps, maps, labels, labels)
      >>> print(metric.compute(state).things.pq)
      1.0

    Reference:
      Kirillov et al., "Panoptic Segmentation", CVPR 2019, https://arxiv.org/abs/1801.00868.
    """
    _checks.count("num_classes", num_classes, 1)
    _checks.members("things", things, num_classes)
    stuff = tuple(label for label in range(num_classes) if label not in things)
    count = functools.partial(
        panoptic.panoptic_counts,
        num_classes=num_classes,
        threshold=threshold,
        boundary_ratio=boundary_ratio,
    )

    def init() -> PanopticState:
        counts = (_counts.zeros((num_classes,)) for _ in range(3))
        return PanopticState(jnp.zeros((2, num_classes), _sums.score_dtype()), *counts)

    @compiled()
    def update(
        state: PanopticState,
        predictions: Integer[ArrayLike, "images *image"],
        targets: Integer[ArrayLike, "images *image"],
        prediction_labels: Integer[ArrayLike, "images p"],
        target_labels: Integer[ArrayLike, "images t"],
        *,
        crowd: Bool[ArrayLike, "images t"] | None = None,
        target_areas: Integer[ArrayLike, "images t"] | None = None,
        where: Bool[ArrayLike, " images"] | None = None,
    ) -> PanopticState:
        def of_image(data, options):
            return count(*data, **options)

        data = predictions, targets, prediction_labels, target_labels
        options = {"crowd": crowd, "target_areas": target_areas}
        counts = jax.vmap(of_image)(data, {k: x for k, x in options.items() if x is not None})
        counts = _sums.counting(where, counts, predictions.shape[:1])
        return _sums.merge(state, PanopticState(*_sums.from_items(counts, state)))

    @compiled()
    def compute(state: PanopticState) -> PanopticScores:
        counts = PanopticCounts(*_sums.to_floats(state))
        sets = (None, things, stuff)
        return PanopticScores(*(panoptic.panoptic_quality(counts, classes=x) for x in sets))

    image = jnp.zeros((1, 1, 1), jnp.int32)
    metric = Metric(init, update, _sums.merge, _sums.reduce, compute)
    return _tried(metric, image, image, image[0], image[0])


@functools.cache
def tracking(num_predictions: int, num_targets: int, *, threshold: float = 0.5) -> Metric:
    """HOTA, CLEAR MOT and Identity over all sequences that were seen, as TrackEval combines them.

    Args:
      num_predictions: the most ids that predictions have in a sequence.
      num_targets: the most ids that targets have.
      threshold: of CLEAR and Identity.

    Returns:
      A `Metric`. `update(state, sequences, *, num_frames=None, where=None)` takes a
      `tracking.packing.Sequence` with a leading axis of sequences, whose frames may be padded
      up to `num_frames`, int32 `[B]`, and `where`, bool `[B]`, which leaves out sequences that
      fill up a batch. The state is a `TrackingState`, and `compute` gives `TrackingScores`.

    At the edges:
      A ratio of nothing is 0, or as `tracking.hota`, `clear` and `identity` have it.

    Example:
      >>> ids, valid = jnp.zeros((1, 2, 1), jnp.int32), jnp.ones((1, 2, 1), bool)
      >>> sequences = Sequence(ids, ids, valid, valid, jnp.full((1, 2, 1, 1), 0.8))
      >>> metric = tracking(1, 1)
      >>> scores = metric.compute(metric.update(metric.init(), sequences))
      >>> print(scores.clear.mota, scores.identity.idf1, f"{scores.hota.hota.mean():.4f}")
      1.0 1.0 0.8421

    Reference:
      Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking", IJCV
      2021, https://arxiv.org/abs/2009.07736.
    """
    _checks.count("num_predictions", num_predictions)
    _checks.count("num_targets", num_targets)

    def of_sequence(sequence: Sequence, num_frames: ArrayLike) -> TrackingState:
        return TrackingState(
            hota.count(sequence, num_predictions=num_predictions, num_targets=num_targets),
            clear.count(
                sequence, num_targets=num_targets, threshold=threshold, num_frames=num_frames
            ),
            identity.count(
                sequence,
                num_predictions=num_predictions,
                num_targets=num_targets,
                threshold=threshold,
            ),
        )

    def init() -> TrackingState:
        one = jnp.zeros((1, 1), jnp.int32), jnp.zeros((1, 1), bool)
        empty = Sequence(one[0], one[0], one[1], one[1], jnp.zeros((1, 1, 1), _sums.score_dtype()))
        kinds = jax.eval_shape(of_sequence, empty, np.int32(1))
        return jax.tree.map(
            lambda x: (
                _counts.zeros(x.shape)
                if jnp.issubdtype(x.dtype, jnp.integer)
                else jnp.zeros((2, *x.shape), x.dtype)
            ),
            kinds,
        )

    @compiled()
    def update(
        state: TrackingState,
        sequences: Sequence,
        *,
        num_frames: Integer[ArrayLike, " b"] | None = None,
        where: Bool[ArrayLike, " b"] | None = None,
    ) -> TrackingState:
        shape = sequences.similarities.shape
        if num_frames is None:
            num_frames = jnp.full(shape[:1], shape[1], jnp.int32)
        counts = _sums.counting(where, jax.vmap(of_sequence)(sequences, num_frames), shape[:1])
        return _sums.merge(state, _sums.from_items(counts, state))

    @compiled()
    def compute(state: TrackingState) -> TrackingScores:
        counts = _sums.to_floats(state)
        return TrackingScores(
            hota.summarize(counts.hota),
            clear.summarize(counts.clear, empty="formula"),
            identity.summarize(counts.identity),
        )

    return Metric(init, update, _sums.merge, _sums.reduce, compute)


@functools.cache
def coco_average_precision(
    num_classes: int,
    num_images: int,
    *,
    num_detections: int = 100,
    num_truths: int = 100,
    overlap: Overlap = coco.box_iou,
    crowd_overlap: Overlap = coco.box_ioa,
    thresholds: tuple[float, ...] = coco.THRESHOLDS,
) -> Metric:
    """COCO's average precision over all images that were seen.

    The state has a place for every image: an image that is seen twice, as samplers pad the last
    batch, or on two devices, counts once; and states merge in any order into the same numbers.

    Args:
      num_classes: classes are 0 to `num_classes - 1`.
      num_images: of the whole data set; 36 bytes are held for each detection of each image.
      num_detections: the most rows of detections that a batch has.
      num_truths: the most rows of truths.
      overlap: a function of two regions; the default takes boxes `(x, y, width, height)`.
      crowd_overlap: the one with crowds.
      thresholds: up to 32.

    Returns:
      A `Metric`. `update(state, images, *, where=None)` takes `detection.packing.Images`, whose
      `indices` say which images they are, 0 to `num_images - 1`; -1, others and those that
      `where`, bool `[B]`, leaves out do not count. Each padded shape compiles once. The state is an
      `AveragePrecisionState`, and `compute` gives `detection.coco.Summary`, in float32; the exact
      numbers are those of `detection.coco.average_precision`.

    Raises:
      ValueError: in `update`, for more rows than the state holds.

    At the edges:
      Nothing seen, or no truths: -1.

    Example:
      >>> from jaxiou.detection.packing import Detections, GroundTruth
      >>> box, one = jnp.array([[[0.0, 0.0, 8.0, 8.0]]]), jnp.ones((1, 1), bool)
      >>> label = jnp.zeros((1, 1), jnp.int32)
      >>> found, truth = Detections(box, jnp.ones((1, 1)), label, one), GroundTruth(box, label, one)
      >>> metric = coco_average_precision(1, 5, num_detections=1, num_truths=1)
      >>> state = metric.update(metric.init(), Images(found, truth, jnp.array([3], jnp.int32)))
      >>> print(metric.compute(state).ap)
      1.0

    Reference:
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312.
    """
    _checks.count("num_classes", num_classes, 1)
    sizes = {
        "num_images": num_images,
        "num_detections": num_detections,
        "num_truths": num_truths,
    }
    for name, size in sizes.items():
        _checks.count(name, size)
    areas = len(coco.AREA_RANGES)

    def init() -> AveragePrecisionState:
        rows, truths = (num_images, num_detections), (num_images, num_truths)
        return AveragePrecisionState(
            jnp.zeros((num_images,), bool),
            Matches(
                scores=jnp.zeros(rows, _sums.score_dtype()),
                labels=jnp.zeros(rows, jnp.int32),
                ranks=jnp.zeros(rows, jnp.int32),
                valid=jnp.zeros(rows, bool),
                matched=jnp.zeros((*rows, areas), jnp.uint32),
                ignored=jnp.zeros((*rows, areas), jnp.uint32),
                truth_labels=jnp.zeros(truths, jnp.int32),
                truth_counts=jnp.zeros((*truths, areas), bool),
            ),
        )

    @compiled()
    def update(
        state: AveragePrecisionState,
        images: Images,
        *,
        where: Bool[ArrayLike, " b"] | None = None,
    ) -> AveragePrecisionState:
        indices = jnp.asarray(images.indices)
        _checks.is_integer("indices", indices)
        _checks.exact_shape("indices", indices, images.detections.valid.shape[:1], "images")
        indices = indices.astype(jnp.int32)  # which -1 and the number of images fit in
        held = {"detections": num_detections, "truths": num_truths}
        for name, most in held.items():
            rows = getattr(images, name).valid.shape[-1]
            if rows > most:
                raise ValueError(f"{name} must have at most num_{name} = {most} rows, got {rows}")
        matches = coco.evaluate(
            images.detections,
            images.truths,
            overlaps=images.overlaps,
            overlap=overlap,
            crowd_overlap=crowd_overlap,
            thresholds=thresholds,
        )
        if where is not None:
            _checks.mask("where", where, indices.shape)
            indices = jnp.where(where, indices, -1)
        # Beyond the end is dropped; -1 would be the last image.
        places = jnp.where(indices < 0, num_images, indices)

        def put(table: Array, rows: Array) -> Array:
            # The whole place of an image is written: nothing is left of what it held before.
            padding = [(0, 0), (0, table.shape[1] - rows.shape[1])] + [(0, 0)] * (rows.ndim - 2)
            return table.at[places].set(jnp.pad(rows.astype(table.dtype), padding), mode="drop")

        return AveragePrecisionState(
            state.seen.at[places].set(True, mode="drop"),
            jax.tree.map(put, state.matches, matches),
        )

    @compiled()
    def merge(state: AveragePrecisionState, other: AveragePrecisionState) -> AveragePrecisionState:
        matches = jax.tree.map(
            lambda x, y: jnp.where(_like(state.seen, x), x, y), state.matches, other.matches
        )
        return AveragePrecisionState(state.seen | other.seen, matches)

    def reduce(state: AveragePrecisionState, axis_name: str) -> AveragePrecisionState:
        # Of several devices that have seen an image, the first has it; the others add nothing.
        device = jax.lax.axis_index(axis_name)
        owner = jax.lax.pmin(jnp.where(state.seen, device, jnp.iinfo(jnp.int32).max), axis_name)

        def first(x: Array) -> Array:
            own = jnp.where(_like(state.seen & (owner == device), x), x, jnp.zeros_like(x))
            if x.dtype == jnp.bool_:
                return jax.lax.psum(own.astype(jnp.int32), axis_name) > 0
            return jax.lax.psum(own, axis_name)

        return AveragePrecisionState(
            jax.lax.psum(state.seen.astype(jnp.int32), axis_name) > 0,
            jax.tree.map(first, state.matches),
        )

    @compiled()
    def compute(state: AveragePrecisionState) -> coco.Summary:
        curves = coco.accumulate(
            state.matches, num_classes=num_classes, num_thresholds=len(thresholds)
        )
        return coco.summarize(curves, thresholds=thresholds)

    return Metric(init, update, merge, reduce, compute)


def _like(mask: Array, x: Array) -> Array:
    """A mask of rows with the rank of `x`."""
    return mask.reshape(-1, *(1,) * (x.ndim - 1))


def _of_classes(
    kind: str,
    num_classes: int,
    ignore: Ignore,
    absent: Absent,
    classes: tuple[int, ...] | None,
) -> Metric:
    if classes is None:
        ignored = _checks.integers("ignore", ignore)
        classes = tuple(label for label in range(num_classes) if label not in ignored)

    def compute(state: ConfusionCounts) -> ClassScores:
        scores = (
            _scores.score(f"{over}_{kind}", _counted(state), absent, classes)
            for over in ("mean", "class")
        )
        return ClassScores(*scores)

    return _of_label_maps(num_classes, ignore, compute)


def _of_label_maps(
    num_classes: int, ignore: Ignore, compute: Callable[[ConfusionCounts], Any]
) -> Metric:
    _checks.count("num_classes", num_classes, 1)

    def init() -> ConfusionCounts:
        shape = (num_classes, num_classes + 1)
        return ConfusionCounts(_counts.zeros(shape), _counts.zeros(), _counts.zeros())

    @compiled()
    def update(
        state: ConfusionCounts,
        predictions: Integer[ArrayLike, "*shape"],
        targets: Integer[ArrayLike, "*shape"],
        *,
        where: Bool[ArrayLike, "..."] | None = None,
    ) -> ConfusionCounts:
        matrix = segmentation.confusion_matrix(
            predictions, targets, num_classes, ignore=ignore, where=where
        )
        others = segmentation.target_counts(targets, num_classes, ignore=ignore, where=where)
        seen = (matrix, others.ignored, others.invalid)
        return _sums.merge(state, ConfusionCounts(*map(_counts.from_integers, seen)))

    labels = jnp.zeros(1, jnp.int32)
    metric = Metric(init, update, _sums.merge, _sums.reduce, compiled()(compute))
    return _tried(metric, labels, labels)


def _tried(metric: Metric, *batch: Any) -> Metric:
    """The metric, whose settings have been tried on shapes: bad ones raise before any data."""
    state = jax.eval_shape(metric.init)
    jax.eval_shape(metric.compute, jax.eval_shape(metric.update, state, *batch))
    return metric


def _counted(state: ConfusionCounts) -> Any:
    return _scores.from_limbs(state.matrix, _sums.score_dtype())


def to_numpy(state: Any) -> Any:
    """A state as plain numbers on the host, for printing, saving as text, or scoring in float64.

    Args:
      state: of any metric here.

    Returns:
      The same NamedTuple, with NumPy arrays of int64 for the counts and float64 for the sums.

    Raises:
      TypeError: inside `jit`, where there are no numbers yet.

    At the edges:
      Counts from 2^63 on, which int64 cannot hold, come out as negative numbers.

    Example:
      >>> metric = mean_iou(2)
      >>> state = metric.update(metric.init(), jnp.array([0, 1, 1]), jnp.array([0, 0, 1]))
      >>> print(to_numpy(state).matrix)
      [[1 1 0]
       [0 1 0]]
    """

    def number(x: Array) -> np.ndarray:
        _checks.is_concrete("state", x)
        if x.dtype == np.uint32:
            return _counts.to_numpy(x).astype(np.int64)
        return np.asarray(np.asarray(x, np.float64).sum(axis=0))

    return jax.tree.map(number, state)
