"""HOTA: detection and association weighed evenly, at 19 thresholds of similarity.

What holds here, and is not repeated below:

- **One matching a frame** serves all thresholds. It prefers pairs whose ids are together
  in the whole sequence, so that a detection's match depends on frames before and after it.
- **At a threshold** alpha, the matched pairs of similarity alpha or more are the true positives.
  The association of one is how much the whole of its target and the whole of its prediction
  agree: `A = M / (targets + predictions - M)`, where M are the true positives of the two.
- **Counts** add: a sum over sequences, or over classes, is what the scores of all of them are
  made of. It is not the mean of their scores. `summarize` takes any leading axes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Real

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._math import safe_sqrt
from jaxiou._typing import ArrayLike
from jaxiou.tracking._frames import EPS, checked, matched, pair_of, sum_by_id, sum_by_pair
from jaxiou.tracking.packing import Sequence

__all__ = ["count", "summarize", "ALPHAS", "Counts", "Scores"]

ALPHAS = np.arange(0.05, 0.99, 0.05)
"""The thresholds of similarity, 0.05 to 0.95; nine of the 19 are an ulp above the decimal."""


class Counts(NamedTuple):
    """What is counted in sequences, at each of `ALPHAS`, `[..., 19]`; all of it may be added.

    Attributes:
      hota_tp: matched pairs.
      hota_fn: targets without one.
      hota_fp: predictions without one.
      ass_a_sum: over the matched pairs, the association of each, a float.
      ass_re_sum: over the matched pairs, the share of the target's frames, a float.
      ass_pr_sum: over the matched pairs, the share of the prediction's frames, a float.
      loc_a_sum: over the matched pairs, their similarities, a float.
    """

    hota_tp: Real[ArrayLike, "*batch alphas"]
    hota_fn: Real[ArrayLike, "*batch alphas"]
    hota_fp: Real[ArrayLike, "*batch alphas"]
    ass_a_sum: Float[ArrayLike, "*batch alphas"]
    ass_re_sum: Float[ArrayLike, "*batch alphas"]
    ass_pr_sum: Float[ArrayLike, "*batch alphas"]
    loc_a_sum: Float[ArrayLike, "*batch alphas"]


class Scores(NamedTuple):
    """The fields that TrackEval publishes, at each of `ALPHAS`, `[..., 19]`.

    What is reported as one number is the mean over these.

    Attributes:
      hota: the geometric mean of `det_a` and `ass_a`.
      det_a: accuracy of detection, `TP / (TP + FN + FP)`.
      ass_a: accuracy of association.
      det_re: recall of detection.
      det_pr: precision of detection.
      ass_re: recall of association.
      ass_pr: precision of association.
      loc_a: the mean similarity of the matched pairs; 1 if there are none.
      owta: the geometric mean of `det_re` and `ass_a`.
      hota_tp: matched pairs.
      hota_fn: targets without one.
      hota_fp: predictions without one.
      hota_0: `hota` at the first threshold, `[...]`.
      loc_a_0: `loc_a` there.
      hota_loc_a_0: their product.
    """

    hota: Float[Array, "*batch alphas"]
    det_a: Float[Array, "*batch alphas"]
    ass_a: Float[Array, "*batch alphas"]
    det_re: Float[Array, "*batch alphas"]
    det_pr: Float[Array, "*batch alphas"]
    ass_re: Float[Array, "*batch alphas"]
    ass_pr: Float[Array, "*batch alphas"]
    loc_a: Float[Array, "*batch alphas"]
    owta: Float[Array, "*batch alphas"]
    hota_tp: Real[Array, "*batch alphas"]
    hota_fn: Real[Array, "*batch alphas"]
    hota_fp: Real[Array, "*batch alphas"]
    hota_0: Float[Array, "*batch"]
    loc_a_0: Float[Array, "*batch"]
    hota_loc_a_0: Float[Array, "*batch"]


@compiled(static=("num_predictions", "num_targets"))
def count(sequence: Sequence, *, num_predictions: int, num_targets: int) -> Counts:
    """Matches the targets and predictions of each frame, and counts at every threshold.

    Args:
      sequence: one sequence; several by `jax.vmap`, or on a CPU faster by `jax.lax.map`.
      num_predictions: how many ids predictions have, static; ids that do not occur cost
        a row of a table.
      num_targets: how many ids targets have, static.

    Returns:
      `Counts` of one sequence, `[19]`: int32, and sums of the type of the similarities.

    Raises:
      ValueError: arrays whose shapes do not belong together.

    At the edges:
      Thresholds have TrackEval's leeway of 2.2e-16, so that 3/5 is a match at 0.6. Other ids of
      the same regions may change who is matched. Float32 counts as float64 does, unless a
      similarity lies within 1e-7 of a threshold or two matchings are as good to 1e-6.

    Gradient:
      That of `loc_a_sum` is 1 for the similarity of each matched pair.

    Example:
      >>> ids, valid = jnp.array([[0], [0], [1]]), jnp.ones((3, 1), bool)
      >>> similarities = jnp.array([0.9, 0.4, 0.8]).reshape(3, 1, 1)
      >>> sequence = Sequence(ids, jnp.zeros((3, 1), int), valid, valid, similarities)
      >>> counts = count(sequence, num_predictions=2, num_targets=1)
      >>> print(counts.hota_tp)
      [3 3 3 3 3 3 3 3 2 2 2 2 2 2 2 2 1 1 0]

    Reference:
      Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking", IJCV 2021,
      https://arxiv.org/abs/2009.07736. As in TrackEval 1.3.0: the paper asks for a matching at
      each threshold.
    """
    frames = checked(sequence, num_predictions=num_predictions, num_targets=num_targets)
    p_ids, t_ids, p_valid, t_valid, table = frames
    still = jax.lax.stop_gradient(table)

    def ones(x):
        return x.astype(table.dtype)

    p_count = sum_by_id(ones(p_valid), p_ids, num_predictions)[:, None]
    t_count = sum_by_id(ones(t_valid), t_ids, num_targets)[None]

    either = still.sum(axis=1, keepdims=True) + still.sum(axis=2, keepdims=True) - still
    shares = jnp.where(either > EPS, still / jnp.where(either > EPS, either, 1), 0)
    together = sum_by_pair(shares, frames, num_predictions, num_targets)
    alignment = together / jnp.maximum(p_count + t_count - together, EPS)

    def match(frame):
        p_ids, t_ids, table = frame
        scores = alignment[p_ids[:, None], t_ids[None]] * table
        return matched(scores, scores > 0)

    rows = jax.lax.map(match, (p_ids, t_ids, still))
    hits, place = rows >= 0, jnp.maximum(rows, 0)
    similarities = jnp.take_along_axis(table, place[:, None], axis=1)[:, 0]
    cells = pair_of(jnp.take_along_axis(p_ids, place, axis=1), t_ids, num_targets)

    def at(alpha):
        true = hits & (jax.lax.stop_gradient(similarities) >= alpha)
        m = jnp.zeros_like(together).ravel().at[cells].add(ones(true)).reshape(together.shape)
        return (
            true.sum(dtype=jnp.int32),
            (m * m / jnp.maximum(p_count + t_count - m, 1)).sum(),
            (m * m / jnp.maximum(t_count, 1)).sum(),
            (m * m / jnp.maximum(p_count, 1)).sum(),
            jnp.where(true, similarities, 0).sum(axis=1).sum(),
        )

    least = jnp.asarray(ALPHAS - EPS, table.dtype)
    tp, *sums = jax.lax.map(at, least)
    targets, predictions = (x.sum(dtype=jnp.int32) for x in (t_valid, p_valid))
    return Counts(tp, targets - tp, predictions - tp, *sums)


@compiled()
def summarize(counts: Counts) -> Scores:
    r"""The scores of sequences, or of what they add up to.

    .. math:: \mathrm{HOTA}_\alpha = \sqrt{\mathrm{DetA}_\alpha \mathrm{AssA}_\alpha}

    Args:
      counts: of one sequence, or a sum; `[..., 19]`.

    Returns:
      `Scores`, float32 or the float64 of the sums, and the counts as they are.

    At the edges:
      Nothing matched, or a side without regions: `loc_a` is 1 and all other scores are 0.

    Gradient:
      `loc_a` is linear in `loc_a_sum`. That of `hota` is 0 where it is 0.

    Example:
      >>> ids, valid = jnp.array([[0], [0], [1]]), jnp.ones((3, 1), bool)
      >>> sequence = Sequence(ids, jnp.zeros((3, 1), int), valid, valid, jnp.ones((3, 1, 1)))
      >>> scores = summarize(count(sequence, num_predictions=2, num_targets=1))
      >>> print(f"{scores.hota.mean():.4f} {scores.det_a.mean():.0f} {scores.ass_a.mean():.4f}")
      0.7454 1 0.5556

    Reference:
      As for `count`; the fields of TrackEval's `HOTA`.
    """
    kept = Counts(*map(jnp.asarray, counts))
    counted = {name: x for name, x in kept._asdict().items() if name in Scores._fields}
    dtype = _checks.working_dtype(*kept)
    tp, fn, fp, ass_a, ass_re, ass_pr, loc_a = (x.astype(dtype) for x in kept)

    def ratio(x, y):
        return x / jnp.maximum(y, 1)

    det_a, det_re, ass_a = ratio(tp, tp + fn + fp), ratio(tp, tp + fn), ratio(ass_a, tp)
    hota = safe_sqrt(det_a * ass_a)
    loc_a = jnp.maximum(loc_a, 1e-10) / jnp.maximum(tp, 1e-10)
    return Scores(
        hota=hota,
        det_a=det_a,
        ass_a=ass_a,
        det_re=det_re,
        det_pr=ratio(tp, tp + fp),
        ass_re=ratio(ass_re, tp),
        ass_pr=ratio(ass_pr, tp),
        loc_a=loc_a,
        owta=safe_sqrt(det_re * ass_a),
        hota_0=hota[..., 0],
        loc_a_0=loc_a[..., 0],
        hota_loc_a_0=hota[..., 0] * loc_a[..., 0],
        **counted,
    )
