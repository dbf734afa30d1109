"""Tracks from text files of the MOTChallenge: MOT15, MOT16, MOT17, MOT20.

A line is `frame, id, left, top, width, height, mark, class, visibility`, frames from 1. In a file
of truths the mark is 0 for what is not to be scored; in one of predictions it is the
confidence, and MOT15 has neither class nor visibility.
"""

import configparser
from pathlib import Path
from typing import Literal

import numpy as np

from jaxiou import _checks
from jaxiou.readers import _tracks
from jaxiou.readers._errors import FileError
from jaxiou.readers._tracks import LoadedSequence, Tracks

__all__ = ["read", "load", "find_sequences", "BENCHMARKS"]

Benchmark = Literal["MOT15", "MOT16", "MOT17", "MOT20"]

DISTRACTORS = {2, 7, 8, 12}
BENCHMARKS: dict[str, set[int] | None] = {
    "MOT15": None,
    "MOT16": DISTRACTORS,
    "MOT17": DISTRACTORS,
    "MOT20": DISTRACTORS | {6},
}
"""Classes of truths that take predictions with them: person on vehicle, static person,
distractor and reflection, and in MOT20 vehicles without a motor. MOT15 has no classes."""

PEDESTRIAN, CLASSES = 1, 13
COLUMNS = ("mark", "class", "visibility")
FILL = (1.0, -1.0, -1.0)
"""What a column is where a line ends before it."""


def read(path: str | Path) -> Tracks:
    """The rows of one file of tracks.

    Args:
      path: of the file.

    Returns:
      `Tracks`: frames from 0, boxes `(x1, y1, x2, y2)`, and the columns "mark", "class" and
      "visibility", which are 1, -1 and -1 where a line has fewer.

    Raises:
      FileError: if the file is missing, or a line has fewer than six numbers, a frame below
        1, an id or frame that is no integer, a negative id, or an id that the frame has
        already. The text gives the line.

    At the edges:
      Lines may come in any order. An empty file has no rows.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "gt.txt")
      ...     _ = path.write_text("1, 7, 10, 20, 5, 8, 1, 1, 0.5\\n")
      ...     tracks = read(path)
      >>> print(tracks.frames, tracks.ids, tracks.regions, tracks.columns["class"])
      [0] [7] [[10. 20. 15. 28.]] [1.]
    """
    rows, lines = [], []
    for number, line in _tracks.lines_of(path):
        parts = line.rstrip(",").split(",") if "," in line else line.split()
        fields = [part.strip() for part in parts]
        if len(fields) < 6:
            raise FileError(path, f"line {number}: has {len(fields)} of 6 numbers or more")
        values = _tracks.numbers(path, number, fields[:9], integers=2)
        rows.append([*values, *FILL[max(len(values) - 6, 0) :]])
        lines.append(number)
    table = np.array(rows, np.float64).reshape(-1, 9)
    corner, size = table[:, 2:4], table[:, 4:6]
    tracks = Tracks(
        Path(path),
        np.array(lines, np.int64),
        table[:, 0].astype(np.int64) - 1,
        table[:, 1].astype(np.int64),
        np.concatenate([corner, corner + size], axis=1),
        dict(zip(COLUMNS, table[:, 6:].T, strict=True)),
    )
    _tracks.refuse(tracks, tracks.frames < 0, lambda row: f"frame {table[row, 0]:.0f} is below 1")
    inverted = np.any(size < 0, axis=1)
    _tracks.refuse(
        tracks, inverted, lambda row: f"the box has a negative size, {size[row].tolist()}"
    )
    _tracks.check(tracks)
    return tracks


def load(
    targets: str | Path,
    predictions: str | Path,
    *,
    benchmark: Benchmark = "MOT15",
    num_frames: int | None = None,
) -> LoadedSequence:
    """A sequence of two files, prepared as the benchmark has it.

    MOT15 leaves out truths with mark 0. The others match all truths of a frame to its
    predictions first, by the greatest sum of IoU from 0.5 on; leave out the predictions that a
    distractor took; and then keep truths of class 1, pedestrians, with a mark that is not 0.

    Args:
      targets: file of truths.
      predictions: file of predicted tracks.
      benchmark: whose rules.
      num_frames: how long the sequence is; None takes `seqLength` of a `seqinfo.ini` beside
        the folder `gt`, as in MOTChallenge's own tree, or the last frame of both files.

    Returns:
      A `LoadedSequence`, with similarities by `tracking.packing.box_iou` in float64.

    Raises:
      FileError: as `read`, for a frame after the last one, and where the benchmark has
        classes for a truth without one of its 13, and for a predicted class other than 1.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "gt.txt")
      ...     _ = path.write_text("1,7,10,20,5,8,1,1,1\\n2,7,11,20,5,8,1,1,1\\n")
      ...     loaded = load(path, path)
      >>> print(loaded.sequence.similarities.ravel(), loaded.target_ids)
      [1. 1.] [7]
    """
    _checks.one_of("benchmark", benchmark, list(BENCHMARKS))
    truths, found = read(targets), read(predictions)
    stated = num_frames if num_frames is not None else _length(truths)
    length = _tracks.length(stated, truths, found, first=1)
    distractors = BENCHMARKS[benchmark]
    mark = truths.columns["mark"]
    _tracks.refuse(truths, mark != np.round(mark), lambda row: f"mark {mark[row]} is no integer")
    kept = mark != 0
    if distractors is not None:
        kinds = truths.columns["class"]
        unknown = ~np.isin(kinds, range(1, CLASSES + 1))
        _tracks.refuse(
            truths, unknown, lambda row: f"class {kinds[row]:g} is not one of 1 to {CLASSES}"
        )
        classes = found.columns["class"]
        _tracks.refuse(
            found, classes > PEDESTRIAN, lambda row: f"class {classes[row]:.0f} is not 1"
        )
        partners = _tracks.partners(found, truths, _tracks.similarities(found, truths, length)[0])
        lost = np.isin(truths.columns["class"], list(distractors))
        taken = partners >= 0
        taken[taken] = lost[partners[taken]]
        found = _tracks.keep(found, ~taken)
        kept &= truths.columns["class"] == PEDESTRIAN
    sequence = _tracks.similarities(found, _tracks.keep(truths, kept), length)
    return LoadedSequence(truths.path.stem, *sequence)


def find_sequences(targets: str | Path, predictions: str | Path) -> list[tuple[str, Path, Path]]:
    """The sequences of two folders: name, file of truths, file of predictions.

    Truths lie in MOTChallenge's tree, `<sequence>/gt/gt.txt`, or flat, `<sequence>.txt`;
    predictions are `<sequence>.txt`, or in a folder `data` below.

    Args:
      targets: folder of truths.
      predictions: folder of predictions.

    Returns:
      The sequences, by name.

    Raises:
      FileError: if a folder is missing or has no truths, or a sequence has no predictions.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for name in ("gt/A/gt/gt.txt", "found/A.txt"):
      ...         Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
      ...         _ = Path(folder, name).write_text("")
      ...     (sequence,) = find_sequences(Path(folder, "gt"), Path(folder, "found"))
      >>> print(sequence[0], sequence[2].name)
      A A.txt
    """
    targets, predictions = Path(targets), Path(predictions)
    for folder in (targets, predictions):
        if not folder.is_dir():
            raise FileError(folder, "is not a folder" if folder.exists() else "does not exist")
    truths = {path.parents[1].name: path for path in sorted(targets.glob("*/gt/gt.txt"))}
    truths = truths or {path.stem: path for path in sorted(targets.glob("*.txt"))}
    if not truths:
        raise FileError(targets, "has neither <sequence>/gt/gt.txt nor <sequence>.txt")
    sequences = []
    for name, path in truths.items():
        places = [predictions / f"{name}.txt", predictions / "data" / f"{name}.txt"]
        found = [place for place in places if place.is_file()]
        if not found:
            raise FileError(places[0], f"does not exist, but the sequence {name} has truths")
        sequences.append((name, path, found[0]))
    return sequences


def _length(truths: Tracks) -> int | None:
    path = truths.path.parent.parent / "seqinfo.ini"
    if truths.path.parent.name != "gt" or not path.is_file():
        return None
    try:
        info = configparser.ConfigParser()
        info.read_string(path.read_text())
        return int(info["Sequence"]["seqLength"])
    except (configparser.Error, KeyError, ValueError, OSError) as error:
        raise FileError(path, f"has no seqLength: {error}") from error
