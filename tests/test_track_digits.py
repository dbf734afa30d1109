"""The tracking example: its scene, its detections, and what the table says of its tracks."""

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

from jaxiou.tracking.packing import Trajectories

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import digits
import track_digits as example

ROOT = Path(__file__).parents[1]
FRAMES, DIGITS = 40, 6


@pytest.fixture(scope="module")
def scene():
    glyphs = digits.scans(digits.split(0)[1])
    make = jax.jit(example.make_scene, static_argnums=(2, 3))
    return jax.device_get(make(jax.random.key(1, impl="rbg"), glyphs, FRAMES, DIGITS))


def detect(scene, misses=0.0, false=0.0):
    run = jax.jit(example.detect)
    return jax.device_get(run(jax.random.key(2, impl="rbg"), scene.truth, misses, false))


def test_boxes_hold_all_the_ink_of_a_frame_and_move(scene):
    ids, regions, valid = scene.truth
    assert (ids == np.arange(DIGITS)).all()
    assert valid.sum() > FRAMES
    assert not valid.all()
    bright = scene.images > digits.INK
    for image, boxes in zip(bright, regions.astype(int), strict=True):
        left = image.copy()
        for x1, y1, x2, y2 in boxes:  # those that are too narrow to count as well
            left[y1:y2, x1:x2] = False
        assert not left.any()
    for digit in range(DIGITS):
        x = regions[valid[:, digit], digit, 0]
        if len(x) > 5:
            assert abs(x[-1] - x[0]) > 5


def test_without_misses_all_digits_are_found_but_those_that_another_hides(scene):
    found = detect(scene)
    assert found.valid.sum() <= scene.truth.valid.sum()
    assert found.valid.sum() > 0.8 * scene.truth.valid.sum()
    for frame in range(FRAMES):
        boxes = found.regions[frame][found.valid[frame]]
        truths = scene.truth.regions[frame][scene.truth.valid[frame]]
        distance = np.abs(boxes[:, None] - truths[None]).max(-1)
        assert (distance.min(axis=1, initial=99) < 8).all()

    boxes = np.float32([[[0, 0, 20, 20], [2, 0, 20, 18], [60, 0, 80, 20], [1, 0, 20, 20]]])
    there = np.array([[True, True, True, False]])
    truth = Trajectories(np.arange(4, dtype=np.int32)[None], boxes, there)
    found = detect(scene._replace(truth=truth))
    assert sorted(found.regions[found.valid][:, 0].round(-1).tolist()) == [0, 60]


def test_misses_and_false_detections_come_as_often_as_is_said(scene):
    everything = detect(scene).valid.sum()
    assert 0.2 < detect(scene, misses=0.7).valid.sum() / everything < 0.4
    assert detect(scene, misses=1.0).valid.sum() == 0
    assert abs(detect(scene, misses=1.0, false=2.0).valid.sum() / FRAMES - 2) < 0.4


def test_the_truth_scores_one_and_a_track_cut_in_two_less(scene):
    truth = jax.tree.map(jnp.asarray, scene.truth)
    perfect = example.evaluate(truth, truth, 2 * DIGITS)
    assert perfect.pop("switches") == 0
    np.testing.assert_allclose(list(perfect.values()), 1, rtol=1e-6)
    late = jnp.arange(FRAMES)[:, None] >= FRAMES // 2
    cut = example.evaluate(
        truth._replace(ids=jnp.where(late, truth.ids + DIGITS, truth.ids)), truth, 2 * DIGITS
    )
    both = scene.truth.valid[: FRAMES // 2].any(0) & scene.truth.valid[FRAMES // 2 :].any(0)
    assert cut["switches"] == both.sum() > 0
    np.testing.assert_allclose(cut["DetA"], 1, rtol=1e-6)
    assert cut["AssA"] < 0.9


def test_the_example_tracks_digits_and_draws_them(tmp_path):
    """With its own settings, run as a user runs it: without the switches of our tests,
    but for those that only make compilation quick.
    """
    environment = {k: v for k, v in os.environ.items() if k != "MPLBACKEND"}
    environment |= {"PYTHONPATH": str(ROOT), "XLA_FLAGS": compiling.flags(compiling.QUICK)}
    path = tmp_path / "new" / "tracks.png"
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "track_digits.py")]
    result = subprocess.run(
        [*command, "--picture", str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    rows = re.findall(r"^│ (\d+) +│(.*)│$", result.stdout, flags=re.MULTILINE)
    scores = {int(age): [float(x) for x in row.split("│")] for age, row in rows}
    assert list(scores) == list(example.AGES)
    hota, _, association, mota, idf1, switches = np.array(list(scores.values())).T
    # Tracks that outlive misses keep their ids.
    assert (association[1:] > association[0] + 0.1).all()
    assert (switches[1:] < switches[0]).all()
    assert min(hota[1], mota[1], idf1[1]) > 0.75
    with Image.open(path) as picture:
        assert picture.size[0] >= 1000
        colours = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert (np.ptp(colours.astype(int), axis=1) > 60).sum() > 1000
