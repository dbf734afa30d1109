"""Rows of `jaxiou.assignment`."""

import itertools

import jax.numpy as jnp
import numpy as np

import jaxiou
from catalogue.row import Row


def _scores(rng):
    """A table of five rows and three columns, on a grid, of which one matching is the best."""
    while True:
        scores = rng.integers(0, 256, (5, 3)) / 8
        rows = np.array(list(itertools.permutations(range(5), 3)))
        totals = np.sort(scores[rows, range(3)].sum(axis=1))
        if len(np.unique(scores)) == 15 and totals[-1] > totals[-2]:
            return (scores,)


def _pairs(rng):
    keep = (rng.random(5) < 0.7)[:, None] & (rng.random(3) < 0.7)
    return keep, (keep,)


def _matched_rows(rng):
    columns = np.where(rng.random(5) < 0.6, rng.permutation(5), 3)
    valid = columns < 3
    rows = np.array([(columns == j).nonzero()[0][0] if j in columns else -1 for j in range(3)])
    matching = jaxiou.assignment.Matching(
        columns=jnp.where(valid, columns.astype("int32"), -1),
        rows=jnp.asarray(rows.astype("int32")),
        valid=jnp.asarray(valid),
        total=jnp.asarray(valid.sum(), jnp.float32),
    )
    return matching, rng.integers(-128, 128, (3, 2)) / 8


def _matching(name, **more):
    return Row(name, _scores, (0,), leading=False, where=_pairs, **more)


IN_OPTAX = {
    "auto mesh": "optax ranks by top_k, which gathers a few integers",
    "shard_map": "optax's loops need check_vma=False",
    "eager": "optax's loops take seconds, one operation after the other",
    "explicit mesh": "optax scatters without saying how the result is sharded",
}
HOST_CALL = dict.fromkeys(["auto mesh", "explicit mesh", "export"], "calls the host, on one device")

ROWS = [
    _matching("assignment.maximum_matching", exempt=IN_OPTAX),
    _matching("partial(assignment.maximum_matching, minimum=12.0)", exempt=IN_OPTAX),
    _matching("partial(assignment.maximum_matching, solver='scipy')", exempt=HOST_CALL),
    _matching("assignment.greedy_matching"),
    Row(
        "assignment.Matching.take",
        _matched_rows,
        (1,),
        exempt=dict.fromkeys(
            ("bfloat16", "float16", "uint8", "int32", "x64"), "rows keep the type that they have"
        ),
    ),
]
