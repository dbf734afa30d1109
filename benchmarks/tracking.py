"""Tracking scores beside TrackEval, py-motmetrics and motrics: `python benchmarks/tracking.py`.

Needs the `bench` extra. Data is loaded and packed, IoUs are computed and all is compiled before
the clock starts, for every library; every result is checked to be TrackEval's, in float64 to
1e-12 and in float32 to 1e-5. TUD-Campus and TUD-Stadtmitte come with py-motmetrics; "crowd" is
synthetic, 1000 frames of 50 people.
"""

import functools
import warnings
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import motmetrics
import motrics
import numpy as np
import trackeval
from side_by_side import Row, arguments, medians, show

from jaxiou import boxes
from jaxiou.tracking import clear, hota, identity
from jaxiou.tracking.packing import Sequence, compare, pack

KINDS = {"hota": hota, "identity": identity, "clear": clear}


class Case(NamedTuple):
    """A sequence in arrays and, for the others, in lists."""

    sequence: Sequence
    num_predictions: int
    num_targets: int
    data: dict

    @property
    def num_ids(self) -> dict[str, int]:
        return {"num_predictions": self.num_predictions, "num_targets": self.num_targets}


def case_of(
    targets: np.ndarray, predictions: np.ndarray, capacity: tuple[int | None, int | None]
) -> Case:
    """Of rows `(frame, id, x, y, w, h)`, frames counted from 1; so many rows at most a frame."""
    last = int(max(targets[:, 0].max(), predictions[:, 0].max()))
    sides, numbers = [], []
    for rows, most in zip((predictions, targets), capacity, strict=True):
        frames, ids = (rows[:, 0] - 1).astype(int), rows[:, 1].astype(int)
        corners = np.asarray(boxes.from_xywh(jnp.asarray(rows[:, 2:6])))
        side, known = pack(frames, ids, corners, num_frames=last, capacity=most)
        sides.append(side)
        numbers.append(len(known))
    sequence = jax.tree.map(np.asarray, compare(*sides))
    lists = [
        [x[keep] for x, keep in zip(side.ids, side.valid, strict=True)] for side in reversed(sides)
    ]
    tables = [
        np.ascontiguousarray(table[p][:, t].T)
        for table, p, t in zip(sequence.similarities, sides[0].valid, sides[1].valid, strict=True)
    ]
    data = {
        "num_tracker_dets": len(predictions),
        "num_gt_dets": len(targets),
        "num_tracker_ids": numbers[0],
        "num_gt_ids": numbers[1],
        "gt_ids": lists[0],
        "tracker_ids": lists[1],
        "similarity_scores": tables,
        "num_timesteps": last,
    }
    return Case(sequence, *numbers, data)


def tud(name: str) -> Case:
    folder = Path(motmetrics.__file__).parent / "data" / name
    targets, predictions = (
        np.loadtxt(folder / x, delimiter=",")[:, :6] for x in ("gt.txt", "test.txt")
    )
    return case_of(targets, predictions, (None, None))


def crowd(seed: int, frames: int, people: int) -> Case:
    """People who walk across 1920 x 1080 and turn at its edges; the tracker misses one box in
    twelve, invents four a frame and takes up a new id now and then.
    """
    rng = np.random.default_rng(seed)
    place, pace = rng.uniform((0, 300), (1920, 900), (people, 2)), rng.normal(0, 3, (people, 2))
    height = rng.uniform(80, 240, people)
    size = np.stack([0.4 * height, height], axis=1)
    follower = np.arange(people)
    targets, predictions = [], []
    for frame in range(1, frames + 1):
        place = place + pace
        pace = np.where((place < (0, 300)) | (place > (1920, 900)), -pace, pace)
        rows = np.column_stack([np.full(people, frame), np.arange(people), place, size])
        targets.append(rows)
        fresh = rng.random(people) < 0.0045
        follower = np.where(fresh, follower.max() + 1 + np.cumsum(fresh), follower)
        moved = rows.copy()
        moved[:, 1] = follower
        moved[:, 2:] += rng.normal(0, 0.04, (people, 4)) * np.tile(size, 2)
        predictions.append(moved[rng.random(people) > 1 / 12])
        corner = rng.uniform((0, 300), (1920, 900), (4, 2))
        known = np.column_stack([np.full(4, frame), 10_000 + np.arange(4), corner, size[:4]])
        predictions.append(known)
    capacity = people + 4, people
    return case_of(np.concatenate(targets), np.concatenate(predictions), capacity)


def ours(kind: str, case: Case, dtype: type):
    """Counts and scores of one sequence."""
    module = KINDS[kind]
    ids = case.num_ids if kind != "clear" else {"num_targets": case.num_targets}
    sequence = case.sequence._replace(similarities=case.sequence.similarities.astype(dtype))
    sequence = jax.tree.map(jnp.asarray, sequence)
    run = jax.jit(lambda x: module.summarize(module.count(x, **ids)))
    return lambda: jax.block_until_ready(run(sequence))


def trackeval_on(kind: str, case: Case):
    config = {"PRINT_CONFIG": False}
    metric = {
        "hota": lambda: trackeval.metrics.HOTA(),
        "clear": lambda: trackeval.metrics.CLEAR(config),
        "identity": lambda: trackeval.metrics.Identity(config),
    }[kind]()
    return lambda: metric.eval_sequence(case.data)


def motmetrics_on(case: Case):
    """CLEAR and Identity together, as it has no other way."""
    names = ["mota", "motp", "idf1", "num_switches", "mostly_tracked", "num_fragmentations"]
    tables = [np.where(x < 0.5, np.nan, 1 - x) for x in case.data["similarity_scores"]]

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            accumulator = motmetrics.MOTAccumulator(auto_id=True)
            for frame in zip(case.data["gt_ids"], case.data["tracker_ids"], tables, strict=True):
                accumulator.update(*frame)
            return motmetrics.metrics.create().compute(accumulator, metrics=names)

    return run


def motrics_on(kind: str, case: Case):
    run = getattr(motrics, f"compute_{kind}_from_similarity")
    ids = [[x.tolist() for x in case.data[name]] for name in ("gt_ids", "tracker_ids")]
    tables = case.data["similarity_scores"]
    return lambda: run(*ids, tables)


def check(kind: str, case: Case) -> None:
    """Every integer is TrackEval's, and every float is, to 1e-12 or in float32 to 1e-5."""
    wanted = {_letters(name): x for name, x in trackeval_on(kind, case)().items()}
    for dtype, unit in ((np.float64, 1e-12), (np.float32, 1e-5)):
        for name, x in ours(kind, case, dtype)()._asdict().items():
            slack = 0 if jnp.issubdtype(x.dtype, jnp.integer) else unit
            np.testing.assert_allclose(x, wanted[_letters(name)], slack, slack, err_msg=name)


def _letters(name: str) -> str:
    """`hota_loc_a_0` and `HOTALocA(0)` are one name."""
    return "".join(filter(str.isalnum, name)).lower()


def _warm_medians(cases: dict, rounds: int) -> dict:
    """Every case runs twice in turn, and the second time counts: what a peer did in between has
    taken the caches.
    """
    doubled = {(name, time): case for name, case in cases.items() for time in (1, 2)}
    spent = medians(doubled, rounds)
    return {name: spent[name, 2] for name in cases}


def bench(name: str, case: Case, targets: dict[str, str], rounds: int) -> list[Row]:
    cases = {}
    for kind in KINDS:
        check(kind, case)
        cases[kind, "float64"] = ours(kind, case, np.float64)
        cases[kind, "float32"] = ours(kind, case, np.float32)
        cases[kind, "trackeval"] = trackeval_on(kind, case)
        cases[kind, "motrics"] = motrics_on(kind, case)
    cases["motmetrics"] = motmetrics_on(case)
    spent = _warm_medians(cases, rounds)
    rows = []
    for kind in KINDS:
        for dtype in ("float64", "float32"):
            for peer in ("trackeval", "motrics"):
                ratio = spent[kind, peer] / spent[kind, dtype]
                what = f"{kind}, {name}, {dtype}, beside {peer}"
                target = targets[kind] if peer == "trackeval" else ""
                rows.append(Row(what, spent[kind, dtype], spent[kind, peer], ratio, target))
    both = spent["clear", "float64"] + spent["identity", "float64"]
    ratio = spent["motmetrics"] / both
    what = f"clear and identity, {name}, float64, beside motmetrics"
    return [*rows, Row(what, both, spent["motmetrics"], ratio, targets.get("motmetrics", ""))]


def bench_batch(sequences: int, rounds: int) -> list[Row]:
    """Sequences of 100 frames of 20 people, all three scores, under one `vmap`."""
    made = [crowd(seed, 100, 20) for seed in range(sequences)]
    ids = {
        name: max(getattr(case, name) for case in made)
        for name in ("num_predictions", "num_targets")
    }
    batch = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *(case.sequence for case in made))
    batch = batch._replace(similarities=batch.similarities.astype(jnp.float32))
    rows = []
    for kind, module in KINDS.items():
        chosen = ids if kind != "clear" else {"num_targets": ids["num_targets"]}
        one = functools.partial(module.count, **chosen)
        run = jax.jit(jax.vmap(one))
        loop = jax.jit(lambda batch, one=one: jax.lax.map(one, batch))
        spent = medians(
            {
                "ours": lambda run=run: jax.block_until_ready(run(batch)),
                "loop": lambda loop=loop: jax.block_until_ready(loop(batch)),
                "peer": lambda kind=kind: [trackeval_on(kind, case)() for case in made],
            },
            rounds,
        )
        for way, key in (("vmap", "ours"), ("lax.map", "loop")):
            each = sequences / spent[key] * 1e3
            what = f"{kind}, {sequences} x 100 x 20, float32, {way}: {each:,.0f} sequences a second"
            rows.append(Row(what, spent[key], spent["peer"], spent["peer"] / spent[key]))
    return rows


def main() -> None:
    rounds = arguments(__doc__).rounds
    jax.config.update("jax_enable_x64", True)
    versions = f"jax {jax.__version__} on {jax.default_backend()}, trackeval 1.3.0"
    small = dict.fromkeys(KINDS, ">= 3")
    large = {"hota": ">= 2", "identity": ">= 1", "clear": ">= 1", "motmetrics": ">= 20"}
    few = max(3, rounds // 5)
    show(
        f"Tracking scores, milliseconds ({versions})",
        [
            *bench("TUD-Campus", tud("TUD-Campus"), small, rounds),
            *bench("TUD-Stadtmitte", tud("TUD-Stadtmitte"), small, rounds),
            *bench("crowd of 1000 x 50", crowd(0, 1000, 50), large, few),
            *bench_batch(32, few),
        ],
    )


if __name__ == "__main__":
    main()
