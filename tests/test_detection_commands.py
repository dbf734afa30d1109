"""`jaxiou coco`, `lvis`, `voc` and `open-images`: tables, JSON, pictures and exit codes."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from jaxiou._commands import detection
from jaxiou.cli import main

DATA = Path(__file__).parents[2] / "shared" / "data" / "ap"
NEEDS_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not here")
COCO_TRUTHS = DATA / "coco_val2014_100" / "instances_val2014_100.json"

BOX = {"image_id": "a", "category_id": 1, "bbox": [1, 2, 30, 40]}
TRUTHS = {
    "images": [{"id": "a", "height": 60, "width": 60}],
    "categories": [{"id": 1, "name": "[cat]", "frequency": "f"}],
    "annotations": [{**BOX, "id": 0, "area": 1200, "iscrowd": 0}],
}


@pytest.fixture
def files(tmp_path):
    """One truth, and one detection of it, as JSON."""

    def write(truths=TRUTHS, results=({**BOX, "score": 0.5},)):
        paths = tmp_path / "truths.json", tmp_path / "results.json"
        for path, content in zip(paths, (truths, list(results)), strict=True):
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return list(map(str, paths))

    return write


def is_picture(path):
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@NEEDS_DATA
def test_coco_prints_pycocotools_table(capsys, tmp_path):
    results = COCO_TRUTHS.parent / "instances_val2014_fakebbox100_results.json"
    with contextlib.redirect_stdout(io.StringIO()):
        known = COCO(str(COCO_TRUTHS))
        run = COCOeval(known, known.loadRes(str(results)), "bbox")
        run.evaluate()
        run.accumulate()
    table = io.StringIO()
    with contextlib.redirect_stdout(table):
        run.summarize()
    report, picture = tmp_path / "report.json", tmp_path / "curves.png"
    command = [
        "coco",
        str(COCO_TRUTHS),
        str(results),
        "--json",
        str(report),
        "--plot",
        str(picture),
    ]
    assert main([*command, "--per-class"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(table.getvalue())
    assert "person" in printed
    scores = json.loads(report.read_text())
    assert [scores[name] for name in list(scores)[:12]] == list(run.stats)
    assert scores["classes"][0]["name"] == "person"
    assert is_picture(picture)


@pytest.mark.parametrize("kind", ["bbox", "segm", "boundary", "keypoints"])
def test_coco_compares_every_kind(kind, files, capsys):
    polygon = {"segmentation": [[1, 2, 31, 2, 31, 42, 1, 42]]}
    points = {"keypoints": [5, 5, 2] * 17, "num_keypoints": 17}
    truth = {**TRUTHS["annotations"][0], **polygon, **points}
    code = {"size": [60, 60], "counts": [62, 40, *[20, 40] * 29, 1758]}
    result = {**BOX, "score": 0.5, "keypoints": points["keypoints"], "segmentation": code}
    if kind == "segm":
        del result["bbox"]
    paths = files({**TRUTHS, "annotations": [truth]}, [result])
    assert main(["coco", *paths, "--kind", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (10 if kind == "keypoints" else 12)
    assert lines[0].endswith("= 1.000")


def test_coco_takes_all_as_one_class(files, capsys):
    other = {**TRUTHS, "categories": [*TRUTHS["categories"], {"id": 2, "name": "dog"}]}
    paths = files(other, [{**BOX, "category_id": 2, "score": 0.5}])
    assert main(["coco", *paths]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("= 0.000")
    assert main(["coco", *paths, "--class-agnostic", "--per-class"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[0].endswith("= 1.000")
    assert "all classes" in printed


@NEEDS_DATA
def test_lvis_has_its_thirteen_numbers(capsys, tmp_path):
    folder = DATA / "lvis_val_100"
    expected = json.loads((folder / "expected.json").read_text())["bbox|max_dets=300"]
    report = tmp_path / "report.json"
    files = [str(folder / "lvis_val_100.json"), str(folder / "synthetic_jitter_dets.json")]
    assert main(["lvis", *files, "--json", str(report)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 13
    scores = json.loads(report.read_text())
    wanted = [x for name, x in expected.items() if name[:2] in ("AP", "AR")]
    assert [scores[name] for name in list(scores)[:13]] == wanted


@NEEDS_DATA
def test_voc_has_the_means_of_voc_eval(capsys, tmp_path):
    folder = DATA / "voc2012_100"
    files = [str(folder / "Annotations"), str(folder / "dets_abs_xyx2y2")]
    picture = tmp_path / "classes.png"
    command = ["voc", *files, "--classes", str(folder / "voc.names"), "--threshold", "0.5", "0.75"]
    assert main([*command, "--plot", str(picture)]) == 0
    assert capsys.readouterr().out.splitlines() == ["mAP at 0.5: 61.39", "mAP at 0.75: 36.59"]
    assert main([*command, "--points", "11"]) == 0
    assert capsys.readouterr().out.splitlines() == ["mAP at 0.5: 60.75", "mAP at 0.75: 37.28"]
    assert is_picture(picture)


HEADER = "ImageID,LabelName,XMin,XMax,YMin,YMax,"


@pytest.fixture
def open_images(tmp_path):
    """Two cats in a group-of box, one of them found, and a dog that was not looked for."""
    contents = {
        "truths.csv": f"{HEADER}IsGroupOf\nx,cat,0.1,0.5,0.1,0.5,1\nx,cat,0.6,0.9,0.6,0.9,0\n",
        "results.csv": f"{HEADER}Score\nx,cat,0.1,0.3,0.1,0.3,0.9\nx,dog,0.1,0.3,0.1,0.3,0.8\n"
        "x,cat,0.6,0.9,0.6,0.9,0.7\n",
        "labels.csv": "ImageID,LabelName,Confidence\nx,cat,1\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
    return [str(tmp_path / name) for name in contents]


def test_open_images_with_and_without_its_challenge(open_images, capsys, tmp_path):
    truths, results, labels = open_images
    report = tmp_path / "report.json"
    assert main(["open-images", truths, results, "--per-class", "--json", str(report)]) == 0
    assert "mAP at 0.5: 100.00" in capsys.readouterr().out
    (at_half,) = json.loads(report.read_text())["thresholds"]
    assert at_half["threshold"] == 0.5
    assert at_half["mean"] == pytest.approx(1)
    assert at_half["classes"] == [
        {"id": "cat", "name": "cat", "ap": pytest.approx(1)},
        {"id": "dog", "name": "dog", "ap": None},
    ]
    command = ["open-images", truths, results, "--challenge"]
    assert main(command) == 2
    assert "--challenge needs --labels" in capsys.readouterr().err
    assert main([*command, "--labels", labels]) == 0
    assert "mAP at 0.5: 100.00" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("truths", "results", "reason"),
    [
        ("{", [], "truths.json"),
        (TRUTHS, [{**BOX, "score": 0.5, "image_id": 9}], r"results[0]: image_id 9"),
        (TRUTHS, [{**BOX, "score": None}], r"results[0]: score"),
        (TRUTHS, [{**BOX, "score": 0.5, "bbox": [1, 2, 3]}], r"results[0]: bbox"),
    ],
)
@pytest.mark.parametrize("command", ["coco", "lvis"])
def test_a_bad_file_is_exit_code_2_and_a_line_with_its_name_and_the_record(
    command, truths, results, reason, files, capsys
):
    if command == "lvis" and isinstance(truths, dict):
        image = {**TRUTHS["images"][0], "neg_category_ids": [], "not_exhaustive_category_ids": []}
        truths = {**truths, "images": [image]}
    assert main([command, *files(truths, results)]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("jaxiou: ")
    assert reason in error
    assert len(error.splitlines()) == 1


def test_a_missing_folder_and_an_output_nowhere_are_exit_code_2(files, capsys, tmp_path):
    assert main(["voc", str(tmp_path / "none"), str(tmp_path)]) == 2
    assert "none" in capsys.readouterr().err
    assert main(["coco", *files(), "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "its folder does not exist" in capsys.readouterr().err


def test_no_classes_and_outputs_that_cannot_be_written_are_exit_code_2(files, capsys, tmp_path):
    truths, results = files({**TRUTHS, "categories": [], "annotations": []}, [])
    assert main(["coco", truths, results]) == 2
    assert "truths.json: has no classes" in capsys.readouterr().err
    for path, reason in ((truths, "it is read"), (str(tmp_path / ("x" * 300)), "name too long")):
        assert main(["coco", truths, results, "--json", path]) == 2
        assert reason in capsys.readouterr().err
    assert json.loads(Path(truths).read_text())["images"] == TRUTHS["images"]


NAMES = ["$\\foo$", ":smile: [b]", "caf\xe9 \u65e5", "same", "same"]


def test_class_names_are_shown_as_they_are(tmp_path, monkeypatch):
    """On an output that has ASCII alone as well, and two classes may have one name."""
    ids = [f"/m/{k}" for k in range(len(NAMES))]
    rows = [f"x,{k},0.1,0.5,0.1,0.5" for k in ids]
    classes = [f"{k},{name}" for k, name in zip(ids, NAMES, strict=True)]
    contents = {
        "truths.csv": [HEADER[:-1], *rows],
        "results.csv": [f"{HEADER}Score", *(f"{row},0.5" for row in rows[1:])],
        "classes.csv": classes,
    }
    for name, lines in contents.items():
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    truths, results, classes = (str(tmp_path / name) for name in contents)
    report, picture = tmp_path / "report.json", tmp_path / "classes.PNG"
    output = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr("sys.stdout", output)
    command = ["open-images", truths, results, "--classes", classes, "--per-class"]
    thresholds = ["--threshold", "0.5", "0.5000001"]
    assert main([*command, *thresholds, "--json", str(report), "--plot", str(picture)]) == 0
    output.flush()
    printed = output.buffer.getvalue().decode("ascii")
    for name in ("$\\foo$", ":smile: [b]", "caf\\xe9 \\u65e5", "AP at 0.5000001"):
        assert name in printed
    assert is_picture(picture)
    for at in json.loads(report.read_text())["thresholds"]:
        assert [x["id"] for x in at["classes"]] == ids
        assert [x["ap"] for x in at["classes"]] == [0, 1, 1, 1, 1]


def test_of_very_many_classes_a_picture_has_the_best_and_the_worst(tmp_path):
    bars = [(f"class {k}", 1 - k / 9000) for k in range(9000)]
    detection._plot_bars(tmp_path / "x.png", bars, "title")
    assert is_picture(tmp_path / "x.png")
    header = (tmp_path / "x.png").read_bytes()[16:24]
    assert int.from_bytes(header[4:]) < 4000


def test_without_truths_there_is_no_curve_to_draw(files, capsys, tmp_path):
    paths = files({**TRUTHS, "annotations": []})
    assert main(["coco", *paths]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("= -1.000")
    assert main(["coco", *paths, "--plot", str(tmp_path / "x.png")]) == 2
    assert "no curve to draw" in capsys.readouterr().err
