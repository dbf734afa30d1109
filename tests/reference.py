"""Independent answers: box overlaps written plainly in NumPy, and pairs meant to break them.

Nothing here imports the library. Arrays are cast to float64 on entry, so the functions see
what a float32 or bfloat16 array really holds, and are written as the formulas are printed.
"""

import math
from functools import cache

import ml_dtypes
import numpy as np


def corners(box):
    x1, y1, x2, y2 = np.moveaxis(np.asarray(box), -1, 0).astype(np.float64, order="C")
    return x1, y1, np.maximum(x1, x2), np.maximum(y1, y2)


def sides(box):
    x1, y1, x2, y2 = corners(box)
    return x2 - x1, y2 - y1


def area(box):
    width, height = sides(box)
    return width * height


def intersection(a, b):
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = corners(a), corners(b)
    width = np.minimum(ax2, bx2) - np.maximum(ax1, bx1)
    height = np.minimum(ay2, by2) - np.maximum(ay1, by1)
    return np.maximum(width, 0) * np.maximum(height, 0)


def union(a, b):
    return area(a) + area(b) - intersection(a, b)


def enclosing(a, b):
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = corners(a), corners(b)
    edges = np.minimum(ax1, bx1), np.minimum(ay1, by1), np.maximum(ax2, bx2), np.maximum(ay2, by2)
    return np.stack(edges, axis=-1)


def divide(x, y):
    """`x / y`, with 0/0 = 0."""
    return np.where(y != 0, x / np.where(y != 0, y, 1), 0)


def iou(a, b):
    return divide(intersection(a, b), union(a, b))


def giou(a, b):
    hull = area(enclosing(a, b))
    return iou(a, b) - divide(hull - union(a, b), hull)


def diou(a, b):
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = corners(a), corners(b)
    dx = (ax1 - bx1) / 2 + (ax2 - bx2) / 2
    dy = (ay1 - by1) / 2 + (ay2 - by2) / 2
    width, height = sides(enclosing(a, b))
    return iou(a, b) - divide(dx**2 + dy**2, width**2 + height**2)


def aspect(a, b):
    """CIoU's v."""
    (aw, ah), (bw, bh) = sides(a), sides(b)
    return 4 / math.pi**2 * (np.arctan2(bw, bh) - np.arctan2(aw, ah)) ** 2


def alpha(a, b):
    """CIoU's weight of v."""
    v = aspect(a, b)
    return divide(v, (1 - iou(a, b)) + v)


def ciou(a, b, weight=None):
    """CIoU; a given `weight` stands for alpha, which has no derivative in the paper."""
    return diou(a, b) - (alpha(a, b) if weight is None else weight) * aspect(a, b)


def ioa(a, b):
    return divide(intersection(a, b), area(a))


def dice(a, b):
    return divide(2 * intersection(a, b), area(a) + area(b))


def table(overlap, a, b):
    """The overlap of all pairs, `[..., N, M]`."""
    return overlap(a[..., :, None, :], b[..., None, :, :])


def slopes(function, x, step=1e-5):
    """Central differences of `function` at each row of `x`, by each coordinate of its row."""
    x = np.asarray(x).astype(np.float64)
    columns = []
    for i in range(x.shape[-1]):
        h = np.zeros(x.shape[-1])
        h[i] = step
        columns.append((function(x + h) - function(x - h)) / (2 * step))
    return np.stack(columns, axis=-1)


DTYPES = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float16": np.dtype(np.float16),
    "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8),
}

# The largest coordinate and the smallest side: what the library promises or the type holds.
RANGES = {
    "float64": (1e150, 1e-150),
    "float32": (1e15, 1e-15),
    "bfloat16": (1e15, 1e-15),
    "float16": (65504.0, 2.0**-24),
    "int32": (2.0**31 - 1, 1.0),
    "uint8": (255.0, 1.0),
}


@cache
def pairs(dtype: str, count: int, seed=0, smallest=None, largest=None):
    """`count` random and adversarial pairs of boxes in one type, `[count, 4]` twice.

    Blocks of 1000 pairs draw a scale, an aspect ratio, a place, a relation of the second box
    to the first, and perhaps a defect of either. Sides, also those of the box around both,
    are 0 or at least `smallest`, coordinates at most `largest`.
    """
    rng = np.random.default_rng(seed)
    largest = largest or RANGES[dtype][0]
    smallest = smallest or RANGES[dtype][1]
    blocks = [_block(rng, DTYPES[dtype], largest, smallest, 1000) for _ in range(-(-count // 1000))]
    return tuple(np.concatenate(boxes)[:count] for boxes in zip(*blocks, strict=True))


def _block(rng, dtype, largest, smallest, count):
    whole = dtype.kind in "iu"
    resolution = 1.0 if whole else float(ml_dtypes.finfo(dtype).eps)

    def power(low, high, *shape):
        return 10 ** rng.uniform(math.log10(low), math.log10(high), (count, *shape))

    def stored(box):
        """In the type; sides below the smallest are 0."""
        box = np.clip(box, 0 if dtype.kind == "u" else -largest, largest)
        box = (np.rint(box) if whole else box).astype(dtype).astype(np.float64)
        length = np.abs(box[:, 2:] - box[:, :2])
        box[:, 2:] = np.where(length < smallest, box[:, :2], box[:, 2:])
        return box

    def broken(box):
        x1, y1, x2, y2 = box.T
        zero = np.zeros_like(x1)
        defects = (
            (x1, y1, x1, y2),  # flat
            (x1, y1, x2, y1),
            (x1, y1, x1, y1),  # a point
            (x2, y1, x1, y2),  # inverted
            (x2, y2, x1, y1),
            (zero, zero, zero, zero),
        )
        return np.stack(defects[rng.integers(6)], axis=1) if rng.random() < 0.2 else box

    ordinary = max(smallest, 0.01), min(largest, 1000.0)
    width = (
        lambda: power(*ordinary),
        lambda: power(*ordinary),
        lambda: power(smallest, largest),
        lambda: smallest * rng.uniform(1, 4, count),
        lambda: largest * rng.uniform(0.1, 0.4, count),
    )[rng.integers(5)]()
    ratio = (
        lambda: 1,
        lambda: power(0.1, 10),
        lambda: power(0.1, 10),
        lambda: power(1e-30, 1e30),
    )[rng.integers(4)]()
    size = np.clip(np.stack([width, width * ratio], axis=1), smallest, largest / 2)
    corner = (
        lambda: 0 * size,
        lambda: rng.uniform(-1, 1, (count, 2)) * size,
        lambda: rng.uniform(0, 1, (count, 2)) * size,
        lambda: 0 * size + 1e6,
        lambda: rng.uniform(-1, 1, (count, 2)) * largest / 2,
    )[rng.integers(5)]()
    a = stored(np.concatenate([corner, corner + size], axis=1))

    corner, size = a[:, :2], a[:, 2:] - a[:, :2]
    near = corner + size * rng.uniform(-1.5, 1.5, (count, 2))
    near = np.concatenate([near, near + size * power(0.1, 10, 2)], axis=1)
    inner = np.sort(rng.uniform(0, 1, (2, count, 2)), axis=0)
    inner = np.concatenate([corner + size * inner[0], corner + size * inner[1]], axis=1)
    shares = rng.random((count, 4)) < 0.5
    steps = (np.array([[1, 0, 1, 0]]), np.array([[0, -1, 0, -1]]), np.array([[1, 1, 1, 1]]))
    units = rng.integers(-2, 3, (count, 4)) * (1 if whole else np.abs(a))
    b = (
        lambda: near,
        lambda: near,
        lambda: inner,
        lambda: np.where(shares, a, near),  # shared edges
        lambda: np.where(shares, a, inner),
        lambda: a + np.tile(size, 2) * steps[rng.integers(3)],  # touching, by edge or corner
        lambda: a,
        lambda: a + units * resolution,  # a few ulps apart
        lambda: np.roll(a, 1, axis=0),
    )[rng.integers(9)]()
    a, b = stored(broken(a)), stored(broken(b))
    around = np.stack(sides(enclosing(a, b)), axis=1)
    b = np.where(((around > 0) & (around < smallest)).any(axis=1, keepdims=True), a, b)
    a, b = (b, a) if rng.random() < 0.5 else (a, b)
    return a.astype(dtype), b.astype(dtype)
