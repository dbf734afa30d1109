"""The README's migration table: every row runs, and both cells give the same numbers."""

import importlib
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import assignment, boxes, losses, pairwise, suppression

README = (Path(__file__).parents[1] / "README.md").read_text()
ROWS = re.findall(r"^\| `((?:tv|tm|sp)\..*?)` \| `(.*?)` \|", README, re.MULTILINE)


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
}
MODULES = {
    "jnp": jnp,
    "assignment": assignment,
    "boxes": boxes,
    "losses": losses,
    "pairwise": pairwise,
    "suppression": suppression,
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
    modules = {"tv": "torchvision.ops", "tm": "torchmetrics.functional.detection"}
    modules["sp"] = "scipy.optimize"
    name, sets = theirs[:2], SETS
    pytest.importorskip(modules[name].split(".")[0], reason=reason)
    if name != "sp":
        torch = pytest.importorskip("torch", reason=reason)
        sets = {k: torch.from_numpy(x) for k, x in SETS.items()}
    peer = eval(theirs, {name: importlib.import_module(modules[name]), **sets})
    np.testing.assert_allclose(ours(cell), np.asarray(peer), rtol=2e-5, atol=2e-5)
