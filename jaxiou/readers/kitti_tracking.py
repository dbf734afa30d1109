"""Tracks from label files of KITTI's tracking benchmark, in the image plane.

A line is `frame id type truncated occluded alpha left top right bottom height width length x y
z rotation`, in predictions with a score behind; frames from 0, and DontCare regions with id -1.
"""

from pathlib import Path
from typing import Literal

import numpy as np

from jaxiou import _checks
from jaxiou.readers import _tracks
from jaxiou.readers._errors import FileError
from jaxiou.readers._tracks import LoadedSequence, Tracks

__all__ = ["read", "load", "DISTRACTORS"]

DISTRACTORS = {"car": "van", "pedestrian": "person"}
"""For each class that is scored, the one that is alike: its truths take predictions with them."""

MAX_OCCLUSION, MAX_TRUNCATION = 2, 0
MIN_HEIGHT = 25  # pixels
DONT_CARE = "dontcare"


def read(path: str | Path) -> Tracks:
    """The rows of one label file.

    Args:
      path: of the file.

    Returns:
      `Tracks`: frames from 0, boxes `(x1, y1, x2, y2)` and the columns "type", in lower case,
      "truncated" and "occluded". DontCare regions have id -1.

    Raises:
      FileError: if the file is missing, or a line has fewer than ten fields, a number that
        cannot be read, a negative frame, a negative id of something else than a DontCare
        region, or an id that the frame has already. The text gives the line.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "0000.txt")
      ...     _ = path.write_text("0 3 Car 0 1 -1.5 10 20 30 40 1 1 1 0 0 0 0\\n")
      ...     tracks = read(path)
      >>> print(tracks.ids, tracks.regions, tracks.columns["type"])
      [3] [[10. 20. 30. 40.]] ['car']
    """
    rows, types, lines = [], [], []
    for number, line in _tracks.lines_of(path):
        fields = line.split()
        if len(fields) < 10:
            raise FileError(path, f"line {number}: has {len(fields)} of 10 fields or more")
        rows.append(_tracks.numbers(path, number, [*fields[:2], *fields[3:10]], integers=2))
        types.append(fields[2].lower())
        lines.append(number)
    table = np.array(rows, np.float64).reshape(-1, 9)
    tracks = Tracks(
        Path(path),
        np.array(lines, np.int64),
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 5:9],
        {
            "type": np.array(types, np.str_),
            "truncated": table[:, 2],
            "occluded": table[:, 3],
        },
    )
    _tracks.refuse(tracks, tracks.frames < 0, lambda row: f"frame {tracks.frames[row]} is negative")
    inverted = np.any(tracks.regions[:, 2:] < tracks.regions[:, :2], axis=1)
    _tracks.refuse(tracks, inverted, lambda row: f"the box {tracks.regions[row]} is inverted")
    _tracks.check(_tracks.keep(tracks, tracks.columns["type"] != DONT_CARE))
    return tracks


def load(
    targets: str | Path,
    predictions: str | Path,
    *,
    kind: Literal["car", "pedestrian"] = "car",
    num_frames: int | None = None,
) -> LoadedSequence:
    """A sequence of two files, prepared as the benchmark has it, for one class.

    Truths of the class and of its distractor are matched to the predictions of the class, by
    the greatest sum of IoU from 0.5 on. Left out are predictions that a distractor took, or a
    truth that is occluded (above 2) or truncated (above 0), and of those that nothing took the
    ones up to 25 pixels high, or with more than half of their area in one DontCare region.
    Truths are then those of the class that are neither occluded nor truncated.

    Args:
      targets: file of truths.
      predictions: file of predicted tracks.
      kind: the class.
      num_frames: how long the sequence is; None takes the last frame of both files.

    Returns:
      A `LoadedSequence`, with similarities by `tracking.packing.box_iou` in float64.

    Raises:
      FileError: as `read`, and for a frame after the last one.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "0000.txt")
      ...     _ = path.write_text("0 3 Car 0 0 -1.5 10 20 30 60 1 1 1 0 0 0 0\\n")
      ...     loaded = load(path, path)
      >>> print(loaded.name, loaded.sequence.similarities)
      0000 [[[1.]]]
    """
    _checks.one_of("kind", kind, list(DISTRACTORS))
    truths, found = read(targets), read(predictions)
    length = _tracks.length(num_frames, truths, found, first=0)
    regions = _tracks.keep(truths, truths.columns["type"] == DONT_CARE)
    truths = _tracks.keep(truths, np.isin(truths.columns["type"], [kind, DISTRACTORS[kind]]))
    found = _tracks.keep(found, found.columns["type"] == kind)

    hidden = truths.columns["occluded"] > MAX_OCCLUSION
    hidden |= truths.columns["truncated"] > MAX_TRUNCATION
    scored = (truths.columns["type"] == kind) & ~hidden
    partners = _tracks.partners(found, truths, _tracks.similarities(found, truths, length)[0])
    matched = partners >= 0
    dropped = np.zeros(len(found), bool)
    dropped[matched] = ~scored[partners[matched]]
    height = found.regions[:, 3] - found.regions[:, 1]
    dropped |= ~matched & (height <= MIN_HEIGHT + _tracks.EPSILON)
    dropped |= ~matched & _within(found, regions)
    sequence = _tracks.similarities(
        _tracks.keep(found, ~dropped), _tracks.keep(truths, scored), length
    )
    return LoadedSequence(truths.path.stem, *sequence)


def _within(found: Tracks, regions: Tracks) -> np.ndarray:
    """Whether more than half of a prediction lies in one region of its frame."""
    low = np.maximum(found.regions[:, None, :2], regions.regions[None, :, :2])
    high = np.minimum(found.regions[:, None, 2:], regions.regions[None, :, 2:])
    shared = np.maximum(high - low, 0).prod(axis=-1)
    area = (found.regions[:, 2:] - found.regions[:, :2]).prod(axis=-1)
    inside = shared > (0.5 + _tracks.EPSILON) * area[:, None]
    return (inside & (found.frames[:, None] == regions.frames[None])).any(axis=1)
