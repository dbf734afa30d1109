"""One frame of SORT: the pairs that it makes, and what becomes of its tracks.

Pairs are a table, bool `[N, M]`, with at most one True in each row and column.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxiou import boxes
from jaxiou.assignment import Matching, maximum_matching
from jaxiou.pairing import pairwise, take
from jaxiou.tracking import _kalman
from jaxiou.tracking.packing import Trajectories


class Rules(NamedTuple):
    """The numbers that SORT goes by, as `association.sort_tracker` explains them."""

    threshold: Array
    max_age: Array
    min_hits: Array


class Tracks(NamedTuple):
    """What SORT knows after a frame, one place for each of its tracks, `[capacity]`.

    Attributes:
      state: of the filter, `[4, capacity]`.
      alive: whether there is a track in this place.
      ids: its id.
      streak: how many frames in a row it has had a detection, the first one not counted.
      missed: how many frames it has gone without one.
      births: how many tracks have been begun, in all.
    """

    state: _kalman.State
    alive: Array
    ids: Array
    streak: Array
    missed: Array
    births: Array


class Frame(NamedTuple):
    """A frame: its number, from 0, boxes `[N, 4]`, zeros where there are none, and where."""

    number: Array
    regions: Array
    valid: Array


def no_tracks(regions: Array, capacity: int) -> Tracks:
    # Made from the data, so that under shard_map it varies over the axes that they do.
    zeros = jnp.zeros_like(regions, shape=(4, capacity))
    none = jnp.zeros_like(regions, jnp.int32, shape=(capacity,))
    return Tracks(_kalman.begun(zeros), none > 0, none, none, none, none.sum(dtype=jnp.int32))


def step(
    tracks: Tracks, frame: Frame, rules: Rules, shortcut: bool
) -> tuple[Tracks, tuple[Trajectories, Array]]:
    """The tracks after a frame, what they report of its detections, and how many of these
    found no room.
    """
    state = _kalman.predicted(tracks.state)
    table = pairwise(boxes.iou)(*jax.lax.stop_gradient((frame.regions, _kalman.boxes_of(state))))
    allowed = frame.valid[:, None] & tracks.alive[None, :]
    matched = sort_pairs(table, allowed, rules.threshold, shortcut)
    hit = matched.any(axis=0)
    streak = jnp.where(tracks.missed > 0, 0, tracks.streak)
    streak = jnp.where(hit, streak + 1, streak)
    missed = jnp.where(hit, 0, tracks.missed + 1)
    alive = tracks.alive & (missed <= rules.max_age)

    # The places of tracks that end in this frame are free for those that begin.
    new = frame.valid & ~matched.any(axis=1)
    born = _in_order(new, ~alive)
    begun = born.any(axis=0)
    owners = matching_of(matched | born, table)
    measurement = _kalman.measured(take(frame.regions, owners.rows, owners.rows >= 0, 0))
    state = _where(hit, _kalman.updated(state, measurement), state)
    after = Tracks(
        state=_where(begun, _kalman.begun(measurement), state),
        alive=alive | begun,
        ids=jnp.where(begun, tracks.births + _rank(~alive) - 1, tracks.ids),
        streak=jnp.where(begun, 0, streak),
        missed=jnp.where(begun, 0, missed),
        births=tracks.births + begun.sum(dtype=jnp.int32),
    )
    proven = owners.take(after.streak) >= rules.min_hits
    valid = owners.valid & (proven | (frame.number < rules.min_hits))
    shown = owners._replace(valid=valid)
    estimates = shown.take(_kalman.boxes_of(after.state))
    reported = Trajectories(shown.take(after.ids, -1), estimates, valid)
    refused = (new & ~born.any(axis=1)).sum(dtype=jnp.int32)
    return after, (reported, refused)


def sort_pairs(table: Array, allowed: Array, threshold: Array, shortcut: bool) -> Array:
    """The pairs that SORT makes by a table of overlaps, 0 where a pair is not allowed."""
    table = jax.lax.stop_gradient(table)

    def solved() -> Array:
        return pairs_of(maximum_matching(table, where=allowed), table)

    above = allowed & (table > threshold)
    if not shortcut or table.size == 0:
        pairs = solved()
    else:
        most = jnp.maximum(above.sum(axis=0).max(), above.sum(axis=1).max())
        pairs = jax.lax.cond(most == 1, lambda: above, solved)
    return pairs & (table >= threshold)


def pairs_of(matching: Matching, table: Array) -> Array:
    """The pairs of a matching, as a table like `table`."""
    return matching.columns[:, None] == _places(table, 1)


def matching_of(pairs: Array, table: Array) -> Matching:
    """The matching that pairs are; its total is that of `table`."""
    columns = jnp.where(pairs, _places(table, 1), -1).max(axis=1, initial=-1)
    rows = jnp.where(pairs, _places(table, 0), -1).max(axis=0, initial=-1)
    return Matching(columns, rows, columns >= 0, jnp.where(pairs, table, 0).sum())


def _in_order(rows: Array, columns: Array) -> Array:
    """The first of the rows that are True with the first such column, and so on."""
    pairs = rows[:, None] & columns[None, :]
    return pairs & (_rank(rows)[:, None] == _rank(columns)[None, :])


def _rank(x: Array) -> Array:
    """How many are True up to each place."""
    return jnp.cumsum(x, dtype=jnp.int32)


def _places(table: Array, axis: int) -> Array:
    return jax.lax.broadcasted_iota(jnp.int32, table.shape, axis)


def _where(choice: Array, first: _kalman.State, second: _kalman.State) -> _kalman.State:
    """`first` for the tracks of which `choice` is True, `second` for the others."""
    return jax.tree.map(lambda x, y: jnp.where(choice[None, :], x, y), first, second)
