"""Masks in COCO's forms as run lengths, and their overlaps, by pycocotools.

A mask is a list of polygons, or `{"size": [height, width], "counts": ...}` with run lengths in a
list or in COCO's compressed text. pycocotools does not look at what it is given: with run lengths
that do not fill their image it never comes back, and one polygon of two points is a box to it. So
everything is checked here first.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxiou.readers._detections import Records

Code = dict[str, Any]
"""Compressed run lengths, as pycocotools takes them."""

BLOCK = 2**10
"""Masks whose run lengths are checked at once, so that it takes little memory."""

FARTHEST = 4
"""In longer sides of its image, how far from (0, 0) a point of a polygon may lie. pycocotools walks
along the outline pixel by pixel, and takes memory for each step, whatever the image is."""

FARTHEST_OF_ALL = 2**20
"""In pixels. Far beyond, 32 bits do not hold what pycocotools computes."""

MOST_DIGITS = 7
"""Of a number in compressed run lengths: 35 bits, more than any image has pixels."""


def pycocotools() -> Any:
    try:
        from pycocotools import mask
    except ImportError as error:
        raise ImportError("masks are read by pycocotools: pip install 'jaxiou[io]'") from error
    return mask


def areas(masks: list[Code]) -> np.ndarray:
    """Pixels of each mask."""
    area = pycocotools().area  # which cannot take lists of more than 255 with NumPy 2
    return np.array([area(mask) for mask in masks], np.float64)


def boxes(masks: list[Code]) -> np.ndarray:
    """The smallest box `(x, y, width, height)` around each mask."""
    return pycocotools().toBbox(masks) if masks else np.zeros((0, 4))


def iou(predictions: list[Code], targets: list[Code], crowd: np.ndarray) -> np.ndarray:
    """Of all pairs, in float64; over the prediction alone where the target is a crowd."""
    return pycocotools().iou(predictions, targets, crowd.astype(np.uint8).tolist())


class Boundary(NamedTuple):
    """The boundary of a mask, cut out of its image."""

    top: int
    left: int
    inside: np.ndarray
    pixels: int


def boundary(mask: Code, ratio: float = 0.02) -> Boundary:
    """The pixels of a mask from which its outside is at most `ratio` diagonals away."""
    left, top, width, height = map(int, pycocotools().toBbox(mask))
    with warnings.catch_warnings():  # pycocotools' own, of NumPy 2
        warnings.simplefilter("ignore")
        whole = pycocotools().decode(mask)
    d = max(1, round(ratio * float(np.sqrt(whole.shape[0] ** 2 + whole.shape[1] ** 2))))
    inside = whole[top : top + height, left : left + width].astype(bool)
    inner = np.zeros_like(inside)
    if min(inside.shape) > 2 * d:
        # What d erosions by a square of 3 leave; outside of the cut there is nothing anyway.
        kept = _all_of(2 * d + 1, _all_of(2 * d + 1, inside).T).T
        inner[d : height - d, d : width - d] = kept
    inside &= ~inner
    return Boundary(top, left, inside, int(np.count_nonzero(inside)))


def boundary_iou(a: Boundary, b: Boundary) -> float:
    """Intersection over union in pixels, 0 where nothing is shared."""
    top, left = max(a.top, b.top), max(a.left, b.left)
    bottom = min(a.top + a.inside.shape[0], b.top + b.inside.shape[0])
    right = min(a.left + a.inside.shape[1], b.left + b.inside.shape[1])
    if bottom <= top or right <= left:
        return 0.0
    parts = (x.inside[top - x.top : bottom - x.top, left - x.left : right - x.left] for x in (a, b))
    shared = int(np.count_nonzero(next(parts) & next(parts)))
    return shared / (a.pixels + b.pixels - shared) if shared else 0.0


class Overlaps:
    """Overlaps of rows of results with rows of truths, mask by mask.

    With `by_boundary` the smaller one of mask IoU and boundary IoU, but for crowds, of which the
    mask IoU alone counts.
    """

    def __init__(
        self, predictions: list[Code], targets: list[Code], crowd: np.ndarray, by_boundary: bool
    ):
        self.predictions, self.targets = predictions, targets
        self.crowd, self.by_boundary = crowd, by_boundary

    def __call__(self, found: np.ndarray, truths: np.ndarray) -> np.ndarray:
        predictions = [self.predictions[row] for row in found]
        targets = [self.targets[row] for row in truths]
        crowd = self.crowd[truths]
        table = np.array(iou(predictions, targets, crowd))
        if not self.by_boundary:
            return table
        pairs = np.argwhere((table > 0) & ~crowd)  # 0 is the smaller one already
        mine = {i: boundary(predictions[i]) for i in np.unique(pairs[:, 0]).tolist()}
        others = {j: boundary(targets[j]) for j in np.unique(pairs[:, 1]).tolist()}
        for i, j in pairs.tolist():
            table[i, j] = min(table[i, j], boundary_iou(mine[i], others[j]))
        return table


def codes(records: Records, images: np.ndarray, sizes: dict[int, tuple[int, int]]) -> list[Code]:
    """The field `segmentation` of records.

    Args:
      records: of one side.
      images: the place of each record's image.
      sizes: height and width of images by their places; those that are missing are added from the
        first mask that says its size.
    """
    mask = pycocotools()
    found: list[Code] = []
    compressed: list[int] = []
    segmentations = records.column("segmentation")
    for row, (value, image) in enumerate(zip(segmentations, images.tolist(), strict=True)):
        size = sizes.get(image)
        if isinstance(value, Mapping):
            given, counts = _given_size(value), value.get("counts", ())
            if given is None:
                records.refuse(row, "the size of the mask is not [height, width]")
            if given != sizes.setdefault(image, given):
                records.refuse(row, f"the mask is {list(given)} in size, not {list(sizes[image])}")
            if isinstance(counts, str | bytes):
                code = {"size": list(given), "counts": counts}
                compressed.append(row)
            else:
                _check_counts(records, row, counts, given)
                code = mask.frPyObjects({"size": list(given), "counts": list(counts)}, *given)
        elif isinstance(value, list | tuple):
            if size is None:
                records.refuse(row, "has polygons, but its image has no height and width")
            code = mask.merge(mask.frPyObjects(_polygons(records, row, value, size), *size))
        else:
            records.refuse(row, "segmentation is neither polygons nor run lengths")
        found.append(code)
    _check_compressed(records, compressed, [found[row] for row in compressed])
    return found


def _given_size(value: Mapping[str, Any]) -> tuple[int, int] | None:
    size = value.get("size")
    if isinstance(size, list | tuple | np.ndarray) and len(size) == 2:
        return size_of(*size)
    return None


def size_of(height: Any, width: Any) -> tuple[int, int] | None:
    """The size of an image whose pixels 31 bits can count, or None."""
    try:
        whole = 0 < int(height) == height and 0 < int(width) == width
        if whole and height * width < 2**31:
            return int(height), int(width)
    except (TypeError, ValueError, OverflowError):
        pass
    return None


def _check_counts(records: Records, row: int, counts: Any, size: tuple[int, int]) -> None:
    whole = isinstance(counts, list | tuple) and all(
        isinstance(count, int | np.integer) and not isinstance(count, bool) and count >= 0
        for count in counts
    )
    if not whole:
        records.refuse(row, "the counts of the mask are no run lengths")
    total, pixels = sum(counts), size[0] * size[1]
    if total != pixels:
        records.refuse(row, f"the mask has {total} pixels in its runs, not {pixels}")


def _polygons(
    records: Records, row: int, value: Sequence[Any], size: tuple[int, int]
) -> list[list[float]]:
    if not value:
        records.refuse(row, "segmentation has no polygon")
    for place, polygon in enumerate(value):
        is_list = isinstance(polygon, list | tuple | np.ndarray)
        # Two points are no harm further on, only as the first ones they are taken for a box.
        if not is_list or len(polygon) < (4 if place else 6) or len(polygon) % 2:
            records.refuse(row, "a polygon of segmentation has not x and y of three points or more")
    flat = [x for polygon in value for x in polygon]
    try:
        array = np.array(flat)
        finite = array.dtype.kind in "iuf" and array.ndim == 1 and bool(np.isfinite(array).all())
    except ValueError:
        finite = False
    if not finite:
        records.refuse(row, "a polygon of segmentation has something that is no finite number")
    bound = min(FARTHEST * max(size), FARTHEST_OF_ALL)
    for point in array[(array < -bound) | (array > bound)][:1]:
        reason = f"{point:g}, more than {bound} pixels away from an image of {list(size)}"
        records.refuse(row, f"a polygon of segmentation has the coordinate {reason}")
    return [list(polygon) for polygon in value]


def _check_compressed(records: Records, rows: list[int], found: list[Code]) -> None:
    """Refuses text that does not give run lengths of as many pixels as the image has."""
    for start in range(0, len(found), BLOCK):
        block = found[start : start + BLOCK]
        totals = _totals([code["counts"] for code in block])
        pixels = np.array([code["size"][0] * code["size"][1] for code in block])
        for place in np.flatnonzero(totals != pixels)[:1]:
            if totals[place] < 0:
                reason = "the counts of the mask are no compressed run lengths"
            else:
                reason = f"the mask has {totals[place]} pixels in its runs, not {pixels[place]}"
            records.refuse(rows[start + place], reason)


def _totals(texts: Sequence[str | bytes]) -> np.ndarray:
    """The sum of the run lengths of each text, or -1 where it does not hold run lengths.

    A character holds five bits of a number, the lowest first, and a bit that says that more
    follow; the last one's highest bit is the sign. From the fourth number on, it is the difference
    to the last but one.
    """
    raw = [x if isinstance(x, bytes) else x.encode("utf-8", "surrogatepass") for x in texts]
    totals = np.full(len(raw), -1, np.int64)
    lengths = np.array([len(x) for x in raw])
    characters = np.frombuffer(b"".join(raw), np.uint8) - np.uint8(48)  # below 48 it wraps
    text_of = np.repeat(np.arange(len(raw)), lengths)
    good = lengths > 0
    good[text_of[characters > 63]] = False
    # A text that ends within a number would run into the next one.
    good[good] = characters[np.cumsum(lengths)[good] - 1] & 32 == 0
    if not good.all():
        characters, text_of = characters[good[text_of]], text_of[good[text_of]]
    if not len(characters):
        return totals

    ends = np.flatnonzero(characters & 32 == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    digits = ends - starts + 1
    shifts = 5 * (np.arange(len(characters)) - np.repeat(starts, digits))
    numbers = np.add.reduceat((characters & 31).astype(np.int64) << np.minimum(shifts, 30), starts)
    numbers -= np.where(characters[ends] & 16, 1 << np.minimum(5 * digits, 35), 0)
    text_of = text_of[starts]
    good[text_of[digits > MOST_DIGITS]] = False

    first = np.flatnonzero(np.diff(text_of, prepend=-1))
    counts = np.diff(np.append(first, len(text_of)))
    place = np.arange(len(text_of)) - np.repeat(first, counts)
    runs = np.where(place == 0, numbers, 0)
    for of_kind in (place % 2 == 1, (place % 2 == 0) & (place > 0)):
        sums = np.cumsum(np.where(of_kind, numbers, 0))
        runs += np.where(of_kind, sums - np.repeat(sums[first], counts), 0)
    good[text_of[runs < 0]] = False
    totals[text_of[first]] = np.add.reduceat(runs, first)
    totals[~good] = -1
    return totals


def _all_of(length: int, x: np.ndarray) -> np.ndarray:
    """Whether `length` neighbours along the first axis are all True, in log2(length) passes."""
    covered = 1
    while covered < length:
        step = min(covered, length - covered)
        x = x[:-step] & x[step:]
        covered += step
    return x
