"""Label maps from PNG images with one channel: grey, palette or 16 bits a pixel, by Pillow.

A label is the number stored in a pixel. A palette's colours are not looked at, and 1, 2, 4,
8 and 16 bits a pixel are read as they are. What cannot hold labels is an error that names
the file: colours, a file that is cut short, another format than PNG. Of those some lose
labels, such as JPEG, and of others Pillow changes the numbers, such as PGM and TIFF.
"""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from jaxtyping import Int32, Integer

from jaxiou import _checks
from jaxiou.readers._errors import FileError

__all__ = ["read", "read_pair", "find_pairs", "Pair", "remap", "reduce_zero_label"]

INTEGERS = {"1", "L", "P", "I", "I;16", "I;16B", "I;16L"}
"""The modes of Pillow in which a pixel is one integer."""


@dataclass(frozen=True)
class Pair:
    """The files of one image.

    Attributes:
      name: what their names have in common.
      target: the file with the true labels.
      prediction: the file with the predicted ones.
    """

    name: str
    target: Path
    prediction: Path


def read(file: str | Path | BufferedIOBase) -> Integer[np.ndarray, "h w"]:
    """The labels in one image file.

    Args:
      file: its path, or a file that is open for reading in binary.

    Returns:
      `[H, W]`, uint8 for up to 8 bits a pixel, uint16 or int32 for 16, as Pillow has them.

    Raises:
      FileError: if it is missing, unreadable, in colour, or no PNG.

    At the edges:
      A grey image of 2 or 4 bits a pixel, which Pillow stretches to 0 to 255, is brought
      back to 0 to 3 or 15.

    Example:
      >>> import io
      >>> from PIL import Image
      >>> file = io.BytesIO()
      >>> Image.fromarray(np.array([[0, 7], [255, 1]], np.uint8)).save(file, "PNG")
      >>> print(read(file))
      [[  0   7]
       [255   1]]
    """
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ImportError("label maps are read by Pillow: pip install 'jaxiou[io]'") from error

    name = str(file if isinstance(file, str | Path) else getattr(file, "name", "an open file"))
    try:
        with Image.open(file) as image:  # type: ignore[arg-type]
            if image.format != "PNG":
                raise FileError(name, f"is a {image.format}, which may change labels, and no PNG")
            if image.mode not in INTEGERS:
                raise FileError(
                    name, f"has mode {image.mode}; a label map has one integer a pixel, not colours"
                )
            stretched = _stretch(image)
            labels = np.asarray(image)
    except UnidentifiedImageError as error:
        raise FileError(name, "is not an image that Pillow can read") from error
    except FileNotFoundError as error:
        raise FileError(name, "does not exist") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, FileError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise FileError(name, f"cannot be read: {reason}") from error
    labels = labels.astype(np.uint8) if labels.dtype == np.bool_ else labels
    return labels.astype(labels.dtype.newbyteorder("=")) // labels.dtype.type(stretched)


def read_pair(pair: Pair) -> tuple[Integer[np.ndarray, "h w"], Integer[np.ndarray, "h w"]]:
    """The labels of both files of a pair, which must be of one size.

    Args:
      pair: the files, as `find_pairs` gives them.

    Returns:
      Predictions and targets, `[H, W]` each.

    Raises:
      FileError: as `read`, and if the sizes differ.

    Example:
      >>> import tempfile
      >>> from PIL import Image
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = Path(folder, "a.png")
      ...     Image.fromarray(np.eye(2, dtype=np.uint8)).save(path)
      ...     predictions, targets = read_pair(Pair("a", target=path, prediction=path))
      >>> print(predictions.shape, (predictions == targets).all())
      (2, 2) True
    """
    targets, predictions = read(pair.target), read(pair.prediction)
    if predictions.shape != targets.shape:
        raise FileError(
            pair.prediction,
            f"is {_size(predictions)} pixels, but its target {pair.target} is {_size(targets)}",
        )
    return predictions, targets


def find_pairs(
    targets: str | Path,
    predictions: str | Path,
    *,
    target_suffix: str = ".png",
    prediction_suffix: str = ".png",
) -> list[Pair]:
    """The files of two folders, and of the folders in them, that belong together by name.

    Names are compared without the suffix. They alone count if no folder has the same name
    twice, so that a tree of truths goes with a flat folder of predictions; otherwise the
    path below the folder has to be the same.

    Args:
      targets: the folder of true label maps.
      predictions: the folder of predicted ones.
      target_suffix: how names of targets end, such as "_gtFine_labelIds.png"; files that end
        otherwise are not looked at.
      prediction_suffix: how names of predictions end.

    Returns:
      The pairs, by name.

    Raises:
      FileError: if a folder is missing, or has no such file, or a file has no partner.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as truths, tempfile.TemporaryDirectory() as found:
      ...     for path in (Path(truths, "b_labels.png"), Path(found, "b.png")):
      ...         path.touch()
      ...     pairs = find_pairs(truths, found, target_suffix="_labels.png")
      >>> print(pairs[0].name, pairs[0].prediction.name)
      b b.png
    """
    sides = [
        (Path(targets), target_suffix, "prediction", Path(predictions)),
        (Path(predictions), prediction_suffix, "target", Path(targets)),
    ]
    found = [_files(folder, suffix) for folder, suffix, _, _ in sides]
    if any(n > 1 for paths in found for n in Counter(p.name for p in paths).values()):
        keys = [{p.as_posix(): path for p, path in paths.items()} for paths in found]
    else:
        keys = [{p.name: path for p, path in paths.items()} for paths in found]
    for own, other, (_, _, partner, folder) in zip(keys, keys[::-1], sides, strict=True):
        alone = sorted(own.keys() - other.keys())
        if alone:
            more = f"; the same holds for {len(alone) - 1} more" if len(alone) > 1 else ""
            raise FileError(own[alone[0]], f"has no {partner} {alone[0]!r} in {folder}{more}")
    return [Pair(key, keys[0][key], keys[1][key]) for key in sorted(keys[0])]


def remap(
    labels: Integer[np.ndarray, "..."], table: Mapping[int, int]
) -> Integer[np.ndarray, "..."]:
    """Labels by a table, all at once: `{0: 1, 1: 0}` swaps two.

    Args:
      labels: integers of any type and shape; they are not changed.
      table: new labels by old ones.

    Returns:
      int32, of the shape of `labels`. Labels that the table does not have stay as they are.

    Raises:
      ValueError: if a label, of the map or the table, does not fit in 32 bits.

    Example:
      >>> print(remap(np.array([0, 1, 2, 255], np.uint8), {0: 1, 1: 0, 255: -1}))
      [ 1  0  2 -1]
    """
    _check_labels(labels)
    old = np.array(sorted(table), np.int64)
    new = np.array([table[label] for label in sorted(table)], np.int64)
    limits = np.iinfo(np.int32)
    for label in (*old, *new):
        if not limits.min <= label <= limits.max:
            raise ValueError(f"table has the label {label}, which does not fit in 32 bits")
    if not table:
        return labels.astype(np.int32)
    place = np.minimum(np.searchsorted(old, labels), len(old) - 1)
    return np.where(old[place] == labels, new[place], labels).astype(np.int32)


def reduce_zero_label(labels: Integer[np.ndarray, "..."]) -> Int32[np.ndarray, "..."]:
    """ADE20K's labels as mmseg wants them: 0, unlabeled, becomes 255, and k becomes k - 1.

    Args:
      labels: integers of any type and shape; they are not changed.

    Returns:
      int32, of the shape of `labels`. 255 stays 255.

    Raises:
      ValueError: if a label does not fit in 32 bits.

    Example:
      >>> print(reduce_zero_label(np.array([0, 1, 150, 255], np.uint8)))
      [255   0 149 255]
    """
    _check_labels(labels)
    wide = labels.astype(np.int32)
    return np.where((wide == 0) | (wide == 255), 255, wide - 1).astype(np.int32)


def _files(folder: Path, suffix: str) -> dict[PurePosixPath, Path]:
    """All files below a folder that end in `suffix`, by path below it without the suffix."""
    if not folder.is_dir():
        raise FileError(folder, "is not a folder" if folder.exists() else "does not exist")

    def refuse(error: OSError) -> None:
        raise FileError(error.filename, f"cannot be read: {error.strerror}") from error

    found = {}
    for place, _, names in os.walk(folder, onerror=refuse, followlinks=True):
        for name in sorted(names):
            if name.endswith(suffix):
                path = Path(place, name)
                below = path.relative_to(folder).parent / f"{name.removesuffix(suffix)}"
                if name == suffix:
                    raise FileError(path, f"has no name but its suffix {suffix!r}")
                found[PurePosixPath(below.as_posix())] = path
    if not found:
        raise FileError(folder, f"has no file whose name ends in {suffix!r}")
    return found


def _check_labels(labels: np.ndarray) -> None:
    _checks.is_array("labels", labels)
    _checks.is_integer("labels", labels)
    limits = np.iinfo(np.int32)
    if labels.size and not (limits.min <= labels.min() and labels.max() <= limits.max):
        raise ValueError(
            f"labels hold integers in [{labels.min()}, {labels.max()}], which do not fit in 32 bits"
        )


def _stretch(image: Any) -> int:
    """By how much Pillow has multiplied the numbers of a PNG: 85 for 2 bits, 17 for 4."""
    if image.mode != "L":
        return 1
    raw = image.tile[0][3]  # "L;2" and the like; the rest of the file is not read yet
    bits = int(raw.partition(";")[2] or 8) if isinstance(raw, str) else 8
    return 255 // (2**bits - 1)


def _size(labels: np.ndarray) -> str:
    return f"{labels.shape[1]} x {labels.shape[0]}"
