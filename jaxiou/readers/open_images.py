"""Detections in the tables of Open Images: boxes, verified labels and results, CSV with a header.

Boxes are continuous corners `(x1, y1, x2, y2)` as fractions of the image's width and height.
Columns may stand in any order, and there may be more of them.
"""

import csv
import io
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32

from jaxiou.readers import _detections
from jaxiou.readers._detections import LoadedDetections, places_of, short
from jaxiou.readers._errors import FileError

__all__ = ["load"]

CORNERS = ("XMin", "YMin", "XMax", "YMax")
CONFIDENCES = ("Confidence", "ConfidenceImageLabel")
COLUMNS = {"ImageID", "LabelName", *CORNERS, "Score", "IsGroupOf", "IsDifficult", *CONFIDENCES}


def load(
    targets: str | Path,
    predictions: str | Path,
    *,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    hierarchy: str | Path | None = None,
    images: str | Path | Sequence[str] | None = None,
) -> LoadedDetections:
    """A data set of a file of boxes and one of results.

    Args:
      targets: CSV of truths with the columns ImageID, LabelName, XMin, XMax, YMin, YMax, and, where
        there are any, IsGroupOf and IsDifficult.
      predictions: CSV of results with ImageID, LabelName, Score, XMin, XMax, YMin, YMax.
      labels: CSV of image-level labels that people have verified, with ImageID, LabelName and
        Confidence (or ConfidenceImageLabel), 1 for a class that is there and 0 for one that is not.
      classes: the LabelNames to evaluate, or a CSV with one in each line and a name for people
        behind it. None takes all of targets, predictions and hierarchy, sorted.
      hierarchy: JSON tree of `LabelName` and `Subcategory`, whose root is no class.
      images: ImageIDs, or a CSV that has them in its first column. None takes those of targets and
        labels.

    Returns:
      `LoadedDetections`, images sorted by their ImageID. Truths that are groups are `crowd`,
      difficult ones `ignored`. With `labels`, `positive` and `negative` say which classes are
      verified in an image, bool `[images, classes]`; labels of other classes than those evaluated,
      of which the files have thousands, are left out. With `hierarchy`, `ancestors[k]` are the
      classes of which class k is a kind, at any distance, bool `[classes, classes]`; truths and
      labels are those of the files, not yet copied to them.

    Raises:
      FileError: if a file is missing or no CSV or JSON, lacks a column or has it twice, or has a
        row with another number of fields, an image or a class that there is not, something that is
        no finite number, an inverted box, a flag that is neither 0 nor 1, or a confidence that is
        neither. The text gives the line.

    Example:
      >>> import tempfile
      >>> header = "ImageID,LabelName,XMin,XMax,YMin,YMax,"
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     files = Path(folder, "truths.csv"), Path(folder, "results.csv")
      ...     _ = files[0].write_text(f"{header}IsGroupOf\\na0,/m/01yrx,0.1,0.5,0.2,0.6,1\\n")
      ...     _ = files[1].write_text(f"{header}Score\\na0,/m/01yrx,0.1,0.5,0.2,0.7,0.9\\n")
      ...     table = load(*files).table
      >>> print(table.detections.regions, table.truths.crowd)
      [[0.1 0.2 0.5 0.7]] [ True]

    Reference:
      Kuznetsova et al., "The Open Images Dataset V4", IJCV 2020, https://arxiv.org/abs/1811.00982.
    """
    truths, results = _table(targets), _table(predictions)
    verified = None if labels is None else _table(labels)
    tree = None if hierarchy is None else _tree(hierarchy)

    category_ids, names = _classes(classes, (truths, results), tree)
    image_ids = _images(images, [truths] if verified is None else [truths, verified])
    class_places, image_places = places_of(category_ids), places_of(image_ids)
    positive = negative = None
    if verified is not None:
        positive, negative = _verified(verified, image_places, class_places)
    return LoadedDetections(
        _detections.table(
            found=results.boxes(),
            scores=results.numbers("Score")[:, 0],
            found_labels=results.places("LabelName", class_places),
            found_images=results.places("ImageID", image_places),
            truths=truths.boxes(),
            truth_labels=truths.places("LabelName", class_places),
            truth_images=truths.places("ImageID", image_places),
            crowd=truths.flags("IsGroupOf"),
            ignored=truths.flags("IsDifficult"),
            num_images=len(image_ids),
        ),
        None,
        image_ids,
        category_ids,
        names,
        positive=positive,
        negative=negative,
        ancestors=None if tree is None else _ancestors(tree, class_places),
    )


class _Table(NamedTuple):
    """The columns of a CSV file, and the lines of its rows."""

    path: Path
    columns: dict[str, Sequence[str]]
    lines: list[int]

    def column(self, name: str) -> Sequence[str]:
        if name not in self.columns:
            raise FileError(self.path, f"has no column {name!r}")
        return self.columns[name]

    def numbers(self, *names: str) -> Float64[np.ndarray, "rows names"]:
        columns = {name: self.column(name) for name in names}
        return _detections.decimals(self.path, self.lines, **columns)

    def boxes(self) -> Float64[np.ndarray, "rows 4"]:
        boxes = self.numbers(*CORNERS)
        for row in np.flatnonzero((boxes[:, 2:] < boxes[:, :2]).any(axis=1))[:1]:
            raise FileError(self.path, f"line {self.lines[row]}: the box {boxes[row]} is inverted")
        return boxes

    def flags(self, name: str) -> Bool[np.ndarray, " rows"]:
        """Of a column that need not be there."""
        if name not in self.columns:
            return np.zeros(len(self.lines), bool)
        values = self.columns[name]
        for row, value in enumerate(values):
            if value not in ("0", "1"):
                raise FileError(
                    self.path, f"line {self.lines[row]}: {name} is {value!r}, neither 0 nor 1"
                )
        return np.array([value == "1" for value in values], bool)

    def places(self, name: str, known: Mapping[str, int]) -> Int32[np.ndarray, " rows"]:
        values = self.column(name)
        try:
            return np.array([known[value] for value in values], np.int32)
        except KeyError:
            row = next(row for row, value in enumerate(values) if value not in known)
            what = "images" if name == "ImageID" else "classes"
            raise FileError(
                self.path, f"line {self.lines[row]}: {name} {values[row]!r} is not among the {what}"
            ) from None


def _table(path: str | Path) -> _Table:
    reader = csv.reader(io.StringIO(_detections.text_of(path), newline=""))
    rows, lines = [], []
    try:
        header = [name.strip() for name in next(reader, [])]
        if "ImageID" not in header:
            raise FileError(path, "has no column 'ImageID'")
        wanted = [name for name in header if name in COLUMNS]
        for name in wanted:
            if wanted.count(name) > 1:
                raise FileError(path, f"has the column {name!r} twice")
        pick = operator.itemgetter(0, *map(header.index, wanted))  # of one it gives no tuple
        for row in reader:
            if len(row) == len(header):
                rows.append(pick(row))
                lines.append(reader.line_num)
            elif row:
                reason = f"line {reader.line_num}: has {len(row)} of {len(header)} fields"
                raise FileError(path, reason)
    except csv.Error as error:
        raise FileError(path, f"line {reader.line_num}: {error}") from error
    _, *columns = zip(*rows, strict=True) if rows else [()] * (len(wanted) + 1)
    return _Table(Path(path), dict(zip(wanted, columns, strict=True)), lines)


def _classes(
    classes: str | Path | Sequence[str] | None, tables: Sequence[_Table], tree: Any
) -> tuple[list[str], list[str]]:
    """LabelNames and names for people."""
    if classes is None:
        found = {name for table in tables for name in table.column("LabelName")}
        if tree is not None:
            found.update(name for name, above in _nodes(tree) if above)
        return sorted(found), sorted(found)
    if not isinstance(classes, str | Path):
        names = _detections.names(classes)
        return names, list(names)
    rows = [row for row in _rows(classes) if row[0] != "LabelName"]
    described = {row[0]: row[1] if len(row) > 1 else row[0] for row in rows}
    return list(described), list(described.values())


def _images(images: str | Path | Sequence[str] | None, tables: Sequence[_Table]) -> list[str]:
    if images is None:
        return sorted({name for table in tables for name in table.column("ImageID")})
    if isinstance(images, str | Path):
        return sorted({row[0] for row in _rows(images)} - {"ImageID"})
    return sorted(set(_detections.names(images)))


def _rows(path: str | Path) -> list[list[str]]:
    """The rows of a CSV file without header."""
    try:
        return list(csv.reader(_detections.names(path)))
    except csv.Error as error:
        raise FileError(path, f"is no CSV: {error}") from error


def _verified(
    table: _Table, images: Mapping[str, int], classes: Mapping[str, int]
) -> tuple[Bool[np.ndarray, "images classes"], Bool[np.ndarray, "images classes"]]:
    name = next((name for name in CONFIDENCES if name in table.columns), CONFIDENCES[0])
    confidence = table.numbers(name)[:, 0]
    for row in np.flatnonzero((confidence != 0) & (confidence != 1))[:1]:
        raise FileError(
            table.path,
            f"line {table.lines[row]}: {name} is {confidence[row]:g}, neither 0 nor 1, so that "
            f"nobody has verified it",
        )
    places = np.array([classes.get(x, -1) for x in table.column("LabelName")], np.int64)
    rows = table.places("ImageID", images)
    both = np.zeros((2, len(images), len(classes)), bool)
    for which, value in enumerate((1, 0)):
        here = (places >= 0) & (confidence == value)
        both[which, rows[here], places[here]] = True
    return both[0], both[1]


def _tree(path: str | Path) -> Any:
    tree = _detections.parse(path)
    try:
        list(_nodes(tree))
    except (KeyError, TypeError, AttributeError) as error:
        raise FileError(path, f"is no tree of LabelName and Subcategory: {short(error)}") from error
    return tree


def _nodes(tree: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every class of a tree with those above it; a class may stand at several places."""
    left: list[tuple[Any, tuple[str, ...]]] = [(tree, ())]
    while left:
        node, above = left.pop()
        name = node["LabelName"]
        if not isinstance(name, str):
            raise TypeError(f"{short(name)} is no name")
        yield name, above
        left.extend((child, (*above, name)) for child in node.get("Subcategory", ()))


def _ancestors(tree: Any, classes: Mapping[str, int]) -> Bool[np.ndarray, "classes classes"]:
    found = np.zeros((len(classes), len(classes)), bool)
    for name, above in _nodes(tree):
        if name in classes:
            for other in set(above[1:]) & set(classes) - {name}:
                found[classes[name], classes[other]] = True
    return found
