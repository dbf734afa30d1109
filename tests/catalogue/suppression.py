"""Rows of `jaxiou.suppression`."""

import jax.numpy as jnp
import numpy as np
import reference

import jaxiou
from catalogue.row import Row, box_set


def scored_boxes(rng):
    """Five boxes with scores, two of them equal."""
    return box_set(rng, 5), rng.permutation([2, 3, 3, 5, 6]).astype(float)


def _scored_table(rng):
    regions, scores = scored_boxes(rng)
    table = reference.iou(regions[:, None], regions)
    return np.round(table * 8) / 8, scores  # steps of an eighth, which all types hold


def boxes_that_count(rng):
    keep = rng.random(5) < 0.7
    return keep, (keep, keep)


def _table_that_counts(rng):
    keep = rng.random(5) < 0.7
    return keep, (keep[:, None] & keep, keep)


def _selected_rows(rng):
    valid = rng.random(5) < 0.7
    selection = jaxiou.suppression.Selection(
        indices=jnp.where(valid, rng.integers(0, 3, 5, "int32"), -1), valid=jnp.asarray(valid)
    )
    return selection, rng.integers(-128, 128, (3, 2)) / 8


def _apart(rng):
    """Five boxes, and scores that differ by a sixteenth or more."""
    return box_set(rng, 5), (1 + rng.permutation(15)[:5]) / 16


def _rescored(name):
    return Row(name, _apart, (0, 1), leading=False, where=boxes_that_count)


ROWS = [
    Row(
        "partial(suppression.nms, threshold=0.1, max_outputs=4)",
        scored_boxes,
        leading=False,
        where=boxes_that_count,
    ),
    Row(
        "partial(suppression.nms_from_overlaps, threshold=0.1, max_outputs=4)",
        _scored_table,
        leading=False,
        where=_table_that_counts,
    ),
    _rescored("partial(suppression.soft_nms, max_outputs=5)"),
    _rescored("partial(suppression.matrix_nms, max_outputs=5)"),
    _rescored("partial(suppression.matrix_nms, max_outputs=5, method='linear')"),
    _rescored(
        "partial(suppression.weighted_boxes_fusion, threshold=0.1, max_outputs=5, num_models=2)"
    ),
    _rescored("partial(suppression.non_maximum_merging, threshold=0.1, max_outputs=5)"),
    Row(
        "suppression.Selection.take",
        _selected_rows,
        (1,),
        exempt=dict.fromkeys(
            ("bfloat16", "float16", "uint8", "int32", "x64"), "rows keep the type that they have"
        ),
    ),
]
