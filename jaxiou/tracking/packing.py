"""From lists of rows, one for each region in a frame, to padded arrays of a sequence.

A side of a sequence, truth or prediction, is `Trajectories`: for each frame the regions in
it, with the id of the object or track that each belongs to. `compare` makes of two sides, by
any overlap, the `Sequence` that all tracking scores take.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int32, Integer, Real, Shaped

from jaxiou import _checks, _corners, boxes
from jaxiou._compiled import compiled, overlap
from jaxiou._typing import ArrayLike
from jaxiou.pairing import Overlap, masked, pairwise, region_rank_of

__all__ = ["pack", "compare", "box_iou", "Trajectories", "Sequence"]

LEAST_AREA = float(np.finfo(np.float64).eps)
"""Up to here an area counts as 0 in TrackEval."""


class Trajectories(NamedTuple):
    """The regions of one side of a sequence, frame by frame.

    Attributes:
      ids: 0 to N - 1, int32 `[F, R]`; anything where not valid.
      regions: `[F, R, *region]`.
      valid: bool, `[F, R]`; which rows there are.
    """

    ids: Int32[ArrayLike, "*frames r"]
    regions: Shaped[ArrayLike, "..."]
    valid: Bool[ArrayLike, "*frames r"]


class Sequence(NamedTuple):
    """A sequence as tracking scores take it: who is there, and how alike.

    Attributes:
      prediction_ids: int32 `[F, P]`, 0 to the number of tracks less 1; each id once a frame.
      target_ids: int32 `[F, T]`, likewise.
      prediction_valid: bool, `[F, P]`.
      target_valid: bool, `[F, T]`.
      similarities: in [0, 1], `[F, P, T]`; 0 where one of the two is not valid.
    """

    prediction_ids: Int32[ArrayLike, "*frames p"]
    target_ids: Int32[ArrayLike, "*frames t"]
    prediction_valid: Bool[ArrayLike, "*frames p"]
    target_valid: Bool[ArrayLike, "*frames t"]
    similarities: Float[ArrayLike, "*frames p t"]


def pack(
    frames: Integer[np.ndarray, " rows"],
    ids: Integer[np.ndarray, " rows"],
    regions: Shaped[np.ndarray, "rows ..."],
    *,
    num_frames: int,
    capacity: int | None = None,
) -> tuple[Trajectories, Integer[np.ndarray, " n"]]:
    """Rows of one side of a sequence, in any order, as padded arrays.

    Args:
      frames: the frame of each row, 0 to `num_frames - 1`.
      ids: the id of each row, any integers from 0 on; gaps cost nothing.
      regions: `[rows, *region]`.
      num_frames: F, frames without a row included.
      capacity: R, the most rows in a frame; None takes what is needed.

    Returns:
      The `Trajectories`, in NumPy, with ids 0 to N - 1, and the `[N]` ids that these were.

    Raises:
      ValueError: for a frame out of range, a negative id, an id twice in a frame, and more
        rows in a frame than `capacity`. The message gives the frame and the id.

    At the edges:
      No rows: F frames of R = 0, or `capacity`, and no ids.

    Example:
      >>> frames, ids = np.array([0, 2, 0]), np.array([7, 7, 3])
      >>> side, known = pack(frames, ids, np.zeros((3, 4)), num_frames=3)
      >>> print(side.ids.tolist(), side.valid.tolist(), known)
      [[1, 0], [0, 0], [1, 0]] [[True, True], [False, False], [True, False]] [3 7]
    """
    for name, x in {"frames": frames, "ids": ids}.items():
        _checks.labels(name, x, len(regions), "one for each region")
    _checks.count("num_frames", num_frames)
    for row in np.flatnonzero((frames < 0) | (frames >= num_frames))[:1]:
        raise ValueError(f"frames must be below {num_frames}, got {frames[row]} in row {row}")
    for row in np.flatnonzero(ids < 0)[:1]:
        raise ValueError(f"ids must be 0 or more, got {ids[row]} in row {row}")

    order = np.lexsort((np.arange(len(frames)), frames))
    known, own = np.unique(ids, return_inverse=True)
    seen = np.unique(np.stack([frames, own]), axis=1, return_counts=True)
    for frame, which in seen[0][:, seen[1] > 1].T[:1]:
        raise ValueError(f"ids must occur once a frame, got {known[which]} twice in frame {frame}")

    counts = np.bincount(frames, minlength=num_frames)
    needed = int(counts.max(initial=0))
    size = needed if capacity is None else capacity
    if needed > size:
        raise ValueError(
            f"capacity must be {needed} or more, got {size}: "
            f"frame {int(counts.argmax())} has {needed} rows"
        )
    frame = frames[order]
    place = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)

    def padded(x: np.ndarray) -> np.ndarray:
        full = np.zeros((num_frames, size, *x.shape[1:]), x.dtype)
        full[frame, place] = x[order]
        return full

    valid = padded(np.ones(len(frames), bool))
    return Trajectories(padded(own.astype(np.int32)), padded(regions), valid), known


@overlap(region_rank=1)
def box_iou(
    a: Real[ArrayLike, "*#batch 4"], b: Real[ArrayLike, "*#batch 4"]
) -> Float[Array, "*batch"]:
    """The IoU of two boxes as TrackEval has it: 0 if one of them has an area up to 2.2e-16.

    Args:
      a: boxes `(x1, y1, x2, y2)`, `[..., 4]`.
      b: boxes in the same unit; leading axes broadcast against those of `a`.

    Returns:
      One number per pair, `[...]`, in [0, 1].

    At the edges:
      Two equal boxes of side 1e-9 have 0, where `boxes.iou` has 1.

    Gradient:
      That of `boxes.iou`, and 0 for those boxes.

    Example:
      >>> a, b = jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([0.0, 0.0, 2.0, 1.0])
      >>> print(box_iou(a, b), box_iou(a * 1e-9, a * 1e-9))
      0.5 0.0

    Reference:
      Luiten et al., "HOTA: A Higher Order Metric for Evaluating Multi-Object Tracking", IJCV
      2021, https://arxiv.org/abs/2009.07736, and its code, TrackEval.
    """
    _corners.check(a=a, b=b)
    first, second = (jax.lax.stop_gradient(boxes.area(x)) for x in (a, b))
    enough = jnp.logical_and(*_checks.same_rank(first > LEAST_AREA, second > LEAST_AREA))
    return jnp.where(enough, boxes.iou(a, b), 0)


@compiled(static=("overlap", "region_rank"))
def compare(
    predictions: Trajectories,
    targets: Trajectories,
    *,
    overlap: Overlap = boxes.iou,
    region_rank: int | None = None,
) -> Sequence:
    """The sequence of two sides, with `overlap` of all pairs in a frame as their similarity.

    Args:
      predictions: the tracks.
      targets: the objects, over as many frames.
      overlap: any overlap of the regions with values in [0, 1].
      region_rank: as in `pairwise`.

    Returns:
      A `Sequence`.

    At the edges:
      Rows that are not valid may hold anything, NaN included. A similarity of NaN is 0.

    Example:
      >>> one = np.array([[0.0, 0.0, 2.0, 2.0]])
      >>> side, _ = pack(np.array([0]), np.array([4]), one, num_frames=1)
      >>> print(compare(side, side).similarities)
      [[[1.]]]
    """
    rank = region_rank_of(overlap, region_rank)
    sides = [masked(jnp.asarray(x.regions), jnp.asarray(x.valid)) for x in (predictions, targets)]
    table = pairwise(overlap, region_rank=rank)(*sides)
    both = predictions.valid[..., :, None] & targets.valid[..., None, :]
    return Sequence(
        jnp.asarray(predictions.ids),
        jnp.asarray(targets.ids),
        jnp.asarray(predictions.valid),
        jnp.asarray(targets.valid),
        jnp.where(both & (table == table), table, 0),
    )
