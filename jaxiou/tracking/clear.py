"""CLEAR MOT: misses, false positives and switches of identity, frame by frame.

What holds here, and is not repeated below:

- **A target keeps its prediction** as long as the two still overlap enough; all others are
  matched anew in each frame. Every score is a ratio of what that leaves.
- **Counts** add: a sum over sequences, or over classes, is what the scores of all of them are
  made of. `summarize` takes any leading axes.
- **convention** says whose rules hold where the two evaluations in use differ.

  "trackeval", of MOTChallenge: a target remembers its prediction from the last frame with
  targets and predictions; what is left is matched for the greatest sum of similarities.
  Mostly tracked means more than 0.8 of a target's frames. A fragmentation is a new start after
  a frame in which the target had no prediction. MOTP is the mean similarity, larger is better.

  "motmetrics", of py-motmetrics: a target remembers its prediction for ever, the first in a
  frame's order if several remember the same; what is left is matched for the most pairs and
  then for the greatest sum. Mostly tracked is 0.8 or more. A fragmentation needs a frame
  in which the target is there and missed. MOTP is the mean of 1 - similarity, smaller is better.
  Ratios of nothing are NaN.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Integer, Real

from jaxiou import _checks
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.tracking._frames import (
    EPS,
    Convention,
    Frames,
    checked,
    if_any,
    is_enough,
    matched,
    sum_by_id,
)
from jaxiou.tracking.packing import Sequence

__all__ = ["count", "summarize", "Counts", "Scores"]

Empty = Literal["trackeval", "formula"]


class Counts(NamedTuple):
    """What is counted in sequences; all of it may be added.

    Attributes:
      clr_tp: targets with a prediction.
      clr_fn: targets without one.
      clr_fp: predictions without a target.
      idsw: targets whose prediction is another than the last one they had.
      mt: targets with a prediction in most of their frames.
      pt: in 0.2 of them or more, but not most.
      ml: in fewer.
      frag: how often targets lose their prediction and get one again.
      clr_frames: frames.
      motp_sum: the sum of the similarities of the matched pairs, a float.
    """

    clr_tp: Real[ArrayLike, "..."]
    clr_fn: Real[ArrayLike, "..."]
    clr_fp: Real[ArrayLike, "..."]
    idsw: Real[ArrayLike, "..."]
    mt: Real[ArrayLike, "..."]
    pt: Real[ArrayLike, "..."]
    ml: Real[ArrayLike, "..."]
    frag: Real[ArrayLike, "..."]
    clr_frames: Real[ArrayLike, "..."]
    motp_sum: Float[ArrayLike, "..."]


class Scores(NamedTuple):
    """The fields that TrackEval publishes, those of `Counts` included.

    Attributes:
      mota: accuracy, `(TP - FP - IDSW) / targets`, at most 1; negative if more is wrong than right.
      motp: precision of position, the mean similarity of the matched pairs.
      moda: accuracy of detection, `(TP - FP) / targets`.
      clr_re: recall, `TP / (TP + FN)`.
      clr_pr: precision, `TP / (TP + FP)`.
      mtr: the share of targets that are mostly tracked.
      ptr: partially tracked.
      mlr: mostly lost.
      smota: MOTA with similarities in place of TP.
      clr_f1: `TP / (TP + FN / 2 + FP / 2)`.
      fp_per_frame: FP over frames.
      motal: MOTA with the logarithm of IDSW, to base 10.
    """

    mota: Float[Array, "..."]
    motp: Float[Array, "..."]
    moda: Float[Array, "..."]
    clr_re: Float[Array, "..."]
    clr_pr: Float[Array, "..."]
    mtr: Float[Array, "..."]
    ptr: Float[Array, "..."]
    mlr: Float[Array, "..."]
    smota: Float[Array, "..."]
    clr_f1: Float[Array, "..."]
    fp_per_frame: Float[Array, "..."]
    motal: Float[Array, "..."]
    motp_sum: Float[Array, "..."]
    clr_tp: Real[Array, "..."]
    clr_fn: Real[Array, "..."]
    clr_fp: Real[Array, "..."]
    idsw: Real[Array, "..."]
    mt: Real[Array, "..."]
    pt: Real[Array, "..."]
    ml: Real[Array, "..."]
    frag: Real[Array, "..."]
    clr_frames: Real[Array, "..."]


@compiled(static=("num_targets", "convention", "empty"))
def count(
    sequence: Sequence,
    *,
    num_targets: int,
    threshold: Real[ArrayLike, ""] | float = 0.5,
    num_frames: Integer[ArrayLike, ""] | int | None = None,
    convention: Convention = "trackeval",
    empty: Empty = "trackeval",
) -> Counts:
    """Follows each target through a sequence, and counts.

    Args:
      sequence: one sequence; several by `jax.vmap`, or on a CPU faster by `jax.lax.map`.
      num_targets: how many ids targets have, static; ids that do not occur cost nothing.
      threshold: the least similarity of a pair; it may be traced.
      num_frames: how many frames there are, if the last ones are padding; it may be traced.
      convention: see the module; static.
      empty: TrackEval counts no frames of a sequence without targets, or without
        predictions. "formula" counts them, as py-motmetrics does; static.

    Returns:
      `Counts` of one sequence: int32, and `motp_sum` of the type of the similarities.

    Raises:
      ValueError: arrays whose shapes do not belong together.

    At the edges:
      By "trackeval", a pair of similarity 0 is matched only if it was in the frame before.
      Equal sums: one of the matchings. Float32 counts as float64 does, unless a similarity lies
      within 1e-7 of the threshold or two sums within 1e-6 of each other.

    Gradient:
      That of `motp_sum` is 1 for the similarity of each matched pair.

    Example:
      >>> ids, valid = jnp.array([[0], [0], [1]]), jnp.ones((3, 1), bool)
      >>> similarities = jnp.array([0.9, 0.4, 0.8]).reshape(3, 1, 1)
      >>> sequence = Sequence(ids, jnp.zeros((3, 1), int), valid, valid, similarities)
      >>> counts = count(sequence, num_targets=1)
      >>> print(counts.clr_tp, counts.clr_fn, counts.clr_fp, counts.idsw, counts.frag)
      2 1 1 1 1

    Reference:
      Bernardin and Stiefelhagen, "Evaluating Multiple Object Tracking Performance: The CLEAR MOT
      Metrics", EURASIP JIVP 2008. Rules of TrackEval 1.3.0 and py-motmetrics 1.4.0.
    """
    _checks.one_of("convention", convention, ("trackeval", "motmetrics"))
    _checks.one_of("empty", empty, ("trackeval", "formula"))
    if num_frames is None:
        num_frames = len(sequence.target_ids)
    x = checked(sequence, num_targets=num_targets)
    table, t_valid = x.similarities, x.target_valid
    still = x._replace(similarities=jax.lax.stop_gradient(table))
    enough = is_enough(still, threshold, convention, EPS)
    rows, switches, starts = _follow(still, enough, num_targets, convention)
    hits = rows >= 0
    similarities = jnp.take_along_axis(table, jnp.maximum(rows, 0)[:, None], axis=1)[:, 0]

    def by_target(x):
        return sum_by_id(x.astype(jnp.int32), still.target_ids, num_targets)[:-1]

    seen, hit = by_target(t_valid), by_target(hits)
    # Ratios are compared in integers, which is exact.
    most = 5 * hit > 4 * seen if convention == "trackeval" else 5 * hit >= 4 * seen
    most &= seen > 0
    some = (seen > 0) & (5 * hit >= seen) & ~most
    tp, targets, predictions = (_sum(x) for x in (hits, t_valid, still.prediction_valid))
    mt, pt = _sum(most), _sum(some)
    frames = _checks.scalar("num_frames", num_frames).astype(jnp.int32)
    if convention == "trackeval" and empty == "trackeval":
        frames = jnp.where((targets > 0) & (predictions > 0), frames, 0)
    return Counts(
        clr_tp=tp,
        clr_fn=targets - tp,
        clr_fp=predictions - tp,
        idsw=_sum(switches),
        mt=mt,
        pt=pt,
        ml=_sum(seen > 0) - mt - pt,
        frag=_sum(jnp.maximum(by_target(starts) - 1, 0)),
        clr_frames=frames,
        motp_sum=jnp.where(hits, similarities, 0).sum(axis=1).sum(),
    )


def _follow(
    sequence: Frames, enough: Array, num_targets: int, convention: Convention
) -> tuple[Array, Array, Array]:
    """For each target in each frame: its prediction, -1 for none; whether that is a switch;
    whether it had none before. `[F, T]`.
    """
    p_ids, t_ids, p_valid, t_valid, table = sequence
    trackeval = convention == "trackeval"
    places = jnp.arange(table.shape[1], dtype=jnp.int32)[:, None]
    least = EPS if trackeval else -1.0

    def choice(frame):
        """The only pair of each target; whether it needs no memory; whether others are left."""
        enough, table = frame
        alone = enough & (enough.sum(axis=0, dtype=jnp.int32, keepdims=True) == 1)
        # A pair whose two have no other is matched, whatever came before.
        alone &= enough.sum(axis=1, dtype=jnp.int32, keepdims=True) == 1
        only = jnp.where(alone, places, -1).max(axis=0)
        return only, (alone & (table > least)).any(axis=0), (enough & ~alone).any()

    # By frames: all at once, XLA would compare the similarities anew for each of these.
    only, may_start, is_open = jax.lax.map(choice, (enough, table))
    usable = p_valid.any(axis=1) & t_valid.any(axis=1)

    def step(state, frame):
        last, before = state
        place, only, may_start, is_open, usable, p_ids, t_ids, present = frame
        last_id, id_before = last[t_ids], before[t_ids]
        remembered = id_before if trackeval else last_id

        def match(_):
            pairs, scores = enough[place], table[place]
            kept = pairs & (p_ids[:, None] == remembered[None])
            if not trackeval:  # several targets may remember one prediction
                kept &= jnp.cumsum(kept, axis=1, dtype=jnp.int32) == 1
            free = pairs & ~kept.any(axis=1)[:, None] & ~kept.any(axis=0)[None]
            pinned = jnp.where(kept, places, -1).max(axis=0)
            return jnp.maximum(pinned, matched(scores, free & (scores > least), most=not trackeval))

        chosen = (only >= 0) & (may_start | (p_ids[only] == remembered))
        rows = if_any(is_open, match, jnp.where(chosen, only, -1))
        hit = rows >= 0
        ids = jnp.where(hit, p_ids[rows], -1)
        switch = hit & (last_id >= 0) & (ids != last_id)
        start = hit & (id_before < 0)
        last = last.at[t_ids].set(jnp.where(hit, ids, last_id))
        if trackeval:
            now = jnp.full_like(before, -1).at[t_ids].set(ids)
            before = jnp.where(usable, now, before)
        else:
            before = before.at[t_ids].set(jnp.where(present, ids, -1))
        return (last, before), (rows, switch, start)

    none = jnp.full_like(t_ids, -1, shape=num_targets + 1)
    place = jnp.arange(len(table), dtype=jnp.int32)
    frames = (place, only, may_start, is_open, usable, p_ids, t_ids, t_valid)
    return jax.lax.scan(step, (none, none), frames)[1]


def _sum(x: Array) -> Array:
    return x.sum(dtype=jnp.int32)


@compiled(static=("convention", "empty"))
def summarize(
    counts: Counts, *, convention: Convention = "trackeval", empty: Empty = "trackeval"
) -> Scores:
    r"""The scores of sequences, or of what they add up to.

    .. math:: \mathrm{MOTA} = 1 - (FN + FP + IDSW) / (TP + FN)

    Args:
      counts: of one sequence, or a sum; with any leading axes.
      convention: that of the counts; static.
      empty: what TrackEval gives for one sequence without targets, or without predictions: MLR
        is 1 and every other ratio 0. "formula" is what it gives for a combined row; static.

    Returns:
      `Scores`, float32 or the float64 of `motp_sum`, and the counts as they are.

    At the edges:
      Denominators are 1 at least. By "motmetrics" they are not: 0 / 0 is NaN, and MOTA without
      targets minus infinity if anything was predicted; `empty` does not matter.

    Gradient:
      `motp`, `smota` and `motp_sum` are linear in `motp_sum`.

    Example:
      >>> counts = Counts(*map(jnp.int32, (8, 2, 1, 1, 1, 0, 0, 0, 10)), jnp.float32(6.4))
      >>> scores = summarize(counts)
      >>> print(f"{scores.mota:.2f} {scores.motp:.2f} {scores.clr_re:.2f}")
      0.60 0.80 0.80

    Reference:
      As for `count`; the fields of TrackEval's `CLEAR`.
    """
    _checks.one_of("convention", convention, ("trackeval", "motmetrics"))
    _checks.one_of("empty", empty, ("trackeval", "formula"))
    kept = Counts(*map(jnp.asarray, counts))
    dtype = _checks.working_dtype(*kept)
    x = Counts(*(leaf.astype(dtype) for leaf in kept))
    targets, predictions, ids = x.clr_tp + x.clr_fn, x.clr_tp + x.clr_fp, x.mt + x.pt + x.ml
    trackeval = convention == "trackeval"
    nothing = (targets == 0) | (predictions == 0)

    def ratio(x, y, otherwise=0.0):
        if not trackeval:
            return x / y
        quotient = x / jnp.maximum(y, 1)
        return jnp.where(nothing, otherwise, quotient) if empty == "trackeval" else quotient

    right = x.clr_tp - x.clr_fp
    return Scores(
        mota=ratio(right - x.idsw, targets),
        motp=ratio(x.motp_sum if trackeval else x.clr_tp - x.motp_sum, x.clr_tp),
        moda=ratio(right, targets),
        clr_re=ratio(x.clr_tp, targets),
        clr_pr=ratio(x.clr_tp, predictions),
        mtr=ratio(x.mt, ids),
        ptr=ratio(x.pt, ids),
        mlr=ratio(x.ml, ids, otherwise=1.0),
        smota=ratio(x.motp_sum - x.clr_fp - x.idsw, targets),
        clr_f1=ratio(x.clr_tp, x.clr_tp + x.clr_fn / 2 + x.clr_fp / 2),
        fp_per_frame=ratio(x.clr_fp, x.clr_frames),
        motal=ratio(right - jnp.log10(jnp.maximum(x.idsw, 1)), targets),
        **kept._replace(motp_sum=x.motp_sum)._asdict(),
    )
