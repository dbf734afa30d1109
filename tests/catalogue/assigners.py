"""Rows of `jaxiou.assigners`."""

import jax.numpy as jnp

import jaxiou
from catalogue.assignment import IN_OPTAX
from catalogue.row import Row, box_sets


def _predicted(rng):
    """Five predictions, three truths, the scores of four classes, the labels of the truths."""
    predictions, truths = box_sets(rng)
    scores = (1 + rng.permutation(20).reshape(5, 4)) / 32
    return predictions, truths, scores, rng.integers(0, 4, 3, "int32")


def _truths_that_count(rng):
    keep = rng.random(3) < 0.7
    return keep, (None, keep)


def _truths_and_labels_that_count(rng):
    keep, counts = _truths_that_count(rng)
    return keep, (*counts, None, None)


def _assigned_rows(rng):
    valid = rng.random(5) < 0.7
    assigned = jaxiou.assigners.Assignment(
        indices=jnp.where(valid, rng.integers(0, 3, 5, "int32"), -1),
        valid=jnp.asarray(valid),
        ignored=jnp.zeros(5, bool),
        quality=jnp.where(valid, jnp.float32(0.5), 0),
    )
    return assigned, rng.integers(-128, 128, (3, 2)) / 8


TARGETS = {"grad": "targets: nothing has a gradient"}
CENTRES = "np.linspace(4, 26, 10, dtype='float32').reshape(5, 2)"
"""Where the five predictions have their cells."""


def _from_anchors(name):
    return Row(name, box_sets, leading=False, where=_truths_that_count, exempt=TARGETS)


def _from_predictions(name, exempt=TARGETS):
    where = _truths_and_labels_that_count
    return Row(name, _predicted, leading=False, where=where, exempt=exempt)


ROWS = [
    _from_anchors("partial(assigners.max_iou, positive=0.3, negative=0.1)"),
    _from_anchors("partial(assigners.atss, level_sizes=(3, 2), candidates=2)"),
    _from_predictions(
        f"partial(assigners.simota, centres={CENTRES}, strides=np.float32([8]), candidates=4)"
    ),
    _from_predictions(f"partial(assigners.task_aligned, centres={CENTRES}, candidates=2)"),
    _from_predictions("assigners.set_matching", exempt=TARGETS | IN_OPTAX),
    Row(
        "assigners.Assignment.take",
        _assigned_rows,
        (1,),
        exempt=dict.fromkeys(
            ("bfloat16", "float16", "uint8", "int32", "x64"), "rows keep the type that they have"
        ),
    ),
]
