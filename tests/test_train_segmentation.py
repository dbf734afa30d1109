"""The segmentation example: the label maps of its scenes, its parts, and a short run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import compiling
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import jaccard_score

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import digits
import train_segmentation as example

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def training():
    numbers = digits.split(0)[0]
    return digits.scans(numbers), digits.names(numbers)


@pytest.fixture(scope="module")
def batch(training):
    """48 scenes and their label maps."""
    glyphs, shown = training

    def make(key):
        scenes = digits.make_scenes(key, glyphs, 48)
        return scenes, digits.make_label_maps(key, glyphs, shown, 48)

    return jax.device_get(jax.jit(make)(jax.random.key(3, impl="rbg")))


def test_names_are_the_digits_that_the_scans_show():
    numbers = digits.split(0)[1]
    everything = load_digits()
    names, scans = np.asarray(digits.names(numbers)), np.asarray(digits.scans(numbers))
    for i in (0, 50, 596):
        same = (everything.images == 16 * scans[i]).all((1, 2))
        assert everything.target[same].tolist() == [names[i]]


def test_labels_fill_the_boxes_of_the_scenes_and_nothing_else(batch):
    """Each box is tight around labels of one digit, but for pixels that a neighbour covers."""
    scenes, labels = batch
    assert labels.dtype == np.int32
    assert set(np.unique(labels)) == set(range(11))
    for boxes, valid, label_map in zip(scenes.boxes, scenes.valid, labels, strict=True):
        outside = label_map > 0
        for x1, y1, x2, y2 in boxes[valid].astype(int):
            inside = label_map[y1:y2, x1:x2]
            outside[y1:y2, x1:x2] = False
            name = np.bincount(inside[inside > 0]).argmax()
            for edge in (inside[0], inside[-1], inside[:, 0], inside[:, -1]):
                assert (edge == name).any()
            assert (inside[inside > 0] == name).mean() > 0.9
        assert not outside.any()


def test_labels_are_those_of_the_scans_that_were_drawn(training):
    """Each scan its own label: what a scene shows is the scan that its random number picks."""
    glyphs, _ = training
    own = jnp.arange(len(glyphs), dtype=jnp.int32)
    key = jax.random.key(4, impl="rbg")
    run = jax.jit(digits.make_label_maps, static_argnums=3)
    labels = np.asarray(run(key, glyphs, own, 4))
    chance = np.asarray(digits._chance(key, 4)[0])[:, 1 : 1 + digits.DIGITS]
    for label_map, numbers in zip(labels, chance, strict=True):
        drawn = {int(u[1] * len(glyphs)) for u in numbers}
        found = set(np.unique(label_map)) - {0}
        assert found
        assert {number - 1 for number in found} <= drawn
        for i, u in enumerate(numbers):
            number = int(u[1] * len(glyphs))
            if number + 1 in found:
                ink = np.asarray(digits._paste(numbers[i], glyphs[number])) > digits.INK
                assert (ink[label_map == number + 1]).all()


def test_a_cell_becomes_its_pixels_in_rows():
    x = np.arange(2 * 3 * 16 * 11).reshape(1, 2, 3, 16 * 11)
    pixels = np.asarray(example.pixels_of_cells(x))
    assert pixels.shape == (1, 8, 12, 11)
    for row, column in [(0, 0), (1, 2), (5, 3), (7, 11)]:
        cell = x[0, row // 4, column // 4].reshape(4, 4, 11)
        np.testing.assert_array_equal(pixels[0, row, column], cell[row % 4, column % 4])


def test_scores_are_those_of_scikit_learn(monkeypatch, batch):
    _, labels = batch
    found = np.where(np.random.default_rng(0).random(labels.shape) < 0.8, labels, 0)
    monkeypatch.setattr(example, "predict", lambda parameters, images: jnp.asarray(found))
    each, mean = example.evaluate({}, None, labels)
    wanted = jaccard_score(labels.ravel(), found.ravel(), average=None)
    np.testing.assert_allclose(each, wanted, rtol=1e-6)
    np.testing.assert_allclose(mean, wanted.mean(), rtol=1e-6)


@pytest.mark.parametrize("loss", sorted(example.LOSSES))
def test_every_loss_is_small_for_the_truth_and_has_a_gradient_elsewhere(batch, loss):
    labels = batch[1][:2]
    run = jax.jit(jax.value_and_grad(example.LOSSES[loss]))
    truth = 30 * jax.nn.one_hot(labels, len(example.CLASSES))
    value, gradient = run(jnp.zeros_like(truth), labels)
    assert value > 1
    assert np.isfinite(gradient).all()
    # Of every pixel, the logit of the truth rises.
    assert (np.take_along_axis(np.asarray(gradient), labels[..., None], -1) < 0).mean() > 0.9
    assert run(truth, labels)[0] < 1e-4


def test_a_short_run_lowers_the_loss_and_writes_a_table_and_a_picture(tmp_path):
    """Run as a user runs it: without the switches of our tests, but for quick compilation."""
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    environment |= {"PYTHONPATH": str(ROOT), "XLA_FLAGS": compiling.flags(compiling.QUICK)}
    path = tmp_path / "pictures" / "scenes.png"
    script = [sys.executable, "-W", "error", str(ROOT / "examples" / "train_segmentation.py")]
    arguments = ["--steps", "60", "--loss", "dice", "--seed", "1", "--picture", str(path)]
    result = subprocess.run(
        [*script, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    shown = [float(loss) for loss in re.findall(r"^step .*  loss (\S+)", result.stdout, re.M)]
    assert len(shown) == 10
    assert max(shown[-3:]) < 0.7 * shown[0]
    for name in [*example.CLASSES, "mean"]:
        assert re.search(rf"\b{name}\D+0\.\d{{3}}\D+0\.\d{{3}}", result.stdout), result.stdout
    with Image.open(path) as picture:
        assert picture.size[0] >= 1000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 100


def test_an_unknown_loss_is_refused(capsys):
    with pytest.raises(SystemExit):
        example.main(["--loss", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
