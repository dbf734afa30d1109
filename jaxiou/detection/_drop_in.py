"""`COCOeval`: pycocotools' class of that name, for scripts that exist.

A script that says `from pycocotools.cocoeval import COCOeval` says `from jaxiou.detection import
COCOeval`, and stays as it is. In new code, `coco.average_precision` is the plainer way.
"""

import copy
import datetime
from typing import Any

import numpy as np

from jaxiou import _checks
from jaxiou.detection import _summaries, coco, packing

__all__ = ["COCOeval", "Params"]

AREA_NAMES = ("all", "small", "medium", "large")


def line(precision: bool, span: str, area: str, limit: int, value: float) -> str:
    """A line of pycocotools' table."""
    kind = "Average Precision  (AP)" if precision else "Average Recall     (AR)"
    return f" {kind} @[ IoU={span:<9} | area={area:>6s} | maxDets={limit:>3d} ] = {value:0.3f}"


class Params:
    """The settings of `COCOeval`, by pycocotools' names.

    Attributes:
      imgIds: ids of the images that count.
      catIds: ids of the classes that count.
      iouThrs: thresholds of overlap.
      recThrs: where precision is read.
      maxDets: limits of detections, in an image and class.
      areaRng: pairs of the least and the greatest area.
      areaRngLbl: their names.
      useCats: 0 takes all as one class.
      iouType: "bbox", "segm", "boundary" or "keypoints".
      kpt_oks_sigmas: of keypoints, one for each.
    """

    def __init__(self, iouType: str = "segm"):
        from jaxiou.readers.coco import SIGMAS

        _checks.one_of("iouType", iouType, ("bbox", "segm", "boundary", "keypoints"))
        self.imgIds: list[Any] = []
        self.catIds: list[Any] = []
        self.iouThrs = np.array(coco.THRESHOLDS)
        self.recThrs = np.array(coco.RECALLS)
        self.maxDets = list(coco.MAX_DETECTIONS)
        self.areaRng = [list(pair) for pair in coco.AREA_RANGES]
        self.areaRngLbl = list(AREA_NAMES)
        self.useCats = 1
        self.iouType = iouType
        self.kpt_oks_sigmas = np.array(SIGMAS)
        if iouType == "keypoints":
            self.maxDets = list(coco.KEYPOINT_MAX_DETECTIONS)
            self.areaRng = [list(pair) for pair in coco.KEYPOINT_AREA_RANGES]
            self.areaRngLbl = ["all", "medium", "large"]


class COCOeval:
    """Average precision of two pycocotools `COCO` objects, truths and results.

    Attributes:
      cocoGt: the truths.
      cocoDt: the results.
      params: `Params`, to be changed before `evaluate`.
      eval: after `accumulate`, a dict with `precision`, `recall`, `scores`, `counts` and `params`.
      stats: after `summarize`, the twelve numbers, or ten for keypoints.

    `evalImgs` and `ious` are not kept: there are no dicts of single images.
    """

    def __init__(self, cocoGt: Any = None, cocoDt: Any = None, iouType: str = "segm"):
        """Takes the ids of all images and classes as those that count.

        Args:
          cocoGt: pycocotools' `COCO` of the truths.
          cocoDt: that of the results, from `loadRes`.
          iouType: what is compared.

        Raises:
          ValueError: for another `iouType`.
        """
        self.cocoGt, self.cocoDt = cocoGt, cocoDt
        self.params = Params(iouType)
        self.eval: dict[str, Any] = {}
        self.stats: Any = []
        self._matches: Any = None
        if cocoGt is not None:
            self.params.imgIds = sorted({x["id"] for x in cocoGt.dataset["images"]})
            self.params.catIds = sorted({x["id"] for x in cocoGt.dataset.get("categories", [])})

    def evaluate(self) -> None:
        """Matches results with truths, image by image.

        Raises:
          ValueError: for annotations that cannot be used; the text says which.

        Example:
          >>> class Known:  # what pycocotools' COCO is to this class
          ...     def __init__(self, annotations):
          ...         images, names = [{"id": 1}], [{"id": 1, "name": "cat"}]
          ...         self.dataset = {"images": images, "categories": names}
          ...         self.dataset["annotations"] = annotations
          >>> one = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "area": 81}
          >>> run = COCOeval(Known([one]), Known([one | {"score": 0.5}]), "bbox")
          >>> run.evaluate()
          >>> run.accumulate()
          >>> print(run.eval["recall"].shape)
          (10, 1, 4, 3)
        """
        from jaxiou.readers.coco import from_dicts

        p = self.params
        p.imgIds = sorted(set(p.imgIds))
        p.maxDets = sorted(p.maxDets)
        if p.useCats:
            p.catIds = sorted(set(p.catIds))
        # Without classes, all are taken in the order of `catIds`.
        places = {x: n for n, x in enumerate(dict.fromkeys(p.catIds))}
        images, source = set(p.imgIds), self.cocoGt.dataset

        def chosen(annotations: list[dict]) -> list[dict]:
            some = [x for x in annotations if x["image_id"] in images]
            some = [x for x in some if x["category_id"] in places]
            if p.useCats:
                return some
            return [{**x, "category_id": places[x["category_id"]]} for x in some]

        truths = chosen(source.get("annotations", []))
        found = chosen(self.cocoDt.dataset.get("annotations", []))
        loaded = from_dicts(
            {
                "images": [x for x in source["images"] if x["id"] in images],
                "categories": [{"id": x} for x in (places if p.useCats else places.values())],
                "annotations": truths,
            },
            found,
            kind=p.iouType,  # type: ignore[arg-type]
            areas="given" if all("area" in x for x in found) else None,
            across_classes=not p.useCats,
            sigmas=tuple(p.kpt_oks_sigmas),
        )
        self._paramsEval = copy.deepcopy(p)
        self._num_classes = max(loaded.num_classes, 1) if p.useCats else 1
        self._matches = _summaries.matched(
            coco.evaluate,
            packing.pack(loaded.table, overlaps=loaded.overlaps),
            thresholds=tuple(map(float, p.iouThrs)),
            area_ranges=tuple((low, high) for low, high in p.areaRng),
            max_detections=max(p.maxDets),
            class_agnostic=not p.useCats,
            num_images=len(images),
        )

    def accumulate(self, p: Params | None = None) -> None:
        """Precision and recall of all images, into `eval`.

        Args:
          p: settings of which `maxDets` and `recThrs` may differ from those of `evaluate`.

        Raises:
          RuntimeError: before `evaluate`.

        Example:
          >>> COCOeval().accumulate()
          Traceback (most recent call last):
          ...
          RuntimeError: call evaluate() first
        """
        if self._matches is None:
            raise RuntimeError("call evaluate() first")
        p = p or self.params
        curves = _summaries.accumulated(
            self._matches,
            num_classes=self._num_classes,
            max_detections=tuple(sorted(p.maxDets)),
            recalls=tuple(map(float, p.recThrs)),
        )
        self.eval = {
            "params": p,
            "counts": list(curves.precision.shape),
            "date": datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S"),
            **curves._asdict(),
        }

    def summarize(self) -> None:
        """Prints pycocotools' table, and puts its numbers into `stats`.

        Raises:
          RuntimeError: before `accumulate`.

        Example:
          >>> COCOeval().summarize()
          Traceback (most recent call last):
          ...
          RuntimeError: call accumulate() first
        """
        if not self.eval:
            raise RuntimeError("call accumulate() first")
        p = self.params
        if p.iouType == "keypoints":
            lines = [(True, x, "all", 20) for x in (None, 0.5, 0.75)]
            lines += [(True, None, area, 20) for area in AREA_NAMES[2:]]
            lines += [(False, *line[1:]) for line in lines]
        else:
            last = p.maxDets[2]
            lines = [(True, None, "all", 100), (True, 0.5, "all", last), (True, 0.75, "all", last)]
            lines += [(True, None, area, last) for area in AREA_NAMES[1:]]
            lines += [(False, None, "all", limit) for limit in p.maxDets[:3]]
            lines += [(False, None, area, last) for area in AREA_NAMES[1:]]
        self.stats = np.array([self._line(*line) for line in lines])

    def _line(self, precision: bool, threshold: float | None, area: str, limit: int) -> float:
        p = self.params
        areas = [n for n, name in enumerate(p.areaRngLbl) if name == area]
        limits = [n for n, most in enumerate(p.maxDets) if most == limit]
        x = self.eval["precision" if precision else "recall"]
        if threshold is not None:
            x = x[np.flatnonzero(np.asarray(p.iouThrs) == threshold)]
        value = float(_summaries.exact_mean(x[..., areas, :][..., limits]))
        span = (
            f"{p.iouThrs[0]:0.2f}:{p.iouThrs[-1]:0.2f}"
            if threshold is None
            else f"{threshold:0.2f}"
        )
        print(line(precision, span, area, limit, value))
        return value

    def __str__(self) -> str:
        self.summarize()
        return ""
