"""`jaxiou segmentation`: folders of label maps, scored by a protocol."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxiou import metrics, protocols
from jaxiou._commands import shared
from jaxiou._commands.shared import number, percent
from jaxiou.metrics import ConfusionCounts
from jaxiou.protocols import Protocol, Scores
from jaxiou.readers import label_maps

MOST_CLASSES = 10_000
"""The matrix of so many classes takes 400 MB."""

BLOCK = 2**20
"""Pixels of one update: images of all sizes then share one compiled program."""

PROTOCOLS = {"voc": protocols.VOC, "cityscapes": protocols.CITYSCAPES, "ade20k": protocols.ADE20K}
TARGET_SUFFIX = {"cityscapes": "_gtFine_labelIds.png"}
"""How names of true label maps end, where it is not `.png`."""


def add_to(commands: Any) -> None:
    command = commands.add_parser(
        "segmentation",
        help="mean IoU of folders of label maps",
        description="Scores predicted label maps against true ones: images with one integer a"
        " pixel, grey, palette or 16 bits. Files belong together by name.",
    )
    command.set_defaults(run=run)
    add = command.add_argument
    add("targets", type=Path, metavar="TARGETS", help="folder of true label maps")
    add("predictions", type=Path, metavar="PREDICTIONS", help="folder of predicted label maps")
    add(
        "--classes",
        type=_positive,
        metavar="K",
        help="labels are 0 to K - 1; of a protocol, all its labels (the default) or its evaluated"
        " classes alone, numbered from 0 as in training",
    )
    add("--ignore", type=int, nargs="+", default=[], metavar="LABEL", help="true labels left out")
    add("--protocol", choices=[*PROTOCOLS, "mmseg"], help="whose rules decide; default: mmseg's")
    add("--target-suffix", metavar="TEXT", help="how names of true label maps end")
    add("--prediction-suffix", default=".png", metavar="TEXT", help="the same of predicted ones")
    add(
        "--remap",
        type=_entry,
        nargs="+",
        default=[],
        metavar="OLD:NEW",
        help="change labels of both, all at once, first; --remap=-1:0 for one below 0",
    )
    add("--reduce-zero-label", action="store_true", help="0 becomes 255, and k becomes k - 1")
    shared.add_outputs(command, "write the scores and the matrix", "draw the confusion matrix")


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= MOST_CLASSES:
        raise argparse.ArgumentTypeError(f"must be 1 to {MOST_CLASSES}")
    return value


def _entry(text: str) -> tuple[int, int]:
    try:
        old, new = map(int, text.split(":"))
        return old, new
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be OLD:NEW, two integers, got {text!r}") from None


def run(options: argparse.Namespace) -> None:
    console = shared.console()
    protocol = _protocol(options)
    shared.check_outputs(options)
    if len(dict(options.remap)) < len(options.remap):
        raise ValueError("--remap has a label twice on the left")
    pairs = label_maps.find_pairs(
        options.targets,
        options.predictions,
        target_suffix=options.target_suffix or TARGET_SUFFIX.get(options.protocol, ".png"),
        prediction_suffix=options.prediction_suffix,
    )

    def labels() -> Iterator[list[np.ndarray]]:
        for pair in shared.progress(pairs, "label maps"):
            read = label_maps.read_pair(pair)
            yield [_changed(x, options, protocol) for x in read]

    metric = metrics.semantic_segmentation(protocol)
    state, update = metric.init(), jax.jit(metric.update, donate_argnums=0)
    for predictions, targets, where in _blocks(labels()):
        state = update(state, predictions, targets, where=where)
    totals = metrics.to_numpy(state)
    with jax.enable_x64(True):
        scores = jax.device_get(protocols.scores(totals.matrix, protocol))

    report = _report(protocol, scores, totals, len(pairs))
    _show(console, report)
    if options.json:
        shared.write_json(options.json, report)
    if options.plot:
        _plot(options.plot, protocol, totals.matrix)


def _protocol(options: argparse.Namespace) -> Protocol:
    if options.protocol in PROTOCOLS:
        protocol = PROTOCOLS[options.protocol]
        ignore = tuple(options.ignore)
        if options.classes in (None, protocol.num_classes):
            return protocol._replace(
                ignore=tuple(dict.fromkeys((*protocol.ignore, *ignore))),
                classes=tuple(label for label in protocol.classes if label not in ignore),
                reduce_zero_label=options.reduce_zero_label,
            )
        if options.classes == len(protocol.classes):
            numbered = protocols.by_place(protocol, ignore=ignore or 255)
            return numbered._replace(reduce_zero_label=options.reduce_zero_label)
        raise ValueError(
            f"--protocol {options.protocol} has {protocol.num_classes} labels, or"
            f" {len(protocol.classes)} numbered from 0 as in training, got --classes"
            f" {options.classes}"
        )
    if options.classes is None:
        raise ValueError("--classes K is needed, or a --protocol that has its own")
    return protocols.mmseg(
        options.classes,
        ignore=tuple(options.ignore),
        reduce_zero_label=options.reduce_zero_label,
    )


def _changed(labels: np.ndarray, options: argparse.Namespace, protocol: Protocol) -> np.ndarray:
    if options.remap:
        labels = label_maps.remap(labels, dict(options.remap))
    if protocol.reduce_zero_label:
        labels = label_maps.reduce_zero_label(labels)
    return labels


def _blocks(maps: Iterable[Sequence[np.ndarray]]) -> Iterator[tuple[np.ndarray, ...]]:
    """Pixels of all images in blocks of one length, and which of them count."""
    waiting = np.zeros((2, 0), np.int32)
    for pair in maps:
        pixels = np.stack([x.ravel().astype(np.int32) for x in pair])
        waiting = np.concatenate([waiting, pixels], axis=1)
        while waiting.shape[1] >= BLOCK:
            block, waiting = waiting[:, :BLOCK], waiting[:, BLOCK:]
            yield *block, np.ones(BLOCK, bool)
    rest = waiting.shape[1]
    if rest:
        block = np.pad(waiting, ((0, 0), (0, BLOCK - rest)))
        yield *block, np.arange(BLOCK) < rest


def _report(
    protocol: Protocol, scores: Scores, totals: ConfusionCounts, images: int
) -> dict[str, Any]:
    """All that is known, as plain values, for the table and for JSON."""
    matrix = totals.matrix
    hits = np.diagonal(matrix)
    counts = np.stack([matrix.sum(axis=1), hits, matrix[:, :-1].sum(axis=0)], axis=1)
    classes = [
        {
            "label": label,
            "name": protocol.names[label],
            "iou": number(iou),
            **dict(zip(("targets", "hits", "predicted"), counts[label].tolist(), strict=True)),
        }
        for label, iou in zip(protocol.classes, scores.class_iou, strict=True)
    ]
    categories = zip(protocol.categories, scores.category_iou, strict=True)
    return {
        "protocol": protocol.name,
        "images": images,
        "mean_iou": number(scores.mean_iou),
        "pixel_accuracy": number(scores.pixel_accuracy),
        "mean_accuracy": number(scores.mean_accuracy),
        "final": number(scores.final),
        "classes": classes,
        "categories": [{"name": name, "iou": number(iou)} for (name, _), iou in categories],
        "pixels": int(matrix.sum()),
        "predicted_as_no_class": int(matrix[:, -1].sum()),
        "ignored": int(totals.ignored),
        "invalid_targets": int(totals.invalid),
        "matrix": matrix.tolist(),
    }


def _show(console: Any, report: dict[str, Any]) -> None:
    from rich.table import Table

    def add(*cells: str, **style: bool) -> None:
        table.add_row(*cells, **style)  # type: ignore[arg-type]

    title = f"{report['protocol']}, {report['images']:,} images"
    table = Table("label", "class", "IoU %", "accuracy %", "pixels", title=title)
    for column in (table.columns[i] for i in (0, 2, 3, 4)):
        column.justify = "right"
    for one in report["classes"]:
        accuracy = one["hits"] / one["targets"] if one["targets"] else None
        cells = percent(one["iou"]), percent(accuracy), f"{one['targets']:,}"
        add(str(one["label"]), one["name"], *cells)
    table.add_section()
    for one in report["categories"]:
        add("", f"category {one['name']}", percent(one["iou"]), "", "")
    table.add_section()
    means = percent(report["mean_iou"]), percent(report["mean_accuracy"])
    add("", "mean", *means, f"{report['pixels']:,}")
    console.print(table)
    console.print(f"pixel accuracy {percent(report['pixel_accuracy'])} %")
    if report["final"] != report["mean_iou"]:
        console.print(f"final score {percent(report['final'])} %")
    for count, meaning in [
        (report["ignored"], "pixels ignored"),
        (report["invalid_targets"], "pixels not counted: their true label is no class"),
        (report["predicted_as_no_class"], "pixels counted as misses: predicted as no class"),
    ]:
        if count:
            console.print(f"{count:,} {meaning}")


def _plot(path: Path, protocol: Protocol, matrix: np.ndarray) -> None:
    """Draws each target class as a row that sums to 1; classes that never occur are left out."""
    seen = matrix.sum(axis=1) + matrix[:, :-1].sum(axis=0) > 0
    labels = [label for label in protocol.classes if seen[label]] or list(protocol.classes)
    rows = matrix[labels]
    # Predicted as a class that is not evaluated, or as none, goes into the last column.
    shown = np.concatenate([rows[:, labels], rows.sum(1, keepdims=True)], axis=1)
    shown[:, -1] -= shown[:, :-1].sum(axis=1)
    share = shown / np.maximum(rows.sum(axis=1, keepdims=True), 1)

    names = [protocol.names[label] for label in labels]
    named = len(names) <= 64
    side = 2 + (max(4.0, 0.32 * len(names)) if named else 10)
    figure = shared.figure(figsize=(side + 1, side))
    axes = figure.add_subplot()
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    axes.set(xlabel="predicted", ylabel="target", title=f"Confusion matrix, {protocol.name}")
    if named:
        axes.set_xticks(range(len(names) + 1), [*names, "other"], rotation=90, fontsize=8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
    else:
        numbers = range(0, len(names), 20)
        axes.set_xticks(numbers, [str(labels[i]) for i in numbers])
        axes.set_yticks(numbers, [str(labels[i]) for i in numbers])
    if len(names) <= 12:
        for i, j in np.ndindex(share.shape):
            if share[i, j] >= 0.005:
                colour = "white" if share[i, j] > 0.6 else "black"
                axes.text(j, i, f"{100 * share[i, j]:.0f}", ha="center", va="center", color=colour)
    figure.colorbar(image, label="share of the target's pixels", shrink=0.7)
    shared.save(figure, path)
