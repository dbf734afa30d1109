"""`jaxiou mot`: tracks of one sequence, or of folders of them, scored as TrackEval does."""

import argparse
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxiou._commands import shared
from jaxiou._commands.shared import number, percent
from jaxiou._typing import ArrayLike
from jaxiou.readers import LoadedSequence, kitti_tracking, mot, mots
from jaxiou.tracking import clear, hota, identity
from jaxiou.tracking.packing import Sequence

COMBINED = "COMBINED"

LOADERS: dict[str, Callable[..., LoadedSequence]] = {
    "MOT15": functools.partial(mot.load, benchmark="MOT15"),
    "MOT16": functools.partial(mot.load, benchmark="MOT16"),
    "MOT17": functools.partial(mot.load, benchmark="MOT17"),
    "MOT20": functools.partial(mot.load, benchmark="MOT20"),
    "KITTI-car": functools.partial(kitti_tracking.load, kind="car"),
    "KITTI-pedestrian": functools.partial(kitti_tracking.load, kind="pedestrian"),
    "MOTS": mots.load,
    "KITTI-MOTS-car": functools.partial(mots.load, kind="car", first_frame=0),
    "KITTI-MOTS-pedestrian": functools.partial(mots.load, kind="pedestrian", first_frame=0),
}

FIELDS = {
    "HOTA": "HOTA DetA AssA DetRe DetPr AssRe AssPr LocA OWTA HOTA(0) LocA(0) HOTALocA(0)",
    "CLEAR": (
        "MOTA MOTP MODA CLR_Re CLR_Pr MTR PTR MLR sMOTA CLR_TP CLR_FN CLR_FP IDSW MT PT ML Frag"
    ),
    "Identity": "IDF1 IDR IDP IDTP IDFN IDFP",
    "Count": "Dets GT_Dets IDs GT_IDs",
}
"""What TrackEval prints, in its order and by its names."""

COUNTS = {"CLR_TP", "CLR_FN", "CLR_FP", "IDSW", "MT", "PT", "ML", "Frag"}
COUNTS |= {"IDTP", "IDFN", "IDFP"}
COUNTS |= set(FIELDS["Count"].split())


class Counted(NamedTuple):
    """The counts of one sequence, or of several."""

    hota: hota.Counts
    clear: clear.Counts
    identity: identity.Counts
    regions: np.ndarray
    """Predictions, targets, ids of predictions, ids of targets."""


def add_to(commands: Any) -> None:
    command = commands.add_parser(
        "mot",
        help="HOTA, MOTA and IDF1 of tracks",
        description="Scores predicted tracks against true ones, as TrackEval does: two files, or"
        " two folders, <sequence>/gt/gt.txt or <sequence>.txt against <sequence>.txt.",
    )
    command.set_defaults(run=run)
    add = command.add_argument
    add("targets", type=Path, metavar="TARGETS", help="file or folder of true tracks")
    add("predictions", type=Path, metavar="PREDICTIONS", help="file or folder of predicted tracks")
    add("--benchmark", choices=list(LOADERS), default="MOT15", help="format and rules of the files")
    add("--threshold", type=_fraction, default=0.5, help="least IoU of CLEAR and Identity")
    shared.add_outputs(command, "write the scores", "draw HOTA over its thresholds")


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError("must be above 0 and at most 1")
    return value


def run(options: argparse.Namespace) -> None:
    console = shared.console()
    shared.check_outputs(options)
    load = LOADERS[options.benchmark]
    if options.targets.is_dir() or options.predictions.is_dir():
        found = mot.find_sequences(options.targets, options.predictions)
    else:
        found = [(_name(options.targets), options.targets, options.predictions)]
    loaded = [
        dataclasses.replace(load(targets, predictions), name=name)
        for name, targets, predictions in shared.progress(found, "reading")
    ]
    with jax.enable_x64(True):
        counts = _count(loaded, options.threshold)
        rows = {
            one.name: _scores(count, "trackeval") for one, count in zip(loaded, counts, strict=True)
        }
        if len(loaded) > 1 and COMBINED in rows:
            raise ValueError(f"a sequence is named {COMBINED}, which is what all together are")
        if len(loaded) > 1:
            total = jax.tree.map(lambda *x: np.sum(x, axis=0), *counts)
            rows[COMBINED] = _scores(total, "formula")
    _show(console, options.benchmark, rows)
    if options.json:
        report = {"benchmark": options.benchmark, "threshold": options.threshold}
        shared.write_json(options.json, {**report, "sequences": _plain(rows)})
    if options.plot:
        _plot(options.plot, *list(rows.items())[-1])


def _name(path: Path) -> str:
    """Of a sequence by its file: `MOT17-02/gt/gt.txt` and `MOT17-02/gt.txt` are MOT17-02."""
    parts = [part for part in path.absolute().with_suffix("").parts if part != "gt"]
    return parts[-1]


def _count(loaded: list[LoadedSequence], threshold: float) -> list[Counted]:
    """All sequences padded to one shape, so that one compiled program serves."""
    shapes = np.array([one.sequence.similarities.shape for one in loaded])
    frames, predictions, targets = shapes.max(axis=0).tolist()
    num_predictions = max(len(one.prediction_ids) for one in loaded)
    num_targets = max(len(one.target_ids) for one in loaded)

    @jax.jit
    def count(sequence: Sequence, num_frames: ArrayLike) -> Any:
        return (
            hota.count(sequence, num_predictions=num_predictions, num_targets=num_targets),
            clear.count(
                sequence, num_targets=num_targets, threshold=threshold, num_frames=num_frames
            ),
            identity.count(
                sequence,
                num_predictions=num_predictions,
                num_targets=num_targets,
                threshold=threshold,
            ),
        )

    def padded(x: np.ndarray, *sizes: int) -> np.ndarray:
        return np.pad(x, [(0, size - own) for own, size in zip(x.shape, sizes, strict=True)])

    counts = []
    for one in shared.progress(loaded, "scoring"):
        s = one.sequence
        full = Sequence(
            padded(s.prediction_ids, frames, predictions),
            padded(s.target_ids, frames, targets),
            padded(s.prediction_valid, frames, predictions),
            padded(s.target_valid, frames, targets),
            padded(s.similarities, frames, predictions, targets),
        )
        regions = [s.prediction_valid.sum(), s.target_valid.sum()]
        regions += [len(one.prediction_ids), len(one.target_ids)]
        length = np.array(len(s.similarities), np.int32)
        of_hota, of_clear, of_identity = jax.device_get(count(full, length))
        counts.append(Counted(of_hota, of_clear, of_identity, np.array(regions)))
    return counts


def _scores(counts: Counted, empty: clear.Empty) -> dict[str, np.ndarray]:
    """Every field by TrackEval's name; those of HOTA have a value for each threshold."""
    parts = (
        hota.summarize(counts.hota),
        clear.summarize(counts.clear, empty=empty),
        identity.summarize(counts.identity),
    )
    named = {_plainly(key): x for part in parts for key, x in part._asdict().items()}
    named |= dict(zip(map(_plainly, FIELDS["Count"].split()), counts.regions, strict=True))
    names = " ".join(FIELDS.values()).split()
    return {name: np.asarray(named[_plainly(name)]) for name in names}


def _plainly(name: str) -> str:
    """A field's name without case and marks: `hota_loc_a_0` is `HOTALocA(0)`."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _mean(name: str, x: np.ndarray) -> int | float:
    return int(x) if name in COUNTS else float(x.mean())


def _plain(rows: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    return {
        sequence: {
            **{name: int(x) if name in COUNTS else number(x.mean()) for name, x in fields.items()},
            "HOTA_over_alpha": [float(x) for x in fields["HOTA"]],
        }
        for sequence, fields in rows.items()
    }


def _show(console: Any, benchmark: str, rows: dict[str, dict[str, np.ndarray]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    for kind, names in FIELDS.items():
        table = Table("sequence", *names.split(), title=f"{kind}, {benchmark}", box=None)
        for column in table.columns[1:]:
            column.justify = "right"
        for sequence, fields in rows.items():
            if sequence == COMBINED:
                table.add_section()
            cells = (
                f"{_mean(name, fields[name]):,}"
                if name in COUNTS
                else percent(_mean(name, fields[name]))
                for name in names.split()
            )
            table.add_row(escape(sequence), *cells)
        console.print(table)
        console.print()


def _plot(path: Path, sequence: str, fields: dict[str, np.ndarray]) -> None:
    figure = shared.figure(figsize=(6.4, 4.4))
    axes = figure.add_subplot()
    for name in ("HOTA", "DetA", "AssA", "LocA", "DetRe", "DetPr", "AssRe", "AssPr"):
        mean = f"{name} {100 * fields[name].mean():.1f}"
        style = {"linewidth": 2.5} if name == "HOTA" else {"linewidth": 1.2, "alpha": 0.8}
        axes.plot(hota.ALPHAS, fields[name], label=mean, **style)
    axes.set(xlabel="least IoU of a match, alpha", ylabel="score", ylim=(0, 1), xlim=(0.05, 0.95))
    axes.set_title(f"HOTA over its thresholds, {sequence}")
    axes.legend(fontsize=8, ncols=2, loc="lower left", title="mean over alpha, %")
    axes.grid(alpha=0.3)
    shared.save(figure, path)
