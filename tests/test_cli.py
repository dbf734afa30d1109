"""The command `jaxiou segmentation`, in this process and once in its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxiou import cli
from jaxiou._commands import segmentation

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "data" / "seg"
K = 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that images of a few pixels fill several."""
    monkeypatch.setattr(segmentation, "BLOCK", 64)


@pytest.fixture
def folders(tmp_path):
    """Truths and predictions of three images of three sizes, and the matrix of all pixels."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((K, K + 1), int)
    sizes = [(7, 9), (1, 1), (8, 8)]
    for i, size in enumerate(sizes):
        target = rng.choice([*range(K), 255], size)
        prediction = rng.choice([*range(K), 77], size)
        for folder, labels in (("truth", target), ("found", prediction)):
            (tmp_path / folder).mkdir(exist_ok=True)
            Image.fromarray(labels.astype(np.uint8)).save(tmp_path / folder / f"{i}.png")
        for t, p in zip(target.ravel(), prediction.ravel(), strict=True):
            if t < K:
                matrix[t, min(p, K)] += 1
    return tmp_path, matrix


def run(folder, *options):
    paths = [str(folder / name) for name in ("truth", "found")]
    return cli.main(["segmentation", *paths, *options])


def test_json_has_the_scores_of_a_loop_over_pixels(folders, capsys):
    folder, matrix = folders
    file = folder / "scores.json"
    assert run(folder, "--classes", str(K), "--ignore", "255", "--json", str(file)) == 0
    report = json.loads(file.read_text())
    hits = np.diag(matrix)
    iou = hits / (matrix.sum(1) + matrix[:, :K].sum(0) - hits)
    assert report["matrix"] == matrix.tolist()
    np.testing.assert_allclose([one["iou"] for one in report["classes"]], iou, rtol=1e-15)
    np.testing.assert_allclose(report["mean_iou"], iou.mean(), rtol=1e-15)
    np.testing.assert_allclose(report["pixel_accuracy"], hits.sum() / matrix.sum(), rtol=1e-15)
    assert report["images"] == 3
    assert report["pixels"] + report["ignored"] == 7 * 9 + 1 + 64
    assert report["predicted_as_no_class"] == matrix[:, K].sum()
    shown = capsys.readouterr().out
    assert f"{100 * iou.mean():.2f}" in shown
    assert f"{matrix[:, K].sum()} pixels counted as misses: predicted as no class" in shown


def test_labels_that_are_no_class_are_counted_and_told(folders, capsys):
    folder, _ = folders
    file = folder / "scores.json"
    assert run(folder, "--classes", str(K), "--json", str(file)) == 0
    invalid = json.loads(file.read_text())["invalid_targets"]
    assert invalid > 0
    assert f"{invalid} pixels not counted: their true label is no class" in capsys.readouterr().out


def test_labels_are_changed_all_at_once_before_they_count(folders):
    folder, matrix = folders
    file = folder / "scores.json"
    options = ["--remap", "0:1", "1:0", "255:-1", "--ignore", "-1"]
    assert run(folder, "--classes", str(K), *options, "--json", str(file)) == 0
    swapped = matrix[[1, 0, 2, 3]][:, [1, 0, 2, 3, 4]]
    assert json.loads(file.read_text())["matrix"] == swapped.tolist()


def test_zero_label_is_reduced(folders):
    folder, matrix = folders
    file = folder / "scores.json"
    options = ["--classes", str(K - 1), "--ignore", "255", "--reduce-zero-label"]
    assert run(folder, *options, "--json", str(file)) == 0
    got = np.array(json.loads(file.read_text())["matrix"])
    np.testing.assert_array_equal(got[:, : K - 1], matrix[1:, 1:K])
    np.testing.assert_array_equal(got[:, K - 1], matrix[1:, 0] + matrix[1:, K])


def test_a_class_that_never_occurs_is_null_not_nan(folders):
    folder, _ = folders
    file = folder / "scores.json"
    assert run(folder, "--classes", "6", "--ignore", "255", "--json", str(file)) == 0
    assert json.loads(file.read_text())["classes"][5]["iou"] is None


def test_a_picture_is_drawn(folders):
    folder, _ = folders
    file = folder / "matrix.png"
    assert run(folder, "--classes", "5", "--plot", str(file)) == 0
    with Image.open(file) as image:
        assert min(image.size) > 400


def test_cityscapes_has_its_names_and_its_categories(tmp_path, capsys):
    for folder, name, label in [("truth", "a_gtFine_labelIds", 7), ("found", "a", 8)]:
        (tmp_path / folder).mkdir()
        Image.fromarray(np.array([[label, 24, 24]], np.uint8)).save(
            tmp_path / folder / f"{name}.png"
        )
    assert run(tmp_path, "--protocol", "cityscapes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("road" in line and " 0.00" in line for line in lines)
    assert any("category flat" in line and "100.00" in line for line in lines)


def test_cityscapes_may_be_numbered_as_in_training(tmp_path):
    """As the issue writes it: `--classes 19 --ignore 255 --protocol cityscapes`."""
    for folder, labels in [("truth", [[0, 1, 11, 255]]), ("found", [[1, 1, 11, 3]])]:
        (tmp_path / folder).mkdir()
        Image.fromarray(np.array(labels, np.uint8)).save(tmp_path / folder / "a.png")
    file = tmp_path / "scores.json"
    options = ["--classes", "19", "--ignore", "255", "--protocol", "cityscapes"]
    options += ["--target-suffix", ".png", "--json", str(file)]
    assert run(tmp_path, *options) == 0
    report = json.loads(file.read_text())
    iou = {one["name"]: one["iou"] for one in report["classes"] if one["iou"] is not None}
    assert iou == {"road": 0, "sidewalk": 0.5, "person": 1}
    assert {one["name"]: one["iou"] for one in report["categories"]}["flat"] == 1


def test_ade_sample_has_the_score_of_the_official_script(tmp_path, monkeypatch):
    folder = SHARED / "ade_sample"
    if not folder.exists():
        pytest.skip("no shared data here")
    wanted = json.loads((folder / "expected.json").read_text())["roll_4_6"]
    for path in sorted(folder.glob("ADE_val*.png")):
        labels = np.asarray(Image.open(path))
        for name, x in [("truth", labels), ("found", np.roll(labels, (4, 6), (0, 1)))]:
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(x).save(tmp_path / name / path.name)
    file = tmp_path / "scores.json"
    monkeypatch.setattr(segmentation, "BLOCK", 2**16)
    assert run(tmp_path, "--protocol", "ade20k", "--json", str(file)) == 0
    report = json.loads(file.read_text())
    np.testing.assert_allclose(report["mean_iou"], wanted["official_mean_iou_over_150"], rtol=1e-12)
    np.testing.assert_allclose(report["final"], wanted["final_score"], rtol=1e-12)


def missing(folder):
    (folder / "found" / "1.png").unlink()
    return r"1\.png: has no prediction '1'"


def unreadable(folder):
    (folder / "found" / "1.png").write_text("no image")
    return r"1\.png: is not an image"


def of_another_size(folder):
    Image.new("L", (3, 2)).save(folder / "found" / "1.png")
    return r"found.1\.png: is 3 x 2 pixels, but its target .*truth.1\.png is 1 x 1"


def in_colour(folder):
    Image.new("RGB", (1, 1)).save(folder / "truth" / "1.png")
    return r"truth.1\.png: has mode RGB"


def surplus(folder):
    Image.new("L", (3, 2)).save(folder / "found" / "9.png")
    return r"9\.png: has no target '9'"


@pytest.mark.parametrize("spoil", [missing, unreadable, of_another_size, in_colour, surplus])
def test_a_bad_file_is_named_with_the_reason_and_exit_code_2(folders, capsys, spoil):
    folder, _ = folders
    reason = spoil(folder)
    file = folder / "scores.json"
    assert run(folder, "--classes", str(K), "--json", str(file)) == 2
    streams = capsys.readouterr()
    lines = streams.err.strip().splitlines()
    assert lines[-1].startswith("jaxiou: ")
    assert re.search(reason, lines[-1])
    assert not streams.out
    assert not file.exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "--classes K is needed"),
        (["--protocol", "cityscapes", "--classes", "3"], "has 34 labels, or 19 numbered from 0"),
        (["--classes", "3", "--json", "."], "is a folder"),
        (["--classes", "3", "--plot", "a.foo"], "a.foo: must end in one of "),
        (["--classes", "3", "--remap", "0:1", "0:2"], "--remap has a label twice on the left"),
        (["--classes", "100000"], "must be 1 to 10000"),
        (["--classes", "3", "--json", "nowhere/a.json"], "a.json: cannot be written"),
        (["--classes", "3", "--remap", "1"], "must be OLD:NEW"),
        (["--classes", "0"], "must be 1 to 10000"),
        (["--classes", "three"], "invalid"),
    ],
)
def test_a_bad_option_is_explained_with_exit_code_2(folders, capsys, options, reason):
    folder, _ = folders
    try:
        code = run(folder, *options)
    except SystemExit as error:  # argparse's own
        code = error.code
    assert code == 2
    assert reason in capsys.readouterr().err


def test_the_module_runs_as_a_program():
    arguments = ["segmentation", "nowhere", "nowhere", "--classes", "2"]
    command = [sys.executable, "-m", "jaxiou", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "jaxiou: nowhere: does not exist\n"
