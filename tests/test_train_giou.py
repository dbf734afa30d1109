"""The training example: its scenes, its parts, and what it learns from real digits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from jaxiou import boxes

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import digits
import train_giou as example

ROOT = Path(__file__).parents[1]

SCORES = [
    "recall at IoU 0.5",
    "recall at IoU 0.75",
    "mean IoU of matched boxes",
    "precision at IoU 0.5",
    "COCO AP",
    "COCO AP50",
    "COCO AP75",
]


@pytest.fixture(scope="module")
def glyphs():
    return digits.scans(digits.split(0)[0])


@pytest.fixture(scope="module")
def scenes(glyphs):
    return jax.jit(digits.make_scenes, static_argnums=2)(jax.random.key(3), glyphs, 64)


def printed_scores(text: str) -> dict[str, tuple[float, float]]:
    """The rows of the table: before and after training."""
    number = r"\D+?(\d\.\d{3})\D+?(\d\.\d{3})"
    found = {name: re.search(re.escape(name) + r"\b" + number, text) for name in SCORES}
    assert all(found.values()), text
    return {name: (float(m[1]), float(m[2])) for name, m in found.items()}


def run(*arguments: str, timeout: int) -> str:
    """What the script prints, run as a user runs it: without the switches of our tests."""
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "MPLBACKEND")}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "train_giou.py"), *arguments]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_digit_is_in_both_training_and_test(seed):
    training, test = digits.split(seed)
    everything = load_digits().images
    assert sorted([*training, *test]) == list(range(len(everything)))
    assert len(test) == 597

    # Nor is there a second scan with the same pixels under another number.
    pictures = [{x.tobytes() for x in everything[numbers]} for numbers in (training, test)]
    assert not pictures[0] & pictures[1]


def test_scenes_hold_one_to_four_digits_in_the_canvas_and_apart(scenes):
    counts = np.asarray(scenes.valid.sum(1))
    assert counts.min() >= 1
    assert set(counts) == {1, 2, 3, 4}

    found, valid = np.asarray(scenes.boxes, np.float64), np.asarray(scenes.valid)
    assert (found[~valid] == 0).all()
    assert ((found >= 0) & (found <= digits.SIDE)).all()
    assert (found[valid][:, 2:] > found[valid][:, :2]).all()
    assert (found == found.round()).all()
    for picture, there in zip(found, valid, strict=True):
        kept = picture[there]
        for i, a in enumerate(kept):
            for b in kept[:i]:
                sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
                shared = np.prod(np.maximum(sides, 0))
                areas = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])
                assert shared / (areas - shared) <= 0.01 + 1e-6


def test_images_are_different_and_between_paper_and_ink(scenes):
    images = np.asarray(scenes.images)
    assert images.min() >= 0
    assert images.max() <= 1
    assert len({x.tobytes() for x in images}) == len(images)


def test_a_tight_box_is_the_extent_of_the_pixels(glyphs):
    chance = jax.random.uniform(jax.random.key(7), (50, 8))
    layers = jax.jit(jax.vmap(lambda u: digits._digit(u, glyphs)))(chance)
    found = np.asarray(jax.vmap(digits.tight_box)(layers > digits.INK))
    for layer, box in zip(np.asarray(layers), found, strict=True):
        rows, columns = np.nonzero(layer > digits.INK)
        assert len(rows) > 0
        expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_array_equal(box, expected)
    np.testing.assert_array_equal(digits.tight_box(jnp.zeros((9, 9), bool)), np.zeros(4))


def test_boxes_of_a_scene_bound_the_ink_of_its_digits(monkeypatch, glyphs):
    """On blank sheets without clutter, whatever is dark lies in a box and touches its sides."""
    monkeypatch.setattr(digits, "_stroke", lambda chance: jnp.zeros((digits.SIDE,) * 2))
    monkeypatch.setattr(digits, "_fragment", lambda chance, _: jnp.zeros((digits.SIDE,) * 2))
    monkeypatch.setattr(digits, "_sheet", lambda chance: jnp.zeros((digits.SIDE,) * 2))
    chance = jax.random.uniform(jax.random.key(5), (40, 12, 8))
    chance = chance.at[:, 1:, 0].set(1.0)  # the darkest ink
    images, found, valid = jax.jit(jax.vmap(lambda u: digits._scene(u, glyphs)))(chance)
    several = 0
    for image, boxes_, there in zip(*map(np.asarray, (images, found, valid)), strict=True):
        ink = image > digits.INK
        inside = np.zeros_like(ink)
        for x1, y1, x2, y2 in boxes_[there].astype(int):
            inside[y1:y2, x1:x2] = True
            cut = ink[y1:y2, x1:x2]
            assert cut[0].any()
            assert cut[-1].any()
            assert cut[:, 0].any()
            assert cut[:, -1].any()
        assert (ink <= inside).all()
        several += there.sum() > 1
    assert several > 10


def test_a_box_goes_to_the_cell_of_its_centre_and_is_what_is_learned():
    """A perfect network: the right logits and sides give the truths back, each once."""
    truths = jnp.array([[[5.0, 9.0, 17.0, 30.0], [40.0, 20.0, 52.0, 44.0], [0.0] * 4, [0.0] * 4]])
    valid = jnp.array([[True, True, False, False]])
    scenes = digits.Scenes(jnp.zeros((1, digits.SIDE, digits.SIDE)), truths, valid)
    # Centres (11, 19.5) and (46, 32) lie in the cells (2, 4) and (11, 8), counted from 0.
    cells = jnp.array([4 * 16 + 2, 8 * 16 + 11])
    logits = jnp.full((1, 256), -9.0).at[0, cells].set(jnp.array([3.0, 2.0]))
    regions = jnp.zeros((1, 256, 4)).at[0, cells].set(truths[0, :2])

    assigned = example.assign(jax.nn.sigmoid(logits), regions, scenes)
    np.testing.assert_array_equal(np.flatnonzero(assigned.valid[0]), np.sort(cells))
    np.testing.assert_array_equal(assigned.indices[0, cells], [0, 1])
    np.testing.assert_array_equal(assigned.quality[0, cells], [1, 1])

    detections = example.decode(logits, regions)
    assert detections.valid.sum() == 2
    np.testing.assert_array_equal(detections.boxes[0, :2], truths[0, :2])
    np.testing.assert_array_equal(
        example.match_one_to_one(detections, scenes), [[1.0, 1.0, 0.0, 0.0]]
    )


def test_a_detection_is_matched_once_and_to_the_best_pair_first():
    truths = jnp.array([[[0.0, 0.0, 10.0, 10.0], [0.0, 2.0, 10.0, 12.0], [0.0] * 4, [0.0] * 4]])
    valid = jnp.array([[True, True, False, False]])
    scenes = digits.Scenes(jnp.zeros((1, digits.SIDE, digits.SIDE)), truths, valid)
    none = jnp.zeros((1, 9, 4))
    regions = jnp.concatenate([jnp.array([[[0.0, 0.0, 10.0, 11.0]]]), none], axis=1)
    scores = jnp.zeros((1, 10))
    only = example.Detections(regions, scores, jnp.arange(10)[None] < 1)
    # Its IoU is 100/110 with the first truth and 90/120 with the second, which goes empty.
    np.testing.assert_allclose(
        example.match_one_to_one(only, scenes), [[10 / 11, 0, 0, 0]], rtol=1e-6
    )
    twice = example.Detections(
        regions.at[0, 1].set(regions[0, 0]), scores, only.valid.at[0, 1].set(True)
    )
    np.testing.assert_allclose(
        example.match_one_to_one(twice, scenes), [[10 / 11, 0.75, 0, 0]], rtol=1e-6
    )
    nothing = example.Detections(regions, scores, jnp.zeros((1, 10), bool))
    np.testing.assert_array_equal(example.match_one_to_one(nothing, scenes), np.zeros((1, 4)))


@pytest.mark.parametrize("loss", sorted(example.LOSSES))
def test_every_loss_falls_in_a_short_run(monkeypatch, glyphs, loss):
    monkeypatch.setattr(example, "BATCH", 2)
    values = []
    parameters = jax.jit(example.init)(jax.random.key(0, impl="rbg"))
    key = jax.random.key(1, impl="rbg")
    with jax.numpy_dtype_promotion("standard"):  # optax's adamw needs it
        after = example.train(
            parameters, key, glyphs, loss, 60, lambda step, value: values.append(float(value))
        )
    assert np.isfinite(values).all()
    assert len(values) == 60
    # New scenes in every step: means of ten, not single values, are compared.
    assert np.mean(values[-10:]) < 0.8 * np.mean(values[:10])
    assert jax.tree.structure(after) == jax.tree.structure(parameters)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(after))


def test_l1_is_the_mean_distance_of_the_sides_in_units_of_8_pixels():
    a, b = jnp.array([[0.0, 0.0, 8.0, 8.0]]), jnp.array([[4.0, 0.0, 16.0, 12.0]])
    # Distances 4, 0, 8, 4: 4 in the mean.
    np.testing.assert_array_equal(example.l1_loss(a, b, where=jnp.array([True])), [0.5])
    np.testing.assert_array_equal(example.l1_loss(a, b, where=jnp.array([False])), [0.0])


def test_the_drawn_rectangle_is_the_box():
    drawn = example.rectangle(np.array([3.0, 4.0, 10.0, 20.0], np.float32))
    assert drawn.get_bbox().extents.tolist() == [3.0, 4.0, 10.0, 20.0]
    assert float(boxes.area(jnp.array([3.0, 4.0, 10.0, 20.0]))) == 112.0


def test_a_short_run_writes_a_table_and_a_picture(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(example, "BATCH", 2)
    monkeypatch.setattr(example, "TEST_SCENES", 18)  # as many as are drawn
    with jax.numpy_dtype_promotion("standard"):
        example.main(
            ["--steps", "3", "--loss", "ciou", "--seed", "1", "--output", str(tmp_path / "new")]
        )
    text = capsys.readouterr().out
    assert "step 3/3" in text
    assert set(printed_scores(text)) == set(SCORES)
    assert [x.name for x in (tmp_path / "new").iterdir()] == ["train_ciou.png"]
    assert_shows_something(tmp_path / "new" / "train_ciou.png")


def assert_shows_something(path):
    with Image.open(path) as picture:
        assert picture.size[0] >= 1000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 100


def test_an_unknown_loss_is_refused(capsys):
    with pytest.raises(SystemExit):
        example.main(["--loss", "nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err


def test_trained_by_giou_it_finds_nine_in_ten_digits_that_it_never_saw(tmp_path):
    """The whole example with its own settings, as the README runs it."""
    scores = printed_scores(run("--output", str(tmp_path), timeout=600))
    before, after = scores["recall at IoU 0.5"]
    assert before < 0.1
    assert after >= 0.90
    assert scores["precision at IoU 0.5"][1] >= 0.7
    # Precision is at most 1 up to this recall, and 0 beyond it.
    assert scores["COCO AP"][1] >= 0.5
    assert scores["COCO AP"][1] < scores["COCO AP75"][1] < scores["COCO AP50"][1] < after
    assert_shows_something(tmp_path / "train_giou.png")
