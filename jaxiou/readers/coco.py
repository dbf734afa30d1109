"""Detections from COCO's files: boxes, masks, boundaries and keypoints.

Truths are one JSON object with the lists `images`, `categories` and `annotations`, results a list
of objects with `image_id`, `category_id`, `score`, and what the kind asks for. Ids may be any
numbers or strings, and truths and results need none of their own. What the evaluator of COCO takes
from a file is taken here, to the bit; what it drops silently is an error here: results of images or
categories that the truths do not have, masks of another size than their image.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Float64

from jaxiou import _checks
from jaxiou.readers import _annotations
from jaxiou.readers._annotations import Annotated, Areas, Compare
from jaxiou.readers._detections import LoadedDetections

__all__ = ["load", "from_dicts", "SIGMAS"]

SIGMAS = tuple(
    x / 10
    for x in (
        *(0.26, 0.25, 0.25, 0.35, 0.35),  # nose, eyes, ears
        *(0.79, 0.79, 0.72, 0.72, 0.62, 0.62),  # shoulders, elbows, wrists
        *(1.07, 1.07, 0.87, 0.87, 0.89, 0.89),  # hips, knees, ankles
    )
)
"""For each of COCO's keypoints the standard deviation of where people mark it, over the square root
of the area of its object: pycocotools' `kpt_oks_sigmas`."""

KINDS = ("bbox", "segm", "boundary", "keypoints")
Kind = Literal["bbox", "segm", "boundary", "keypoints"]
Sigmas = Sequence[float] | Float[np.ndarray, " points"]


def load(
    targets: str | Path,
    predictions: str | Path,
    *,
    kind: Kind = "bbox",
    areas: Areas | None = None,
    across_classes: bool = False,
    sigmas: Sigmas | None = None,
) -> LoadedDetections:
    """A data set of two JSON files.

    Args:
      targets: file of truths.
      predictions: file of results.
      kind: what is compared.
      areas: of detections, as in `from_dicts`.
      across_classes: as in `from_dicts`.
      sigmas: as in `from_dicts`.

    Returns:
      As `from_dicts`.

    Raises:
      FileError: if a file is missing or no JSON, and wherever `from_dicts` raises ValueError. The
        text gives the list and the place in it, from 0.

    Example:
      >>> import tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     truths, results = Path(folder, "truths.json"), Path(folder, "results.json")
      ...     _ = truths.write_text('{"images": [{"id": 7}], "categories": [], "annotations": []}')
      ...     _ = results.write_text("[]")
      ...     print(load(truths, results).image_ids)
      [7]
    """
    return _loaded(
        _annotations.read(targets, predictions),
        kind=kind,
        areas=areas,
        across_classes=across_classes,
        sigmas=sigmas,
    )


def from_dicts(
    targets: Mapping[str, Any],
    predictions: Sequence[Mapping[str, Any]],
    *,
    kind: Kind = "bbox",
    areas: Areas | None = None,
    across_classes: bool = False,
    sigmas: Sigmas | None = None,
) -> LoadedDetections:
    """A data set of what the two JSON files hold, or of pycocotools' `dataset`.

    Args:
      targets: a dict with the lists "images", "categories" and "annotations".
      predictions: results, a list of dicts.
      kind: what is compared: "bbox", "segm" (masks), "boundary" (the smaller one of mask IoU and
        boundary IoU) or "keypoints".
      areas: where the area of a detection comes from: width times height of its "bbox", the
        pixels of its "mask", the extent of its "keypoints", or the field `area` that is "given",
        as pycocotools' `loadRes` leaves it. None does as `loadRes`: of these, in this order, what
        the first result has decides for all. Masks that come with boxes get box areas then, which
        moves them between COCO's area ranges.
      across_classes: overlaps of all pairs of an image, as an evaluation without classes needs
        them, and not only of those of one class.
      sigmas: of keypoints, as pycocotools' `kpt_oks_sigmas`; None takes COCO's 17, `SIGMAS`.

    Returns:
      `LoadedDetections`, images and classes sorted by their ids. Boxes are the file's own `(x, y,
      width, height)`, `[rows, 4]`; masks and keypoints have `overlaps` instead. Results without
      "bbox", but with masks, get the smallest box around the mask. Areas of truths are their field
      `area`, and truths are crowds by `iscrowd`; their field `ignore` is not looked at, as in
      COCO, but keypoint truths with `num_keypoints` 0 are ignored.

    Raises:
      ValueError: for lists and fields that are missing, ids that `targets` does not have, a box
        without four finite numbers, a score that is no finite number, a mask that cannot be read
        or has another size than its image, keypoints of another count than `sigmas`. The text
        gives the list and the place in it, from 0.
      ImportError: for masks without pycocotools.

    At the edges:
      No images, no truths, no results: empty rows. Boxes of no or negative size stay. Fields
      that are not needed are not looked at.

    Example:
      >>> truth = {"image_id": 0, "category_id": "cat", "bbox": [1, 2, 3, 4], "area": 9.5}
      >>> targets = {"images": [{"id": 0}], "categories": [{"id": "cat"}], "annotations": [truth]}
      >>> loaded = from_dicts(targets, [{**truth, "score": 0.5}])
      >>> print(loaded.table.truths.areas, loaded.table.detections.areas, loaded.category_ids)
      [9.5] [12.] ['cat']

    Reference:
      Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014,
      https://arxiv.org/abs/1405.0312; Cheng et al., "Boundary IoU: Improving Object-Centric Image
      Segmentation Evaluation", CVPR 2021, https://arxiv.org/abs/2103.16562. pycocotools' `COCO`,
      `loadRes` and `computeOks`.
    """
    return _loaded(
        _annotations.annotated(targets, predictions),
        kind=kind,
        areas=areas,
        across_classes=across_classes,
        sigmas=sigmas,
    )


def _loaded(
    data: Annotated,
    *,
    kind: Kind,
    areas: Areas | None,
    across_classes: bool,
    sigmas: Sigmas | None,
) -> LoadedDetections:
    _checks.one_of("kind", kind, KINDS)
    _checks.one_of("areas", areas, _annotations.AREAS)
    crowd = data.truths.flags("iscrowd")
    ignored = data.truths.numbers("num_keypoints") == 0 if kind == "keypoints" else None
    table = data.table(boxes=kind == "bbox", areas=areas, crowd=crowd, ignored=ignored)
    overlaps = None
    if kind != "bbox":
        if kind == "keypoints":
            compare = _object_keypoint_similarity(data, SIGMAS if sigmas is None else sigmas)
        else:
            compare = data.compare_masks(crowd, by_boundary=kind == "boundary")
        overlaps = data.overlaps(compare, across_classes=across_classes)
    return LoadedDetections(table, overlaps, data.image_ids, data.category_ids, data.category_names)


def _object_keypoint_similarity(data: Annotated, sigmas: Sigmas) -> Compare:
    """OKS of pycocotools, operation by operation: the mean over the keypoints of a truth that are
    marked of `exp(-distance^2 / (8 sigma^2 area))`; without marks, the distance from a box that is
    three times as wide and high as the truth's, over all keypoints."""
    count = len(sigmas)
    variances = (np.asarray(sigmas, np.float64) * 2) ** 2
    found = data.results.numbers("keypoints", 3 * count)
    truths = data.truths.numbers("keypoints", 3 * count)
    boxes, areas = data.truths.numbers("bbox", 4), data.truths.numbers("area")

    def similarity(x: np.ndarray, y: np.ndarray, truth: int) -> np.ndarray:
        marked = truths[truth, 2::3] > 0
        if marked.any():
            dx, dy = x - truths[truth, 0::3], y - truths[truth, 1::3]
        else:
            left, top, width, height = boxes[truth]
            dx = np.maximum(0, (left - width) - x) + np.maximum(0, x - (left + width * 2))
            dy = np.maximum(0, (top - height) - y) + np.maximum(0, y - (top + height * 2))
            marked = np.ones(count, bool)
        exponents = (dx**2 + dy**2) / variances / (areas[truth] + np.spacing(1)) / 2
        # Contiguous rows, so that NumPy adds them up in pairs as pycocotools has it done.
        exponents = np.compress(marked, exponents, axis=1)
        return np.sum(np.exp(-exponents), axis=1) / exponents.shape[1]

    def compare(rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "d g"]:
        x, y = found[rows, 0::3], found[rows, 1::3]
        return np.stack([similarity(x, y, truth) for truth in columns.tolist()], axis=1)

    return compare
