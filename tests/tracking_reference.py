"""TrackEval and py-motmetrics on ragged lists, and sequences to ask them about."""

import functools
import warnings
from pathlib import Path
from typing import NamedTuple

import motmetrics
import numpy as np
import trackeval

from jaxiou.tracking.packing import Sequence

SHARED = Path(__file__).parents[2] / "shared" / "data" / "mot"
TUD = Path(motmetrics.__file__).parent / "data"


class Ragged(NamedTuple):
    """A sequence as TrackEval takes it: lists over frames, tables of targets by predictions."""

    target_ids: list[np.ndarray]
    prediction_ids: list[np.ndarray]
    similarities: list[np.ndarray]

    @property
    def num_ids(self) -> tuple[int, int]:
        """Of targets and of predictions."""
        sides = (self.target_ids, self.prediction_ids)
        return tuple(max((int(x.max()) + 1 for x in ids if x.size), default=0) for ids in sides)


def ragged(target_ids, prediction_ids, similarities) -> Ragged:
    """Of nested lists."""
    ids = [[np.array(x, int) for x in side] for side in (target_ids, prediction_ids)]
    shapes = [(len(g), len(p)) for g, p in zip(*ids, strict=True)]
    tables = zip(similarities, shapes, strict=True)
    return Ragged(*ids, [np.array(x, np.float64).reshape(shape) for x, shape in tables])


def padded(x: Ragged, frames: int, predictions: int, targets: int) -> Sequence:
    """The sequence in arrays, with junk where nothing is valid."""
    sides = []
    for ids, size in ((x.prediction_ids, predictions), (x.target_ids, targets)):
        valid = np.arange(size) < np.array([*map(len, ids), *[0] * (frames - len(ids))])[:, None]
        full = np.full((frames, size), 10**6, np.int32)
        full[valid] = np.concatenate([*ids, np.zeros(0)]).astype(np.int32)
        sides.append((full, valid))
    table = np.full((frames, predictions, targets), np.nan)
    for frame, scores in zip(table, x.similarities, strict=False):
        frame[: scores.shape[1], : scores.shape[0]] = scores.T
    (p_ids, p_valid), (t_ids, t_valid) = sides
    return Sequence(p_ids, t_ids, p_valid, t_valid, table)


# Sequences ---------------------------------------------------------------------------------------


def box_ious(targets, predictions):
    """TrackEval's own IoU of boxes `(x, y, w, h)`."""
    if min(len(targets), len(predictions)) == 0:
        return np.zeros((len(targets), len(predictions)))
    between = trackeval.datasets._base_dataset._BaseDataset._calculate_box_ious
    return between(targets, predictions, box_format="xywh")


def from_boxes(targets, predictions) -> Ragged:
    """Of rows `(id, x, y, w, h)` for each frame."""
    ids = [[rows[:, 0].astype(int) for rows in side] for side in (targets, predictions)]
    ids = [_relabelled(side) for side in ids]
    pairs = zip(targets, predictions, strict=True)
    return Ragged(*ids, [box_ious(g[:, 1:], p[:, 1:]) for g, p in pairs])


def _relabelled(ids):
    known = np.unique(np.concatenate(ids))
    return [np.searchsorted(known, x) for x in ids]


def random_sequence(
    rng, frames: int = 12, targets: int = 5, most: int = 8, ids: int = 14, field: float = 40
) -> Ragged:
    """Boxes that wander among each other, and a poor tracker of them: it misses, it invents, it
    changes ids, and at times there is nothing. Coordinates are drawn, so that there are no ties.
    """
    misses, switches, noise = rng.uniform(0, 0.5), rng.uniform(0, 0.3), rng.uniform(0, 4)
    place = rng.uniform(0, field, (targets, 2))
    size = rng.uniform(12, 22, (targets, 2))
    follower = np.arange(targets)
    sides = [], []
    for _ in range(frames):
        place = place + rng.normal(0, 3, place.shape)
        there = rng.random(targets) < 0.85
        if rng.random() < 0.3:
            follower = np.where(rng.random(targets) < switches, rng.permutation(targets), follower)
            changed = rng.integers(targets, ids, targets)
            follower = np.where(rng.random(targets) < switches, changed, follower)
        rows = np.column_stack([np.arange(targets), place, size])
        found = there & (rng.random(targets) >= misses)
        moved = rows[found] + np.pad(rng.normal(0, noise, (found.sum(), 4)), ((0, 0), (1, 0)))
        moved[:, 0] = follower[found]
        more = rng.integers(0, 3)
        invented = np.column_stack([np.arange(ids - more, ids), rng.uniform(0, field, (more, 4))])
        both = np.concatenate([moved, invented])
        both = both[np.sort(np.unique(both[:, 0], return_index=True)[1])][:most]
        for side, x in zip(sides, (rows[there], both), strict=True):
            side.append(x[rng.permutation(len(x))] if rng.random() > 0.1 else x[:0])
    kind = rng.integers(20)  # a side may be empty throughout, or both
    if kind < 2:
        sides[kind][:] = [x[:0] for x in sides[kind]]
    return from_boxes(*sides)


def from_files(folder: Path, name: str = "test.txt") -> Ragged:
    """A sequence in the layout of MOT15, zero-marked targets left out."""
    targets, predictions = (np.loadtxt(folder / x, delimiter=",") for x in ("gt.txt", name))
    last = int(max(targets[:, 0].max(), predictions[:, 0].max()))
    targets = targets[targets[:, 6] != 0]
    frames = range(1, last + 1)
    return from_boxes(*([x[x[:, 0] == t, 1:6] for t in frames] for x in (targets, predictions)))


# The tools ---------------------------------------------------------------------------------------


@functools.cache
def _metric(kind: str, threshold: float):
    config = {"PRINT_CONFIG": False, "THRESHOLD": threshold}
    return {
        "clear": lambda: trackeval.metrics.CLEAR(config),
        "identity": lambda: trackeval.metrics.Identity(config),
        "hota": lambda: trackeval.metrics.HOTA(),
    }[kind]()


def by_trackeval(kind: str, x: Ragged, threshold: float = 0.5) -> dict:
    targets, predictions = x.num_ids
    data = {
        "num_tracker_dets": sum(map(len, x.prediction_ids)),
        "num_gt_dets": sum(map(len, x.target_ids)),
        "num_gt_ids": targets,
        "num_tracker_ids": predictions,
        "gt_ids": x.target_ids,
        "tracker_ids": x.prediction_ids,
        "similarity_scores": x.similarities,
        "num_timesteps": len(x.target_ids),
    }
    return _metric(kind, threshold).eval_sequence(data)


def combined_by_trackeval(kind: str, results: list[dict]) -> dict:
    return _metric(kind, 0.5).combine_sequences(dict(enumerate(results)))


def averaged_by_trackeval(kind: str, results: list[dict], ignore_empty: bool = False) -> dict:
    combine = _metric(kind, 0.5).combine_classes_class_averaged
    return combine(dict(enumerate(results)), ignore_empty_classes=ignore_empty)


OF_MOTMETRICS = {
    "clr_fp": "num_false_positives",
    "clr_fn": "num_misses",
    "clr_tp": "num_detections",
    "idsw": "num_switches",
    "mt": "mostly_tracked",
    "pt": "partially_tracked",
    "ml": "mostly_lost",
    "frag": "num_fragmentations",
    "clr_frames": "num_frames",
    "mota": "mota",
    "motp": "motp",
    "clr_re": "recall",
    "clr_pr": "precision",
    "idtp": "idtp",
    "idfn": "idfn",
    "idfp": "idfp",
    "idf1": "idf1",
    "idr": "idr",
    "idp": "idp",
}
"""py-motmetrics' names of our fields."""


def by_motmetrics(x: Ragged, threshold: float = 0.5) -> dict:
    """Our names, its numbers. Its own distances need `np.asfarray`, which NumPy 2 has not (T12);
    they are made here.
    """
    with warnings.catch_warnings(), motmetrics.lap.set_default_solver("scipy"):
        warnings.simplefilter("ignore")
        accumulator = motmetrics.MOTAccumulator(auto_id=True)
        for targets, predictions, similarities in zip(*x, strict=True):
            distances = 1 - similarities
            distances[distances > 1 - threshold] = np.nan  # as its `iou_matrix` does
            accumulator.update(targets, predictions, distances)
        host = motmetrics.metrics.create()
        names = list(OF_MOTMETRICS.values())
        found = host.compute(accumulator, metrics=names, return_dataframe=False)
    return {ours: found[theirs] for ours, theirs in OF_MOTMETRICS.items()}
