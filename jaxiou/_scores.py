"""What the scores of a confusion matrix are made of, whatever it is held as.

`segmentation` gives them for arrays, `protocols` by rules, `metrics` for counts in limbs.
"""

import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import UInt32

from jaxiou import _checks, _counts
from jaxiou._math import safe_divide
from jaxiou._typing import ArrayLike

Absent = Literal["exclude", "zero", "one", "nan"]
Classes = tuple[int, ...]
Ignore = int | tuple[int, ...]

ABSENT = {"exclude": np.nan, "zero": 0, "one": 1, "nan": np.nan}
FLOATS = SimpleNamespace(total=jnp.sum, add=operator.add, to_float=lambda x, dtype: x)


class Matrix(NamedTuple):
    """A confusion matrix, with the arithmetic that keeps its sums exact.

    Attributes:
      cells: `[..., K, K]` or `[..., K, K + 1]`, or limbs `[4, ...]` of it.
      arithmetic: `_counts` for limbs, `FLOATS` for floats.
      dtype: of the scores.
    """

    cells: Array
    arithmetic: Any
    dtype: np.dtype


def from_limbs(limbs: UInt32[Array, "4 ..."], dtype: np.dtype) -> Matrix:
    return Matrix(limbs, _counts, dtype)


def from_array(matrix: ArrayLike) -> Matrix:
    """A matrix of floats or integers, checked."""
    _checks.is_array("matrix", matrix)
    _checks.is_real("matrix", matrix)
    if matrix.ndim < 2 or matrix.shape[-1] - matrix.shape[-2] not in (0, 1):
        raise ValueError(
            f"matrix must have shape [..., K, K] or [..., K, K + 1], got {list(matrix.shape)}"
        )
    dtype = _checks.working_dtype(matrix)
    matrix = jnp.asarray(matrix)
    if jnp.issubdtype(matrix.dtype, jnp.integer):
        return from_limbs(_counts.from_integers(matrix), dtype)
    return Matrix(matrix.astype(dtype), FLOATS, dtype)


class Sums(NamedTuple):
    """Sums of a matrix for each class that is asked for, each rounded once."""

    hits: Array
    false_positives: Array
    misses: Array
    targets: Array
    predicted: Array
    union: Array
    both: Array
    all_hits: Array
    all_targets: Array


def sums(matrix: Matrix, classes: Classes | None = None) -> Sums:
    cells, exact, dtype = matrix
    size = cells.shape[-2]
    own = jnp.broadcast_to(np.eye(size, cells.shape[-1], dtype=bool), cells.shape)
    zero = jnp.zeros((), cells.dtype)
    others = jnp.where(own, zero, cells)
    hits = exact.total(jnp.where(own, cells, zero), axis=-1)
    false_positives = exact.total(others, axis=-2)[..., :size]
    misses = exact.total(others, axis=-1)
    if classes is not None:
        places = np.array(_checks.members("classes", classes, size), np.int32)
        hits, false_positives, misses = (x[..., places] for x in (hits, false_positives, misses))
    # Sums of what is never negative: nothing cancels.
    targets, predicted = exact.add(hits, misses), exact.add(hits, false_positives)
    union = exact.add(targets, false_positives)
    per_class = hits, false_positives, misses, targets, predicted, union, exact.add(union, hits)
    pooled = (exact.total(x, axis=-1) for x in (hits, targets))
    return Sums(*(exact.to_float(x, dtype) for x in (*per_class, *pooled)))


def ratio(top: Array, bottom: Array, absent: Absent) -> Array:
    """`top / bottom`, and what `absent` says where `bottom` is 0."""
    return jnp.where(bottom != 0, safe_divide(top, bottom), ABSENT[absent])


def mean_ratio(top: Array, bottom: Array, absent: Absent) -> Array:
    """The mean of the ratios over the last axis."""
    if absent != "exclude":
        return ratio(top, bottom, absent).mean(axis=-1)
    count = (bottom != 0).sum(axis=-1, dtype=jnp.int32).astype(top.dtype)
    return ratio(safe_divide(top, bottom).sum(axis=-1), count, absent)


SCORES: dict[str, Callable[[Sums, Absent], Array]] = {
    "class_iou": lambda s, absent: ratio(s.hits, s.union, absent),
    "mean_iou": lambda s, absent: mean_ratio(s.hits, s.union, absent),
    "class_dice": lambda s, absent: ratio(2 * s.hits, s.both, absent),
    "mean_dice": lambda s, absent: mean_ratio(2 * s.hits, s.both, absent),
    "pixel_accuracy": lambda s, absent: ratio(s.all_hits, s.all_targets, absent),
    "mean_accuracy": lambda s, absent: mean_ratio(s.hits, s.targets, absent),
    "frequency_weighted_iou": lambda s, absent: ratio(
        (s.targets * safe_divide(s.hits, s.union)).sum(axis=-1), s.all_targets, absent
    ),
    "precision": lambda s, absent: ratio(s.hits, s.predicted, absent),
    "recall": lambda s, absent: ratio(s.hits, s.targets, absent),
}


def score(
    name: str, matrix: Matrix, absent: Absent = "exclude", classes: Classes | None = None
) -> Array:
    """The score that the function `name` of `segmentation` gives."""
    _checks.one_of("absent", absent, ABSENT)
    return SCORES[name](sums(matrix, classes), absent)


def category_iou(
    matrix: Matrix, categories: tuple[Classes, ...], *, absent: Absent = "exclude"
) -> Array:
    """The score that `segmentation.category_iou` gives."""
    cells, exact, dtype = matrix
    groups = [
        np.array(_checks.members("categories", group, cells.shape[-2]), np.int32)
        for group in categories
    ]
    members = np.concatenate([np.zeros(0, np.int32), *groups])
    if len(set(members.tolist())) < len(members):
        raise ValueError(f"categories must not share a class, got {categories}")

    def merge(cells, axis):
        """The sums of the groups along an axis, and behind them that of all the rest."""
        rest = np.setdiff1d(np.arange(cells.shape[axis], dtype=np.int32), members)
        parts = (jnp.take(cells, places, axis=axis) for places in [*groups, rest])
        return jnp.stack([exact.total(part, axis=axis) for part in parts], axis=axis)

    merged = Matrix(merge(merge(cells, -1), -2), exact, dtype)
    return score("class_iou", merged, absent=absent, classes=tuple(range(len(groups))))
