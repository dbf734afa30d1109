"""Rows of two sides that share an image, as pairs: on the host, without padding.

What can meet at all is little of what there is. A protocol looks at the overlaps of these pairs,
drops what cannot matter, and gives the rest to its passes in `blocks` of few shapes.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from jaxiou import _checks
from jaxiou._typing import ArrayLike
from jaxiou.detection import _exact
from jaxiou.pairing import Overlap

CHUNK = 2**16
"""Pairs that are compared at once."""

FEW, BATCH = 8, 256
"""Rows of a side in most images, and images in a block."""


class Pairs(NamedTuple):
    """Places of rows, sorted by image."""

    first: Int[np.ndarray, " pairs"]
    second: Int[np.ndarray, " pairs"]

    def where(self, which: Bool[np.ndarray, " pairs"]) -> "Pairs":
        return Pairs(self.first[which], self.second[which])


class Sides(NamedTuple):
    """The image of each row of both sides, rising."""

    first: Int[np.ndarray, " n"]
    second: Int[np.ndarray, " m"]
    num_images: int


class Block(NamedTuple):
    """Images with the rows that have partners, padded.

    Attributes:
      first: rows, `[B, S]`; -1 where there is none.
      second: likewise.
      values: of the pairs, `[B, S, S]`; 0 where two rows are none.
      images: their places, `[B]`; -1 where there is none.
    """

    first: Int[np.ndarray, "b s"]
    second: Int[np.ndarray, "b s"]
    values: Float[np.ndarray, "b s s"]
    images: Int[np.ndarray, " b"]


def together(sides: Sides, first: Bool[ArrayLike, " n"], second: Bool[ArrayLike, " m"]) -> Pairs:
    """All pairs of rows of one image of which `first` and `second` are True."""
    some, others = np.flatnonzero(np.asarray(first)), np.flatnonzero(np.asarray(second))
    counts = np.bincount(sides.second[others], minlength=sides.num_images)
    starts = np.cumsum(counts) - counts
    images = sides.first[some]
    partners = counts[images]
    offset = np.repeat(starts[images] - (np.cumsum(partners) - partners), partners)
    return Pairs(np.repeat(some, partners), others[offset + np.arange(len(offset))])


@functools.cache
def _aligned(overlap: Overlap) -> Callable[[Array, Array], Array]:
    return jax.jit(jax.vmap(overlap))


def compare(
    overlap: Overlap, a: ArrayLike, b: ArrayLike, pairs: Pairs
) -> Float[np.ndarray, " pairs"]:
    """The overlap of the regions of each pair, in float64."""
    values = np.zeros(len(pairs.first))
    size = min(CHUNK, power_of_two(len(values)))
    for start in range(0, len(values), size):
        part = slice(start, start + size)
        missing = max(start + size - len(values), 0)
        rows = [np.pad(x[part], (0, missing)) for x in pairs]
        values[part] = _exact.run(_aligned(overlap), a[rows[0]], b[rows[1]])[: size - missing]
    return values


def look_up(
    name: str, tables: Sequence[np.ndarray], sides: Sides, pairs: Pairs
) -> Float[np.ndarray, " pairs"]:
    """The entry of each pair in the table of its image."""
    if len(tables) != sides.num_images:
        raise ValueError(f"{name} must be {sides.num_images} tables, got {len(tables)}")
    n, m = (np.bincount(images, minlength=sides.num_images) for images in sides[:2])
    for image, table in enumerate(tables):
        shape = (int(n[image]), int(m[image]))
        _checks.exact_shape(f"{name}[{image}]", table, shape, "detections with truths")
    flat = np.concatenate([np.zeros(0), *(np.asarray(x, np.float64).ravel() for x in tables)])
    image = sides.first[pairs.first]
    row = pairs.first - (np.cumsum(n) - n)[image]
    column = pairs.second - (np.cumsum(m) - m)[image]
    return flat[(np.cumsum(n * m) - n * m)[image] + row * m[image] + column]


def blocks(sides: Sides, pairs: Pairs, values: Float[np.ndarray, " pairs"]) -> Iterator[Block]:
    """The images of the pairs: blocks of the many with few rows, and blocks of the others."""
    slots = [_slots(pairs.first, sides.first), _slots(pairs.second, sides.second)]
    image = sides.first[pairs.first]
    most = np.zeros(sides.num_images, int)
    for slot in slots:
        np.maximum.at(most, image, slot + 1)
    largest = power_of_two(max(int(most.max(initial=0)), FEW))
    for size, chosen in ((FEW, (most > 0) & (most <= FEW)), (largest, most > FEW)):
        wanted = np.flatnonzero(chosen)
        for start in range(0, len(wanted), BATCH):
            some = wanted[start : start + BATCH]
            of_block = np.flatnonzero(np.isin(image, some))
            place = np.searchsorted(some, image[of_block])
            first, second = (np.full((BATCH, size), -1) for _ in range(2))
            row, column = (slot[of_block] for slot in slots)
            first[place, row] = pairs.first[of_block]
            second[place, column] = pairs.second[of_block]
            table = np.zeros((BATCH, size, size))
            table[place, row, column] = values[of_block]
            images = np.full(BATCH, -1)
            images[: len(some)] = some
            yield Block(first, second, table, images)


def _slots(rows: np.ndarray, images: np.ndarray) -> np.ndarray:
    """The place of each row among those of its image that occur."""
    occurring, which = np.unique(rows, return_inverse=True)
    image = images[occurring]
    return (np.arange(len(occurring)) - np.searchsorted(image, image))[which.reshape(-1)]


def power_of_two(x: int) -> int:
    """The least that is `x` or more."""
    return 1 << max(x - 1, 0).bit_length()
