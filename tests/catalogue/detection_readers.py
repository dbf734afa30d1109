"""Rows of the readers of detections."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from catalogue.row import HOST, Row

_FOLDER = TemporaryDirectory()  # until the tests end


def _write(name, text):
    path = Path(_FOLDER.name, name)
    path.write_text(text)
    return path


_BOX = {"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4]}
_TRUTHS = {
    "images": [{"id": 1, "neg_category_ids": [], "not_exhaustive_category_ids": []}],
    "categories": [{"id": 2, "frequency": "f"}],
    "annotations": [{**_BOX, "area": 5}],
}
_RESULTS = [{**_BOX, "score": 0.5}]
_JSON = (
    _write("truths.json", json.dumps(_TRUTHS)),
    _write("results.json", json.dumps(_RESULTS)),
)
_write("000001.xml", "<annotation></annotation>")
_VOC = (_FOLDER.name, _write("000001.txt", "cat 0.5 1 1 2 2\n"))
_HEADER = "ImageID,LabelName,XMin,XMax,YMin,YMax"
_CSV = (
    _write("truths.csv", f"{_HEADER}\na,/m/1,0,0.5,0,0.5\n"),
    _write("results.csv", f"{_HEADER},Score\na,/m/1,0,0.5,0,0.5,0.9\n"),
)

ROWS = [
    *(
        Row(f"readers.{name}", lambda rng, files=files: files, exempt=HOST)
        for name, files in (
            ("coco.load", _JSON),
            ("lvis.load", _JSON),
            ("voc.load", _VOC),
            ("open_images.load", _CSV),
        )
    ),
    Row(
        "partial(readers.coco.from_dicts, predictions=[])",
        lambda rng: (MappingProxyType(_TRUTHS),),  # no dict, of which a tree would be made
        exempt=HOST,
    ),
]
