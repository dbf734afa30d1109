"""Panoptic quality: segments of things and stuff, matched and graded as panopticapi does.

What holds for every function here, and is not repeated below:

- **Segments** of an image have numbers, 0 to S - 1, which the pixels of an integer map hold,
  and a class each, `labels`, `[S]`, 0 to `num_classes` - 1. Ids of any size become numbers by
  `relabel` within `jit`, and by `pack` on the host, which reads panopticapi's dictionaries.
- **Void** are pixels whose number is no segment's, such as -1, or is that of a segment without
  a class: one whose label is negative or `num_classes` or more. Void of the targets leaves the
  predictions that it lies in; void of the predictions covers nothing.
- **Padding.** Segments labelled -1 and pixels of -1 change nothing, nor does a segment without
  a pixel, unless `target_areas` says that it has some.
- **One image.** Batches by `jax.vmap`; the counts of images are summed, scores never are.
- **Types.** Numbers of segments are int32. Sums of IoU are float64 if x64 is on, whatever the
  inputs, and float32 otherwise. What matches at threshold 0.5 is decided on integers, alike
  in both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Integer, UInt8

from jaxiou import _checks, masks
from jaxiou._compiled import compiled
from jaxiou._histogram import classes_or, pair_counts
from jaxiou._math import places, safe_divide
from jaxiou._typing import ArrayLike

__all__ = [
    "panoptic_counts",
    "panoptic_quality",
    "relabel",
    "from_rgb",
    "pack",
    "PanopticCounts",
    "PanopticQuality",
    "Relabelled",
    "Segments",
]


class PanopticCounts(NamedTuple):
    """What panoptic quality is made of, for each class; sums over images are of this form too.

    Attributes:
      iou: the sum of the IoU of the matches, `[..., K]`.
      true_positives: matches, int32 `[..., K]`.
      false_positives: predicted segments without match, int32 `[..., K]`.
      false_negatives: target segments without match, int32 `[..., K]`.
    """

    iou: Float[Array, "..."]
    true_positives: Integer[Array, "..."]
    false_positives: Integer[Array, "..."]
    false_negatives: Integer[Array, "..."]


class PanopticQuality(NamedTuple):
    """Panoptic, segmentation and recognition quality, all in [0, 1] and best at 1.

    Attributes:
      pq: the mean of `class_pq` over the classes that occur, `[...]`; NaN if none does.
      sq: the mean of `class_sq`, likewise.
      rq: the mean of `class_rq`, likewise.
      num_classes: how many classes occur, int32 `[...]`.
      class_pq: for each class, `[..., K]`; NaN for a class that does not occur.
      class_sq: the mean IoU of the matches, likewise; 0 if there are none.
      class_rq: the F1 score of the matches, likewise.
    """

    pq: Float[Array, "..."]
    sq: Float[Array, "..."]
    rq: Float[Array, "..."]
    num_classes: Integer[Array, "..."]
    class_pq: Float[Array, "..."]
    class_sq: Float[Array, "..."]
    class_rq: Float[Array, "..."]


class Relabelled(NamedTuple):
    """A map of ids as a map of numbers.

    Attributes:
      indices: the place of each pixel's id in `ids`, int32 `[...]`.
      ids: the ids that occur, rising, `[S]`; the greatest again behind the last.
      areas: how many pixels each has, int32 `[S]`; 0 behind the last.
    """

    indices: Integer[Array, "..."]
    ids: Integer[Array, "..."]
    areas: Integer[Array, "..."]


class Segments(NamedTuple):
    """The segments of one image, NumPy arrays of a size that other images share.

    Attributes:
      indices: the number of each pixel's segment, int32 `[H, W]`; -1 for void.
      labels: the class of each segment, int32 `[S]`; -1 for padding.
      areas: its area as the annotation has it, int32 `[S]`; 0 for padding.
      crowd: bool, `[S]`, whether it is a region of uncounted things.
    """

    indices: Integer[np.ndarray, "..."]
    labels: Integer[np.ndarray, "..."]
    areas: Integer[np.ndarray, "..."]
    crowd: Bool[np.ndarray, "..."]


@compiled(static=("num_classes", "threshold", "boundary_ratio", "stuff"))
def panoptic_counts(
    predictions: Integer[ArrayLike, "*image"],
    targets: Integer[ArrayLike, "*image"],
    prediction_labels: Integer[ArrayLike, " p"],
    target_labels: Integer[ArrayLike, " t"],
    *,
    num_classes: int,
    crowd: Bool[ArrayLike, " t"] | None = None,
    target_areas: Integer[ArrayLike, " t"] | None = None,
    threshold: float = 0.5,
    boundary_ratio: float | None = None,
    stuff: tuple[int, ...] = (),
) -> PanopticCounts:
    r"""Matches the predicted segments of an image with the target segments, and counts.

    Two segments of one class match if their IoU exceeds `threshold`, where

    .. math:: \mathrm{IoU} = |p \cap g| / (|p| + |g| - |p \cap g| - |p \cap \mathrm{void}|)

    so that no segment has two matches. A prediction without match is a false positive, unless
    more than half of it lies in void and in the crowd region of its class.

    Args:
      predictions: the number of each pixel's predicted segment, `[H, W]`, or of any shape.
      targets: the number of its target segment, of the same shape.
      prediction_labels: the class of each predicted segment, `[P]`.
      target_labels: the class of each target segment, `[T]`.
      num_classes: K, an int.
      crowd: bool, `[T]`: targets that are matched with none and missed by none. Of the crowd
        regions of one class the last alone excuses predictions, as in panopticapi.
      target_areas: `[T]`, the areas of the targets if they are not to be counted in `targets`;
        panopticapi takes them from the annotation.
      threshold: what the IoU has to exceed, a Python float of 0.5 or more.
      boundary_ratio: if given, the IoU is the lesser of the segments' IoU and that of their
        boundaries, whose width is `boundary_ratio` times the diagonal of the image: boundary
        PQ. The maps must then be `[H, W]`.
      stuff: classes graded as in PQ†, without matching: every pair that overlaps adds its IoU,
        every target counts as a match, and there are no false positives or negatives.

    Returns:
      `PanopticCounts`, each `[K]`.

    Raises:
      ValueError: maps of two shapes, or a `threshold` below 0.5, for which a segment may have
        several matches.

    At the edges:
      All 0 if there is no segment, or nothing but void.

    Example:
      >>> predictions = jnp.array([[0, 0, 0, 1, 1, 1]])
      >>> targets = jnp.array([[0, 0, 1, 1, 1, -1]])
      >>> labels = jnp.array([0, 1])
      >>> counts = panoptic_counts(predictions, targets, labels, labels, num_classes=2)
      >>> print(counts.true_positives, counts.iou)
      [1 1] [0.6666667 0.6666667]

    Reference:
      Kirillov et al., "Panoptic Segmentation", CVPR 2019, https://arxiv.org/abs/1801.00868,
      as in the authors' panopticapi. Boundaries: Cheng et al., CVPR 2021,
      https://arxiv.org/abs/2103.16562. PQ†: Porzi et al., CVPR 2019,
      https://arxiv.org/abs/1905.01220.
    """
    if not 0.5 <= threshold < 1:
        raise ValueError(f"threshold must be in [0.5, 1), got {threshold}")
    _checks.count("num_classes", num_classes, least=1)
    p_map, p_labels = _segments("prediction", predictions, prediction_labels, num_classes)
    t_map, t_labels = _segments("target", targets, target_labels, num_classes)
    _checks.exact_shape("targets", targets, predictions.shape, "that of predictions")
    is_crowd = jnp.zeros_like(t_labels, bool)
    if crowd is not None:
        _checks.mask("crowd", crowd, t_labels.shape)
        is_crowd |= crowd
    if boundary_ratio is not None:
        _checks.positive("boundary_ratio", boundary_ratio)
        _checks.trailing_shape("predictions", predictions, (None, None), "a map with boundaries")

    unlabelled = jnp.concatenate([t_labels < 0, jnp.ones_like(t_labels, bool, shape=(1,))])
    table = _table(t_map, p_map, unlabelled.size, p_labels.size + 1, boundary_ratio)
    pixels = _sum(table, (0, 2))
    pairs = _Pairs.of(pixels, pixels, pixels, unlabelled)
    if target_areas is not None:
        _checks.labels("target_areas", target_areas, t_labels.size, "one area a target")
        pairs = pairs._replace(target_areas=jnp.asarray(target_areas).astype(jnp.int32))
    ious, above = pairs.iou(), pairs.exceed(threshold)
    if boundary_ratio is not None:
        near = _Pairs.of(table[0, :, 0], _sum(table[:, :, 0], 0), _sum(table[0], 1), unlabelled)
        ious, above = jnp.minimum(ious, near.iou()), above & near.exceed(threshold)

    alike = t_labels[:, None] == p_labels[None]
    matches = alike & ~is_crowd[:, None] & above
    places = jax.lax.broadcasted_iota(jnp.int32, alike.shape, 0)
    last = jnp.max(jnp.where(alike & is_crowd[:, None], places, -1), axis=0, initial=-1)
    excused = pairs.void + _sum(jnp.where(places == last[None], pairs.shared, 0), 0)
    wanted = ~is_crowd & (pairs.target_areas > 0)
    wrong = (pairs.prediction_areas > 0) & (2 * excused <= pairs.prediction_areas)

    def by_class(labels, x):
        member = labels[:, None] == jnp.arange(num_classes, dtype=jnp.int32)[None]
        return jnp.where(member, x[:, None], 0).sum(axis=0, dtype=x.dtype)

    counts = PanopticCounts(
        by_class(t_labels, jnp.where(matches, ious, 0).sum(axis=1)),
        by_class(t_labels, _sum(matches, 1)),
        by_class(p_labels, (wrong & ~matches.any(axis=0)).astype(jnp.int32)),
        by_class(t_labels, (wanted & ~matches.any(axis=1)).astype(jnp.int32)),
    )
    if not stuff:
        return counts
    overlaps = jnp.where(alike & ~is_crowd[:, None], ious, 0).sum(axis=1)
    none = jnp.zeros_like(counts.true_positives)
    unmatched = PanopticCounts(
        by_class(t_labels, overlaps), by_class(t_labels, wanted.astype(jnp.int32)), none, none
    )
    is_stuff = _members("stuff", stuff, num_classes)
    return jax.tree.map(lambda x, y: jnp.where(is_stuff, x, y), unmatched, counts)


@compiled(static=("classes",))
def panoptic_quality(
    counts: PanopticCounts, *, classes: tuple[int, ...] | None = None
) -> PanopticQuality:
    r"""Panoptic quality of counts, per class and as a mean over the classes that occur.

    .. math::
      \mathrm{PQ} = \frac{\sum \mathrm{IoU}}{TP + FP / 2 + FN / 2}
      = \frac{\sum \mathrm{IoU}}{TP} \cdot \frac{TP}{TP + FP / 2 + FN / 2}
      = \mathrm{SQ} \cdot \mathrm{RQ}

    A class occurs if it has a match, a false positive or a false negative.

    Args:
      counts: of one image, or the sum of those of a data set, `[..., K]`; leading axes are
        kept, so that a batch of images has a quality each.
      classes: the classes to average, such as the things or the stuff; None takes all. A tuple.

    Returns:
      `PanopticQuality`: `pq`, `sq`, `rq` and `num_classes`, `[...]`, over `classes`; `class_pq`,
      `class_sq`, `class_rq`, `[..., K]`, of every class.

    At the edges:
      A class that does not occur is NaN and in no mean, where panopticapi writes 0. The mean of
      no class is NaN, where panopticapi divides by 0. A class without match has PQ, SQ, RQ of 0.

    Gradient:
      That of the formula by `counts.iou`.

    Example:
      >>> counts = PanopticCounts(
      ...     iou=jnp.array([1.5, 0.0, 0.0]),
      ...     true_positives=jnp.array([2, 0, 0]),
      ...     false_positives=jnp.array([0, 0, 1]),
      ...     false_negatives=jnp.array([2, 0, 0]),
      ... )
      >>> quality = panoptic_quality(counts)
      >>> print(quality.class_pq, quality.pq, quality.num_classes)
      [0.5 nan 0. ] 0.25 2

    Reference:
      Kirillov et al., "Panoptic Segmentation", CVPR 2019, https://arxiv.org/abs/1801.00868.
    """
    iou = jnp.asarray(counts.iou).astype(_checks.working_dtype(counts.iou))
    tp, fp, fn = (jnp.asarray(x).astype(iou.dtype) for x in counts[1:])
    present = tp + fp + fn > 0
    total = tp + 0.5 * fp + 0.5 * fn
    by_class = (safe_divide(iou, total), safe_divide(iou, tp), safe_divide(tp, total))
    counted = present
    if classes is not None:
        counted &= _members("classes", classes, iou.shape[-1])
    count = _sum(counted, -1)

    def mean(x):
        total = jnp.where(counted, x, 0).sum(axis=-1)
        return jnp.where(count > 0, safe_divide(total, count.astype(x.dtype)), jnp.nan)

    pq, sq, rq = map(mean, by_class)
    return PanopticQuality(pq, sq, rq, count, *(jnp.where(present, x, jnp.nan) for x in by_class))


@compiled(static=("max_segments",))
def relabel(ids: Integer[ArrayLike, "*image"], *, max_segments: int) -> Relabelled:
    """Numbers the ids of a map from 0 in rising order, within `jit`.

    The classes of the segments are then a function of `ids`: with the common code
    `class * 1000 + instance` they are `ids // 1000`, and -1 for void and where `areas` is 0.

    Args:
      ids: integers of any size, `[H, W]` or of any shape. Void is an id like the others.
      max_segments: S, an int: how many ids there are at most.

    Returns:
      `Relabelled(indices, ids, areas)`. If there are more than S ids, the greatest are left
      out and their pixels have numbers from S on, which count as void.

    Example:
      >>> indices, ids, areas = relabel(jnp.array([[7003, 0, 7003], [0, 0, 9000]]), max_segments=4)
      >>> print(indices[1], ids, areas)
      [0 0 2] [   0 7003 9000 9000] [3 2 1 0]
    """
    _checks.is_array("ids", ids)
    _checks.is_integer("ids", ids)
    _checks.count("max_segments", max_segments, least=1)
    # As `jnp.unique` does, which takes three times as long for what it need not know here.
    flat = jnp.asarray(ids).ravel()
    if flat.size == 0:
        zeros = jnp.zeros(max_segments, jnp.int32)
        return Relabelled(
            flat.reshape(ids.shape).astype(jnp.int32), zeros.astype(flat.dtype), zeros
        )
    ordered = jnp.sort(flat)
    first = jnp.ones_like(ordered, bool, shape=(1,))
    new = jnp.concatenate([first, ordered[1:] != ordered[:-1]])
    starts = jnp.nonzero(new, size=max_segments + 1, fill_value=flat.size)[0].astype(jnp.int32)
    found = jnp.take(ordered, starts[:-1], mode="clip")
    indices = places(found, flat)
    return Relabelled(indices.reshape(ids.shape), found, jnp.diff(starts))


@compiled()
def from_rgb(colors: UInt8[ArrayLike, "*image 3"]) -> Int32[Array, "*image"]:
    r"""Segment ids from the colours of COCO's panoptic PNG files.

    .. math:: \mathrm{id} = R + 256\,G + 256^2 B

    Args:
      colors: uint8, `[..., 3]`, red first.

    Returns:
      int32, `[...]`; 0 is void.

    Example:
      >>> print(from_rgb(jnp.array([16, 1, 2], dtype=jnp.uint8)))
      131344
    """
    _checks.is_array("colors", colors)
    if colors.dtype != np.uint8:
        raise TypeError(f"colors must be uint8, got dtype {colors.dtype}")
    _checks.trailing_shape("colors", colors, (3,), "red, green and blue")
    wide = jnp.asarray(colors).astype(jnp.int32)
    return wide[..., 0] + 256 * wide[..., 1] + 65536 * wide[..., 2]


def pack(
    ids: Integer[ArrayLike, "h w"],
    segments_info: Sequence[Mapping[str, Any]],
    *,
    category_ids: Sequence[int],
    max_segments: int | None = None,
) -> Segments:
    """The arrays of one image from its map of ids and its entry of panopticapi's JSON.

    It runs on the host, for targets and for predictions, and is strict where a mistake would
    change the score: a segment must have pixels, and a pixel a segment or the id 0 of void.

    Args:
      ids: integers, `[H, W]`: `from_rgb` of the PNG.
      segments_info: a dictionary for each segment, with `id` and `category_id`, and with
        `iscrowd` and `area` if it has them.
      category_ids: the category of each class, such as `[c["id"] for c in json["categories"]]`:
        class k is category `category_ids[k]`.
      max_segments: the length of the arrays; None takes the number of segments. Equal lengths
        let images be stacked, and be counted without compiling again.

    Returns:
      `Segments(indices, labels, areas, crowd)`. An area that the entry lacks is counted.

    Raises:
      ValueError: names the segment that has an id twice, an unknown category or no pixels, or
        the id whose pixels have no segment; or there are more than `max_segments`.

    Example:
      >>> ids = np.array([[0, 26, 26], [0, 26, 9]])
      >>> info = [{"id": 26, "category_id": 17}, {"id": 9, "category_id": 1, "iscrowd": 1}]
      >>> indices, labels, areas, crowd = pack(ids, info, category_ids=[1, 17], max_segments=3)
      >>> print(indices[1], labels, areas, crowd)
      [-1  0  1] [ 1  0 -1] [3 1 0] [False  True False]

    Reference:
      https://github.com/cocodataset/panopticapi, which raises KeyError for most of these; it
      lets a target without pixels pass, and takes pixels of a target without entry for neither
      void nor segment.
    """
    _checks.is_concrete("ids", ids)
    _checks.is_integer("ids", ids)
    size = len(segments_info) if max_segments is None else max_segments
    if len(segments_info) > size:
        raise ValueError(
            f"segments_info has {len(segments_info)} segments, above max_segments={size}"
        )
    classes = {category: k for k, category in enumerate(category_ids)}
    found, inverse, counts = np.unique(np.asarray(ids), return_inverse=True, return_counts=True)
    pixels = dict(zip(found.tolist(), counts.tolist(), strict=True))
    numbers = {0: -1}
    labels, areas = np.full(size, -1, np.int32), np.zeros(size, np.int32)
    crowd = np.zeros(size, bool)
    for k, segment in enumerate(segments_info):
        if not {"id", "category_id"} <= segment.keys():
            raise ValueError(f"segments_info: segment {k} in the list lacks its id or category_id")
        name, category = int(segment["id"]), int(segment["category_id"])
        if name in numbers:
            what = "that of void" if name == 0 else "there twice"
            raise ValueError(f"segments_info: the id {name} is {what}")
        if name not in pixels:
            raise ValueError(f"segments_info: segment {name} has no pixels in ids")
        if category not in classes:
            raise ValueError(
                f"segments_info: segment {name} has the unknown category_id {category}"
            )
        numbers[name], labels[k] = k, classes[category]
        area = segment.get("area", pixels[name])
        if not 0 <= float(area) < 2**31 or float(area) != int(area):
            raise ValueError(
                f"segments_info: segment {name} has area {area}, not an integer from 0 on"
            )
        areas[k], crowd[k] = area, segment.get("iscrowd", 0)
    if missing := pixels.keys() - numbers.keys():
        raise ValueError(f"ids has pixels of {sorted(missing)}, which segments_info does not have")
    table = np.array([numbers[name] for name in found.tolist()], np.int32)
    return Segments(table[inverse].reshape(np.shape(ids)), labels, areas, crowd)


class _Pairs(NamedTuple):
    """The pixels of every pair of a target and a prediction, or of their boundaries, int32.

    Attributes:
      shared: those of both, `[T, P]`.
      prediction_areas: those of the prediction, `[P]`.
      target_areas: those of the target, `[T]`.
      void: those of the prediction where the target is void, `[P]`.
    """

    shared: Array
    prediction_areas: Array
    target_areas: Array
    void: Array

    @staticmethod
    def of(both: Array, predicted: Array, target: Array, unlabelled: Array) -> "_Pairs":
        """From tables `[T + 1, P + 1]` with void and nothing last, of the pixels of both, of
        all that are predicted and of all of the target.
        """
        void = jnp.where(unlabelled[:, None], predicted, 0)
        areas = _sum(predicted, 0)[:-1], _sum(target, 1)[:-1]
        return _Pairs(both[:-1, :-1], *areas, _sum(void, 0)[:-1])

    @property
    def unions(self) -> Array:
        visible = self.prediction_areas - self.void
        return visible[None] + self.target_areas[:, None] - self.shared

    def iou(self) -> Array:
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        return safe_divide(self.shared.astype(dtype), self.unions.astype(dtype))

    def exceed(self, threshold: float) -> Array:
        # Half is what it is in every protocol, and there float32 need not round.
        if threshold == 0.5:
            return 2 * self.shared > self.unions
        return self.iou() > threshold


def _table(rows: Array, columns: Array, height: int, width: int, ratio: float | None) -> Array:
    """How often each pair of numbers occurs, `[1, height, 1, width]`; with a `ratio`,
    `[2, height, 2, width]`: of pixels at boundaries first, then of the others.
    """
    parts = 1
    if ratio is not None:
        parts = 2
        rows, columns = (
            x.astype(jnp.int32) + jnp.where(masks.label_boundary(x, ratio=ratio), 0, size)
            for x, size in ((rows, height), (columns, width))
        )
    counts = pair_counts(rows, columns, (parts * height, parts * width))
    # One axis at a time, as explicit meshes have it.
    return counts.reshape(parts, height, parts * width).reshape(parts, height, parts, width)


def _segments(kind: str, x: ArrayLike, labels: ArrayLike, num_classes: int) -> tuple[Array, Array]:
    """A map with all that is no number of a segment as one more number, in bytes if these
    suffice, as batches of maps are much memory; the labels with all that is no class as -1.
    """
    _checks.is_array(f"{kind}s", x)
    _checks.is_integer(f"{kind}s", x)
    _checks.is_array(f"{kind}_labels", labels)
    _checks.labels(f"{kind}_labels", labels, labels.size, "one class a segment")
    numbers = classes_or(labels.size, jnp.asarray(x), labels.size)
    if labels.size < 2**8:
        numbers = numbers.astype(jnp.uint8)
    return numbers, classes_or(-1, jnp.asarray(labels), num_classes)


def _members(name: str, classes: Sequence[int], num_classes: int) -> np.ndarray:
    """bool, `[K]`: which classes a static tuple has."""
    return np.isin(np.arange(num_classes), _checks.members(name, classes, num_classes))


def _sum(x: Array, axis: int | tuple[int, ...]) -> Array:
    return jnp.sum(x, axis=axis, dtype=jnp.int32)
