"""What the readers of tracks share: rows of a file, checked, and two sides made a sequence."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from jaxiou.readers._errors import FileError
from jaxiou.tracking import packing
from jaxiou.tracking.packing import Sequence

EPSILON = np.finfo(np.float64).eps
MOST_FRAMES = 10**6
"""A later one is a mistake: a frame takes memory whether or not there is anything in it."""


@dataclass(frozen=True)
class Tracks:
    """Rows of one file of tracks.

    Attributes:
      path: the file.
      lines: the line that each row stood in, from 1.
      frames: from 0.
      ids: as the file has them.
      regions: corners `(x1, y1, x2, y2)` in pixels, `[rows, 4]`, or places in a list of masks.
      columns: what else a row has, by the name of the column.
    """

    path: Path
    lines: Int[np.ndarray, " rows"]
    frames: Int[np.ndarray, " rows"]
    ids: Int[np.ndarray, " rows"]
    regions: Float[np.ndarray, "rows ..."]
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.frames)


@dataclass(frozen=True)
class LoadedSequence:
    """A sequence, ready to be scored.

    Attributes:
      name: of the sequence.
      sequence: what `tracking.clear.count` and its neighbours take, float64, in NumPy.
      prediction_ids: the ids in the file, `[N]`; the sequence has their places here.
      target_ids: likewise.
    """

    name: str
    sequence: Sequence
    prediction_ids: Int[np.ndarray, " n"]
    target_ids: Int[np.ndarray, " m"]

    @property
    def sizes(self) -> dict[str, int]:
        """`num_predictions` and `num_targets`, as `count` takes them."""
        return {
            "num_predictions": len(self.prediction_ids),
            "num_targets": len(self.target_ids),
        }


def lines_of(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, with their numbers from 1."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not a text file"
        missing = isinstance(error, FileNotFoundError)
        raise FileError(path, "does not exist" if missing else reason) from error
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def numbers(path: str | Path, line: int, fields: list[str], *, integers: int) -> list[float]:
    """Fields of a line as finite numbers, of which the first ones, frame and id, are integers."""
    try:
        values = [float(field) for field in fields]
    except ValueError as error:
        raise FileError(path, f"line {line}: {error}") from error
    if not np.isfinite(values).all():
        raise FileError(path, f"line {line}: has a number that is not finite")
    for field, value in zip(fields[:integers], values, strict=False):
        if value != round(value) or abs(value) >= 2**31:
            raise FileError(path, f"line {line}: {field} is no integer of 32 bits")
    if values[0] > MOST_FRAMES:
        raise FileError(path, f"line {line}: frame {fields[0]} is above {MOST_FRAMES}")
    return values


def keep(tracks: Tracks, which: Bool[np.ndarray, " rows"]) -> Tracks:
    """The rows that `which` is True of."""
    columns = {name: x[which] for name, x in tracks.columns.items()}
    lines, frames, ids = (x[which] for x in (tracks.lines, tracks.frames, tracks.ids))
    return Tracks(tracks.path, lines, frames, ids, tracks.regions[which], columns)


def refuse(tracks: Tracks, wrong: Bool[np.ndarray, " rows"], reason: Callable[[int], str]) -> None:
    """Raises FileError with the line of the first row that is wrong, if there is one."""
    for row in np.flatnonzero(wrong)[:1]:
        raise FileError(tracks.path, f"line {tracks.lines[row]}: {reason(row)}")


def check(tracks: Tracks) -> None:
    """Raises FileError for negative ids, and for an id that a frame has twice."""
    refuse(tracks, tracks.ids < 0, lambda row: f"id {tracks.ids[row]} is negative")
    order = np.lexsort((tracks.lines, tracks.ids, tracks.frames))
    frames, ids = tracks.frames[order], tracks.ids[order]
    again = np.zeros(len(tracks), bool)
    again[order[1:]] = (frames[1:] == frames[:-1]) & (ids[1:] == ids[:-1])
    refuse(tracks, again, lambda row: f"id {tracks.ids[row]} is in this frame already")


def length(num_frames: int | None, *sides: Tracks, first: int) -> int:
    """How many frames there are, and that no row lies behind; `first` is the file's first one."""
    if num_frames is None:
        return 1 + max(int(side.frames.max(initial=-1)) for side in sides)
    last = num_frames - 1
    for side in sides:
        refuse(side, side.frames > last, lambda _: f"is after the last frame, {last + first}")
    return num_frames


def similarities(
    predictions: Tracks, targets: Tracks, num_frames: int
) -> tuple[Sequence, np.ndarray, np.ndarray]:
    """The sequence by TrackEval's IoU, in float64, and the ids of both sides."""
    sides = [
        packing.pack(side.frames, side.ids, side.regions, num_frames=num_frames)
        for side in (predictions, targets)
    ]
    with jax.enable_x64(True):
        (p, prediction_ids), (t, target_ids) = sides
        sequence = jax.device_get(packing.compare(p, t, overlap=packing.box_iou))
    return sequence, prediction_ids, target_ids


def partners(predictions: Tracks, targets: Tracks, sequence: Sequence) -> Int[np.ndarray, " rows"]:
    """For each prediction the row of the target that takes it, -1 where there is none.

    Frame by frame, the greatest sum of IoU from 0.5 on: what benchmarks do before they count.
    """
    from scipy.optimize import linear_sum_assignment

    taken = np.full(len(predictions), -1)
    num_frames = len(sequence.similarities)
    rows = (rows_of_frames(side, num_frames) for side in (predictions, targets))
    for table, p, t in zip(sequence.similarities, *rows, strict=True):
        scores = table[: len(p), : len(t)]
        scores = np.where(scores < 0.5 - EPSILON, 0, scores)
        i, j = linear_sum_assignment(scores, maximize=True)
        found = scores[i, j] > EPSILON
        taken[p[i[found]]] = t[j[found]]
    return taken


def rows_of_frames(side: Tracks, num_frames: int) -> list[np.ndarray]:
    """The rows of each frame, in the order in which `pack` puts them."""
    order = np.argsort(side.frames, kind="stable")
    ends = np.cumsum(np.bincount(side.frames, minlength=num_frames))
    return np.split(order, ends[:-1])[:num_frames]
