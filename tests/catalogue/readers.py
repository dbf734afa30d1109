"""Rows of `jaxiou.readers`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from pycocotools import mask

from catalogue.row import HOST, Row
from jaxiou.readers.label_maps import Pair

_FOLDER = TemporaryDirectory()  # until the tests end
_FILE = Path(_FOLDER.name, "labels.png")
Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3)).save(_FILE)


_TRACKS = Path(_FOLDER.name, "tracks.txt")
_TRACKS.write_text("1,1,0,0,4,4,1,1,1\n2,1,0,0,4,4,1,1,1\n")
_KITTI = Path(_FOLDER.name, "kitti.txt")
_KITTI.write_text("0 1 Car 0 0 0 0 0 40 40 1 1 1 0 0 0 0\n")
_MOTS = Path(_FOLDER.name, "mots.txt")
_CODE = mask.encode(np.asfortranarray(np.eye(4, dtype=np.uint8)))["counts"].decode()
_MOTS.write_text(f"1 2001 2 4 4 {_CODE}\n")


def _labels(rng):
    return (rng.integers(0, 256, (2, 3), "uint8"),)


def _row(name, item):
    return Row(f"readers.label_maps.{name}", item, exempt=HOST)


ROWS = [
    _row("read", lambda rng: (_FILE,)),
    _row("read_pair", lambda rng: (Pair("labels", _FILE, _FILE),)),
    _row("find_pairs", lambda rng: (_FILE.parent, _FILE.parent)),
    Row("partial(readers.label_maps.remap, table={0: 1, 1: 0})", _labels, exempt=HOST),
    _row("reduce_zero_label", _labels),
    *(
        Row(f"readers.{module}.{name}", lambda rng, files=files: files, exempt=HOST)
        for module, file in (("mot", _TRACKS), ("kitti_tracking", _KITTI), ("mots", _MOTS))
        for name, files in (("read", (file,)), ("load", (file, file)))
    ),
    Row("readers.mot.find_sequences", lambda rng: (_FILE.parent, _FILE.parent), exempt=HOST),
]
