"""Evaluates detections in COCO's files, and shows what is right and what is wrong.

    python examples/evaluate_coco.py
    python examples/evaluate_coco.py instances_val2017.json results.json

It prints the twelve numbers of COCO, the average precision of each class, and what each kind of
error costs (TIDE), and draws precision over recall and one image, `outputs/evaluate_coco.png`.
Without files it takes the 100 images of COCO in `../shared/data` beside this repository or, where
there are none, images that it makes up. Boxes are compared; `jaxiou coco` has masks and keypoints.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from rich.console import Console
from rich.table import Table

from jaxiou.detection import coco, packing, tide
from jaxiou.detection.precision import RECALLS
from jaxiou.readers import LoadedDetections
from jaxiou.readers import coco as files

DATA = Path(__file__).parents[2] / "shared/data/ap/coco_val2014_100"
TARGETS, RESULTS = "instances_val2014_100.json", "instances_val2014_fakebbox100_results.json"
SCORE = 0.3  # of the detections that are drawn, at least
LEGEND: dict[str, Any] = {"fontsize": 8, "title_fontsize": 8, "frameon": False}
COSTS = tide.Breakdown._fields[1:-1]
BOXES: dict[str, tuple[str, dict[str, Any]]] = {
    "found": ("truth that is found", {"color": "0.75", "linewidth": 5}),
    "missed": ("truth that is not", {"color": "#2166ac", "linewidth": 2.5, "linestyle": "--"}),
    "correct": ("detection that is right", {"color": "#1a9850", "linewidth": 1.5}),
    "wrong": ("detection that is wrong, and how", {"color": "#d7301f", "linewidth": 1.5}),
}


class Evaluation(NamedTuple):
    """What a data set gives.

    Attributes:
      scores: COCO's numbers, equal to pycocotools' to the last bit.
      errors: what each kind of error costs at IoU 0.5.
    """

    scores: coco.Result
    errors: tide.Breakdown


def evaluate(loaded: LoadedDetections) -> Evaluation:
    batches = packing.pack(loaded.table, batch_size=128)
    return Evaluation(
        coco.average_precision(batches, num_classes=loaded.num_classes),
        tide.breakdown(
            batches,
            num_classes=loaded.num_classes,
            overlap=coco.box_iou,  # of boxes (x, y, width, height), as COCO's files have them
            crowd_overlap=coco.box_ioa,
        ),
    )


# What is evaluated


def load(targets: Path | None, results: Path | None) -> tuple[str, LoadedDetections]:
    """The data set of two files, that of `DATA`, or one that is made up, and what it is called."""
    if targets and results:
        return results.name, files.load(targets, results)
    if (DATA / TARGETS).exists():
        return "100 images of COCO", files.load(DATA / TARGETS, DATA / RESULTS)
    return "Images that are made up", files.from_dicts(*make_up())


def make_up(num_images: int = 12, seed: int = 0) -> tuple[dict, list[dict]]:
    """Truths and results as in COCO's files, with errors of every kind."""
    random = np.random.default_rng(seed)
    names = ["circle", "square", "triangle"]
    categories = [{"id": i, "name": name} for i, name in enumerate(names, 1)]
    truths, results = [], []

    def add(image: int, category: int, box: np.ndarray, score: float) -> None:
        found = {"bbox": box.tolist(), "score": round(score, 3)}
        results.append({"image_id": image, "category_id": category, **found})

    def draw() -> np.ndarray:
        size = np.exp(random.uniform(np.log(16), np.log(200), 2))
        return np.concatenate([random.uniform(0, 1, 2) * ([640, 480] - size), size])

    for image in range(num_images):
        for _ in range(random.integers(2, 7)):
            box, category = draw(), int(random.integers(1, 4))
            truth = {"id": len(truths) + 1, "image_id": image, "category_id": category}
            truth |= {"bbox": box.tolist(), "area": float(box[2:].prod()), "iscrowd": 0}
            truths.append(truth)
            looseness = random.choice([0.02, 0.05, 0.15])
            guess = box + looseness * np.tile(box[2:], 2) * random.normal(size=4)
            fate, score = random.uniform(), random.beta(4, 2)
            if fate < 0.15:  # missed
                continue
            add(image, category % 3 + 1 if fate < 0.25 else category, guess, score)
            if fate > 0.9:  # found twice
                add(image, category, guess + 3, 0.8 * score)
        for _ in range(random.poisson(0.7)):
            add(image, int(random.integers(1, 4)), draw(), random.beta(2, 3))
    images = [{"id": image, "width": 640, "height": 480} for image in range(num_images)]
    return {"images": images, "categories": categories, "annotations": truths}, results


# What is shown


def report(loaded: LoadedDetections, evaluation: Evaluation, columns: int = 3) -> None:
    """All numbers, as text."""
    for name, value in evaluation.scores.summary._asdict().items():
        print(f"  {name:<12}{value:9.6f}")

    order = np.argsort(-evaluation.scores.per_class, kind="stable")  # without truths: last
    order = order[~np.isnan(evaluation.scores.per_class[order])]
    cells = [(loaded.category_names[k], f"{evaluation.scores.per_class[k]:.3f}") for k in order]
    table = Table(*["class", "AP"] * columns, title=f"{len(cells)} classes with truths", box=None)
    rows = -(-len(cells) // columns)
    for row in range(rows):
        table.add_row(*sum(cells[row::rows], ()))
    Console().print(table)

    errors = evaluation.errors
    # Its AP50 has a 0 for a class with detections alone, which COCO leaves out.
    table = Table("error", "how many", "costs", title=f"errors by TIDE, AP50 {errors.ap:.3f}")
    for name in COSTS:
        count, cost = getattr(errors.counts, name), getattr(errors, name)
        table.add_row(name.replace("_", " "), str(count), f"{cost:.3f}")
    Console().print(table)


def draw(name: str, loaded: LoadedDetections, evaluation: Evaluation, image: int) -> Figure:
    figure = Figure(figsize=(15, 5.4), layout="constrained")
    curves, costs, canvas = figure.subplots(1, 3, width_ratios=[1, 0.8, 1.2])
    draw_curves(curves, evaluation.scores)
    draw_costs(costs, evaluation.errors)
    draw_image(canvas, loaded, image)
    figure.suptitle(f"{name}: AP {evaluation.scores.summary.ap:.3f}")
    return figure


def draw_curves(axes: Axes, scores: coco.Result) -> None:
    """Precision over recall at each threshold, the mean over classes."""
    precision = scores.curves.precision[:, :, :, 0, -1]
    present = (precision > -1).all(axis=(0, 1))
    for i, threshold in enumerate(coco.THRESHOLDS):
        mean = precision[i, :, present].mean(axis=0)
        colour = colormaps["viridis"](i / len(coco.THRESHOLDS))
        axes.plot(RECALLS, mean, color=colour, label=f"{threshold:.2f}: {mean.mean():.3f}")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    axes.set_title(f"mean over {present.sum()} classes")
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.11), "ncols": 5}
    axes.legend(title="AP at each IoU", columnspacing=1, handlelength=1, **LEGEND, **below)
    axes.spines[["top", "right"]].set_visible(False)


def draw_costs(axes: Axes, errors: tide.Breakdown) -> None:
    """What AP50 would gain without the errors of each kind."""
    names = [name.replace("_", "\n") for name in COSTS]
    bars = axes.barh(names, [getattr(errors, name) for name in COSTS], color="#d7301f")
    for bar in bars.patches[-2:]:  # all that is wrong, and all that is not found
        bar.set_color("0.6")
    axes.bar_label(bars, [f" {getattr(errors.counts, name)}" for name in COSTS], fontsize=9)
    axes.invert_yaxis()
    axes.set(xlabel="AP50 to be gained", title="what errors cost, and how many there are")
    axes.margins(x=0.15)
    axes.spines[["top", "right"]].set_visible(False)


def telling(matches: Any, most: int = 15) -> int:
    """An image with something of everything: detections right and wrong, and truths missed."""
    first = np.uint32(1)  # the bit of IoU 0.5
    counted = (matches.scores >= SCORE) & ((matches.ignored[..., 0] & first) == 0)
    hit = (matches.matched[..., 0] & first) == 1
    right, wrong = (counted & hit).sum(axis=1), (counted & ~hit).sum(axis=1)
    missed = matches.truth_counts[..., 0].sum(axis=1) - right
    variety = np.minimum(np.minimum(right, wrong), missed)
    return int(np.argmax(np.where(right + wrong + missed <= most, variety, -1)))


def draw_image(axes: Axes, loaded: LoadedDetections, image: int) -> None:
    """The boxes of one image; what is wrong with each is by `tide`."""
    table = loaded.table
    here = (table.detection_images == image) & (table.detections.scores >= SCORE)
    found = jax.tree.map(lambda x: x[here], table.detections)
    truths = jax.tree.map(lambda x: x[table.truth_images == image], table.truths)
    overlaps = {"overlap": coco.box_iou, "crowd_overlap": coco.box_ioa}
    errors = jax.device_get(tide.evaluate(found, truths, **overlaps))

    regions = np.concatenate([found.regions, truths.regions])
    regions = regions if len(regions) else np.zeros((1, 4))
    least, most = regions[:, :2].min(axis=0), (regions[:, :2] + regions[:, 2:]).max(axis=0)
    (left, top), (right, bottom) = least - 25, most + 25

    def add(box: np.ndarray, kind: str, text: str) -> None:
        """A box, with a text above it, at the top in it or below it, so that few meet."""
        style = BOXES[kind][1]
        x, y, width, height = box
        axes.add_patch(Rectangle((x, y), width, height, fill=False, **style))
        place = {"x": x, "ha": "left"} if 2 * x < left + right else {"x": x + width, "ha": "right"}
        place |= {"y": y + height if kind == "missed" else y}
        place |= {"va": "bottom" if kind == "correct" else "top"}
        label = axes.text(s=text, color=style["color"], size=8, **place)
        label.set_path_effects([withStroke(linewidth=2.5, foreground="white")])

    names = loaded.category_names
    for box, k, is_found in zip(truths.regions, truths.labels, errors.found, strict=True):
        add(box, "found" if is_found else "missed", "" if is_found else names[k])
    for box, k, score, which, counted in zip(
        found.regions, found.labels, found.scores, errors.kinds, errors.counted, strict=True
    ):
        kind, text = tide.KINDS[which], f"{names[k]} {score:.2f}"
        if kind == "correct":
            add(box, "correct", text)
        elif counted:  # not where a crowd excuses it
            add(box, "wrong", f"{text}, {kind}")

    axes.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], aspect="equal")
    axes.set_title(f"image {loaded.image_ids[image]}, at IoU 0.5")
    handles = [Line2D([], [], label=label, **style) for label, style in BOXES.values()]
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01), "ncols": 2}
    axes.legend(handles=handles, **LEGEND, **below)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", type=Path, nargs="?", help="JSON file of annotations")
    parser.add_argument("results", type=Path, nargs="?", help="JSON file of results")
    parser.add_argument("--image", help="id of the image that is drawn")
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder")
    options = parser.parse_args(arguments)
    if options.targets and not options.results:
        parser.error("a file of annotations needs one of results")

    name, loaded = load(options.targets, options.results)
    ids = [str(x) for x in loaded.image_ids]
    if options.image is not None and options.image not in ids:
        parser.error(f"no image has the id {options.image}")
    table = loaded.table
    if not len(table.truth_images):
        parser.error("there is nothing to be found in any image")
    print(f"{name}: {table.num_images:,} images, {len(table.truth_images):,} truths", end="")
    print(f", {len(table.detection_images):,} detections")
    evaluation = evaluate(loaded)
    report(loaded, evaluation)

    matches = evaluation.scores.matches
    image = telling(matches) if options.image is None else ids.index(options.image)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "evaluate_coco.png"
    draw(name, loaded, evaluation, image).savefig(path, dpi=100)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
