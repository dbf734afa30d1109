"""Objects from label and result files of KITTI's object benchmark, one file for each image.

A line is `type truncated occluded alpha left top right bottom height width length x y z
rotation`, in results with a score behind. Boxes are in pixels; the rest is in metres and radians,
in the frame of the camera, y down, with (x, y, z) in the middle of a cuboid's bottom.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int, Int32

from jaxiou.cuboids import from_kitti
from jaxiou.detection import _exact
from jaxiou.detection.kitti import TYPES, Detections, GroundTruth, Table
from jaxiou.readers import _detections, _tracks
from jaxiou.readers._errors import FileError

__all__ = ["read", "find", "pack", "load", "Objects", "NO_ANGLE", "NO_PLACE"]

NO_ANGLE = -10
"""The `alpha` of what has none. One such detection, and orientations are not scored."""

NO_PLACE = -1000
"""The x, y and z of what has none."""

FIELDS = 15
LABELS = {name.lower(): place for place, name in enumerate(TYPES)}


@dataclass(frozen=True)
class Objects:
    """Rows of one file.

    Attributes:
      path: the file.
      lines: the line that each row stood in, from 1.
      types: as the file has them.
      labels: their places in `detection.kitti.TYPES`, whatever their case; -1 for others.
      truncations: 0 to 1; -1 where not given.
      occlusions: 0 to 3; -1 where not given.
      alphas: the observation angle, radians; `NO_ANGLE` where not given.
      regions: `(x1, y1, x2, y2)` in pixels, `[rows, 4]`.
      cuboids: `(h, w, l, x, y, z, rotation)`, `[rows, 7]`, as `cuboids.from_kitti` takes them.
      placed: which rows have a place in space.
      scores: `[rows]`; NaN where the file has none.
    """

    path: Path
    lines: Int[np.ndarray, " rows"]
    types: np.ndarray
    labels: Int32[np.ndarray, " rows"]
    truncations: Float[np.ndarray, " rows"]
    occlusions: Float[np.ndarray, " rows"]
    alphas: Float[np.ndarray, " rows"]
    regions: Float[np.ndarray, "rows 4"]
    cuboids: Float[np.ndarray, "rows 7"]
    placed: np.ndarray
    scores: Float[np.ndarray, " rows"]

    def __len__(self) -> int:
        return len(self.lines)


def read(path: str | Path, *, scored: bool = False) -> Objects:
    """The rows of one file.

    Args:
      path: of the file.
      scored: whether each line must have a score. Without, one that is there is read, too.

    Returns:
      `Objects`, none for an empty file.

    Raises:
      FileError: if the file is missing, or a line has another number of fields, a number that
        cannot be read or is not finite, or an inverted box. The text gives the line.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "000000.txt")
      ...     _ = path.write_text("Car 0 0 -1.5 10 20 30 40 1.5 1.6 4 0 1.65 20 1.57 0.9\\n")
      ...     objects = read(path, scored=True)
      >>> print(objects.labels, objects.regions, objects.scores)
      [0] [[10. 20. 30. 40.]] [0.9]
    """
    numbered = list(_tracks.lines_of(path))
    lines = np.array([number for number, _ in numbered], np.int64)
    rows = [line.split() for _, line in numbered]
    for number, row in zip(lines, rows, strict=True):
        if len(row) != FIELDS + 1 and (scored or len(row) != FIELDS):
            wanted = f"{FIELDS + 1}" if scored else f"{FIELDS}, or {FIELDS + 1} with a score"
            raise FileError(path, f"line {number}: has {len(row)} fields, not {wanted}")
    fields = [row[1:] if len(row) > FIELDS else [*row[1:], "nan"] for row in rows]
    try:
        table = np.array(fields, np.float64).reshape(-1, FIELDS)
    except ValueError:
        table = np.array([_numbers(path, *x) for x in zip(lines.tolist(), fields, strict=True)])
    unscored = np.array([len(row) == FIELDS for row in rows], bool)
    finite = np.isfinite(table[:, :-1]).all(axis=1) & (unscored | np.isfinite(table[:, -1]))

    def refuse(wrong: np.ndarray, reason: Callable[[int], str]) -> None:
        for row in np.flatnonzero(wrong)[:1]:
            raise FileError(path, f"line {lines[row]}: {reason(row)}")

    refuse(~finite, lambda _: "has a number that is not finite")
    regions = table[:, 3:7]
    inverted = np.any(regions[:, 2:] < regions[:, :2], axis=1)
    refuse(inverted, lambda row: f"the box {regions[row]} is inverted")
    return _objects(path, [row[0] for row in rows], lines, table)


def _numbers(path: str | Path, line: int, fields: list[str]) -> list[float]:
    try:
        return [float(field) for field in fields]
    except ValueError as error:
        raise FileError(path, f"line {line}: {error}") from error


def find(
    targets: str | Path, predictions: str | Path, *, images: str | Path | None = None
) -> list[tuple[str, Path, Path]]:
    """The images of two folders: name, file of truths, file of predictions.

    Args:
      targets: folder of label files, `<image>.txt`.
      predictions: folder of result files, `<image>.txt`, or with them in a folder `data`, as
        the benchmark wants it.
      images: file with the names of the images that count, one a line, such as KITTI's
        `val.txt`; None takes all that have truths.

    Returns:
      The images, by name.

    Raises:
      FileError: if a folder is missing or has no truths, an image lacks one of its files, or,
        where `images` is None, a result file has no truths.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for name in ("label_2/000007.txt", "found/000007.txt"):
      ...         Path(folder, name).parent.mkdir()
      ...         _ = Path(folder, name).write_text("")
      ...     ((name, *_),) = find(Path(folder, "label_2"), Path(folder, "found"))
      >>> print(name)
      000007
    """
    targets, predictions = Path(targets), Path(predictions)
    for folder in (targets, predictions):
        _detections.check_folder(folder)
    if not any(predictions.glob("*.txt")) and os.path.isdir(predictions / "data"):
        predictions = predictions / "data"
    truths, found = ({path.stem for path in x.glob("*.txt")} for x in (targets, predictions))
    names = truths if images is None else {name for _, name in _tracks.lines_of(images)}
    if not names:
        raise FileError(images or targets, "names no image" if images else "has no <image>.txt")
    for name in sorted(names - truths):
        raise FileError(targets / f"{name}.txt", f"does not exist, but {images} names it")
    for name in sorted(names - found):
        reason = f"does not exist, but the image {name} has truths"
        raise FileError(predictions / f"{name}.txt", f"{reason}; write an empty file for none")
    for name in sorted(found - names) if images is None else ():
        raise FileError(predictions / f"{name}.txt", f"has no truths {targets / name}.txt")
    return [(x, targets / f"{x}.txt", predictions / f"{x}.txt") for x in sorted(names)]


def pack(targets: Sequence[Objects], predictions: Sequence[Objects]) -> Table:
    """Files as a data set, as `detection.kitti.average_precision` takes it.

    Args:
      targets: the truths of each image.
      predictions: the detections of each image, with scores.

    Returns:
      `Table`. Angles of detections are None if one of them has none, cuboids if all of them
      have none: then KITTI does not score orientations, or measures in the image alone.

    Raises:
      ValueError: if there are not as many predictions as targets.
      FileError: if a prediction has no score.

    Example:
      >>> pack([], []).num_images
      0
    """
    if len(targets) != len(predictions):
        raise ValueError(
            f"predictions must be {len(targets)} files, as targets, got {len(predictions)}"
        )
    for one in predictions:
        for row in np.flatnonzero(np.isnan(one.scores))[:1]:
            raise FileError(one.path, f"line {one.lines[row]}: has no score")
    nothing = _objects("", [], np.zeros(0, np.int64), np.zeros((0, FIELDS)))

    def joined(files: Sequence[Objects], field: str) -> np.ndarray:
        return np.concatenate([getattr(one, field) for one in (nothing, *files)])

    def places(files: Sequence[Objects]) -> np.ndarray:
        return np.repeat(np.arange(len(files), dtype=np.int32), [len(one) for one in files])

    found = {x: joined(predictions, x) for x in ("regions", "scores", "labels")}
    alphas, placed = (joined(predictions, x) for x in ("alphas", "placed"))
    solids = [_exact.run(from_kitti, joined(x, "cuboids")) for x in (predictions, targets)]
    truths = {x: joined(targets, x) for x in ("regions", "labels", "occlusions", "truncations")}
    return Table(
        Detections(
            **found,
            valid=np.ones(len(alphas), bool),
            alphas=None if (alphas == NO_ANGLE).any() else alphas,
            cuboids=solids[0] if placed.any() or not len(placed) else None,
        ),
        places(predictions),
        GroundTruth(
            **truths,
            valid=np.ones(len(truths["labels"]), bool),
            alphas=joined(targets, "alphas"),
            cuboids=solids[1],
        ),
        places(targets),
        len(targets),
    )


def load(
    targets: str | Path, predictions: str | Path, *, images: str | Path | None = None
) -> Table:
    """A data set of two folders, as `detection.kitti.average_precision` takes it.

    Args:
      targets: folder of label files.
      predictions: folder of result files.
      images: as in `find`.

    Returns:
      `Table`, as `pack` has it; images by name.

    Raises:
      FileError: as `find` and `read`.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for name, score in (("label_2/0.txt", ""), ("found/0.txt", " 0.9")):
      ...         path = Path(folder, name)
      ...         path.parent.mkdir()
      ...         _ = path.write_text(f"Car 0 0 -1.5 10 20 90 80 1.5 1.6 4 0 1.65 20 1.57{score}")
      ...     table = load(Path(folder, "label_2"), Path(folder, "found"))
      >>> print(table.num_images, table.detections.scores, table.truths.labels)
      1 [0.9] [0]
    """
    found = find(targets, predictions, images=images)
    pairs = [(read(truth), read(prediction, scored=True)) for _, truth, prediction in found]
    return pack([truth for truth, _ in pairs], [prediction for _, prediction in pairs])


def _objects(path: str | Path, types: list[str], lines: np.ndarray, table: np.ndarray) -> Objects:
    return Objects(
        path=Path(path),
        lines=lines,
        types=np.array(types, np.str_),
        labels=np.array([LABELS.get(name.lower(), -1) for name in types], np.int32),
        truncations=table[:, 0],
        occlusions=table[:, 1],
        alphas=table[:, 2],
        regions=table[:, 3:7],
        cuboids=table[:, 7:14],
        placed=(table[:, 10:13] != NO_PLACE).any(axis=1),
        scores=table[:, 14],
    )
