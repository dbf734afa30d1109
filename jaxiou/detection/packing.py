"""Detections and ground truth as padded arrays, and from one flat table of all images to them.

`Detections` and `GroundTruth` are what every evaluator takes. Their fields are arrays of one image,
`[D, ...]` and `[G, ...]`, of a batch of images, `[B, D, ...]`, or of a flat table, `[rows, ...]`.
An optional field that is None stands for the value that its description gives.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int32, Real, Shaped

from jaxiou import _checks
from jaxiou._typing import ArrayLike

__all__ = ["pack", "Detections", "GroundTruth", "Images", "Table"]

BATCH = 64
"""Images in a batch: few enough that the slowest image of a batch delays few others."""


MOST_PAIRS = 2**22
"""Of detections and truths in a batch: large images go in smaller batches."""


class Detections(NamedTuple):
    """What a detector found.

    Attributes:
      regions: `[..., D, *region]`, or None where overlaps are given as tables.
      scores: higher is surer, `[..., D]`.
      labels: the class of each, 0 to `num_classes - 1`, int32 `[..., D]`.
      valid: which rows there are, bool `[..., D]`; the others may hold anything.
      areas: `[..., D]`, for evaluators with area ranges; None takes them from the regions.
      ignored: does not count unless it is matched, bool `[..., D]`; None: none of them.
    """

    regions: Shaped[ArrayLike, "..."] | None
    scores: Real[ArrayLike, "*batch d"]
    labels: Int32[ArrayLike, "*batch d"]
    valid: Bool[ArrayLike, "*batch d"]
    areas: Real[ArrayLike, "*batch d"] | None = None
    ignored: Bool[ArrayLike, "*batch d"] | None = None


class GroundTruth(NamedTuple):
    """What there is to find.

    Attributes:
      regions: `[..., G, *region]`, or None where overlaps are given as tables.
      labels: the class of each, 0 to `num_classes - 1`, int32 `[..., G]`.
      valid: which rows there are, bool `[..., G]`; the others may hold anything.
      areas: `[..., G]`, for evaluators with area ranges; None takes them from the regions.
      crowd: one region for many objects, bool `[..., G]`: COCO's crowd, group-of in Open
        Images; None: none of them.
      ignored: need not be found, bool `[..., G]`: difficult in VOC; None: none of them.
    """

    regions: Shaped[ArrayLike, "..."] | None
    labels: Int32[ArrayLike, "*batch g"]
    valid: Bool[ArrayLike, "*batch g"]
    areas: Real[ArrayLike, "*batch g"] | None = None
    crowd: Bool[ArrayLike, "*batch g"] | None = None
    ignored: Bool[ArrayLike, "*batch g"] | None = None


class Table(NamedTuple):
    """All images of a data set, without padding: what readers give.

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


class Images(NamedTuple):
    """A batch of images.

    Attributes:
      detections: `[B, D, ...]`, padded.
      truths: `[B, G, ...]`, padded.
      indices: the place of each image in its data set, int32 `[B]`; -1 fills up the batch.
      overlaps: of detections with truths, `[B, D, G]`, where regions are None; by the rule for
        crowds in the columns of crowds.
    """

    detections: Detections
    truths: GroundTruth
    indices: Int32[ArrayLike, "*b"]
    overlaps: Real[ArrayLike, "*b d g"] | None = None


def pack(
    table: Table,
    *,
    overlaps: Sequence[np.ndarray] | None = None,
    batch_size: int = BATCH,
) -> list[Images]:
    """A data set as batches, of images with about as many regions, so that padding is little.

    Args:
      table: the rows.
      overlaps: for each image the overlaps of its detections with its truths, in the order of
        their rows, `[D, G]`, where the table has no regions.
      batch_size: images in a batch; fewer where they are large.

    Returns:
      Batches in NumPy, every image in one of them. D and G are the same for many batches, so that
      few programs are compiled.

    Raises:
      ValueError: rows that belong to no image; overlaps of another shape than an image has rows.

    At the edges:
      Rows keep their order, and those that are not valid stay; images come by their number of
      truths. No images: no batches.

    Example:
      >>> found = Detections(np.ones((3, 4)), np.ones(3), np.zeros(3, np.int32), np.ones(3, bool))
      >>> truth = GroundTruth(np.ones((1, 4)), np.zeros(1, np.int32), np.ones(1, bool))
      >>> places = np.array([0, 1, 1], np.int32)
      >>> table = Table(found, places, truth, places[:1], num_images=2)
      >>> print(pack(table, batch_size=2)[0].detections.valid.sum(axis=1))
      [2 1]
    """
    table = jax.tree.map(np.asarray, table)
    num_images = int(table.num_images)
    _checks.count("num_images", num_images)
    _checks.count("batch_size", batch_size, 1)
    sides = [
        _side("detection", table.detections, table.detection_images, num_images),
        _side("truth", table.truths, table.truth_images, num_images),
    ]
    found, truths = sides
    if overlaps is not None and len(overlaps) != num_images:
        raise ValueError(f"overlaps must be {num_images} tables, got {len(overlaps)}")

    batches = []
    for d, of_d in _by_size(found.counts, np.arange(num_images), 8, batch_size):
        for g, some in _by_size(truths.counts, of_d, 4, batch_size):
            # Images with as many truths next to each other: they keep each other waiting least.
            order = some[np.argsort(truths.counts[some], kind="stable")]
            size = max(1, min(batch_size, MOST_PAIRS // (d * max(g, d // 8))))
            for start in range(0, len(order), size):
                indices = np.full(size, -1, np.int32)
                part = order[start : start + size]
                indices[: len(part)] = part
                tables = None if overlaps is None else _tables(overlaps, sides, indices, (d, g))
                batches.append(
                    Images(_padded(found, indices, d), _padded(truths, indices, g), indices, tables)
                )
    return batches


class _Side(NamedTuple):
    """The rows of one side, sorted by image."""

    rows: Any
    starts: np.ndarray
    counts: np.ndarray


def _side(name: str, rows: Any, images: np.ndarray, num_images: int) -> _Side:
    for field, x in rows._asdict().items():
        if x is not None and len(x) != len(images):
            raise ValueError(
                f"{field} of the {name}s must have {len(images)} rows, as {name}_images has, "
                f"got {len(x)}"
            )
    for row in np.flatnonzero((images < 0) | (images >= num_images))[:1]:
        raise ValueError(
            f"{name}_images must lie in 0 to {num_images - 1}, got {images[row]} in row {row}"
        )
    counts = np.bincount(images, minlength=num_images)
    if (np.diff(images) < 0).any():
        order = np.argsort(images, kind="stable")
        rows = jax.tree.map(lambda x: np.asarray(x)[order], rows)
    return _Side(rows, np.cumsum(counts) - counts, counts)


def _by_size(
    counts: np.ndarray, images: np.ndarray, least: int, batch_size: int
) -> list[tuple[int, np.ndarray]]:
    """The images, in groups of one size each, which their counts are padded to.

    Sizes are the greatest count, or that divided by powers of four: each is a program to compile.
    What would not fill a batch is padded to the next size: a batch more takes longer.
    """
    if not len(images):
        return []
    counts = counts[images]
    sizes = [-(-max(int(counts.max()), least) // least) * least]
    while sizes[0] > least:
        sizes.insert(0, -(-sizes[0] // (4 * least)) * least)
    groups, waiting = [], np.zeros(len(images), bool)
    for low, size in zip([-1, *sizes], sizes, strict=False):
        waiting |= (counts > low) & (counts <= size)
        if waiting.sum() >= batch_size or (size == sizes[-1] and waiting.any()):
            groups.append((size, images[waiting]))
            waiting = np.zeros(len(images), bool)
    return groups


def _padded(side: _Side, indices: np.ndarray, size: int) -> Any:
    present = indices >= 0
    starts = np.where(present, side.starts[indices], 0)[:, None]
    places = np.arange(size)
    filled = places < np.where(present, side.counts[indices], 0)[:, None]
    rows = np.where(filled, starts + places, 0)

    def field(x: np.ndarray) -> np.ndarray:
        x = np.asarray(x)
        if not len(x):
            return np.zeros((*rows.shape, *x.shape[1:]), x.dtype)
        full = x[rows]
        full[~filled] = 0
        return full

    return jax.tree.map(field, side.rows)


def _tables(
    overlaps: Sequence[np.ndarray], sides: list[_Side], indices: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    full = np.zeros((len(indices), *shape))
    for place, image in enumerate(indices):
        if image >= 0:
            wanted = tuple(int(side.counts[image]) for side in sides)
            table = overlaps[image]
            if table.shape != wanted:
                raise ValueError(
                    f"overlaps[{image}] must have shape {list(wanted)}, got {list(table.shape)}"
                )
            full[place, : wanted[0], : wanted[1]] = table
    return full
