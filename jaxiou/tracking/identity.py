"""Identity: how much of the targets is followed by one prediction each, over a whole sequence.

Every target is paired with one prediction at most, and every prediction with one target, for
all frames together, such that as many detections as can be agree. Counts add: a sum over
sequences, or over classes, is what the scores of all of them are made of.

By **convention** "trackeval" a pair agrees in a frame if its similarity is the threshold or
more, without leeway, and a ratio of nothing is 0. By "motmetrics", of py-motmetrics, it agrees
if 1 - similarity is 1 - threshold or less, and a ratio of nothing is NaN.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.tracking._frames import Convention, checked, is_enough, matched, sum_by_pair
from jaxiou.tracking.packing import Sequence

__all__ = ["count", "summarize", "Counts", "Scores"]


class Counts(NamedTuple):
    """What is counted in sequences; all of it may be added.

    Attributes:
      idtp: detections that agree, of the targets and predictions that are paired.
      idfn: all other targets, frame by frame.
      idfp: all other predictions.
    """

    idtp: Real[ArrayLike, "..."]
    idfn: Real[ArrayLike, "..."]
    idfp: Real[ArrayLike, "..."]


class Scores(NamedTuple):
    """The fields that TrackEval publishes, those of `Counts` included.

    Attributes:
      idf1: `IDTP / (IDTP + IDFN / 2 + IDFP / 2)`, the harmonic mean of the other two.
      idr: recall, `IDTP / (IDTP + IDFN)`.
      idp: precision, `IDTP / (IDTP + IDFP)`.
    """

    idf1: Float[Array, "..."]
    idr: Float[Array, "..."]
    idp: Float[Array, "..."]
    idtp: Real[Array, "..."]
    idfn: Real[Array, "..."]
    idfp: Real[Array, "..."]


@compiled(static=("num_predictions", "num_targets", "convention"))
def count(
    sequence: Sequence,
    *,
    num_predictions: int,
    num_targets: int,
    threshold: Real[ArrayLike, ""] | float = 0.5,
    convention: Convention = "trackeval",
) -> Counts:
    """Pairs targets with predictions over a sequence, and counts where they agree.

    Args:
      sequence: one sequence; several by `jax.vmap`, or on a CPU faster by `jax.lax.map`.
      num_predictions: how many ids predictions have, static; ids that do not occur cost
        a row of a table.
      num_targets: how many ids targets have, static.
      threshold: the least similarity of a pair; it may be traced.
      convention: see the module; static.

    Returns:
      `Counts` of one sequence, int32.

    Raises:
      ValueError: arrays whose shapes do not belong together.

    At the edges:
      A side without regions: all of the other is IDFN or IDFP.

    Gradient:
      None, they are integers.

    Example:
      >>> ids, valid = jnp.array([[0], [0], [1]]), jnp.ones((3, 1), bool)
      >>> similarities = jnp.array([0.9, 0.4, 0.8]).reshape(3, 1, 1)
      >>> sequence = Sequence(ids, jnp.zeros((3, 1), int), valid, valid, similarities)
      >>> print(*count(sequence, num_predictions=2, num_targets=1))
      1 2 2

    Reference:
      Ristani et al., "Performance Measures and a Data Set for Multi-Target, Multi-Camera
      Tracking", ECCV Workshops 2016, https://arxiv.org/abs/1609.01775. A pairing of the least
      IDFN + IDFP, as it is defined there, is one of the most IDTP.
    """
    _checks.one_of("convention", convention, ("trackeval", "motmetrics"))
    x = checked(sequence, num_predictions=num_predictions, num_targets=num_targets)
    agree = is_enough(x, threshold, convention).astype(jnp.int32)
    table = sum_by_pair(agree, x, num_predictions, num_targets)
    # Integers below 2^24 are exact in float32.
    scores = table.astype(jax.dtypes.canonicalize_dtype(float))
    rows = matched(scores, table > 0)
    pairs = rows[None] == jnp.arange(num_predictions + 1, dtype=jnp.int32)[:, None]
    idtp = jnp.where(pairs, table, 0).sum(dtype=jnp.int32)
    return Counts(
        idtp=idtp,
        idfn=x.target_valid.sum(dtype=jnp.int32) - idtp,
        idfp=x.prediction_valid.sum(dtype=jnp.int32) - idtp,
    )


@compiled(static=("convention",))
def summarize(counts: Counts, *, convention: Convention = "trackeval") -> Scores:
    r"""The scores of sequences, or of what they add up to.

    .. math:: \mathrm{IDF1} = 2\,IDTP / (2\,IDTP + IDFN + IDFP)

    Args:
      counts: of one sequence, or a sum; with any leading axes.
      convention: that of the counts; static.

    Returns:
      `Scores`, float64 where JAX has it switched on and float32 elsewhere, and the counts as
      they are.

    At the edges:
      Ratios of nothing are 0, by "motmetrics" NaN.

    Gradient:
      By float counts, that of the ratios.

    Example:
      >>> print(f"{summarize(Counts(*map(jnp.int32, (1, 2, 2)))).idf1:.4f}")
      0.3333

    Reference:
      As for `count`; the fields of TrackEval's `Identity`.
    """
    _checks.one_of("convention", convention, ("trackeval", "motmetrics"))
    kept = Counts(*map(jnp.asarray, counts))
    idtp, idfn, idfp = (x.astype(jax.dtypes.canonicalize_dtype(float)) for x in kept)

    def ratio(y):
        return idtp / (jnp.maximum(y, 1) if convention == "trackeval" else y)

    return Scores(
        ratio(idtp + idfn / 2 + idfp / 2), ratio(idtp + idfn), ratio(idtp + idfp), **kept._asdict()
    )
