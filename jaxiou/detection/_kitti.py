"""What KITTI's two passes are about: the types, the states of rows, and who may take whom."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, Int32, Real

from jaxiou import _checks, boxes, cuboids
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, masked, pairwise

CLASSES = ("Car", "Pedestrian", "Cyclist")
"""What is scored; the place is the label."""

TYPES = (*CLASSES, "Van", "Person_sitting", "DontCare")
"""Types that have a meaning here; the place is the label, and all other types have -1."""

DIFFICULTIES = ("easy", "moderate", "hard")
"""The order of every axis of length 3."""

MEASURES = ("image", "bev", "3d", "aos")
"""Boxes in the image, cuboids from above, cuboids, and orientations."""

MINIMUM = {
    "strict": {"image": (0.7, 0.5, 0.5), "bev": (0.7, 0.5, 0.5), "3d": (0.7, 0.5, 0.5)},
    "loose": {"image": (0.7, 0.5, 0.5), "bev": (0.5, 0.25, 0.25), "3d": (0.5, 0.25, 0.25)},
}
"""What an overlap must exceed, by measure and class."""

OVERLAPS: dict[str, Overlap] = {"image": boxes.iou, "bev": cuboids.bev_iou, "3d": cuboids.iou}

Measure: TypeAlias = Literal["image", "bev", "3d"]

ALIKE = (TYPES.index("Van"), TYPES.index("Person_sitting"), -2)
DONT_CARE = TYPES.index("DontCare")
MIN_HEIGHT = (40, 25, 25)  # pixels
MAX_OCCLUSION = (0, 1, 2)
MAX_TRUNCATION = (0.15, 0.3, 0.5)
POINTS = 41


class Detections(NamedTuple):
    """What a detector found, `[..., D, ...]`.

    Attributes:
      regions: boxes in the image, `(x1, y1, x2, y2)` in pixels, `[..., D, 4]`.
      scores: higher is surer, finite, `[..., D]`.
      labels: places in `TYPES`, or -1, int32 `[..., D]`.
      valid: which rows there are, bool `[..., D]`; the others may hold anything.
      alphas: the observation angle, radians, `[..., D]`; None: not given.
      cuboids: `(cx, cy, cz, dx, dy, dz, yaw)`, `[..., D, 7]`; None: not given.
    """

    regions: Real[ArrayLike, "*batch d 4"]
    scores: Real[ArrayLike, "*batch d"]
    labels: Int32[ArrayLike, "*batch d"]
    valid: Bool[ArrayLike, "*batch d"]
    alphas: Real[ArrayLike, "*batch d"] | None = None
    cuboids: Real[ArrayLike, "*batch d 7"] | None = None


class GroundTruth(NamedTuple):
    """What there is to find, `[..., G, ...]`, DontCare regions included.

    Attributes:
      regions: boxes in the image, `(x1, y1, x2, y2)` in pixels, `[..., G, 4]`.
      labels: places in `TYPES`, or -1, int32 `[..., G]`.
      valid: which rows there are, bool `[..., G]`; the others may hold anything.
      occlusions: 0 (visible) to 3, `[..., G]`.
      truncations: the share outside of the image, `[..., G]`.
      alphas: the observation angle, radians, `[..., G]`; None: not given.
      cuboids: `(cx, cy, cz, dx, dy, dz, yaw)`, `[..., G, 7]`; None: not given.
    """

    regions: Real[ArrayLike, "*batch g 4"]
    labels: Int32[ArrayLike, "*batch g"]
    valid: Bool[ArrayLike, "*batch g"]
    occlusions: Real[ArrayLike, "*batch g"]
    truncations: Real[ArrayLike, "*batch g"]
    alphas: Real[ArrayLike, "*batch g"] | None = None
    cuboids: Real[ArrayLike, "*batch g 7"] | None = None


class Table(NamedTuple):
    """All images of a data set, without padding: what `readers.kitti` gives.

    Attributes:
      detections: `[rows, ...]`, in the order of their file.
      detection_images: the place of each row's image, 0 to `num_images - 1`, int32 `[rows]`.
      truths: `[rows, ...]`, in the order of their file.
      truth_images: likewise for truths.
      num_images: images without a row included.
    """

    detections: Detections
    detection_images: Int32[np.ndarray, " n"]
    truths: GroundTruth
    truth_images: Int32[np.ndarray, " m"]
    num_images: int


class Found(NamedTuple):
    """What the truths of a class took by score, at each difficulty.

    Attributes:
      scores: of the detection that found a truth, `[..., 3, G]`; -inf where nothing did.
      counts: which truths have to be found, bool `[..., 3, G]`.
    """

    scores: Float[Array, "*batch difficulties g"]
    counts: Bool[Array, "*batch difficulties g"]


class Counts(NamedTuple):
    """What is counted in images, for one class, at each difficulty and threshold; all may be added.

    Attributes:
      tp: truths that count and were found by a detection that counts, `[..., 3, 41]`.
      fp: detections that count and that nothing took.
      fn: truths that count, without any detection to take.
      similarity: over the true positives, (1 + cos of the difference of angles) / 2, a float.
    """

    tp: Real[ArrayLike, "*batch difficulties points"]
    fp: Real[ArrayLike, "*batch difficulties points"]
    fn: Real[ArrayLike, "*batch difficulties points"]
    similarity: Float[ArrayLike, "*batch difficulties points"]


class Scores(NamedTuple):
    """The numbers of the benchmark for one class, in [0, 1].

    Attributes:
      precision: the largest at each threshold or a lower one, `[..., 41]`.
      similarity: the same of the similarity over all that counts, `[..., 41]`.
      r11: the mean of entries 0, 4, ..., 40 of the precision, `[...]`.
      r40: the mean of entries 1 to 40.
      aos_r11: the mean of entries 0, 4, ..., 40 of the similarity.
      aos_r40: the mean of entries 1 to 40.
    """

    precision: Float[Array, "*batch points"]
    similarity: Float[Array, "*batch points"]
    r11: Float[Array, "*batch"]
    r40: Float[Array, "*batch"]
    aos_r11: Float[Array, "*batch"]
    aos_r40: Float[Array, "*batch"]


class Result(NamedTuple):
    """The table of the benchmark, in [0, 1]: axes are `MEASURES`, `CLASSES`, `DIFFICULTIES`.

    NaN stands where a measure cannot be taken: AOS if an angle is not given, the others if
    no detection has a cuboid.

    Attributes:
      r11: average precision (orientation similarity for AOS) over 11 entries, `[4, 3, 3]`.
      r40: the same over 40 entries.
      curves: the 41 entries of each, `[4, 3, 3, 41]`; 0 where there is no threshold.
      thresholds: scores, falling, `[4, 3, 3, 41]`; inf beyond the last one.
      tp: int64 `[4, 3, 3, 41]`, as in `Counts`, and so the next two.
      fp: int64 `[4, 3, 3, 41]`.
      fn: int64 `[4, 3, 3, 41]`.
      num_truths: that count, int64 `[3, 3]`, classes and difficulties.
    """

    r11: Float[np.ndarray, "4 3 3"]
    r40: Float[np.ndarray, "4 3 3"]
    curves: Float[np.ndarray, "4 3 3 41"]
    thresholds: Float[np.ndarray, "4 3 3 41"]
    tp: Int[np.ndarray, "4 3 3 41"]
    fp: Int[np.ndarray, "4 3 3 41"]
    fn: Int[np.ndarray, "4 3 3 41"]
    num_truths: Int[np.ndarray, "3 3"]


class Truth(NamedTuple):
    """One truth of each image: what a step of a pass looks at."""

    near: Bool[Array, "*batch difficulties d"]
    """Which detections it could take."""
    state: Int32[Array, "*batch difficulties"]
    overlaps: Float[Array, "*batch 1 d"]
    likeness: Float[Array, "*batch 1 d"]


class Task(NamedTuple):
    """What both passes are about."""

    minimum: Float[Array, ""]
    scores: Float[Array, "*batch 1 d"]
    detection_states: Int32[Array, "*batch difficulties d"]
    truth_states: Int32[Array, "*batch difficulties g"]
    truths: Truth


def task_of(
    detections: Detections,
    truths: GroundTruth,
    label: ArrayLike | int,
    measure: Measure,
    minimum: ArrayLike | float | None,
    overlap: Overlap | None,
    overlaps: ArrayLike | None,
) -> Task:
    _checks.one_of("measure", measure, MEASURES[:3])
    found, known = cast("detections", detections), cast("truths", truths)
    dtype = found.scores.dtype
    label = _checks.scalar("label", label).astype(jnp.int32)
    if minimum is None:
        minimum = jnp.asarray(MINIMUM["strict"][measure], dtype)[label]
    minimum = _checks.scalar("minimum", minimum).astype(dtype)
    if overlaps is None:
        table = _table(found, known, measure, overlap)
    else:
        shape = (*found.labels.shape, known.labels.shape[-1])
        _checks.is_array("overlaps", overlaps)
        _checks.exact_shape("overlaps", overlaps, shape, "detections with truths")
        table = jnp.asarray(overlaps)
    of_detections, of_truths = detection_states(found, label), truth_states(known, label)
    near = (table > minimum)[..., None, :, :]
    near &= (of_detections >= 0)[..., :, None] & (of_truths >= 0)[..., None, :]
    likeness = jnp.zeros_like(table, dtype)
    if measure == "image" and found.alphas is not None and known.alphas is not None:
        likeness = (1 + jnp.cos(known.alphas[..., None, :] - found.alphas[..., :, None])) / 2
    by_truth = Truth(
        jnp.moveaxis(near, -1, 0),
        jnp.moveaxis(of_truths, -1, 0),
        jnp.moveaxis(table.astype(dtype), -1, 0)[..., None, :],
        jnp.moveaxis(likeness.astype(dtype), -1, 0)[..., None, :],
    )
    return Task(minimum, found.scores[..., None, :], of_detections, of_truths, by_truth)


def cast(name: str, rows: Any) -> Any:
    """Checked fields, with zeros where a row is not valid, label -1, and floats of one type."""
    _checks.is_array(f"{name}.valid", rows.valid)
    given = {field: x for field, x in rows._asdict().items() if x is not None}
    numbers = [field for field in given if field not in ("labels", "valid")]
    dtype = _checks.working_dtype(*(given[field] for field in numbers))
    for field, x in given.items():
        _checks.is_array(f"{name}.{field}", x)
        shape = rows.valid.shape + {"regions": (4,), "cuboids": (7,)}.get(field, ())
        _checks.exact_shape(f"{name}.{field}", x, shape, "as valid has")
    _checks.mask(f"{name}.valid", rows.valid, rows.valid.shape)
    _checks.is_integer(f"{name}.labels", rows.labels)
    labels = jnp.where(rows.valid, rows.labels.astype(jnp.int32), -1)
    floats = {
        field: masked(jnp.asarray(x), jnp.asarray(rows.valid)).astype(dtype)
        for field, x in given.items()
        if field not in ("labels", "valid")
    }
    return rows._replace(labels=labels, **floats)


def detection_states(detections: Any, label: Array) -> Int32[Array, "*batch 3 d"]:
    """0: counts; 1: too low, of whatever class; -1: of another class."""
    height = jnp.abs(detections.regions[..., 3] - detections.regions[..., 1])
    low = height[..., None, :] < _column(MIN_HEIGHT, height)
    state = jnp.where(low, 1, jnp.where(detections.labels == label, 0, -1)[..., None, :])
    return jnp.where(jnp.asarray(detections.valid)[..., None, :], state, -1).astype(jnp.int32)


def truth_states(truths: Any, label: Array) -> Int32[Array, "*batch 3 g"]:
    """0: counts; 1: takes detections, but does not count; -1: of another class."""
    height = truths.regions[..., 3] - truths.regions[..., 1]
    hard = height[..., None, :] <= _column(MIN_HEIGHT, height)
    hard |= truths.occlusions[..., None, :] > _column(MAX_OCCLUSION, height)
    hard |= truths.truncations[..., None, :] > _column(MAX_TRUNCATION, height)
    same = (truths.labels == label)[..., None, :]
    alike = (truths.labels == jnp.asarray(ALIKE, jnp.int32)[label])[..., None, :]
    return jnp.where(same & ~hard, 0, jnp.where(same | alike, 1, -1)).astype(jnp.int32)


def _column(values: Sequence[float], like: Array) -> Array:
    return jnp.asarray(values, like.dtype).reshape((1,) * (like.ndim - 1) + (-1, 1))


def _table(detections: Any, truths: Any, measure: str, overlap: Overlap | None) -> Array:
    compare = pairwise(overlap or OVERLAPS[measure])
    if measure == "image":
        return compare(detections.regions, truths.regions)
    for name, rows in (("detections", detections), ("truths", truths)):
        if rows.cuboids is None:
            raise ValueError(f"{name}.cuboids must be given for {measure!r}, got None")
    return compare(detections.cuboids, truths.cuboids)


def shares_of(detections: Detections, truths: GroundTruth) -> Array:
    """The largest share of each detection's area that lies in one DontCare region."""
    found, known = cast("detections", detections), cast("truths", truths)
    table = pairwise(boxes.ioa)(found.regions, known.regions)
    region = (known.labels == DONT_CARE)[..., None, :]
    return jnp.where(region, table, 0).max(axis=-1, initial=0)


def first_largest(free: Array, preference: Array) -> Bool[Array, "*batch d"]:
    """True for the free detection that is preferred most, the first of equals."""
    if free.shape[-1] == 0:
        return free
    value = jnp.where(free, preference, -jnp.inf)
    first = jax.lax.argmax(value, value.ndim - 1, jnp.int32)[..., None]
    place = jnp.arange(free.shape[-1], dtype=jnp.int32).reshape((1,) * (free.ndim - 1) + (-1,))
    return free & (place == first)
