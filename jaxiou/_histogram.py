"""How often each pair of labels occurs: the one count under all scores of pixels.

Every method gives the same integers. Which one is fast is a question of the machine: a
processor adds to a table in memory faster than it does anything else; a GPU does too, unless
many threads want the same cell, for which it gets several tables; a TPU takes one-hot rows and
multiplies matrices, or sorts.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap
from jaxtyping import Bool, Int32, Integer

from jaxiou._math import places

Method = Literal["auto", "scatter", "private scatter", "matmul", "sort"]

BLOCK = 2**16
"""Pixels whose places in the table are computed at once: what stays in a cache."""

PRIVATE = 4
"""Tables that a processor fills in turn. With one, an addition would wait for the last one
whenever two neighbours are alike, as pixels are."""

PRIVATE_BYTES = 2**19
"""As much as these may take: what stays in a cache."""

GPU_PRIVATE, GPU_CELLS = 32, 65 * 65
"""Tables on a GPU, for those of up to so many cells."""

MATMUL_COLUMNS = 257
"""Above it, a TPU sorts."""

SPLIT_CELLS = 2**21
"""How many cells there may be in all where each image has a table of its own."""


def pair_counts(
    rows: Integer[Array, "*shape"],
    columns: Integer[Array, "*shape"],
    shape: tuple[int, int],
    *,
    others: bool = False,
    where: Bool[Array, "*shape"] | None = None,
    method: Method = "auto",
) -> Int32[Array, "r c"]:
    """`counts[i, j]`, on how many places `where` is True, `rows` is i and `columns` is j.

    Pairs with a label out of range are not counted. With `others` there is one more column,
    for those whose row alone is in range. `jax.vmap` is as fast as one count.
    """
    height, width = shape[0] + 1, shape[1] + 1
    if height * width >= 2**31:
        raise ValueError(f"a table of {shape[0]} x {shape[1]} counts has too many cells")

    def cell(rows, columns, where=None):
        """Where each pair is counted; the last row and column are for what is out of range."""
        row, column = _clip(rows, shape[0]), _clip(columns, shape[1])
        row = row if where is None else jnp.where(where, row, shape[0])
        return row * width + column

    cells = height * width
    # What XLA may split over devices it splits by images; in a loop over the pixels of all of
    # them it would gather them on each device.
    by_images = rows.ndim > 2 and len(rows) * cells <= SPLIT_CELLS and not _is_on_one_device()
    methods: dict[str, Callable[..., Array]] = {
        "scatter": functools.partial(_scatter, cell, cells, by_images),
        "private scatter": functools.partial(_private_scatter, cell, cells),
        "matmul": functools.partial(_matmul, cell, height, width),
        "sort": functools.partial(_sort, cell, cells),
    }
    count = methods.get(method)
    if count is None:
        count = functools.partial(
            jax.lax.platform_dependent,
            cuda=methods["private scatter" if cells <= GPU_CELLS else "scatter"],
            tpu=methods["matmul" if width <= MATMUL_COLUMNS else "sort"],
            default=methods["scatter"],
        )
    arrays = [x for x in (rows, columns, where) if x is not None]
    if by_images:
        counts = jax.vmap(lambda *image: count(*(x.ravel() for x in image)))(*arrays)
        counts = counts.sum(axis=0, dtype=jnp.int32)
    else:
        counts = count(*(x.ravel() for x in arrays))
    return counts.reshape(height, width)[:-1, : width if others else -1]


def _clip(labels: Array, count: int) -> Array:
    """The labels as int32, and `count` in place of those that are not below it, or negative."""
    if jnp.iinfo(labels.dtype).max < count:
        labels = labels.astype(jnp.int32)
    # Without a sign, the negative ones are the largest.
    unsigned = labels.astype(f"uint{8 * labels.dtype.itemsize}")
    return jnp.minimum(unsigned, count).astype(jnp.int32)


def is_class(labels: Integer[Array, "*shape"], count: int) -> Bool[Array, "*shape"]:
    """Whether labels lie in 0 to `count - 1`; in their own type, as a cast might wrap."""
    most = min(count - 1, jnp.iinfo(labels.dtype).max)
    return (labels >= 0) & (labels <= most)


def classes_or(other: int, labels: Integer[Array, "*shape"], count: int) -> Int32[Array, "*shape"]:
    """The labels that are classes, as int32, and `other` in place of the rest."""
    return jnp.where(is_class(labels, count), labels.astype(jnp.int32), other)


Cell = Callable[..., Array]


def _scatter(cell: Cell, cells: int, split: bool, *arrays: Array) -> Array:
    """On a processor by blocks, if all is on one device or what is not has been split by images;
    else at once.
    """

    def at_once(*arrays):
        return _add(_zeros(cells, *arrays), cell(*arrays))

    blocks = functools.partial(_by_blocks, cell, cells)
    if not _is_on_one_device():
        cpu = blocks if split else at_once
        return jax.lax.platform_dependent(*arrays, cpu=cpu, default=at_once)
    by_blocks = custom_vmap(blocks)

    @by_blocks.def_vmap
    def one_after_another(size, batched, *arrays):
        # So that each image's table has the cache to itself.
        arrays = tuple(
            x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
            for x, is_batched in zip(arrays, batched, strict=True)
        )
        return jax.lax.map(lambda image: by_blocks(*image), arrays), True

    return jax.lax.platform_dependent(*arrays, cpu=by_blocks, default=at_once)


def _by_blocks(cell: Cell, cells: int, *arrays: Array) -> Array:
    tables = PRIVATE if 4 * PRIVATE * cells <= PRIVATE_BYTES else 1

    def add(counts, *block):
        return _add(counts, cell(*block) + cells * _turns(block[0].size, tables))

    counts = _over_blocks(add, _zeros(tables * cells, *arrays), arrays)
    return counts.reshape(tables, cells).sum(axis=0, dtype=jnp.int32)


def _private_scatter(cell: Cell, cells: int, *arrays: Array) -> Array:
    tables = min(GPU_PRIVATE, (2**31 - 1) // cells)
    index = cell(*arrays) + cells * _turns(arrays[0].size, tables)
    counts = _add(_zeros(tables * cells, *arrays), index)
    return counts.reshape(tables, cells).sum(axis=0, dtype=jnp.int32)


def _matmul(cell: Cell, height: int, width: int, *arrays: Array) -> Array:
    """One-hot rows times one-hot columns; 0 and 1 are exact in bfloat16, and sums of a block
    in float32.
    """

    def one_hot(x, size):
        return (x[:, None] == jnp.arange(size, dtype=jnp.int32)[None]).astype(jnp.bfloat16)

    def add(counts, *block):
        row, column = jnp.divmod(cell(*block), width)
        more = jax.lax.dot_general(
            one_hot(row, height),
            one_hot(column, width),
            (((0,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        return counts + more.astype(jnp.int32)

    counts = _zeros(height * width, *arrays).reshape(height, width)
    return _over_blocks(add, counts, arrays).ravel()


def _sort(cell: Cell, cells: int, *arrays: Array) -> Array:
    """Sorted, equal cells lie together; where each begins tells how many there are."""
    index = jnp.sort(cell(*arrays))
    cell_numbers = _zeros(cells + 1, *arrays) + jnp.arange(cells + 1, dtype=jnp.int32)
    return jnp.diff(places(index, cell_numbers))


def _over_blocks(add: Callable[..., Array], counts: Array, arrays: tuple[Array, ...]) -> Array:
    """`add(counts, *block)` for every block, and for what is left."""
    whole = arrays[0].size // BLOCK

    def step(i, counts):
        return add(counts, *(jax.lax.dynamic_slice(x, (i * BLOCK,), (BLOCK,)) for x in arrays))

    if whole:
        counts = jax.lax.fori_loop(np.int32(0), np.int32(whole), step, counts)
    return add(counts, *(x[whole * BLOCK :] for x in arrays))


def _turns(size: int, tables: int) -> Array:
    """Which table each pair goes to."""
    return jnp.arange(size, dtype=jnp.int32) % tables


def _zeros(size: int, *arrays: Array) -> Array:
    """Made from an input, so that under shard_map it varies over the axes that pixels do."""
    return jnp.zeros_like(arrays[0], jnp.int32, shape=(size,))


def _add(counts: Array, index: Array) -> Array:
    return counts.at[index].add(1, mode="promise_in_bounds")


def _is_on_one_device() -> bool:
    """Whether XLA cannot split what is traced over devices.

    Where it can, a loop over blocks would make it gather all pixels on every device.
    """
    mesh = jax.sharding.get_abstract_mesh()
    by_hand = bool(mesh.axis_names) and set(mesh.manual_axes) == set(mesh.axis_names)
    return jax.device_count() == 1 or by_hand
