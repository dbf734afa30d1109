"""Greedy suppression on static shapes: the algorithm behind `suppression`.

The best items are ranked, a wave of them, and taken in tiles. A tile loses what the items
kept so far suppress, settles what is left within itself, and adds its survivors to a buffer
of kept items, until the buffer is full. A wave that does not fill it takes away all the
items that it suppresses, and the best of the rest are the next wave. That is the greedy
result exactly, since whether an item is kept depends on better ones alone. Work is at most
N x kept pairs, memory N + max_outputs + TILE x TILE.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

WAVE = 2
"""How many items a wave ranks for each output: mostly the first wave suffices."""

TILE = 256
"""Items settled at once: their table stays in the cache."""

CHUNK = 128
"""Kept items that a tile meets at once."""

ROWS = 8
"""Kept items that all others meet at once on CPU: in plain arithmetic, without a table."""

Item = Any
"""A pytree of arrays; those of a set of items have one axis more, the last or the first."""


class State(NamedTuple):
    """What is known after some items.

    Attributes:
      kept: the places, int32, and the items that are kept; what is behind the first `size`
        means nothing, but its places are -1.
      size: how many are kept, int32.
      left: bool, `[N]`: what is neither taken nor suppressed yet.
    """

    kept: tuple[Array, Item]
    size: Array
    left: Array


def greedy(
    items: Item,
    scores: Array,
    suppresses: Callable[[tuple[Array, Item], tuple[Array, Item]], Array],
    *,
    axes: Any,
    max_outputs: int,
) -> Array:
    """The places of what is kept, best first, int32 `[max_outputs]`, and -1 behind them.

    Args:
      items: N items.
      scores: `[N]`; equal ones keep the lower index first, and -inf is neither kept nor
        suppresses anything.
      suppresses: whether the first of two items suppresses the second if it is kept; each
        is given with its place.
      axes: for each array of `items`, -1 or 0: its axis of items.
      max_outputs: how many are kept at most.
    """
    total = scores.shape[0]
    most = min(max_outputs, total)
    if most == 0:
        return jnp.full((max_outputs,), -1, jnp.int32)
    tile = min(TILE, total)
    wave = min(-(-WAVE * most // tile) * tile, total)
    chunk = min(CHUNK, most)
    capacity = -(-most // chunk) * chunk
    axes = (0, axes)
    row = jax.vmap(suppresses, (None, axes))
    table = jax.vmap(row, (axes, None))
    scores = jnp.where(scores == 0, 0, scores)  # `top_k` would put 0 before -0

    def take(places):
        taken = jax.tree.map(lambda x, axis: x.take(places, axis, mode="clip"), items, axes[1])
        return places, taken

    # Both say which of `others` are alive and not suppressed by `kept[since:size]`.

    def spared_by_chunks(kept, since, size, others, alive):
        def against(j, alive):
            start = j * chunk
            some = jax.tree.map(
                lambda x, axis: jax.lax.dynamic_slice_in_dim(x, start, chunk, axis), kept, axes
            )
            filled = start + jnp.arange(chunk, dtype=jnp.int32) < size
            return alive & ~(table(some, others) & filled[:, None]).any(axis=0)

        return jax.lax.fori_loop(since // chunk, (size + chunk - 1) // chunk, against, alive)

    def spared_by_rows(kept, since, size, others, alive):
        def against(j, alive):
            for k in range(ROWS):
                i = jnp.minimum(since + ROWS * j + k, size - 1)
                one = jax.tree.map(
                    lambda x, axis, i=i: jax.lax.dynamic_index_in_dim(x, i, axis, keepdims=False),
                    kept,
                    axes,
                )
                alive = alive & ~row(one, others)
            return alive

        steps = (size - since + ROWS - 1) // ROWS
        return jax.lax.fori_loop(jnp.zeros_like(steps), steps, against, alive)

    def sweep(state):
        """The state after the best `wave` of the items that are left."""
        keys = jnp.where(state.left, scores, -jnp.inf)
        if wave < total:
            keys, order = jax.lax.top_k(keys, wave)
        else:
            keys, order = jax.lax.sort((-keys, everything[0]), num_keys=1, is_stable=True)
            keys = -keys
        order = jnp.where(keys > -jnp.inf, order, total)
        order = jnp.pad(order, (0, -wave % tile), constant_values=total)

        def load(i):
            places = jax.lax.dynamic_slice_in_dim(order, i * tile, tile)
            return take(places), places < total

        def step(carry):
            i, kept, size, (candidates, alive) = carry
            alive = spared_by_chunks(kept, state.size, size, candidates, alive)
            alive = _settled(table(candidates, candidates), alive)
            slots = jnp.where(alive, size + jnp.cumsum(alive, dtype=jnp.int32) - 1, capacity)
            kept = jax.tree.map(lambda x, y, axis: _put(x, slots, y, axis), kept, candidates, axes)
            # Loaded here for XLA to store the tile, or it would gather for every pair.
            following = load(jnp.minimum(i + 1, order.shape[0] // tile - 1))
            return i + 1, kept, size + alive.sum(dtype=jnp.int32), following

        def unfinished(carry):
            i, _, size, (_, alive) = carry
            return (i * tile < wave) & (size < most) & alive.any()

        start = jnp.zeros_like(state.size)
        carry = start, state.kept, state.size, load(start)
        _, kept, size, _ = jax.lax.while_loop(unfinished, step, carry)
        left = state.left.at[order].set(False, mode="drop")
        # Nothing is suppressed where nobody asks any more.
        more = jnp.where((size < most) & left.any(), size, state.size)
        left = jax.lax.platform_dependent(
            *(kept, state.size, more, everything, left),
            cpu=spared_by_rows,
            default=spared_by_chunks,
        )
        return State(kept, size, left)

    # Carries are made from inputs, so that under shard_map they vary over the same axes.
    everything = jnp.arange(total, dtype=jnp.int32), items
    nowhere = jnp.full_like(scores, -1, jnp.int32, shape=(capacity,))
    kept = nowhere, jax.tree.map(jnp.zeros_like, take(nowhere)[1])
    left = scores > -jnp.inf
    state = State(kept, jnp.zeros_like(left[0], jnp.int32), left)
    state = jax.lax.while_loop(lambda s: (s.size < most) & s.left.any(), sweep, state)
    places = state.kept[0][:most]
    return jnp.pad(places, (0, max_outputs - most), constant_values=-1)


def _put(x: Array, slots: Array, values: Array, axis: int) -> Array:
    """`x` with `values` at `slots`, none where a slot is beyond it."""
    at = x.at[slots] if axis == 0 else x.at[..., slots]
    return at.set(values, mode="drop")


def _settled(suppresses: Array, alive: Array) -> Array:
    """Which items of a tile are kept, `suppresses[i, j]` for i before j alone.

    Greedy is the one fixed point of "kept if no better one that is kept suppresses it". Each
    step looks only at better items, so after s steps the first s are final.
    """
    n = alive.shape[0]
    better = jnp.arange(n, dtype=jnp.int32)[:, None] < jnp.arange(n, dtype=jnp.int32)[None]
    suppresses = suppresses & better

    def step(carry):
        kept, _ = carry
        settled = alive & ~(suppresses & kept[:, None]).any(axis=0)
        return settled, (settled != kept).any()

    return jax.lax.while_loop(lambda carry: carry[1], step, (alive, alive.any()))[0]
