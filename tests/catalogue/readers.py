"""Rows of `jaxiou.readers`."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from catalogue.row import HOST, Row
from jaxiou.readers.label_maps import Pair

_FOLDER = TemporaryDirectory()  # until the tests end
_FILE = Path(_FOLDER.name, "labels.png")
Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3)).save(_FILE)


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
]
