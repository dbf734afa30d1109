"""The example that evaluates COCO's files: its numbers, its picture, and what it makes up."""

import json
import re
import sys
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import evaluate_coco as example

from jaxiou.detection import coco
from jaxiou.detection.matching import Matches


@pytest.fixture(autouse=True)
def compiled_fast():
    """What is compiled here runs once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def summary(text):
    """The twelve numbers that are printed."""
    return {name: float(x) for name, x in re.findall(r"^  (a[pr]\w*) +(-?\d\.\d{6})$", text, re.M)}


def errors(text):
    """Of each kind of error how many there are, and what they cost."""
    rows = re.findall(r"│ ([a-z ]+?) +│ (\d+) +│ (\d\.\d{3}) │", text)
    return {name.replace(" ", "_"): (int(count), float(cost)) for name, count, cost in rows}


def colours(path):
    """How many pixels the canvas, on the right, has of each colour of `example.BOXES`."""
    with Image.open(path) as picture:
        width, height = picture.size
        assert width >= 1000
        canvas = np.asarray(picture.convert("RGB").crop((round(0.66 * width), 0, width, height)))
    pixels = Counter(map(tuple, canvas.reshape(-1, 3).tolist()))
    styles = {name: style["color"] for name, (_, style) in example.BOXES.items()}
    return {
        name: pixels[tuple(round(255 * x) for x in to_rgb(colour))]
        for name, colour in styles.items()
    }


def test_it_prints_the_numbers_of_pycocotools_for_the_files_beside_the_repository(tmp_path, capsys):
    if not example.DATA.exists():
        pytest.skip("the files of COCO are not in ../shared/data")
    example.main(["--output", str(tmp_path / "new")])
    text = capsys.readouterr().out
    assert text.startswith("100 images of COCO: 100 images, 839 truths, 734 detections\n")

    expected = json.loads((example.DATA / "expected.json").read_text())
    expected = expected[f"{example.RESULTS}|bbox"]
    found = summary(text)
    assert found["ap"] == 0.504581
    for name, value in zip(coco.Summary._fields, expected["stats"].values(), strict=True):
        assert found[name] == round(value, 6)

    categories = json.loads((example.DATA / example.TARGETS).read_text())["categories"]
    shown = dict(re.findall(r"([a-z][a-z ]*[a-z]) +(\d\.\d{3})", text[text.index("class") :]))
    for category in categories:
        value = expected["ap_per_class"][str(category["id"])]
        assert shown.get(category["name"]) == (f"{value:.3f}" if value >= 0 else None)
    assert tuple(errors(text)) == example.COSTS
    assert errors(text)["classification"] == max(errors(text).values(), key=lambda x: x[1])

    assert [x.name for x in (tmp_path / "new").iterdir()] == ["evaluate_coco.png"]
    assert min(colours(tmp_path / "new" / "evaluate_coco.png").values()) > 100


def test_without_files_it_makes_up_images_and_the_users_own_files_give_the_same(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(example, "DATA", tmp_path / "nothing here")
    example.main(["--output", str(tmp_path)])
    made_up = capsys.readouterr().out
    assert made_up.startswith("Images that are made up: 12 images, ")
    assert 0 < summary(made_up)["ap"] < 1
    assert all(summary(made_up)[f"ap_{size}"] >= 0 for size in ("small", "medium", "large"))
    assert tuple(errors(made_up)) == example.COSTS
    assert all(count > 0 for count, _ in errors(made_up).values())
    assert min(colours(tmp_path / "evaluate_coco.png").values()) > 100

    names = ("truths.json", "results.json")
    for name, content in zip(names, example.make_up(), strict=True):
        (tmp_path / name).write_text(json.dumps(content))
    paths = [str(tmp_path / name) for name in names]
    drawn = []
    monkeypatch.setattr(example, "draw", lambda *arguments: drawn.append(arguments) or Figure())
    example.main([*paths, "--image", "5", "--output", str(tmp_path)])
    assert drawn[0][-1] == 5
    own = capsys.readouterr().out
    assert own.splitlines()[0] == made_up.splitlines()[0].replace(
        "Images that are made up", "results.json"
    )
    assert own.splitlines()[1:] == made_up.splitlines()[1:]


def test_boxes_that_are_made_up_lie_in_their_images():
    targets, results = example.make_up()
    boxes = np.array([truth["bbox"] for truth in targets["annotations"]])
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= [640, 480]).all()
    assert {truth["image_id"] for truth in targets["annotations"]} == set(range(12))
    assert all(0 < result["score"] < 1 for result in results)


def test_the_image_that_is_drawn_has_something_of_everything():
    def matches(*images):
        """Of each image a text: R is right, W wrong, I ignored, L right but scores low."""
        letters = np.array([list(found.ljust(6)) for found, _ in images])
        truths = np.array([np.arange(20) < count for _, count in images])
        return Matches(
            scores=np.where(letters == " ", -np.inf, np.where(letters == "L", 0.2, 0.9)),
            labels=None,
            ranks=None,
            valid=letters != " ",
            matched=np.isin(letters, ["R", "L"]).astype(np.uint32)[..., None],
            ignored=(letters == "I").astype(np.uint32)[..., None],
            truth_labels=None,
            truth_counts=truths[..., None],
        )

    assert example.telling(matches(("RRRR", 4), ("RW", 2), ("WW", 2))) == 1
    assert example.telling(matches(("RW", 2), ("RRWW", 4))) == 1
    assert example.telling(matches(("RRWW", 20), ("RW", 2))) == 1  # too full
    assert example.telling(matches(("RI", 2), ("LW", 2), ("WR", 2))) == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["truths.json"], "a file of annotations needs one of results"),
        (["--image", "nothing"], "no image has the id nothing"),
        (["none.json", "empty.json"], "there is nothing to be found in any image"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, reason, monkeypatch, tmp_path, capsys):
    nothing = {"images": [{"id": 1}], "categories": [{"id": 1}], "annotations": []}
    (tmp_path / "none.json").write_text(json.dumps(nothing))
    (tmp_path / "empty.json").write_text("[]")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(example, "DATA", tmp_path / "nothing here")
    monkeypatch.setattr(example, "evaluate", lambda loaded: pytest.fail("evaluated before"))
    with pytest.raises(SystemExit):
        example.main(arguments)
    assert reason in capsys.readouterr().err
