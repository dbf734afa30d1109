"""Greedy suppression on static shapes: the algorithm behind `suppression`.

Items are taken in tiles, best first. A tile loses what the items kept so far suppress,
settles what is left within itself, and adds its survivors to a buffer of kept items, until
the buffer is full. That is the greedy result exactly, since whether an item is kept depends
on better ones alone. Work is N x kept pairs, memory N + max_outputs + TILE x TILE.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

TILE = 256
"""Items settled at once: their table stays in the cache."""

CHUNK = 128
"""Kept items that a tile meets at once."""

FIRST = 4
"""The best `FIRST * max_outputs` are ranked first, and all only where these do not suffice."""

Item = Any
"""A pytree of arrays; those of a set of items have one axis more, the last or the first."""


class State(NamedTuple):
    """What is known after some tiles.

    Attributes:
      kept: the places, int32, and the items that are kept; what is behind the first `size`
        means nothing, but its places are -1.
      size: how many are kept, int32.
      left: how many live items are still to be taken, int32.
    """

    kept: tuple[Array, Item]
    size: Array
    left: Array


def greedy(
    items: Item,
    scores: Array,
    live: Array,
    suppresses: Callable[[tuple[Array, Item], tuple[Array, Item]], Array],
    *,
    axes: Any,
    max_outputs: int,
) -> Array:
    """The places of what is kept, best first, int32 `[max_outputs]`, and -1 behind them.

    Args:
      items: N items.
      scores: `[N]`; equal ones keep the lower index first.
      live: bool, `[N]`: the others are neither kept nor suppress anything.
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
    chunk = min(CHUNK, most)
    capacity = -(-most // chunk) * chunk
    axes = (0, axes)
    table = jax.vmap(jax.vmap(suppresses, (None, axes)), (axes, None))
    # `top_k` would put 0 before -0. The dead are behind all that score more than -inf.
    keys = jnp.where(live, jnp.where(scores == 0, 0, scores), -jnp.inf)

    def take(places):
        return jax.tree.map(lambda x, axis: x.take(places, axis, mode="clip"), items, axes[1])

    def load(order, i):
        places = jax.lax.dynamic_slice_in_dim(order, i * tile, tile)
        return (places, take(places)), live.take(places, mode="clip") & (places < total)

    def step(order, carry):
        i, state, (candidates, alive) = carry
        left = state.left - alive.sum(dtype=jnp.int32)

        def against(j, alive):
            start = j * chunk
            kept = jax.tree.map(
                lambda x, axis: jax.lax.dynamic_slice_in_dim(x, start, chunk, axis),
                state.kept,
                axes,
            )
            filled = start + jnp.arange(chunk, dtype=jnp.int32) < state.size
            return alive & ~(table(kept, candidates) & filled[:, None]).any(axis=0)

        chunks = (state.size + chunk - 1) // chunk
        alive = jax.lax.fori_loop(jnp.zeros_like(chunks), chunks, against, alive)
        alive = _settle(table(candidates, candidates), alive)

        slots = state.size + jnp.cumsum(alive, dtype=jnp.int32) - 1
        slots = jnp.where(alive, slots, capacity)
        kept = jax.tree.map(
            lambda x, y, axis: _put(x, slots, y, axis), state.kept, candidates, axes
        )
        state = State(kept, state.size + alive.sum(dtype=jnp.int32), left)
        # The next tile is loaded here for XLA to store it, or it would gather for every pair.
        return i + 1, state, load(order, jnp.minimum(i + 1, order.shape[0] // tile - 1))

    def sweep(order, state):
        """The state after the items that `order` names, `total` meaning none."""
        order = jnp.pad(order, (0, -order.shape[0] % tile), constant_values=total)

        def unfinished(carry):
            i, state, _ = carry
            return (i * tile < order.shape[0]) & (state.size < most) & (state.left > 0)

        first = jnp.zeros_like(state.size)
        carry = first, state, load(order, first)
        return jax.lax.while_loop(unfinished, lambda carry: step(order, carry), carry)[1]

    # All carries are made from inputs, so that under shard_map they vary over the same axes.
    nowhere = jnp.full_like(keys, -1, jnp.int32, shape=(capacity,))
    state = State(
        kept=(nowhere, jax.tree.map(jnp.zeros_like, take(nowhere))),
        size=jnp.zeros_like(live[0], jnp.int32),
        left=live.sum(dtype=jnp.int32),
    )
    first = -(-FIRST * most // tile) * tile
    if first < total:
        state = sweep(jax.lax.top_k(keys, first)[1], state)
        # A loop of one step, not a branch: mapped, a branch would always be taken.
        state = jax.lax.while_loop(
            lambda state: (state.size < most) & (state.left > 0),
            lambda state: sweep(_ranked(keys)[first:], state),
            state,
        )
    else:
        state = sweep(_ranked(keys), state)
    places = state.kept[0][:most]
    return jnp.pad(places, (0, max_outputs - most), constant_values=-1)


def _ranked(keys: Array) -> Array:
    """Places from the highest key to the lowest, equal ones in order."""
    return jnp.argsort(-keys, stable=True).astype(jnp.int32)


def _put(x: Array, slots: Array, values: Array, axis: int) -> Array:
    """`x` with `values` at `slots`, none where a slot is beyond it."""
    at = x.at[slots] if axis == 0 else x.at[..., slots]
    return at.set(values, mode="drop")


def _settle(suppresses: Array, alive: Array) -> Array:
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
