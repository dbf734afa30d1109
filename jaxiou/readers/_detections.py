"""What all readers of detections share: what they return, and records of a file, checked."""

import gc
import itertools
import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Bool, Float64, Int32

from jaxiou.detection.packing import Detections, GroundTruth, Table
from jaxiou.readers._errors import FileError


@dataclass(frozen=True)
class LoadedDetections:
    """Truths and detections of all images of a data set, ready to be packed and evaluated.

    Labels are places in `category_ids`, and images places in `image_ids`.

    Attributes:
      table: the rows of both sides, float64, in NumPy, as `detection.packing.pack` takes them.
      overlaps: for each image a table `[D, G]` of its detections with its truths, in the order
        of their rows, where regions are no arrays: masks and keypoints. By the rule for crowds
        in the columns of crowds; -1 for two of different classes. None where the table has
        regions.
      image_ids: of every image, those without any row included, as the file has them, sorted.
      category_ids: of every class, as the file has them, in the order of the evaluator.
      category_names: of every class; its id where it has no name.
      frequencies: of LVIS: how often each class is seen, "r", "c" or "f", or None.
      negative: of LVIS and Open Images: classes known to be absent from an image, or None.
      positive: of Open Images: classes known to be in an image, or None.
      not_exhaustive: of LVIS: classes not all of whose objects in an image are marked, or None.
      ancestors: of Open Images: row by row the classes that a class is a kind of, or None.
    """

    table: Table
    overlaps: list[Float64[np.ndarray, "_ _"]] | None
    image_ids: list[Any]
    category_ids: list[Any]
    category_names: list[str]
    frequencies: list[str] | None = None
    negative: Bool[np.ndarray, "images classes"] | None = None
    positive: Bool[np.ndarray, "images classes"] | None = None
    not_exhaustive: Bool[np.ndarray, "images classes"] | None = None
    ancestors: Bool[np.ndarray, "classes classes"] | None = None

    @property
    def num_classes(self) -> int:
        """As evaluators take it."""
        return len(self.category_ids)


@dataclass(frozen=True)
class Records:
    """A list in a JSON document, and where it stands: `results[3]` of a file, or of an argument.

    Attributes:
      source: the file, or the name of the argument.
      name: of the list.
      rows: what is in it.
    """

    source: str | Path
    name: str
    rows: Sequence[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def refuse(self, row: int, reason: str) -> NoReturn:
        fail(self.source, f"{self.name}[{row}]: {reason}")

    def column(self, key: str) -> list[Any]:
        """One field of all records."""
        try:
            return [row[key] for row in self.rows]
        except (KeyError, TypeError, IndexError):
            for place, row in enumerate(self.rows):
                if not isinstance(row, Mapping):
                    self.refuse(place, f"is no object but {short(row)}")
                if key not in row:
                    self.refuse(place, f"has no {key!r}")
            raise

    def numbers(self, key: str, size: int | None = None) -> Float64[np.ndarray, "..."]:
        """One field of all records, a finite number `[rows]`, or `size` of them `[rows, size]`."""
        return self.finite(key, self.column(key), size)

    def finite(self, key: str, values: list[Any], size: int | None = None) -> np.ndarray:
        """Values of all records as an array of numbers."""
        shape = (len(values),) if size is None else (len(values), size)
        if not values:
            return np.zeros(shape)
        try:  # Without a type, so that neither "1" nor None becomes a number.
            array = np.array(values)
        except ValueError:  # rows of different lengths
            array = np.zeros(0)
        flat = values if size is None else itertools.chain.from_iterable(values)
        if array.dtype.kind not in "iuf" or array.shape != shape or _has_flags(flat):
            for place, value in enumerate(values):
                if size is None and not _is_number(value):
                    self.refuse(place, f"{key} is {short(value)}, no number")
                if size is not None and not _are_numbers(value, size):
                    self.refuse(place, f"{key} is {short(value)}, not {size} numbers")
            # Integers too large for NumPy's own types, or for any float, are here as well.
            rows = [[_float(x) for x in np.ravel(np.array(row, object))] for row in values]
            array = np.array(rows).reshape(shape)
        array = array.astype(np.float64, copy=False)
        if not np.isfinite(array).all():
            wrong = ~np.isfinite(array).reshape(len(values), -1).all(axis=1)
            place = int(np.flatnonzero(wrong)[0])
            self.refuse(place, f"{key} is {short(values[place])}, which is not finite")
        return array

    def flags(self, key: str) -> Bool[np.ndarray, " rows"]:
        """Whether a field is there, and neither 0 nor false."""
        try:
            values = [row.get(key, 0) for row in self.rows]
        except AttributeError:
            self.column(key)
            raise
        for place, value in enumerate(values):
            if not isinstance(value, int | float | np.number | np.bool_ | None):
                self.refuse(place, f"{key} is {short(value)}, neither 0 nor 1")
        return np.fromiter(map(bool, values), bool, len(self))

    def places(self, key: str, known: Mapping[Any, int], where: str) -> Int32[np.ndarray, " rows"]:
        """The places of the ids in a field; `where` says what they are places in."""
        values = self.column(key)
        try:
            return np.array([known[value] for value in values], np.int32)
        except (KeyError, TypeError):
            for place, value in enumerate(values):
                if not isinstance(value, Hashable) or value not in known:
                    self.refuse(place, f"{key} {short(value)} is not in {where}")
            raise

    def ids(self) -> list[Any]:
        """The ids of all records, each once, sorted: numbers first, then strings."""
        values = self.column("id")
        for place, value in enumerate(values):
            if not isinstance(value, str | int | float | np.number):
                self.refuse(place, f"id is {short(value)}, neither a number nor a string")
            if isinstance(value, float) and not math.isfinite(value):
                self.refuse(place, f"id is {value}, which is not finite")
        return sorted(set(values), key=lambda value: (isinstance(value, str), value))


def parse(path: str | Path) -> Any:
    """The content of a JSON file."""
    text = content(path)
    # Looking for cycles among objects of which none is free yet takes a third of the time.
    collected = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # integers of too many digits among them
        raise FileError(path, f"is not JSON: {error}") from error
    finally:
        if collected:
            gc.enable()


def content(path: str | Path) -> bytes:
    """The bytes of a file."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise FileError(path, "does not exist") from error
    except (OSError, ValueError) as error:  # no path has the character 0
        reason = getattr(error, "strerror", None) or error
        raise FileError(path, f"cannot be read: {reason}") from error


def check_folder(path: Path) -> None:
    """Raises FileError if it is no folder."""
    try:
        if path.is_dir():
            return
        reason = "is no folder" if path.exists() else "does not exist"
    except OSError as error:  # a name that is too long, a folder that may not be entered
        reason = f"cannot be read: {error.strerror}"
    raise FileError(path, reason)


def text_of(path: str | Path) -> str:
    """The content of a text file."""
    try:
        return content(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileError(path, "is not a text file") from error


def names(given: str | Path | Sequence[str]) -> list[str]:
    """Names that are given, or that stand in the lines of a file, each once."""
    if not isinstance(given, str | Path):
        return list(dict.fromkeys(given))
    lines = [line.strip() for line in text_of(given).splitlines()]
    found = list(dict.fromkeys(filter(None, lines)))
    if not found:
        raise FileError(given, "has no line that is not empty")
    return found


def decimals(
    path: str | Path, lines: Sequence[int], **columns: Sequence[str]
) -> Float64[np.ndarray, "rows columns"]:
    """Columns of text as finite numbers; `lines` are where the rows stand in their file."""
    try:
        array = np.array(list(columns.values()), np.float64)
        if np.isfinite(array).all():
            return array.reshape(len(columns), -1).T
    except ValueError:
        pass
    for row, line in enumerate(lines):
        for name, values in columns.items():
            try:
                finite = np.isfinite(float(values[row]))
            except ValueError:
                finite = False
            if not finite:
                raise FileError(path, f"line {line}: {name} is {values[row]!r}, no finite number")
    raise AssertionError(path)


def fail(source: str | Path, reason: str) -> NoReturn:
    """Raises FileError about a file, ValueError about an argument."""
    if isinstance(source, Path):
        raise FileError(source, reason)
    raise ValueError(f"{source}: {reason}")


def places_of(ids: Iterable[Any]) -> dict[Any, int]:
    return {value: place for place, value in enumerate(ids)}


def rows_of_groups(groups: Int32[np.ndarray, " rows"], count: int) -> list[np.ndarray]:
    """The rows of each of `count` groups, in their order."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.cumsum(np.bincount(groups, minlength=count))[:-1])[:count]


def table(
    *,
    found: Any,
    found_areas: Any = None,
    scores: np.ndarray,
    found_labels: np.ndarray,
    found_images: np.ndarray,
    truths: Any,
    truth_areas: Any = None,
    truth_labels: np.ndarray,
    truth_images: np.ndarray,
    crowd: Any = None,
    ignored: Any = None,
    num_images: int,
) -> Table:
    """All rows of both sides; `found` and `truths` are their regions."""
    here, there = (np.ones(len(x), bool) for x in (found_images, truth_images))
    return Table(
        Detections(found, scores, found_labels, here, found_areas),
        found_images,
        GroundTruth(truths, truth_labels, there, truth_areas, crowd, ignored),
        truth_images,
        num_images,
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _are_numbers(values: Any, size: int) -> bool:
    is_list = isinstance(values, list | tuple | np.ndarray)
    return is_list and len(values) == size and all(_is_number(value) for value in values)


def _has_flags(values: Iterable[Any]) -> bool:
    """Whether there is a bool, which NumPy takes for a number among numbers."""
    try:
        return not {bool, np.bool_}.isdisjoint(set(map(type, values)))
    except TypeError:  # rows that are no lists
        return True


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        text = f"of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
