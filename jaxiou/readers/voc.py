"""Detections in the files of PASCAL VOC: truths in XML, results in text by image or by class.

Boxes are the files' inclusive pixel corners: `(x1, y1, x2, y2)` covers `x2 - x1 + 1` columns. An
overlap for continuous corners wants `boxes.from_inclusive` first; `detection.voc` does not.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np

from jaxiou.readers import _detections
from jaxiou.readers._detections import LoadedDetections, places_of
from jaxiou.readers._errors import FileError

__all__ = ["load", "CLASSES"]

CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa"),
    *("train", "tvmonitor"),
)
"""Those of VOC, in the order of its development kit."""

CORNERS = ("xmin", "ymin", "xmax", "ymax")


def load(
    targets: str | Path,
    predictions: str | Path | Sequence[str | Path],
    *,
    classes: str | Path | Sequence[str] | None = None,
    images: str | Path | Sequence[str] | None = None,
) -> LoadedDetections:
    """A data set of a folder of truths and a folder of results.

    Args:
      targets: folder of truths, `<image>.xml`.
      predictions: folder of results, `*.txt`, or their files. `<image>.txt` has lines `class score
        x1 y1 x2 y2`, with a name or its place in `classes`, from 0. A file whose name is a class,
        or ends with `_` and a class, as `comp4_det_test_cat.txt`, has lines `image score x1 y1 x2
        y2`. An image or a class without file has no results.
      classes: names, or a file with one a line; None takes VOC's, `CLASSES`.
      images: which images there are, in their order: names, or a file whose lines begin with one,
        as in `ImageSets/Main`; results of others of which there are truths are left out. None takes
        all truths, sorted by name.

    Returns:
      `LoadedDetections`, with inclusive corners in pixels, and difficult truths as `ignored`. Its
      images and classes are names. Results with equal scores are in the order of images here, not
      in that of their file.

    Raises:
      FileError: if a folder or file is missing, or there is none in it, a file is no XML or text,
        of a name that is neither an image nor a class, or has an object or line without a known
        class, a known image, or four finite numbers and a score, or an object whose corners are
        inverted. The text gives the object or line.

    Example:
      >>> import tempfile
      >>> box = "<xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
      >>> cat = f"<object><name>cat</name><bndbox>{box}</bndbox></object>"
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = Path(folder, "000001.xml").write_text(f"<annotation>{cat}</annotation>")
      ...     _ = Path(folder, "000001.txt").write_text("cat 0.5 1 1 9 8\\n")
      ...     table = load(folder, folder).table
      >>> print(table.detections.regions, table.truths.labels)
      [[1. 1. 9. 8.]] [7]

    Reference:
      Everingham et al., "The PASCAL Visual Object Classes (VOC) Challenge", IJCV 2010.
    """
    names = _detections.names(CLASSES if classes is None else classes)
    files = _images(Path(targets), images)
    labels, places = places_of(names), places_of(files)
    truths = _truths(files, labels)
    others = set() if images is None else {path.stem for path in Path(targets).glob("*.xml")}
    found = _results(_files(predictions), labels, places, others - set(files))
    return LoadedDetections(
        _detections.table(
            found=found.regions,
            scores=found.scores,
            found_labels=found.labels,
            found_images=found.images,
            truths=truths.regions,
            truth_labels=truths.labels,
            truth_images=truths.images,
            ignored=truths.difficult,
            num_images=len(files),
        ),
        None,
        list(files),
        names,
        list(names),
    )


class _Truths(NamedTuple):
    regions: np.ndarray
    labels: np.ndarray
    images: np.ndarray
    difficult: np.ndarray


class _Results(NamedTuple):
    regions: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    images: np.ndarray


def _images(folder: Path, images: str | Path | Sequence[str] | None) -> dict[str, Path]:
    """The file of truths of each image."""
    _detections.check_folder(folder)
    if images is None:
        found = {path.stem: path for path in sorted(folder.glob("*.xml"))}
        if not found:
            raise FileError(folder, "has no .xml file")
        return found
    names = _detections.names(images)
    if isinstance(images, str | Path):
        names = list(dict.fromkeys(name.split()[0] for name in names))
    for name in names:
        if "/" in name or os.sep in name:  # it would find its truths, but no result
            source = Path(images) if isinstance(images, str | Path) else "images"
            _detections.fail(source, f"{name!r} is a path, no name of an image")
    return {name: folder / f"{name}.xml" for name in names}


def _files(predictions: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files of results, sorted by name."""
    if not isinstance(predictions, str | Path):
        return [Path(path) for path in predictions]
    folder = Path(predictions)
    if os.path.isfile(folder):
        return [folder]
    _detections.check_folder(folder)
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise FileError(folder, "has no .txt file")
    return files


def _truths(files: Mapping[str, Path], classes: Mapping[str, int]) -> _Truths:
    regions, labels, images, difficult = [], [], [], []
    for image, path in enumerate(files.values()):
        try:
            root = ElementTree.fromstring(_detections.content(path))
        # The last two are for encodings that there are not, or that are not read.
        except (ElementTree.ParseError, LookupError, ValueError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(path, f"is no XML: {error}") from error
        for place, item in enumerate(root.findall("object"), 1):
            name = _text(item, "name")
            if name not in classes:
                raise FileError(path, f"object {place}: class {name!r} is not among the classes")
            hard = _text(item, "difficult") or "0"
            if hard not in ("0", "1"):
                raise FileError(path, f"object {place}: difficult is {hard!r}, neither 0 nor 1")
            regions.append(_corners(path, place, item))
            labels.append(classes[name])
            images.append(image)
            difficult.append(hard == "1")
    return _Truths(
        np.array(regions, np.float64).reshape(-1, 4),
        np.array(labels, np.int32),
        np.array(images, np.int32),
        np.array(difficult, bool),
    )


def _corners(path: Path, place: int, item: ElementTree.Element) -> list[float]:
    values = [_text(item, f"bndbox/{corner}") for corner in CORNERS]
    try:
        corners = [float(value) for value in values]
    except ValueError:
        corners = [np.nan]
    if not np.isfinite(corners).all():
        raise FileError(path, f"object {place}: bndbox is {values}, not four finite numbers")
    if corners[2] < corners[0] or corners[3] < corners[1]:
        raise FileError(path, f"object {place}: bndbox is {corners}, which is inverted")
    return corners


def _text(item: ElementTree.Element, path: str) -> str:
    """What stands in an element, "" if there is none."""
    return (item.findtext(path) or "").strip()


def _results(
    files: Sequence[Path], classes: Mapping[str, int], images: Mapping[str, int], others: set[str]
) -> _Results:
    """Results of `images`; those of `others` are left out."""
    parts = [
        _results_of_file(path, classes, images, others) for path in files if path.stem not in others
    ]
    if not parts:
        none = np.zeros(0, np.int32)
        return _Results(np.zeros((0, 4)), np.zeros(0), none, none)
    return _Results(*map(np.concatenate, zip(*parts, strict=True)))


def _results_of_file(
    path: Path, classes: Mapping[str, int], images: Mapping[str, int], others: set[str]
) -> _Results:
    """The lines of a file, which is that of an image or of a class."""
    of_image = path.stem in images
    of_class = _class_of(path.stem, classes)
    if not of_image and of_class is None:
        raise FileError(path, "its name is neither an image nor a class, nor ends in one")
    lines, rows = [], []
    for line, text in enumerate(_detections.text_of(path).splitlines(), 1):
        fields = text.split()
        if fields:
            if len(fields) != 6:
                raise FileError(path, f"line {line}: has {len(fields)} fields, not 6")
            if of_image or fields[0] not in others:
                lines.append(line)
                rows.append(fields)
    first, *columns = zip(*rows, strict=True) if rows else [()] * 6
    numbers = _detections.decimals(
        path, lines, **dict(zip(("score", "x1", "y1", "x2", "y2"), columns, strict=True))
    )
    known = {**{str(place): place for place in classes.values()}, **classes} if of_image else images
    places = [known.get(name, -1) for name in first]
    if -1 in places:
        row = places.index(-1)
        what = "class" if of_image else "image"
        raise FileError(path, f"line {lines[row]}: {what} {first[row]!r} is not known")
    here = np.array(places, np.int32)
    there = np.full(len(here), images[path.stem] if of_image else of_class, np.int32)
    labels, of = (here, there) if of_image else (there, here)
    return _Results(numbers[:, 1:], numbers[:, 0], labels, of)


def _class_of(stem: str, classes: Mapping[str, int]) -> int | None:
    """The class that a name is, or has behind its last fitting underscore."""
    while stem not in classes and "_" in stem:
        stem = stem.split("_", 1)[1]
    return classes.get(stem)
