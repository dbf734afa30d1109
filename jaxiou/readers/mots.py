"""Tracks of masks from text files of MOTS: MOTSChallenge and KITTI MOTS.

A line is `frame id class height width rle`, with the mask in COCO's compressed run lengths, which
pycocotools reads. Class 1 is car, 2 pedestrian, 10 a region to ignore.
"""

import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxiou import _checks
from jaxiou.readers import _tracks
from jaxiou.readers._errors import FileError
from jaxiou.readers._tracks import LoadedSequence, Tracks
from jaxiou.tracking.packing import Sequence, pack

__all__ = ["read", "load", "CLASSES"]

CLASSES = {"car": 1, "pedestrian": 2}
IGNORED = 10


def read(path: str | Path, *, first_frame: int = 1) -> Tracks:
    """The rows of one file of mask tracks.

    Args:
      path: of the file.
      first_frame: the number of the first frame: 1 in MOTSChallenge, 0 in KITTI.

    Returns:
      `Tracks`: frames from 0, no boxes, but the columns "class", "rle", the masks as
      pycocotools takes them, and "area", in pixels.

    Raises:
      FileError: if the file is missing, or a line has not six fields, a number that cannot be
        read, a frame before the first, a negative id, an id that the frame has already, or a
        mask that cannot be read, has another size or overlaps another object of its frame. The
        text gives the line.

    Example:
      >>> import tempfile
      >>> from pycocotools import mask
      >>> code = mask.encode(np.asfortranarray(np.eye(4, dtype=np.uint8)))["counts"].decode()
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "0002.txt")
      ...     _ = path.write_text(f"1 2001 2 4 4 {code}\\n")
      ...     tracks = read(path)
      >>> print(tracks.ids, tracks.columns["class"], tracks.columns["area"])
      [2001] [2] [4]
    """
    mask = _pycocotools()
    rows, codes, areas, lines = [], [], [], []
    for number, line in _tracks.lines_of(path):
        fields = line.split()
        if len(fields) != 6:
            raise FileError(path, f"line {number}: has {len(fields)} fields, not 6")
        values = _tracks.numbers(path, number, fields[:5], integers=5)
        code = {"size": [int(values[3]), int(values[4])], "counts": fields[5].encode()}
        try:
            with warnings.catch_warnings():  # pycocotools' own, of NumPy 2
                warnings.simplefilter("ignore")
                areas.append(int(mask.decode(code).sum()))
        except Exception as error:
            raise FileError(path, f"line {number}: the mask cannot be read: {error}") from error
        rows.append([int(value) for value in values[:3]])
        codes.append(code)
        lines.append(number)
    table = np.array(rows, np.int64).reshape(-1, 3)
    rle = np.empty(len(codes), object)
    rle[:] = codes
    tracks = Tracks(
        Path(path),
        np.array(lines, np.int64),
        table[:, 0] - first_frame,
        table[:, 1],
        np.zeros((len(table), 0)),
        {"class": table[:, 2], "rle": rle, "area": np.array(areas, np.int64)},
    )
    _tracks.refuse(
        tracks, tracks.frames < 0, lambda row: f"frame {table[row, 0]} is below {first_frame}"
    )
    _same_size(tracks, tracks)
    objects = _tracks.keep(tracks, tracks.columns["class"] != IGNORED)
    _tracks.check(objects)
    for frame in _tracks.rows_of_frames(objects, int(objects.frames.max(initial=-1)) + 1):
        codes = list(objects.columns["rle"][frame])
        together = mask.area(mask.merge(codes)) if codes else 0
        if together < objects.columns["area"][frame].sum():
            raise FileError(path, f"line {objects.lines[frame[0]]}: masks overlap in this frame")
    return tracks


def load(
    targets: str | Path,
    predictions: str | Path,
    *,
    kind: Literal["car", "pedestrian"] = "pedestrian",
    first_frame: int = 1,
    num_frames: int | None = None,
) -> LoadedSequence:
    """A sequence of two files, prepared as the benchmark has it, for one class.

    Predictions that no truth takes, by the greatest sum of IoU from 0.5 on, and that have more
    than half of their pixels in a region to ignore are left out.

    Args:
      targets: file of truths.
      predictions: file of predicted tracks.
      kind: the class.
      first_frame: as in `read`.
      num_frames: how long the sequence is; None takes the last frame of both files.

    Returns:
      A `LoadedSequence`, with similarities by pycocotools in float64.

    Raises:
      FileError: as `read`, and for a frame after the last one.

    Example:
      >>> import tempfile
      >>> from pycocotools import mask
      >>> code = mask.encode(np.asfortranarray(np.eye(4, dtype=np.uint8)))["counts"].decode()
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "0002.txt")
      ...     _ = path.write_text(f"1 2001 2 4 4 {code}\\n")
      ...     loaded = load(path, path)
      >>> print(loaded.sequence.similarities, loaded.target_ids)
      [[[1.]]] [2001]
    """
    _checks.one_of("kind", kind, list(CLASSES))
    truths, found = (read(path, first_frame=first_frame) for path in (targets, predictions))
    length = _tracks.length(num_frames, truths, found, first=first_frame)
    _same_size(truths, found)
    ignored = _tracks.keep(truths, truths.columns["class"] == IGNORED)
    truths, found = (
        _tracks.keep(side, side.columns["class"] == CLASSES[kind]) for side in (truths, found)
    )

    alone = _tracks.partners(found, truths, _similarities(found, truths, length)[0]) < 0
    found = _tracks.keep(found, ~(alone & _within(found, ignored, length)))
    return LoadedSequence(truths.path.stem, *_similarities(found, truths, length))


def _similarities(
    predictions: Tracks, targets: Tracks, length: int
) -> tuple[Sequence, np.ndarray, np.ndarray]:
    """As `_tracks.similarities`, of run lengths."""
    mask = _pycocotools()
    (p, prediction_ids), (t, target_ids) = (
        pack(side.frames, side.ids, side.regions, num_frames=length)
        for side in (predictions, targets)
    )
    table = np.zeros((length, p.ids.shape[1], t.ids.shape[1]))
    sides = (_tracks.rows_of_frames(side, length) for side in (predictions, targets))
    for frame, (i, j) in enumerate(zip(*sides, strict=True)):
        if len(i) and len(j):
            codes = (list(x.columns["rle"][k]) for x, k in ((predictions, i), (targets, j)))
            table[frame, : len(i), : len(j)] = mask.iou(*codes, [0] * len(j))
    return Sequence(p.ids, t.ids, p.valid, t.valid, table), prediction_ids, target_ids


def _same_size(side: Tracks, other: Tracks) -> None:
    """Raises FileError for a mask of another size than one of its frame on the other side."""
    sizes = [[code["size"] for code in x.columns["rle"]] for x in (side, other)]
    known = dict(zip(side.frames.tolist(), sizes[0], strict=True))
    wrong = [
        known.get(frame, size) != size
        for frame, size in zip(other.frames.tolist(), sizes[1], strict=True)
    ]
    _tracks.refuse(
        other,
        np.array(wrong, bool),
        lambda row: f"the mask is {sizes[1][row]}, not {known[int(other.frames[row])]} in size",
    )


def _within(found: Tracks, ignored: Tracks, length: int) -> np.ndarray:
    """Whether more than half of a prediction lies in a region to ignore of its frame."""
    mask = _pycocotools()
    inside = np.zeros(len(found), bool)
    sides = (_tracks.rows_of_frames(side, length) for side in (found, ignored))
    for i, j in zip(*sides, strict=True):
        if len(i) and len(j):
            codes = (list(x.columns["rle"][k]) for x, k in ((found, i), (ignored, j)))
            share = mask.iou(next(codes), [mask.merge(next(codes))], [1])  # over the prediction
            inside[i] = share[:, 0] > 0.5 + _tracks.EPSILON
    return inside


def _pycocotools() -> Any:
    try:
        from pycocotools import mask
    except ImportError as error:
        raise ImportError("masks are read by pycocotools: pip install 'jaxiou[io]'") from error
    return mask
