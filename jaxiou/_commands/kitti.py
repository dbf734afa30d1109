"""`jaxiou kitti`: the table of KITTI's object benchmark, for two folders of label files."""

import argparse
from pathlib import Path
from typing import Any, Literal

import numpy as np

from jaxiou._commands import shared
from jaxiou._commands.shared import number, percent
from jaxiou.detection import kitti
from jaxiou.detection.kitti import CLASSES, DIFFICULTIES, MEASURES, Result
from jaxiou.readers import kitti as reader

TITLES = {
    "image": "2D boxes in the image",
    "bev": "bird's-eye view",
    "3d": "3D boxes",
    "aos": "orientation similarity",
}


def add_to(commands: Any) -> None:
    command = commands.add_parser(
        "kitti",
        help="average precision in the image, from above and in 3D, and AOS, by KITTI's rules",
        description="Scores detections as KITTI's object benchmark does: two folders with a file"
        " <image>.txt for each image.",
    )
    command.set_defaults(run=run)
    add = command.add_argument
    add("targets", type=Path, metavar="TARGETS", help="folder of labels, KITTI's label_2")
    add("predictions", type=Path, metavar="PREDICTIONS", help="folder of results, with scores")
    add("--images", type=Path, metavar="FILE", help="names of the images that count, one a line")
    add(
        "--loose",
        action="store_true",
        help="from above and in 3D ask for 0.5, 0.25 and 0.25 instead of 0.7, 0.5 and 0.5",
    )
    shared.add_outputs(command, "write the scores", "draw precision over recall")


def run(options: argparse.Namespace) -> None:
    console = shared.console()
    shared.check_outputs(options)
    found = reader.find(options.targets, options.predictions, images=options.images)
    files = [
        (reader.read(truth), reader.read(prediction, scored=True))
        for _, truth, prediction in shared.progress(found, "reading")
    ]
    table = reader.pack(*zip(*files, strict=True))
    minimum: Literal["strict", "loose"] = "loose" if options.loose else "strict"
    results = {
        measure: kitti.average_precision(table, minimum=minimum, measures=(measure,))
        for measure in shared.progress(list(kitti.MINIMUM[minimum]), "scoring")
    }
    result = _together(results)
    _show(console, minimum, result)
    if options.json:
        shared.write_json(options.json, _report(minimum, table.num_images, result))
    if options.plot:
        _plot(options.plot, result)


def _together(results: dict[str, Result]) -> Result:
    """One of results that have one measure each; the orientation is that of the image."""
    taken = [results["image" if measure == "aos" else measure] for measure in MEASURES]
    fields = {
        name: np.stack([getattr(one, name)[place] for place, one in enumerate(taken)])
        for name in Result._fields
        if name != "num_truths"
    }
    return Result(**fields, num_truths=taken[0].num_truths)


def _limit(minimum: str, measure: str, label: int) -> float:
    return kitti.MINIMUM[minimum]["image" if measure == "aos" else measure][label]


def _show(console: Any, minimum: str, result: Result) -> None:
    from rich.table import Table

    for name, scores in (("R40", result.r40), ("R11", result.r11)):
        table = Table("class", "measure", "IoU >", *DIFFICULTIES, title=f"AP {name}, %", box=None)
        for column in table.columns[2:]:
            column.justify = "right"
        for label, kind in enumerate(CLASSES):
            for place, measure in enumerate(MEASURES):
                cells = map(percent, scores[place, label])
                limit = f"{_limit(minimum, measure, label):.2f}"
                table.add_row("" if place else kind, TITLES[measure], limit, *cells)
            table.add_section()
        console.print(table)
        console.print()
    counts = Table("truths that count", *DIFFICULTIES, box=None)
    for column in counts.columns[1:]:
        column.justify = "right"
    for kind, row in zip(CLASSES, result.num_truths, strict=True):
        counts.add_row(kind, *(f"{x:,}" for x in row))
    console.print(counts)
    for place, measure in enumerate(MEASURES):
        if np.isnan(result.r40[place]).all():
            reason = "an alpha is -10" if measure == "aos" else "no detection has a place"
            console.print(f"{TITLES[measure]}: not measured, as {reason}")


def _report(minimum: str, num_images: int, result: Result) -> dict[str, Any]:
    def one(place: int, label: int, k: int) -> dict[str, Any]:
        where = (place, label, k)
        kept = np.isfinite(result.thresholds[where])
        return {
            "minimum": _limit(minimum, MEASURES[place], label),
            "R11": number(result.r11[where]),
            "R40": number(result.r40[where]),
            "curve": [number(x) for x in result.curves[where]],
            "thresholds": [float(x) for x in result.thresholds[where][kept]],
            "tp": result.tp[where][kept].tolist(),
            "fp": result.fp[where][kept].tolist(),
            "fn": result.fn[where][kept].tolist(),
        }

    return {
        "images": num_images,
        "overlaps": minimum,
        "classes": {
            kind: {
                "truths": dict(zip(DIFFICULTIES, result.num_truths[label].tolist(), strict=True)),
                **{
                    measure: {name: one(place, label, k) for k, name in enumerate(DIFFICULTIES)}
                    for place, measure in enumerate(MEASURES)
                },
            }
            for label, kind in enumerate(CLASSES)
        },
    }


def _plot(path: Path, result: Result) -> None:
    """Classes side by side, a curve for each measure and difficulty."""
    figure = shared.figure(figsize=(12, 4.2))
    recall = np.linspace(0, 1, result.curves.shape[-1])
    for label, (kind, axes) in enumerate(zip(CLASSES, figure.subplots(1, 3), strict=True)):
        for place, measure in enumerate(MEASURES):
            if np.isnan(result.r40[place, label]).all():
                continue
            for k, style in enumerate((":", "-", "--")):
                name = f"{measure} {100 * result.r40[place, label, k]:.1f}"
                axes.step(
                    recall,
                    result.curves[place, label, k],
                    style,
                    color=f"C{place}",
                    linewidth=1.8 if style == "-" else 1,
                    where="pre",
                    label=name if style == "-" else None,
                )
        axes.set(title=kind, xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
        axes.legend(fontsize=8, title="R40 moderate, %", loc="upper right")
        axes.grid(alpha=0.3)
    figure.suptitle("easy dotted, moderate solid, hard dashed", fontsize=9)
    shared.save(figure, path)
