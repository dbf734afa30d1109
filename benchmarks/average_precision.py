"""COCO's average precision beside pycocotools, faster-coco-eval and hotcoco.

`python benchmarks/average_precision.py` needs the `bench` extra. Boxes that look like those of a
detector on COCO val2017: 5000 images, 80 classes, about 33,000 truths, 100 detections an image.
Files are parsed and arrays packed before the clock starts, for every library; all is compiled. The
twelve numbers are checked to be pycocotools', to the last bit.
"""

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from faster_coco_eval import COCO as FasterCOCO
from faster_coco_eval import COCOeval_faster
from hotcoco import COCO as HotCOCO
from hotcoco import COCOeval as HotCOCOeval
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from side_by_side import Row, arguments, medians, show

from jaxiou import metrics
from jaxiou.detection import coco, packing
from jaxiou.readers import coco as files

IMAGES, CLASSES, PER_IMAGE = 5000, 80, 100


def coco_like(seed: int, images: int = IMAGES) -> tuple[dict, list[dict]]:
    """Truths and detections as COCO's files have them."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.geometric(1 / 6.7, images), 60)
    total = int(counts.sum())
    image = np.repeat(np.arange(images), counts)
    common = 1 / np.arange(1, CLASSES + 1) ** 0.9
    label = rng.choice(CLASSES, total, p=common / common.sum())
    size = np.exp(rng.normal(4, 1, (total, 2))).clip(4, 400)
    corner = rng.uniform(0, 1, (total, 2)) * (np.array([640, 480]) - size).clip(1)
    truth = np.concatenate([corner, size], axis=1).round(2)
    crowd = rng.random(total) < 0.01

    copies = np.repeat(np.arange(total), rng.choice([0, 1, 2, 3], total, p=[0.2, 0.55, 0.2, 0.05]))
    found = truth[copies] + rng.normal(0, 0.08, (len(copies), 4)) * np.tile(size[copies], 2)
    found[:, 2:] = found[:, 2:].clip(1)
    rest = images * PER_IMAGE - len(copies)
    noise_size = np.exp(rng.normal(4, 1, (rest, 2))).clip(4, 400)
    noise = np.concatenate([rng.uniform(0, 400, (rest, 2)), noise_size], axis=1)
    boxes = np.concatenate([found, noise]).round(2)
    of_image = np.concatenate([image[copies], rng.integers(0, images, rest)])
    of_label = np.concatenate([label[copies], rng.choice(CLASSES, rest, p=common / common.sum())])
    score = np.concatenate([rng.beta(4, 2, len(copies)), rng.beta(1, 9, rest)]).round(5)
    order = np.lexsort((-score, of_image))

    annotations = [
        {
            "id": n + 1,
            "image_id": int(image[n]) + 1,
            "category_id": int(label[n]) + 1,
            "bbox": truth[n].tolist(),
            "area": float(truth[n, 2] * truth[n, 3] * 0.6),
            "iscrowd": int(crowd[n]),
        }
        for n in range(total)
    ]
    targets = {
        "info": {},
        "images": [{"id": n + 1, "width": 640, "height": 480} for n in range(images)],
        "categories": [{"id": n + 1, "name": f"class {n + 1}"} for n in range(CLASSES)],
        "annotations": annotations,
    }
    predictions = [
        {
            "image_id": int(of_image[n]) + 1,
            "category_id": int(of_label[n]) + 1,
            "bbox": boxes[n].tolist(),
            "score": float(score[n]),
        }
        for n in order
    ]
    return targets, predictions


def quietly(function: Callable[[], object]) -> object:
    with contextlib.redirect_stdout(io.StringIO()):
        return function()


def evaluated(evaluator: type, truths: object, results: object) -> object:
    run = evaluator(truths, results, "bbox")
    run.evaluate()
    run.accumulate()
    return run


def stats(run: object) -> list[float]:
    quietly(run.summarize)
    return list(run.stats)[:12]


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def cold(code: str, *paths: str) -> tuple[float, float]:
    """Of a process of its own, from files to the table: seconds, and megabytes at most."""
    script = f"{code}\nimport sys\nsys.stderr.write(open('/proc/self/status').read())"
    start = time.perf_counter()
    run = subprocess.run(
        [sys.executable, "-c", script, *paths], check=True, capture_output=True, text=True
    )
    peak = next(line for line in run.stderr.splitlines() if line.startswith("VmHWM"))
    return time.perf_counter() - start, int(peak.split()[1]) / 1024


OURS = """
import sys
from jaxiou.cli import main
main(["coco", *sys.argv[1:]])
"""

THEIRS = """
import sys
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
truths = COCO(sys.argv[1])
run = COCOeval(truths, truths.loadRes(sys.argv[2]), "bbox")
run.evaluate(); run.accumulate(); run.summarize()
"""


def main() -> None:
    rounds = arguments(__doc__).rounds
    targets, predictions = coco_like(seed=0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, name) for name in ("truths.json", "results.json")]
        for path, content in zip(paths, (targets, predictions), strict=True):
            Path(path).write_text(json.dumps(content))
        rows = compare(paths, rounds)
    show("COCO average precision of 5000 images, in seconds, but for memory", rows)


def compare(paths: list[str], rounds: int) -> list[Row]:
    loaded = files.load(*paths)
    batches = packing.pack(loaded.table)
    ours = functools.partial(coco.average_precision, batches, num_classes=loaded.num_classes)
    compiling, first = seconds(ours)

    truths = quietly(lambda: COCO(paths[0]))
    results = quietly(lambda: truths.loadRes(paths[1]))
    slow, run = seconds(lambda: quietly(lambda: evaluated(COCOeval, truths, results)))
    wanted = stats(run)
    assert [float(x) for x in first.summary] == wanted, "not the numbers of pycocotools"

    faster_truths = quietly(lambda: FasterCOCO(paths[0]))
    faster_results = quietly(lambda: faster_truths.loadRes(paths[1]))
    hot_truths = quietly(lambda: HotCOCO(paths[0]))
    hot_results = quietly(lambda: hot_truths.load_res(paths[1]))
    cases = {
        "ours": ours,
        "packing": lambda: packing.pack(loaded.table),
        "hotcoco": lambda: evaluated(HotCOCOeval, hot_truths, hot_results),
    }
    cases |= streamed(batches, loaded.num_classes)
    time_of = {name: x / 1e3 for name, x in medians(cases, rounds).items()}
    fast, run = seconds(
        lambda: quietly(lambda: evaluated(COCOeval_faster, faster_truths, faster_results))
    )
    np.testing.assert_allclose(stats(run), wanted, rtol=0, atol=1e-12)

    mine = time_of["ours"]
    whole, memory = zip(cold(OURS, *paths), cold(THEIRS, *paths), strict=True)
    return [
        Row("float64, pycocotools", mine, slow, slow / mine, ">= 100"),
        Row("float64, faster-coco-eval", mine, fast, fast / mine, ">= 8"),
        Row("float64, hotcoco (time of ours to its)", mine, time_of["hotcoco"],
            mine / time_of["hotcoco"], "<= 1.5"),
        Row("packing into padded arrays, beside evaluation", time_of["packing"], mine,
            time_of["packing"] / mine),
        Row("first call with compilation, seconds", compiling, mine, compiling, "<= 6"),
        Row("float32, batches of 64 in jit, matching", time_of["update"], slow,
            slow / time_of["update"]),
        Row("float32, compute in jit", time_of["compute"], slow, slow / time_of["compute"]),
        Row("cold, from JSON to the table", *whole, whole[1] / whole[0], ">= 8"),
        Row("peak memory of a whole process, MB", *memory, memory[0], "<= 1500"),
    ]  # fmt: skip


def streamed(batches: list, num_classes: int) -> dict[str, Callable[[], object]]:
    """The metric of a training loop, in float32, 64 images a step."""
    rows = max(batch.detections.valid.shape[1] for batch in batches)
    truths = max(batch.truths.valid.shape[1] for batch in batches)
    metric = metrics.coco_average_precision(
        num_classes, IMAGES, num_detections=rows, num_truths=truths
    )
    update = jax.jit(metric.update, donate_argnums=0)
    narrow = [
        jax.tree.map(lambda x: x.astype(np.float32) if x.dtype == np.float64 else x, batch)
        for batch in batches
    ]

    def run() -> object:
        state = metric.init()
        for batch in narrow:
            state = update(state, batch)
        return jax.block_until_ready(state)

    state = run()
    return {"update": run, "compute": lambda: jax.block_until_ready(metric.compute(state))}


if __name__ == "__main__":
    main()
