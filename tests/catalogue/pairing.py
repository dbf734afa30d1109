"""Rows of `jaxiou.pairing`."""

import jax.numpy as jnp

import jaxiou
from catalogue.boxes import ciou_with_alpha_held
from catalogue.row import Row, box_sets


def _pairs_of_sets(rng):
    keep_a, keep_b = rng.random(5) < 0.7, rng.random(3) < 0.7
    return keep_a[:, None] & keep_b, (keep_a, keep_b)


def _ciou_table_with_alpha_held(a, b):
    held = ciou_with_alpha_held(a[..., :, None, :], b[..., None, :, :])
    return lambda a, b: held(a[..., :, None, :], b[..., None, :, :])


def _matched_rows(rng):
    valid = rng.random(5) < 0.7
    match = jaxiou.pairing.Match(
        values=jnp.where(valid, 0.5, -jnp.inf),
        indices=jnp.where(valid, rng.integers(0, 3, 5, "int32"), -1),
        valid=jnp.asarray(valid),
    )
    return match, rng.integers(-128, 128, (3, 2)) / 8


ROWS = [
    Row("pairing.pairwise(boxes.ciou)", box_sets, (0, 1), frozen=_ciou_table_with_alpha_held),
    Row("pairing.pairwise(boxes.enclosing)", box_sets, (0, 1)),
    Row("pairing.best_match(boxes.iou)", box_sets, (0, 1), where=_pairs_of_sets),
    Row(
        "pairing.Match.take",
        _matched_rows,
        (1,),
        exempt=dict.fromkeys(
            ("bfloat16", "float16", "uint8", "int32", "x64"), "rows keep the type that they have"
        ),
    ),
]
