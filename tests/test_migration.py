"""The README's migration table: every row runs, and both cells give the same numbers."""

import importlib
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import assignment, boxes, losses, masks, pairwise, segmentation, suppression

README = (Path(__file__).parents[1] / "README.md").read_text()
ROWS = re.findall(r"^\| `((?:tv|tm|tc|sp|sk|pc)\..*?)` \| `(.*?)` \|", README, re.MULTILINE)


def random_boxes(seed, count):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 60, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(1, 60, (count, 2))], 1).astype(np.float32)


SETS = {
    "a": random_boxes(0, 7),
    "b": random_boxes(1, 5),
    "p": random_boxes(2, 6),
    "t": random_boxes(3, 6),
    "w": random_boxes(4, 7),
    "s": np.float32([0.3, 0.9, 0.2, 0.8, 0.4, 0.6, 0.5]),
    "k": np.int32([0, 1, 0, 1, 0, 1, 0]),
    "c": np.random.default_rng(5).random((5, 7), np.float32),
    "y": np.random.default_rng(6).integers(0, 3, 60, np.int32),
    "z": np.random.default_rng(7).integers(0, 3, 60, np.int32),
    "m": np.random.default_rng(8).random((3, 9, 8)) < 0.5,
    "n": np.random.default_rng(9).random((2, 9, 8)) < 0.5,
}
MODULES = {
    "jnp": jnp,
    "assignment": assignment,
    "boxes": boxes,
    "losses": losses,
    "masks": masks,
    "pairwise": pairwise,
    "segmentation": segmentation,
    "suppression": suppression,
}

PEERS = {
    "tv": "torchvision.ops",
    "tm": "torchmetrics.functional.detection",
    "tc": "torchmetrics.functional.classification",
    "sp": "scipy.optimize",
    "sk": "sklearn.metrics",
    "pc": "pycocotools.mask",
}


def ours(cell):
    return np.asarray(eval(cell, {**MODULES, **{k: jnp.asarray(x) for k, x in SETS.items()}}))


def test_the_table_has_its_rows():
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("theirs", "cell"), ROWS, ids=[cell for _, cell in ROWS])
def test_a_row_runs_and_is_finite(theirs, cell):
    assert np.isfinite(ours(cell)).all()


@pytest.mark.parametrize(("theirs", "cell"), ROWS, ids=[cell for _, cell in ROWS])
def test_a_row_gives_the_peers_numbers(theirs, cell):
    reason = "a peer of the bench extra"
    name, sets = theirs[:2], SETS
    module = PEERS[name]
    pytest.importorskip(module.split(".")[0], reason=reason)
    if module.startswith("torch"):
        torch = pytest.importorskip("torch", reason=reason)
        sets = {k: torch.from_numpy(x) for k, x in SETS.items()}
    peer = importlib.import_module(module)
    if name == "pc":
        sets = {k: peer.encode(np.asfortranarray(SETS[k].transpose(1, 2, 0), "u1")) for k in "mn"}
    result = eval(theirs, {name: peer, **sets})
    np.testing.assert_allclose(ours(cell), np.asarray(result), rtol=2e-5, atol=2e-5)
