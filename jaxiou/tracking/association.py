"""Which detection belongs to which track: SORT's and ByteTrack's association, and SORT whole.

What holds for every function here, and is not repeated below:

- **Tables** are `[detections, tracks]`; the result is a `Matching` whose rows are detections.
- **One frame** for an association, one sequence for a tracker. Batches by `jax.vmap`.
- **Never matched** are detections that `where` leaves out and tracks that `track_where` does,
  whatever they hold, and pairs whose overlap is not finite.
- **Thresholds** may be traced, and are compared in the type of the overlap.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Int, Int32, Real, Shaped

from jaxiou import _checks, boxes
from jaxiou._compiled import compiled
from jaxiou._typing import ArrayLike
from jaxiou.assignment import Matching, maximum_matching
from jaxiou.pairing import Overlap, masked, pairwise, region_rank_of
from jaxiou.tracking import _sort
from jaxiou.tracking.packing import Trajectories

__all__ = ["sort_association", "byte_association", "sort_tracker", "ByteMatching", "Tracked"]


class ByteMatching(NamedTuple):
    """Which detection belongs to which track, and how it came to it.

    Attributes:
      matching: its rows are detections, its total the sum of the overlaps of the pairs.
      stages: int32 `[N]`; 1, 2 or 3, in which stage each was matched, and 0 where in none.
      starts: bool, `[N]`; unmatched detections that begin a track.
    """

    matching: Matching
    stages: Int32[Array, "..."]
    starts: Bool[Array, "..."]


class Tracked(NamedTuple):
    """The tracks of a sequence.

    Attributes:
      trajectories: row by row the detections, `[F, N]`: the id of each one's track, the box
        that the filter makes of it, and whether SORT reports it.
      births: int32, how many tracks were begun; all ids are below.
      refused: int32 `[F]`, how many detections in each frame began no track as there was no
        room for one.
    """

    trajectories: Trajectories
    births: Int32[Array, "..."]
    refused: Int32[Array, "..."]


@compiled(static=("shortcut", "overlap", "region_rank"))
def sort_association(
    detections: Shaped[ArrayLike, "n *region"],
    tracks: Shaped[ArrayLike, "m *region"],
    *,
    threshold: Real[ArrayLike, ""] | float = 0.3,
    shortcut: bool = True,
    overlap: Overlap = boxes.iou,
    region_rank: int | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
    track_where: Bool[ArrayLike, "#m"] | None = None,
) -> Matching:
    """SORT's association: the matching of greatest total overlap, less the pairs below a threshold.

    As many pairs are made as can be, and of all matchings with that many the one with the
    greatest sum of overlaps; then pairs below `threshold` are dropped. What they have kept
    from others is lost: `maximum_matching(minimum=threshold)` has the threshold within the
    problem.

    Args:
      detections: `[N, *region]`, such as boxes `(x1, y1, x2, y2)`.
      tracks: `[M, *region]`, where each track is expected in this frame.
      threshold: the least overlap of a pair.
      shortcut: whether, as in SORT's code, the pairs above the threshold are the answer if
        they are one to one already. This changes results: the total is not asked for then.
        It saves the solver's time as well, where frames are not batched by `vmap`.
      overlap: any overlap of the regions, larger meaning better.
      region_rank: as in `pairwise`.
      where: bool, `[N]`; False leaves a detection out.
      track_where: bool, `[M]`; False leaves a track out.

    Returns:
      A `Matching` of detections (rows) and tracks (columns), its total the sum of overlaps.

    At the edges:
      A pair at exactly `threshold` is kept, but does not count for the shortcut. Equal totals:
      one of the matchings, the same in each run.

    Gradient:
      That of `total` is that of the overlaps of the pairs. The choice has none.

    Example:
      >>> tracks = jnp.array([[0.0, 0.0, 4.0, 4.0], [9.0, 0.0, 12.0, 3.0]])
      >>> detections = jnp.array([[9.0, 0.0, 12.0, 4.0], [0.0, 9.0, 1.0, 10.0]])
      >>> print(sort_association(detections, tracks).columns)
      [ 1 -1]

    Reference:
      Bewley et al., "Simple Online and Realtime Tracking", ICIP 2016,
      https://arxiv.org/abs/1602.00763; the shortcut is in the authors' code alone.
    """
    table, allowed, _ = _pairs(detections, tracks, where, track_where, overlap, region_rank)
    least = _checks.scalar("threshold", threshold).astype(table.dtype)
    return _sort.matching_of(_sort.sort_pairs(table, allowed, least, shortcut), table)


@compiled(static=("fuse_score", "overlap", "region_rank"))
def byte_association(
    detections: Shaped[ArrayLike, "n *region"],
    scores: Real[ArrayLike, " n"],
    tracks: Shaped[ArrayLike, "m *region"],
    *,
    lost: Bool[ArrayLike, "#m"] | None = None,
    unconfirmed: Bool[ArrayLike, "#m"] | None = None,
    track_threshold: Real[ArrayLike, ""] | float = 0.6,
    low_threshold: Real[ArrayLike, ""] | float = 0.1,
    new_threshold: Real[ArrayLike, ""] | float = 0.7,
    match_limit: Real[ArrayLike, ""] | float = 0.8,
    second_limit: Real[ArrayLike, ""] | float = 0.5,
    unconfirmed_limit: Real[ArrayLike, ""] | float = 0.7,
    fuse_score: bool = True,
    overlap: Overlap = boxes.iou,
    region_rank: int | None = None,
    where: Bool[ArrayLike, "#n"] | None = None,
    track_where: Bool[ArrayLike, "#m"] | None = None,
) -> ByteMatching:
    r"""ByteTrack's association: every detection counts, in three stages.

    1. Tracks, lost ones too, with detections that score above `track_threshold`.
    2. Tracks left over and not lost, with detections between `low_threshold` and
       `track_threshold`.
    3. Unconfirmed tracks with what the first stage has left of its detections.

    Each maximises

    $$\sum_{(i, j)} \max(0, \text{limit} - c_{ij})$$

    over all one-to-one matchings, which is what `lap.lapjv(cost_limit=limit)` does: the limit
    is within the problem, not a filter after it.

    Args:
      detections: `[N, *region]`, such as boxes `(x1, y1, x2, y2)`.
      scores: `[N]`.
      tracks: `[M, *region]`, where each track is expected in this frame.
      lost: bool, `[M]`; tracks without a detection in the last frame. None: no track is.
      unconfirmed: bool, `[M]`; tracks begun in the last frame. None: no track is.
      track_threshold: the score above which a detection counts in stages 1 and 3.
      low_threshold: the score above which it counts in stage 2.
      new_threshold: the least score of an unmatched detection that begins a track; ByteTrack's
        code takes `track_threshold + 0.1`.
      match_limit: the cost below which pairs are made in stage 1.
      second_limit: that of stage 2.
      unconfirmed_limit: that of stage 3.
      fuse_score: whether the cost in stages 1 and 3 is 1 - overlap times score, and not, as for
        MOT20, 1 - overlap. In stage 2 it is the latter.
      overlap: any overlap of the regions, larger meaning better.
      region_rank: as in `pairwise`.
      where: bool, `[N]`; False leaves a detection out.
      track_where: bool, `[M]`; False leaves a track out.

    Returns:
      A `ByteMatching`.

    At the edges:
      A detection that scores exactly `track_threshold` is in no stage, as both comparisons are
      strict, and begins no track; so is one that scores NaN. A pair whose cost is exactly the
      limit is not made.

    Gradient:
      That of `matching.total` is that of the overlaps of the pairs. The choice has none.

    Example:
      >>> tracks = jnp.array([[0.0, 0.0, 4.0, 4.0], [9.0, 0.0, 12.0, 3.0]])
      >>> detections = jnp.array([[9.0, 0.0, 12.0, 4.0], [0.0, 0.0, 4.0, 3.0]])
      >>> found = byte_association(detections, jnp.array([0.9, 0.2]), tracks)
      >>> print(found.matching.columns, found.stages)
      [1 0] [1 2]

    Reference:
      Zhang et al., "ByteTrack: Multi-Object Tracking by Associating Every Detection Box", ECCV
      2022, https://arxiv.org/abs/2110.06864, with the paper's thresholds. The third stage, its
      limit and `new_threshold` are those of the authors' code.
    """
    table, allowed, where = _pairs(detections, tracks, where, track_where, overlap, region_rank)
    _checks.is_array("scores", scores)
    _checks.is_real("scores", scores)
    _checks.exact_shape("scores", scores, table.shape[:1], "one score a detection")
    scores = jnp.asarray(scores)
    dtype = _checks.working_dtype(table, scores)
    # NaN goes before the cast, at which `debug_nans` would raise.
    scores = masked(scores, where & (scores == scores)).astype(dtype)
    table = table.astype(dtype)
    numbers = {"track_threshold": track_threshold, "low_threshold": low_threshold}
    numbers |= {"new_threshold": new_threshold, "match_limit": match_limit}
    numbers |= {"second_limit": second_limit, "unconfirmed_limit": unconfirmed_limit}
    track, low, new, *limits = (_checks.scalar(*x).astype(dtype) for x in numbers.items())
    lost = _mask("lost", lost, table.shape[1:], default=False)
    unconfirmed = _mask("unconfirmed", unconfirmed, table.shape[1:], default=False)

    first, second = scores > track, (scores > low) & (scores < track)
    fused = table * scores[:, None] if fuse_score else table
    steps = [
        (fused, first, ~unconfirmed),
        (table, second, ~unconfirmed & ~lost),
        (fused, first, unconfirmed),
    ]
    pairs = jnp.zeros_like(table, bool)
    stages = jnp.zeros_like(scores, jnp.int32)
    for i, (similarity, rows, columns) in enumerate(steps):
        free = (rows & ~pairs.any(axis=1))[:, None] & (columns & ~pairs.any(axis=0))[None, :]
        gains = jax.lax.stop_gradient(limits[i] - (1 - similarity))
        found = maximum_matching(gains, where=allowed & free, minimum=0.0)
        pairs |= _sort.pairs_of(found, table)
        stages = jnp.where(found.valid, i + 1, stages)
    starts = where & first & (stages == 0) & (scores >= new)
    return ByteMatching(_sort.matching_of(pairs, table), stages, starts)


@compiled(static=("capacity", "shortcut"))
def sort_tracker(
    detections: Real[ArrayLike, "f n 4"],
    *,
    capacity: int,
    threshold: Real[ArrayLike, ""] | float = 0.3,
    max_age: Int[ArrayLike, ""] | int = 1,
    min_hits: Int[ArrayLike, ""] | int = 3,
    shortcut: bool = True,
    where: Bool[ArrayLike, "#f #n"] | None = None,
) -> Tracked:
    """SORT, the whole tracker: a scan over the frames of a sequence, in one program.

    In each frame the Kalman filter says where the tracks should be, `sort_association` matches
    them to the detections, matched tracks are updated, those without a detection for more than
    `max_age` frames end, and each detection left over begins a track. A track is reported
    where it has a detection that is its `min_hits`-th in a row, or a later one, not counting the
    one that began it; in the first `min_hits` frames, wherever it has one.

    Args:
      detections: boxes, `[F, N, 4]`, in pixels: the filter's noise is in pixels.
      capacity: the most tracks at a time, those not reported included; a Python int.
      threshold: the least IoU of a track and its detection.
      max_age: how many frames in a row a track outlives without a detection.
      min_hits: how many detections in a row it takes to be reported.
      shortcut: as in `sort_association`.
      where: bool, `[F, N]`; which detections there are.

    Returns:
      A `Tracked`; `packing.compare` takes its `trajectories`.

    At the edges:
      Ids count the tracks by their first frame, then by the row of their first detection; ids
      of tracks that are never reported are passed over. They are -1 and boxes 0 where not valid.
      With no room left, detections in the last rows begin no track; `refused` counts them.
      Boxes that are not `boxes.is_valid` are no detections.

    Gradient:
      That of the filter. The choice of pairs has none.

    Example:
      >>> moving = np.arange(4.0)[:, None, None] + np.array([0.0, 0.0, 9.0, 9.0])
      >>> ids, regions, valid = sort_tracker(moving, capacity=2).trajectories
      >>> print(ids.ravel(), regions[3, 0].round(1))
      [0 0 0 0] [ 3.  3. 12. 12.]

    Reference:
      Bewley et al., "Simple Online and Realtime Tracking", ICIP 2016,
      https://arxiv.org/abs/1602.00763, with the noise and the rules of the authors' code. Two
      things differ: ids, which there count dropped pairs last, and the fixed capacity.
    """
    _checks.one_set("detections", detections, 2)
    _checks.are_regions((4,), "one box a row", detections=detections)
    _checks.count("capacity", capacity, least=1)
    where = _mask("where", where, detections.shape[:2])
    regions = masked(jnp.asarray(detections), where)
    regions = regions.astype(_checks.working_dtype(regions))
    valid = where & boxes.is_valid(regions)
    regions = masked(regions, valid)
    numbers = jnp.arange(len(regions), dtype=jnp.int32)
    frames = _sort.Frame(numbers, regions, valid)
    rules = _sort.Rules(
        _checks.scalar("threshold", threshold).astype(regions.dtype),
        _checks.scalar("max_age", max_age).astype(jnp.int32),
        _checks.scalar("min_hits", min_hits).astype(jnp.int32),
    )
    step = functools.partial(_sort.step, rules=rules, shortcut=shortcut)
    last, (reported, refused) = jax.lax.scan(step, _sort.no_tracks(regions, capacity), frames)
    return Tracked(reported, last.births, refused)


def _pairs(
    detections: ArrayLike,
    tracks: ArrayLike,
    where: ArrayLike | None,
    track_where: ArrayLike | None,
    overlap: Overlap,
    region_rank: int | None,
) -> tuple[Array, Array, Array]:
    """The overlaps of all pairs, 0 where a pair may not be; which may; which detections count."""
    rank = region_rank_of(overlap, region_rank)
    _checks.one_set("detections", detections, rank)
    _checks.one_set("tracks", tracks, rank)
    where = _mask("where", where, detections.shape[:1])
    track_where = _mask("track_where", track_where, tracks.shape[:1])
    detections, tracks = (
        masked(jnp.asarray(detections), where),
        masked(jnp.asarray(tracks), track_where),
    )
    table = pairwise(overlap, region_rank=rank)(detections, tracks)
    allowed = where[:, None] & track_where[None, :] & jnp.isfinite(table)
    return jnp.where(allowed, table, 0), allowed, where


def _mask(name: str, x: ArrayLike | None, shape: tuple[int, ...], default: bool = True) -> Array:
    """A checked mask of this shape; `default` everywhere for None."""
    if x is None:
        return jnp.full(shape, default)
    _checks.mask(name, x, shape)
    return jnp.broadcast_to(x, shape)
