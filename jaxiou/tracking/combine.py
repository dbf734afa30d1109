"""Scores of several classes as one."""

from typing import TypeVar

import jax.numpy as jnp
from jaxtyping import Bool

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.tracking import clear, hota, identity

__all__ = ["class_averaged"]

COUNTS = {
    "clr_tp",
    "clr_fn",
    "clr_fp",
    "idsw",
    "mt",
    "pt",
    "ml",
    "frag",
    "clr_frames",
    "idtp",
    "idfn",
    "idfp",
}
COUNTS |= {"hota_tp", "hota_fn", "hota_fp"}
"""By name, as metrics give counts as floats."""

Scores = TypeVar("Scores", clear.Scores, hota.Scores, identity.Scores)


@compiled()
def class_averaged(scores: Scores, *, where: Bool[ArrayLike, " classes"] | None = None) -> Scores:
    """Every class weighs the same: counts are added, and all else is a mean over classes.

    For every detection to weigh the same instead, TrackEval's `det_averaged`, add the counts
    of the classes and summarize the sum.

    Args:
      scores: of each class, `[classes, ...]`, of any of the three kinds.
      where: bool, `[classes]`; the classes that take part.

    Returns:
      The same kind of scores, without the axis of classes.

    At the edges:
      A class without regions takes part, with a HOTA of 0 and a LocA of 1, unless `where`
      leaves it out. No class at all: zeros.

    Gradient:
      1 over the number of classes for each of them.

    Example:
      >>> counts = identity.Counts(*jnp.array([[1, 3], [1, 0], [1, 0]]))
      >>> scores = class_averaged(identity.summarize(counts))
      >>> print(scores.idf1, scores.idtp)
      0.75 4

    Reference:
      TrackEval's `combine_classes_class_averaged`, `where` being its `ignore_empty_classes`.
    """
    classes = len(scores[0])
    where = jnp.ones(classes, bool) if where is None else where
    _checks.mask("where", where, (classes,))
    count = jnp.maximum(where.sum(dtype=jnp.int32), 1)

    def average(name, x):
        kept = jnp.where(where.reshape(-1, *(1,) * (x.ndim - 1)), x, jnp.zeros((), x.dtype))
        if name in COUNTS:
            return kept.sum(axis=0, dtype=x.dtype)
        dtype = _checks.working_dtype(x)
        return kept.astype(dtype).sum(axis=0) / count.astype(dtype)

    return type(scores)(*(average(*item) for item in scores._asdict().items()))
