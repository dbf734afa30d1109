"""Documents in the form of COCO, which LVIS shares: ids looked up, regions, areas and overlaps."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Int32

from jaxiou.detection.packing import Table
from jaxiou.readers import _detections, _masks
from jaxiou.readers._detections import Records, fail, short

Areas = Literal["bbox", "mask", "keypoints", "given"]
"""Where the area of a detection comes from."""

AREAS = (None, "bbox", "mask", "keypoints", "given")

Compare = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From rows of results and of truths, all of one image, to a table of their overlaps."""


@dataclass(frozen=True)
class Annotated:
    """A document of truths and a list of results; places are those in the sorted ids."""

    images: Records
    categories: Records
    truths: Records
    results: Records
    image_ids: list[Any]
    category_ids: list[Any]
    category_names: list[str]
    truth_images: Int32[np.ndarray, " truths"]
    truth_labels: Int32[np.ndarray, " truths"]
    found_images: Int32[np.ndarray, " results"]
    found_labels: Int32[np.ndarray, " results"]
    scores: Float64[np.ndarray, " results"]

    @functools.cached_property
    def sizes(self) -> dict[int, tuple[int, int]]:
        """Height and width of the images that say them, by their places."""
        places, found = _detections.places_of(self.image_ids), {}
        for place, row in enumerate(self.images.rows):
            given = [row.get("height"), row.get("width")]
            if given != [None, None]:
                size = _masks.size_of(*given)
                if size is None:
                    self.images.refuse(place, f"height and width are {short(given)}")
                found[places[row["id"]]] = size
        return found

    @functools.cached_property
    def truth_masks(self) -> list[_masks.Code]:
        return _masks.codes(self.truths, self.truth_images, self.sizes)

    @functools.cached_property
    def found_masks(self) -> list[_masks.Code]:
        return _masks.codes(self.results, self.found_images, self.sizes)

    def has(self, key: str) -> bool:
        """Whether the first result, which decides for all, has a field that is not empty."""
        value = self.results.rows[0].get(key) if len(self.results) else None
        return value is not None and not (hasattr(value, "__len__") and len(value) == 0)

    @functools.cached_property
    def found_boxes(self) -> Float64[np.ndarray, "results 4"]:
        """Boxes of results; where the first one has only a mask, those around their masks."""
        if self.has("bbox") or not self.has("segmentation"):
            return self.results.numbers("bbox", 4)
        around = _masks.boxes(self.found_masks)
        values = [
            row["bbox"] if _is_filled(row.get("bbox")) else box
            for row, box in zip(self.results.rows, around, strict=True)
        ]
        return self.results.finite("bbox", values, 4)

    def areas(self, source: Areas | None) -> Float64[np.ndarray, " results"]:
        """Areas of results, as pycocotools' `loadRes` takes them where `source` is None."""
        if source is None:
            fields: dict[str, Areas]
            fields = {"bbox": "bbox", "segmentation": "mask", "keypoints": "keypoints"}
            source = next((fields[key] for key in fields if self.has(key)), "bbox")
        if source == "given":
            return self.results.numbers("area")
        if source == "mask":
            return _masks.areas(self.found_masks)
        if source == "bbox":
            return self.found_boxes[:, 2] * self.found_boxes[:, 3]
        return self._extents()

    def _extents(self) -> Float64[np.ndarray, " results"]:
        points = self.results.column("keypoints")
        size = len(points[0]) if points and _is_filled(points[0]) else 3
        if size % 3:
            reason = f"keypoints has {size} numbers, not three for each point"
            self.results.refuse(0, reason)
        values = self.results.finite("keypoints", points, size)
        x, y = values[:, 0::3], values[:, 1::3]
        return (x.max(axis=1) - x.min(axis=1)) * (y.max(axis=1) - y.min(axis=1))

    def compare_masks(self, crowd: np.ndarray, *, by_boundary: bool) -> Compare:
        return _masks.Overlaps(self.found_masks, self.truth_masks, crowd, by_boundary)

    def overlaps(self, compare: Compare, *, across_classes: bool) -> list[np.ndarray]:
        """For each image the overlaps of all pairs, or of those of one class, -1 elsewhere."""
        sides = (
            _detections.rows_of_groups(images, len(self.image_ids))
            for images in (self.found_images, self.truth_images)
        )
        tables = []
        for found, truths in zip(*sides, strict=True):
            table = np.full((len(found), len(truths)), -1.0)
            if across_classes and table.size:
                table[:] = compare(found, truths)
            elif table.size:
                labels, targets = self.found_labels[found], self.truth_labels[truths]
                for label in np.intersect1d(labels, targets):
                    i, j = np.flatnonzero(labels == label), np.flatnonzero(targets == label)
                    table[np.ix_(i, j)] = compare(found[i], truths[j])
            tables.append(table)
        return tables

    def table(
        self,
        *,
        boxes: bool,
        areas: Areas | None,
        crowd: np.ndarray | None,
        ignored: np.ndarray | None,
    ) -> Table:
        """The rows of both sides, with `(x, y, width, height)` as regions, or without regions."""
        return _detections.table(
            found=self.found_boxes if boxes else None,
            found_areas=self.areas(areas),
            scores=self.scores,
            found_labels=self.found_labels,
            found_images=self.found_images,
            truths=self.truths.numbers("bbox", 4) if boxes else None,
            truth_areas=self.truths.numbers("area"),
            truth_labels=self.truth_labels,
            truth_images=self.truth_images,
            crowd=crowd,
            ignored=ignored,
            num_images=len(self.image_ids),
        )


def annotated(targets: Any, predictions: Any) -> Annotated:
    """The parsed content of both files, every id looked up."""
    return _annotated(targets, predictions, "targets", "predictions")


def read(targets: str | Path, predictions: str | Path) -> Annotated:
    """Both files, every id looked up."""
    targets, predictions = Path(targets), Path(predictions)
    return _annotated(
        _detections.parse(targets), _detections.parse(predictions), targets, predictions
    )


def _annotated(
    targets: Any, predictions: Any, truth_source: str | Path, source: str | Path
) -> Annotated:
    if not isinstance(targets, Mapping):
        fail(truth_source, f"must be an object with lists, not {short(targets)}")
    lists = []
    for name in ("images", "categories", "annotations"):
        if not isinstance(targets.get(name), list | tuple):
            fail(truth_source, f"has no list {name!r}")
        lists.append(Records(truth_source, name, targets[name]))
    images, categories, truths = lists
    if not isinstance(predictions, list | tuple):
        fail(source, f"must be a list of results, not {short(predictions)}")
    results = Records(source, "results", predictions)

    image_ids, category_ids = images.ids(), categories.ids()
    image_places, category_places = map(_detections.places_of, (image_ids, category_ids))
    names = {row["id"]: str(row.get("name", row["id"])) for row in categories.rows}
    return Annotated(
        images,
        categories,
        truths,
        results,
        image_ids,
        category_ids,
        [names[value] for value in category_ids],
        truths.places("image_id", image_places, "images"),
        truths.places("category_id", category_places, "categories"),
        results.places("image_id", image_places, f"images of {truth_source}"),
        results.places("category_id", category_places, f"categories of {truth_source}"),
        results.numbers("score"),
    )


def _is_filled(value: Any) -> bool:
    return hasattr(value, "__len__") and len(value) > 0
