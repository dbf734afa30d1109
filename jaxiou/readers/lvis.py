"""Detections from LVIS's files: boxes, masks and boundaries, with what is known of each image.

The files are COCO's, but no truth is a crowd, the field `ignore` of a truth counts, and images and
classes say more: `neg_category_ids`, `not_exhaustive_category_ids` and `frequency`.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool

from jaxiou import _checks
from jaxiou.readers import _annotations
from jaxiou.readers._annotations import Annotated, Areas
from jaxiou.readers._detections import LoadedDetections, places_of, short

__all__ = ["load"]

KINDS = ("bbox", "segm", "boundary")
FREQUENCIES = ("r", "c", "f")


def load(
    targets: str | Path,
    predictions: str | Path,
    *,
    kind: Literal["bbox", "segm", "boundary"] = "bbox",
    areas: Areas | None = None,
    across_classes: bool = False,
) -> LoadedDetections:
    """A data set of two JSON files.

    Args:
      targets: file of truths.
      predictions: file of results.
      kind: what is compared, as in `coco.from_dicts`.
      areas: of detections, as in `coco.from_dicts`.
      across_classes: as in `coco.from_dicts`.

    Returns:
      `LoadedDetections` as of `coco.from_dicts`, with `frequencies`, and `negative` and
      `not_exhaustive`, bool `[images, classes]`. All results of the file are there: the evaluator
      leaves out those past 300 in an image, and those of classes of which nothing is known there.

    Raises:
      FileError: as `coco.load`, and if a class has no frequency "r", "c" or "f", or an image no
        list of negative or of not exhaustive classes, or a class in one that there is not.
      ImportError: for masks without pycocotools.

    Example:
      >>> import json, tempfile
      >>> image = {"id": 7, "neg_category_ids": [2], "not_exhaustive_category_ids": []}
      >>> classes = [{"id": 2, "name": "axe", "frequency": "r"}]
      >>> truths = {"images": [image], "categories": classes, "annotations": []}
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     files = Path(folder, "truths.json"), Path(folder, "results.json")
      ...     _ = files[0].write_text(json.dumps(truths)), files[1].write_text("[]")
      ...     loaded = load(*files)
      >>> print(loaded.negative, loaded.not_exhaustive, loaded.frequencies)
      [[ True]] [[False]] ['r']

    Reference:
      Gupta et al., "LVIS: A Dataset for Large Vocabulary Instance Segmentation", CVPR 2019,
      https://arxiv.org/abs/1908.03195; the `lvis` package's `LVIS` and `LVISResults`.
    """
    _checks.one_of("kind", kind, KINDS)
    _checks.one_of("areas", areas, _annotations.AREAS)
    data = _annotations.read(targets, predictions)
    frequencies = dict(
        zip(data.categories.column("id"), data.categories.column("frequency"), strict=True)
    )
    for row, value in enumerate(data.categories.column("frequency")):
        if value not in FREQUENCIES:
            data.categories.refuse(row, f"frequency is {short(value)}, not 'r', 'c' or 'f'")
    table = data.table(
        boxes=kind == "bbox", areas=areas, crowd=None, ignored=data.truths.flags("ignore")
    )
    overlaps = None
    if kind != "bbox":
        compare = data.compare_masks(np.zeros(len(data.truths), bool), by_boundary=kind != "segm")
        overlaps = data.overlaps(compare, across_classes=across_classes)
    return LoadedDetections(
        table,
        overlaps,
        data.image_ids,
        data.category_ids,
        data.category_names,
        frequencies=[frequencies[value] for value in data.category_ids],
        negative=_known(data, "neg_category_ids"),
        not_exhaustive=_known(data, "not_exhaustive_category_ids"),
    )


def _known(data: Annotated, key: str) -> Bool[np.ndarray, "images classes"]:
    """The classes in a list of each image."""
    images, classes = places_of(data.image_ids), places_of(data.category_ids)
    known = np.zeros((len(images), len(classes)), bool)
    for row, values in enumerate(data.images.column(key)):
        if not isinstance(values, list | tuple):
            data.images.refuse(row, f"{key} is {short(values)}, no list")
        for value in values:
            if isinstance(value, list | dict) or value not in classes:
                data.images.refuse(row, f"{key} has {short(value)}, which is not in categories")
            known[images[data.images.rows[row]["id"]], classes[value]] = True
    return known
