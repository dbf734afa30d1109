"""What the three scores share: a checked sequence, and one matching of each frame.

Most frames of a video hold no choice, so that the Hungarian solver is left for what does.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Real

from jaxiou import _checks
from jaxiou._typing import ArrayLike
from jaxiou.assignment import maximum_matching
from jaxiou.tracking.packing import Sequence

Convention = Literal["trackeval", "motmetrics"]

EPS = float(np.finfo(np.float64).eps)
"""TrackEval's leeway at thresholds, whatever the type of the similarities."""


class Frames(NamedTuple):
    """A `Sequence` that is checked. Ids where not valid are one past the last: tables by id have
    a row for these. Similarities where not both are valid are 0.
    """

    prediction_ids: Int32[Array, "f p"]
    target_ids: Int32[Array, "f t"]
    prediction_valid: Bool[Array, "f p"]
    target_valid: Bool[Array, "f t"]
    similarities: Float[Array, "f p t"]


def checked(sequence: Sequence, *, num_targets: int, num_predictions: int = 0) -> Frames:
    """The sequence, with a frame and a row on either side at least, so that none is empty."""
    for name, x in zip(Frames._fields, sequence, strict=True):
        _checks.is_array(name, x)
    p_ids, t_ids, p_valid, t_valid, table = sequence
    if table.ndim != 3:
        raise ValueError(
            f"similarities must have shape [_, _, _] (frames, predictions, targets), "
            f"got {list(table.shape)}"
        )
    _checks.is_real("similarities", table)
    frames, p, t = table.shape
    for name, ids, valid, shape in (
        ("prediction", p_ids, p_valid, (frames, p)),
        ("target", t_ids, t_valid, (frames, t)),
    ):
        _checks.is_integer(f"{name}_ids", ids)
        _checks.exact_shape(f"{name}_ids", ids, shape, f"one id for each {name}")
        _checks.exact_shape(f"{name}_valid", valid, shape, f"one for each {name}")
        _checks.mask(f"{name}_valid", valid, shape)
    _checks.count("num_targets", num_targets)
    _checks.count("num_predictions", num_predictions)

    def padded(x, *more):
        return jnp.pad(jnp.asarray(x), [(0, int(n == 0)) for n in (frames, *more)])

    def known(x, valid, count):
        return jnp.where(valid, padded(x, x.shape[1]).astype(jnp.int32), count)

    p_valid, t_valid, table = padded(p_valid, p), padded(t_valid, t), padded(table, p, t)
    both = p_valid[:, :, None] & t_valid[:, None, :]
    # Before the cast, at which `debug_nans` would raise.
    table = jnp.where(both & (table == table), table, jnp.zeros((), table.dtype))
    return Frames(
        known(p_ids, p_valid, num_predictions),
        known(t_ids, t_valid, num_targets),
        p_valid,
        t_valid,
        table.astype(_checks.working_dtype(table)),
    )


def is_enough(
    frames: Frames, threshold: ArrayLike | float, convention: Convention, leeway: float = 0
) -> Bool[Array, "f p t"]:
    """Which pairs there are, and alike enough by the comparison of either evaluation."""
    table = frames.similarities
    least = _checks.scalar("threshold", threshold).astype(table.dtype)
    trackeval = convention == "trackeval"
    enough = table >= least - leeway if trackeval else 1 - table <= 1 - least
    return enough & frames.prediction_valid[:, :, None] & frames.target_valid[:, None, :]


def sum_by_id(x: Real[Array, "f n"], ids: Int32[Array, "f n"], count: int) -> Real[Array, " ids"]:
    """The sum over all frames for each id, and a last one for what is not valid."""
    return jnp.zeros_like(x, shape=count + 1).at[ids].add(x)


def sum_by_pair(
    x: Real[Array, "f p t"], frames: Frames, num_predictions: int, num_targets: int
) -> Real[Array, "predictions targets"]:
    """The sum over all frames for each pair of ids; the last row and column are for padding."""
    cells = (num_predictions + 1) * (num_targets + 1)
    if cells >= 2**31:
        raise ValueError(f"a table of {num_predictions} x {num_targets} ids has too many cells")
    cell = pair_of(frames.prediction_ids[:, :, None], frames.target_ids[:, None], num_targets)
    sums = jnp.zeros_like(x, shape=cells).at[cell.ravel()].add(x.ravel())
    return sums.reshape(num_predictions + 1, num_targets + 1)


def pair_of(
    prediction_ids: Int32[Array, "..."], target_ids: Int32[Array, "..."], num_targets: int
) -> Int32[Array, "..."]:
    return prediction_ids * (num_targets + 1) + target_ids


def if_any(flag: Bool[Array, ""], function: Callable[[Array], Array], x: Array) -> Array:
    """`function(x)` where `flag`, else `x`; mapped, it runs only if a flag is set.

    `jax.lax.cond` under `jax.vmap` would run both branches, always.
    """

    def run(state):
        return jnp.zeros_like(state[0]), function(state[1])

    return jax.lax.while_loop(lambda state: state[0], run, (flag, x))[1]


def matched(
    scores: Float[Array, "p t"], where: Bool[Array, "p t"], *, most: bool = False
) -> Int32[Array, " t"]:
    """For each target its prediction in the matching of greatest total, -1 for none.

    Scores are 0 or more. With `most`, it is the greatest total of those with the most pairs.

    A pair that scores more than the best other pair of its prediction and the best other of
    its target together belongs to it: whatever these two are given instead, exchanging it for
    the pair loses nothing. Once no pair is left that does, the solver does the rest.
    """
    scores = jax.lax.stop_gradient(scores)
    places = jnp.arange(scores.shape[0], dtype=jnp.int32)[:, None]

    def take_certain(state):
        left, rows, _ = state
        table = jnp.where(left, scores, -1)
        best = [table.max(axis=axis, keepdims=True) for axis in (0, 1)]
        is_best = [table == x for x in best]
        rest = [jnp.where(x, -1, table).max(axis=i, keepdims=True) for i, x in enumerate(is_best)]
        ties = [x.sum(axis=i, keepdims=True, dtype=jnp.int32) > 1 for i, x in enumerate(is_best)]
        second = [jnp.where(tie, x, y) for tie, x, y in zip(ties, best, rest, strict=True)]
        certain = left & is_best[0] & is_best[1]
        certain &= table > jnp.maximum(second[0], 0) + jnp.maximum(second[1], 0)
        if most:
            certain &= (second[0] < 0) | (second[1] < 0)
        rows = jnp.maximum(rows, jnp.where(certain, places, -1).max(axis=0))
        left &= ~certain.any(axis=0, keepdims=True) & ~certain.any(axis=1, keepdims=True)
        return left, rows, certain.any() & left.any()

    rows = jnp.full_like(where[0], -1, jnp.int32)
    left, rows, _ = jax.lax.while_loop(lambda s: s[-1], take_certain, (where, rows, where.any()))

    def solve(rows):
        found = maximum_matching(scores, where=left, minimum=None if most else 0)
        return jnp.maximum(rows, found.rows)

    return if_any(left.any(), solve, rows)
