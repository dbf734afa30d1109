"""The paper's experiment: its cases, its rule for a step, and the order that comes out."""

import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import boxes

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import convergence

POINTS = 8  # 2,744 cases
ALL = convergence.PAPER | convergence.EXACT | convergence.VARIANTS


@pytest.fixture(scope="module")
def cases():
    return convergence.make_cases(POINTS)


@pytest.fixture(scope="module")
def descents(cases):
    overlaps = convergence.PAPER | convergence.EXACT
    return {name: convergence.descend(overlap, *cases) for name, overlap in overlaps.items()}


def start_apart(anchors, targets):
    return np.asarray(boxes.iou(anchors.corners(), targets.corners()) == 0)


def test_the_papers_5000_points_are_1715000_cases():
    anchors, targets = convergence.make_cases(5000)
    assert all(x.shape == (1_715_000,) for x in (*anchors, *targets))

    areas = np.asarray(anchors.width * anchors.height, np.float64)
    assert set(areas.round(4)) == {0.5, 0.67, 0.75, 1.0, 1.33, 1.5, 2.0}
    aspects = {0.25, 0.3333, 0.5, 1.0, 2.0, 3.0, 4.0}
    for box in (anchors, targets):
        assert set(np.asarray(box.width / box.height, np.float64).round(4)) == aspects
    np.testing.assert_allclose(targets.width * targets.height, 1, rtol=1e-6)
    assert set(targets.x.tolist()) == set(targets.y.tolist()) == {10}

    # Uniform in a disc of radius 3: the squared distance has mean 9/2 and, being itself
    # uniform in [0, 9], standard error 9 / sqrt(12 * 5000) = 0.037.
    squared = (np.asarray(anchors.x) - 10) ** 2 + (np.asarray(anchors.y) - 10) ** 2
    assert squared.max() <= 9.001
    assert abs(squared.mean() - 4.5) < 4 * 0.037


def test_every_case_is_there_once(cases):
    anchors, targets = cases
    rows = np.stack([*anchors, targets.width], axis=-1)
    assert len(np.unique(rows, axis=0)) == len(rows) == POINTS * 343


def test_the_rate_falls_after_80_and_90_percent_of_200_iterations():
    rates = np.asarray(convergence.RATES)
    assert len(rates) == 200
    assert set(rates[:160]) == {0.1}
    assert set(rates[160:180]) == {0.01}
    assert set(rates[180:]) == {0.001}


def reference_loss(name, box, target, at):
    """The four losses by their formulas; `at` is where terms that have no slope are taken."""

    def extent(box, axis):
        return box[axis] - box[axis + 2] / 2, box[axis] + box[axis + 2] / 2

    def iou_and_around(box):
        shared, around = [], []
        for axis in (0, 1):
            (low, high), (first, last) = extent(box, axis), extent(target, axis)
            shared.append(max(min(high, last) - max(low, first), 0.0))
            around.append(max(high, last) - min(low, first))
        inter = shared[0] * shared[1]
        union = box[2] * box[3] + target[2] * target[3] - inter
        return inter / union, union, around

    def v(box):
        angles = math.atan(target[2] / target[3]) - math.atan(box[2] / box[3])
        return 4 / math.pi**2 * angles**2

    iou, union, (width, height) = iou_and_around(box)
    distance = (box[0] - target[0]) ** 2 + (box[1] - target[1]) ** 2
    iou_at, _, (width_at, height_at) = iou_and_around(at)
    alpha = v(at) / (1 - iou_at + v(at)) if v(at) else 0.0
    exact, held = distance / (width**2 + height**2), distance / (width_at**2 + height_at**2)
    return {
        "IoU": 1 - iou,
        "GIoU": 1 - iou + 1 - union / (width * height),
        "DIoU, c held": 1 - iou + held,
        "CIoU, c held": 1 - iou + held + alpha * v(box),
        "DIoU, exact": 1 - iou + exact,
        "CIoU, exact": 1 - iou + exact + alpha * v(box),
    }[name]


@pytest.fixture(scope="module")
def smooth(cases):
    """Forty cases none of whose edges coincide, where slopes are derivatives."""
    anchors, targets = (np.asarray(box.corners()) for box in cases)
    smooth = np.flatnonzero(np.abs(anchors - targets).min(axis=-1) > 1e-3)
    chosen = np.random.default_rng(1).choice(smooth, 40, replace=False)
    return tuple(convergence.Box(*(x[chosen] for x in box)) for box in cases)


@pytest.fixture(scope="module")
def step_of_all():
    """One step under every loss, at a rate."""

    def step(box, target, rate):
        return {name: convergence.step(f, box, target, rate) for name, f in ALL.items()}

    return jax.jit(jax.vmap(step, (0, 0, None)))


@pytest.mark.parametrize("name", convergence.PAPER | convergence.EXACT)
def test_a_step_goes_down_the_slope_times_two_less_iou(name, smooth, step_of_all):
    moved = np.stack(step_of_all(*smooth, jnp.float32(0.1))[name], axis=-1)
    anchors, targets = (np.stack(box, axis=-1).astype(float) for box in smooth)
    for box, target, result in zip(anchors, targets, moved, strict=True):
        iou = 1 - reference_loss("IoU", box, target, box)
        slope = [
            reference_loss(name, box + h, target, box) - reference_loss(name, box - h, target, box)
            for h in 1e-6 * np.eye(4)
        ]
        expected = box - 0.1 * (2 - iou) * np.array(slope) / 2e-6
        np.testing.assert_allclose(result, expected, atol=5e-6)


@pytest.mark.parametrize("name", convergence.VARIANTS)
def test_a_short_step_down_a_variant_lowers_its_loss(name, smooth, step_of_all):
    anchors, targets = smooth
    moved = step_of_all(*smooth, jnp.float32(1e-3))[name]
    before, after = (ALL[name](box.corners(), targets.corners()) for box in (anchors, moved))
    assert (after > before - 1e-6).all()
    assert after.mean() > before.mean() + 1e-6


def test_errors_are_means_of_absolute_differences(cases, descents):
    anchors, targets = cases
    for descent in descents.values():
        for box, mean in ((anchors, descent.errors[0]), (descent.boxes, descent.errors[-1])):
            differences = np.stack(box, -1).astype(float) - np.stack(targets, -1)
            np.testing.assert_allclose(mean, np.abs(differences).sum(-1).mean(), rtol=1e-5)
        np.testing.assert_allclose(descent.errors[-1], descent.final.mean(), rtol=1e-5)
        assert len(descent.errors) == 201


def test_iou_leaves_boxes_that_do_not_meet_exactly_where_they_are(cases, descents):
    anchors, targets = cases
    apart = start_apart(anchors, targets)
    assert 0.7 < apart.mean() < 0.95
    for before, after in zip(anchors, descents["IoU"].boxes, strict=True):
        assert np.array_equal(np.asarray(before)[apart], np.asarray(after)[apart])
    before = np.asarray(convergence.error(anchors, targets))
    assert np.array_equal(before[apart], np.asarray(descents["IoU"].final)[apart])


def test_iou_solves_boxes_that_meet(cases, descents):
    apart = start_apart(*cases)
    assert (np.asarray(descents["IoU"].final)[~apart] < convergence.SOLVED).mean() > 0.95


@pytest.mark.parametrize("name", ["GIoU", "DIoU, c held", "CIoU, c held"])
def test_the_others_move_every_box_that_does_not_meet_its_target(name, cases, descents):
    anchors, targets = cases
    apart = start_apart(anchors, targets)
    before = np.asarray(convergence.error(anchors, targets))[apart]
    after = np.asarray(descents[name].final)[apart]
    assert (after < before).all()
    assert (after < convergence.SOLVED).mean() > 0.97


@pytest.mark.parametrize("iteration", [25, 50, 75, 100])
def test_iou_is_stuck_giou_slow_diou_and_ciou_fast(iteration, descents):
    errors = [descents[name].errors[iteration] for name in convergence.PAPER]
    assert list(convergence.PAPER) == ["IoU", "GIoU", "DIoU, c held", "CIoU, c held"]
    assert errors == sorted(errors, reverse=True)
    assert len(set(map(float, errors))) == 4


def test_diou_and_ciou_have_half_the_error_of_giou_after_50_iterations(descents):
    giou = descents["GIoU"].errors[50]
    assert descents["IoU"].errors[50] > 2 * giou
    assert descents["DIoU, c held"].errors[50] < giou / 2
    assert descents["CIoU, c held"].errors[50] < giou / 2


def test_diou_and_ciou_end_nearer_than_giou_and_giou_than_iou(descents):
    iou, giou, diou, ciou = (descents[name].errors[-1] for name in convergence.PAPER)
    assert max(diou, ciou) < giou / 3
    assert giou < iou / 30


def test_with_exact_slopes_diou_is_no_faster_than_giou_and_ciou_only_in_the_end(descents):
    giou, diou, ciou = (descents[name].errors for name in ("GIoU", "DIoU, exact", "CIoU, exact"))
    assert giou[25] < ciou[25] < diou[25]
    assert giou[50] < ciou[50] < diou[50]
    assert ciou[100] < giou[100] < diou[100]
    assert ciou[-1] < giou[-1]


@pytest.mark.parametrize("name", ["DIoU", "CIoU"])
def test_holding_c_changes_the_slope_and_not_the_value(name, cases):
    held, exact = convergence.PAPER[f"{name}, c held"], convergence.EXACT[f"{name}, exact"]
    anchors, targets = (box.corners() for box in cases)
    np.testing.assert_allclose(held(anchors, targets), exact(anchors, targets), atol=2e-6)


def test_the_command_prints_a_row_a_loss_and_draws_a_picture(
    descents, monkeypatch, tmp_path, capsys
):
    # The four losses are compiled already, by the fixture; of the variants one is enough.
    eiou = {"EIoU": convergence.VARIANTS["EIoU"]}
    monkeypatch.setattr(convergence, "VARIANTS", eiou)
    picture = tmp_path / "new" / "picture.png"
    arguments = ["convergence.py", "--points", str(POINTS), "--output", str(picture)]
    monkeypatch.setattr(sys, "argv", arguments)
    convergence.main()
    printed = capsys.readouterr().out
    assert "2,744 cases, 200 iterations" in printed
    assert "never" in next(line for line in printed.splitlines() if "│ IoU" in line)
    for name in convergence.PAPER | convergence.EXACT | eiou:
        assert name in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
