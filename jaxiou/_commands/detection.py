"""`jaxiou coco`, `lvis`, `voc` and `open-images`: average precision of detections in files."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxiou._commands import shared
from jaxiou._commands.shared import number, percent
from jaxiou.detection import _drop_in, _summaries, coco, lvis, open_images, packing, voc
from jaxiou.detection.precision import RECALLS, Curves
from jaxiou.readers import FileError, LoadedDetections
from jaxiou.readers import coco as coco_files
from jaxiou.readers import lvis as lvis_files
from jaxiou.readers import open_images as open_images_files
from jaxiou.readers import voc as voc_files

MOST_BARS = 80
"""In a picture."""


def add_to(commands: Any) -> None:
    _add_coco(commands)
    _add_lvis(commands)
    _add_voc(commands)
    _add_open_images(commands)


def _command(
    commands: Any, name: str, run: Callable[..., None], about: str, truths: str, found: str
) -> Any:
    command = commands.add_parser(name, help=about[0].lower() + about[1:-1], description=about)
    command.set_defaults(run=run)
    command.add_argument("targets", type=Path, metavar="TARGETS", help=truths)
    command.add_argument("predictions", type=Path, metavar="PREDICTIONS", help=found)
    command.add_argument("--per-class", action="store_true", help="a table of all classes as well")
    shared.add_outputs(command, "write the scores", "draw precision over recall")
    return command.add_argument


def _evaluated(
    options: argparse.Namespace,
    read: Callable[[], LoadedDetections],
    evaluate: Callable[..., Any],
) -> Any:
    """What was read, and its evaluation, with a bar."""

    def evaluated() -> Any:
        if not done[0].num_classes:
            raise FileError(options.targets, "has no classes")
        return evaluate(done[0])

    done: list[Any] = []
    for step in shared.progress((read, evaluated), "reading and matching"):
        done.append(step())
    return done


# COCO.


def _add_coco(commands: Any) -> None:
    add = _command(
        commands,
        "coco",
        _run_coco,
        "Average precision by COCO's rules, equal to pycocotools' to the last bit.",
        "JSON file of annotations",
        "JSON file of results",
    )
    kinds = ("bbox", "segm", "boundary", "keypoints")
    add("--kind", choices=kinds, default="bbox", help="what is compared")
    add("--class-agnostic", action="store_true", help="take all as one class")


def _run_coco(options: argparse.Namespace) -> None:
    console = shared.console()
    shared.check_outputs(options)
    keypoints = options.kind == "keypoints"
    if keypoints and options.class_agnostic:
        raise ValueError("--class-agnostic is for boxes and masks")

    def read() -> LoadedDetections:
        return coco_files.load(
            options.targets,
            options.predictions,
            kind=options.kind,
            across_classes=options.class_agnostic,
        )

    def evaluate(loaded: LoadedDetections) -> coco.Result:
        batches = packing.pack(loaded.table, overlaps=loaded.overlaps)
        if keypoints:
            return coco.keypoint_average_precision(batches, num_classes=loaded.num_classes)
        return coco.average_precision(
            batches, num_classes=loaded.num_classes, class_agnostic=options.class_agnostic
        )

    loaded, result = _evaluated(options, read, evaluate)
    classes = list(zip(loaded.category_ids, loaded.category_names, strict=True))
    if options.class_agnostic:
        classes = [(None, "all classes")]
    limits = coco.KEYPOINT_MAX_DETECTIONS if keypoints else coco.MAX_DETECTIONS
    for name, value in result.summary._asdict().items():
        print(_coco_line(name, float(value), limits))
    _finish(console, options, classes, result)


def _coco_line(name: str, value: float, limits: tuple[int, ...]) -> str:
    """Of a number by its name, such as `ap50`, `ar_10` or `ap_small`."""
    kind, _, rest = name.partition("_")
    digits = kind[2:]
    span = f"0.{digits}" if digits else "0.50:0.95"
    limit = int(rest) if rest.isdigit() else limits[-1]
    area = rest if rest and not rest.isdigit() else "all"
    return _drop_in.line(kind.startswith("ap"), span, area, limit, value)


# LVIS.


def _add_lvis(commands: Any) -> None:
    add = _command(
        commands,
        "lvis",
        _run_lvis,
        "Average precision by LVIS's rules, equal to lvis-api's to the last bit.",
        "JSON file of annotations",
        "JSON file of results",
    )
    add("--kind", choices=("bbox", "segm", "boundary"), default="bbox", help="what is compared")
    add(
        "--max-detections",
        type=int,
        default=lvis.MAX_DETECTIONS,
        metavar="N",
        help="in an image, of all classes; a negative number: all",
    )


def _run_lvis(options: argparse.Namespace) -> None:
    console = shared.console()
    shared.check_outputs(options)

    def read() -> LoadedDetections:
        return lvis_files.load(options.targets, options.predictions, kind=options.kind)

    def evaluate(loaded: LoadedDetections) -> lvis.Result:
        most = options.max_detections
        assert loaded.negative is not None
        assert loaded.not_exhaustive is not None
        assert loaded.frequencies is not None
        batches = lvis.pack(
            loaded.table,
            negative=loaded.negative,
            not_exhaustive=loaded.not_exhaustive,
            max_detections=None if most < 0 else most,
            overlaps=loaded.overlaps,
        )
        return lvis.average_precision(
            batches, num_classes=loaded.num_classes, frequencies=loaded.frequencies
        )

    loaded, result = _evaluated(options, read, evaluate)
    for name, value in result.summary._asdict().items():
        print(_lvis_line(name, float(value), options.max_detections))
    classes = list(zip(loaded.category_ids, loaded.category_names, strict=True))
    _finish(console, options, classes, result)


def _lvis_line(name: str, value: float, limit: int) -> str:
    kind, _, rest = name.partition("_")
    digits = kind[2:]
    span = f"0.{digits}" if digits else "0.50:0.95"
    groups = {"rare": "r", "common": "c", "frequent": "f"}
    area = rest if rest and rest not in groups else "all"
    label = "Average Precision  (AP)" if kind.startswith("ap") else "Average Recall     (AR)"
    return (
        f" {label} @[ IoU={span:<9} | area={area[:6]:>6s} | maxDets={limit:>3d} "
        f"catIds={groups.get(rest, 'all'):>3s}] = {value:0.3f}"
    )


def _finish(
    console: Any, options: argparse.Namespace, classes: Sequence[tuple[Any, str]], result: Any
) -> None:
    """What COCO and LVIS have in common once their numbers are shown."""
    fifty = _summaries.per_class(_at(result.curves, 0.5))
    seventy_five = _summaries.per_class(_at(result.curves, 0.75))
    columns = (("AP", result.per_class), ("AP50", fifty), ("AP75", seventy_five))
    if options.json:
        summary = {name: float(x) for name, x in result.summary._asdict().items()}
        rows = [
            {"id": key, "name": name, **{k.lower(): number(x[row]) for k, x in columns}}
            for row, (key, name) in enumerate(classes)
        ]
        shared.write_json(options.json, {**summary, "classes": rows})
    if options.plot:
        precision = result.curves.precision[:, :, :, 0, -1]
        present = (precision > -1).all(axis=(0, 1))
        if not present.any():
            raise ValueError("there is no curve to draw: no class has a truth")
        means = precision[:, :, present].mean(axis=-1)
        lines = {
            f"IoU {threshold:.2f}, AP {100 * mean.mean():.1f}": (RECALLS, mean)
            for threshold, mean in zip(coco.THRESHOLDS, means, strict=True)
        }
        _plot(options.plot, lines, f"mean over {present.sum()} classes")
    if options.per_class:
        _show_classes(console, [name for _, name in classes], columns)


def _at(curves: Curves, threshold: float) -> Curves:
    which = [t for t, x in enumerate(coco.THRESHOLDS) if abs(x - threshold) < 1e-9]
    return Curves(*(x[which] for x in curves))


# PASCAL VOC.


def _add_voc(commands: Any) -> None:
    add = _command(
        commands,
        "voc",
        _run_voc,
        "Average precision by PASCAL VOC's rules, equal to voc_eval's to the last bit.",
        "folder of XML files, one an image",
        "folder of text files, one an image or one a class",
    )
    add("--threshold", type=float, nargs="+", default=[0.5], metavar="IOU", help="overlap")
    add("--points", choices=("all", "11"), default="all", help="11 as in VOC 2007")
    add("--at-least", action="store_true", help="the overlap may equal the threshold")
    add("--classes", type=Path, metavar="FILE", help="names of the classes, one a line")
    add("--images", type=Path, metavar="FILE", help="names of the images, one a line")


def _run_voc(options: argparse.Namespace) -> None:
    def read() -> LoadedDetections:
        return voc_files.load(
            options.targets,
            options.predictions,
            classes=options.classes or voc_files.CLASSES,
            images=options.images,
        )

    def evaluate(loaded: LoadedDetections) -> voc.AveragePrecision:
        return voc.average_precision(
            packing.pack(loaded.table),
            num_classes=loaded.num_classes,
            thresholds=tuple(options.threshold),
            strict=not options.at_least,
            points="all" if options.points == "all" else 11,
        )

    _run_by_class(options, read, evaluate, options.threshold)


# Open Images.


def _add_open_images(commands: Any) -> None:
    add = _command(
        commands,
        "open-images",
        _run_open_images,
        "Average precision by the rules of Open Images.",
        "CSV file of boxes",
        "CSV file of results",
    )
    add("--threshold", type=float, nargs="+", default=[0.5], metavar="IOU", help="overlap")
    add(
        "--challenge",
        action="store_true",
        help="group-of boxes have to be found, and classes count where --labels has them verified",
    )
    add("--labels", type=Path, metavar="FILE", help="CSV file of verified labels of images")
    add("--classes", type=Path, metavar="FILE", help="CSV file of the classes")
    add(
        "--hierarchy",
        type=Path,
        metavar="FILE",
        help="JSON file: truths count for what they are a kind of",
    )


def _run_open_images(options: argparse.Namespace) -> None:
    if options.challenge and not options.labels:
        raise ValueError("--challenge needs --labels, which say what was verified")

    def read() -> LoadedDetections:
        return open_images_files.load(
            options.targets,
            options.predictions,
            labels=options.labels,
            classes=options.classes,
            hierarchy=options.hierarchy,
        )

    def evaluate(loaded: LoadedDetections) -> open_images.AveragePrecision:
        table, verified = loaded.table, None
        if loaded.ancestors is not None:
            table = open_images.expand_hierarchy(table, ancestors=loaded.ancestors)
        if options.challenge:
            assert loaded.positive is not None
            assert loaded.negative is not None
            verified = open_images.verified_classes(
                loaded.positive, loaded.negative, ancestors=loaded.ancestors
            )
        return open_images.average_precision(
            packing.pack(table),
            num_classes=loaded.num_classes,
            thresholds=tuple(options.threshold),
            group_weight=int(options.challenge),
            verified=verified,
        )

    _run_by_class(options, read, evaluate, options.threshold)


def _run_by_class(
    options: argparse.Namespace,
    read: Callable[[], LoadedDetections],
    evaluate: Callable[[LoadedDetections], voc.AveragePrecision],
    thresholds: Sequence[float],
) -> None:
    """What VOC and Open Images have in common: a mean over classes at each threshold."""
    console = shared.console()
    shared.check_outputs(options)
    loaded, result = _evaluated(options, read, evaluate)
    ids, names = loaded.category_ids, loaded.category_names
    titles = [f"AP at {_shortest(threshold)}" for threshold in thresholds]
    for title, mean in zip(titles, result.mean, strict=True):
        print(f"m{title}: {percent(mean)}")
    if options.json:
        # Lists, as two classes may have one name.
        report = [
            {
                "threshold": threshold,
                "mean": number(mean),
                "classes": [
                    {"id": key, "name": name, "ap": number(x)}
                    for key, name, x in zip(ids, names, by_class, strict=True)
                ],
            }
            for threshold, mean, by_class in zip(
                thresholds, result.mean, result.by_class, strict=True
            )
        ]
        shared.write_json(options.json, {"thresholds": report})
    if options.plot:
        first = result.by_class[0]
        order = np.argsort(-np.nan_to_num(first, nan=-1), kind="stable")
        bars = [(names[k], float(first[k])) for k in order if first[k] == first[k]]
        _plot_bars(options.plot, bars, f"{titles[0]}, mean {percent(result.mean[0])} %")
    if options.per_class:
        _show_classes(console, names, list(zip(titles, result.by_class, strict=True)))


def _shortest(threshold: float) -> str:
    text = f"{threshold:g}"
    return text if float(text) == threshold else repr(threshold)


def _show_classes(
    console: Any, names: Sequence[str], columns: Sequence[tuple[str, np.ndarray]]
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("class", *(title for title, _ in columns), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for row, name in enumerate(names):  # a Text, in which nothing is markup or an emoji
        table.add_row(Text(shared.printable(name)), *(percent(x[row]) for _, x in columns))
    console.print(table)


def _plot(path: Path, lines: dict[str, tuple[Any, Any]], title: str) -> None:
    figure = shared.figure(figsize=(6.4, 4.8))
    axes = figure.add_subplot()
    for label, (recall, precision) in lines.items():
        axes.plot(recall, precision, label=label)
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02), title=title)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    shared.save(figure, path)


def _plot_bars(path: Path, bars: list[tuple[str, float]], title: str) -> None:
    """Bars from top to bottom, by falling length; of too many the longest and the shortest."""
    if len(bars) > MOST_BARS:
        half = MOST_BARS // 2
        title += f"\nthe {half} best and the {half} worst of {len(bars)} classes"
        bars = bars[:half] + bars[-half:]
    figure = shared.figure(figsize=(6.4, 1.2 + 0.22 * max(len(bars), 1)))
    axes = figure.add_subplot()
    places = range(len(bars))
    axes.barh(places, [value for _, value in bars])
    names = [name.encode("utf-8", "backslashreplace").decode() for name, _ in bars]
    axes.set_yticks(places, names, parse_math=False)  # a $ is one
    axes.invert_yaxis()
    axes.set(xlabel="average precision", xlim=(0, 1), title=title)
    axes.grid(alpha=0.3, axis="x")
    shared.save(figure, path)
