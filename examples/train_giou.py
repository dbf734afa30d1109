"""Trains a detector on real handwritten digits by minimising 1 - GIoU.

    python examples/train_giou.py

A small convolutional network in plain JAX, its parameters a pytree, says for each cell of
4 x 4 pixels how far away the four sides of a digit are, and how well they will fit. optax
trains the first by a loss of `jaxiou.losses` (`--loss` compares them) and the second by cross
entropy, on scenes drawn anew in every step from one part of the digits (`digits.py`).
`assigners.task_aligned` says which cell learns which digit, `suppression.nms` which cells
count in the end. It takes one to two minutes on two CPU cores, and ends with a table, with
COCO's average precision by `detection.coco`, and a picture, `outputs/train_giou.png`, of what
is found in scenes of digits it has never seen.
"""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from digits import SIDE, Scenes, make_scenes, scans, split
from jax import Array
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jaxiou import assigners, assignment, boxes, losses, pairwise, suppression
from jaxiou.detection import coco, packing
from jaxiou.pairing import best_match

STRIDE = 4  # pixels of a cell, either way
GRID = SIDE // STRIDE
WIDTH = 32  # channels of the network
BATCH = 16
LEARNING_RATE = 5e-3
TEST_SCENES = 500
MOST = 10  # detections in a scene
THRESHOLD = 0.3  # score from which on a cell counts as a detection


def l1_loss(predictions: Array, targets: Array, *, where: Array) -> Array:
    """Mean distance of the sides, in units of 8 pixels: what losses of overlap replace."""
    return jnp.where(where, jnp.abs(predictions - targets).mean(-1) / 8, 0)


LOSSES = {
    "iou": losses.iou_loss,
    "giou": losses.giou_loss,
    "diou": losses.diou_loss,
    "ciou": losses.ciou_loss,
    "l1": l1_loss,
}


class Detections(NamedTuple):
    """What is found, best first.

    Attributes:
      boxes: `[B, MOST, 4]`, corners in pixels.
      scores: `[B, MOST]`, in [0, 1].
      valid: bool, `[B, MOST]`.
    """

    boxes: Array
    scores: Array
    valid: Array


# The network


def init(key: Array) -> dict:
    """The parameters, a pytree: each layer has weights `[size, size, inputs, outputs]`."""
    keys = iter(jax.random.split(key, 10))

    def layer(size: int, inputs: int, outputs: int, gain: float = 2.0) -> dict:
        weights = jax.random.normal(next(keys), (size, size, inputs, outputs))
        weights = weights * (gain / (size * size * inputs)) ** 0.5
        return {"weights": weights, "bias": jnp.zeros((1, 1, 1, outputs))}

    return {
        "stem": [layer(5, 1, WIDTH // 2), layer(3, WIDTH // 2, WIDTH)],
        "down": layer(3, WIDTH, 2 * WIDTH),
        "coarse": [layer(3, 2 * WIDTH, 2 * WIDTH, gain=0.5) for _ in range(3)],
        "up": layer(1, 2 * WIDTH, WIDTH),
        "fine": [layer(3, WIDTH, WIDTH, gain=0.5) for _ in range(2)],
        "head": layer(1, WIDTH, 5, gain=0.1),
    }


def convolve(layer: dict, x: Array, stride: int = 1) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    strides = (stride, stride)
    x = jax.lax.conv_general_dilated(x, layer["weights"], strides, "SAME", dimension_numbers=layout)
    return x + layer["bias"]


def normalise(x: Array) -> Array:
    """Features of unit size in every pixel."""
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def residual(layers: list[dict], x: Array) -> Array:
    for layer in layers:
        x = x + jax.nn.relu(convolve(layer, normalise(x)))
    return x


def forward(parameters: dict, images: Array) -> tuple[Array, Array]:
    """For every cell the logit of a digit, `[B, cells]`, and its box, `[B, cells, 4]`."""
    x = images[..., None] - 0.3
    for layer in parameters["stem"]:
        x = jax.nn.relu(convolve(layer, x, stride=2))
    wide = jax.nn.relu(convolve(parameters["down"], normalise(x), stride=2))
    wide = convolve(parameters["up"], normalise(residual(parameters["coarse"], wide)))
    x = residual(parameters["fine"], x + wide.repeat(2, axis=1).repeat(2, axis=2))

    outputs = convolve(parameters["head"], x).reshape(len(images), GRID * GRID, 5)
    sides = 8 * jnp.exp(outputs[..., 1:])
    corners = [centres()[None] - sides[..., :2], centres()[None] + sides[..., 2:]]
    return outputs[..., 0] - 3, jnp.concatenate(corners, axis=-1)


def centres() -> Array:
    """The cells' centres `(x, y)`, `[cells, 2]`."""
    line = jnp.arange(0.5, GRID) * STRIDE
    return jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)


# Training


def assign(scores: Array, predictions: Array, scenes: Scenes) -> assigners.Assignment:
    """Which digit each cell learns: the cells within a digit that find it best learn it."""

    def in_one(scores, predictions, truths, valid):
        labels = jnp.zeros(len(truths), jnp.int32)  # one class
        options = {"centres": centres(), "candidates": 9, "where": valid}
        return assigners.task_aligned(predictions, truths, scores[:, None], labels, **options)

    return jax.vmap(in_one)(scores, predictions, scenes.boxes, scenes.valid)


def total_loss(parameters: dict, scenes: Scenes, box_loss: Callable[..., Array]) -> Array:
    """The box loss of the cells that learn a digit, plus what is wrong with all scores."""
    logits, predictions = forward(parameters, scenes.images)
    scores = jax.nn.sigmoid(logits)
    assigned = assign(scores, predictions, scenes)

    found, targets = assigned.valid, assigned.take(scenes.boxes)
    location = losses.mean(box_loss(predictions, targets, where=found), where=found)
    # A score is to be what its box is worth; one that is nearly right counts little.
    entropy = optax.sigmoid_binary_cross_entropy(logits, assigned.quality)
    entropy = (assigned.quality - scores) ** 2 * entropy
    return 2 * location + entropy.sum() / jnp.maximum(assigned.quality.sum(), 1)


def train(
    parameters: dict,
    key: Array,
    glyphs: Array,
    loss: str,
    steps: int,
    report: Callable[[int, Array], None],
) -> dict:
    """The parameters after `steps` steps, each on `BATCH` new scenes, with `report` called."""
    schedule = optax.cosine_onecycle_schedule(steps, LEARNING_RATE)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    @jax.jit
    def step(parameters, state, key):
        scenes = make_scenes(key, glyphs, BATCH)
        value, gradients = jax.value_and_grad(total_loss)(parameters, scenes, LOSSES[loss])
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    state = jax.jit(optimizer.init)(parameters)
    for i in range(steps):
        parameters, state, value = step(parameters, state, jax.random.fold_in(key, i))
        report(i + 1, value)
    return parameters


# What it finds


def decode(logits: Array, regions: Array) -> Detections:
    """The cells that score at least `THRESHOLD`, less those that repeat a better one."""

    def in_one(scores, regions):
        options = {"threshold": 0.4, "max_outputs": MOST, "min_score": THRESHOLD}
        kept = suppression.nms(regions, scores, **options)
        return Detections(kept.take(regions), kept.take(scores), kept.valid)

    return jax.vmap(in_one)(jax.nn.sigmoid(logits), boxes.clip(regions, SIDE, SIDE))


def match_one_to_one(detections: Detections, scenes: Scenes) -> Array:
    """The IoU of each truth with a detection of its own, 0 if it gets none, `[B, DIGITS]`."""
    both = detections.valid[:, :, None] & scenes.valid[:, None, :]
    table = jnp.where(both, pairwise(boxes.iou)(detections.boxes, scenes.boxes), 0)
    # Of all pairs that are left, the one with the highest IoU is taken.
    matching = jax.vmap(assignment.greedy_matching)(table)
    ious = jnp.take_along_axis(table, jnp.maximum(matching.rows, 0)[:, None], axis=1)[:, 0]
    return jnp.where(matching.rows >= 0, ious, 0)


@jax.jit
def detect(parameters: dict, scenes: Scenes) -> tuple[Detections, Array]:
    """What is found in scenes, and the IoU of each truth with its detection."""
    detections = decode(*forward(parameters, scenes.images))
    return detections, match_one_to_one(detections, scenes)


@jax.jit
def average_precision(detections: Detections, scenes: Scenes) -> coco.Summary:
    """COCO's numbers for areas of any size."""
    regions, scores, valid = detections
    labels, truth_labels = (x.astype(jnp.int32) * 0 for x in (valid, scenes.valid))  # one class
    matches = coco.evaluate(
        packing.Detections(regions, scores, labels, valid, boxes.area(regions)),
        packing.GroundTruth(scenes.boxes, truth_labels, scenes.valid, boxes.area(scenes.boxes)),
        overlap=boxes.iou,  # of corners; COCO's own takes (x, y, width, height)
        crowd_overlap=boxes.ioa,
        area_ranges=coco.AREA_RANGES[:1],
        max_detections=MOST,
    )
    return coco.summarize(coco.accumulate(matches, num_classes=1, max_detections=(MOST,)))


def evaluate(parameters: dict, scenes: Scenes) -> dict[str, float]:
    """COCO's AP, shares of the truths found and of the detections right, and how well they fit."""
    detections, ious = detect(parameters, scenes)
    precision = average_precision(detections, scenes)
    hits = ious >= 0.5
    found, good = hits.sum(), (ious >= 0.75).sum()
    return {
        "recall at IoU 0.5": float(found / scenes.valid.sum()),
        "recall at IoU 0.75": float(good / scenes.valid.sum()),
        "mean IoU of matched boxes": float(losses.mean(ious, where=hits)),
        "precision at IoU 0.5": float(found / jnp.maximum(detections.valid.sum(), 1)),
        "COCO AP": float(precision.ap),
        "COCO AP50": float(precision.ap50),
        "COCO AP75": float(precision.ap75),
    }


@contextlib.contextmanager
def progress(steps: int) -> Iterator[Callable[[int, Array], None]]:
    """A function to call after each step: it moves a bar, or prints where there is no terminal."""
    console = Console()
    terminal = console.is_terminal
    text = TextColumn("loss {task.fields[loss]}  {task.fields[speed]} steps/s")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), text)
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not terminal) as bar:
        task = bar.add_task("compiling", total=steps, loss="-", speed="-")
        started = 0.0

        def report(step: int, loss: Array) -> None:
            nonlocal started
            if step == 1:  # the time before it went into compilation
                loss.block_until_ready()
                started = time.perf_counter()
            if step != steps and step % (10 if terminal else max(steps // 10, 1)):
                return
            shown = f"{loss:.3f}"  # waits for the step
            speed = f"{(step - 1) / (time.perf_counter() - started):.1f}"
            bar.update(task, completed=step, description="training", loss=shown, speed=speed)
            if not terminal:
                print(f"step {step}/{steps}  loss {shown}  {speed} steps/s", flush=True)

        yield report


def draw(parameters: dict, scenes: Scenes, title: str) -> Figure:
    """The first scenes, with the boxes of the digits and what was found."""
    rows, columns = 3, 6
    scenes = jax.tree.map(lambda x: x[: rows * columns], scenes)
    found, _ = detect(parameters, scenes)
    best = best_match(boxes.iou)(found.boxes, scenes.boxes, where=scenes.valid[:, None, :])
    scenes, found, best = jax.device_get((scenes, found, best))

    truth: dict[str, Any] = {"edgecolor": "#2ca25f", "linewidth": 4, "alpha": 0.55}
    guess: dict[str, Any] = {"edgecolor": "#d7301f", "linewidth": 1.5}
    figure = Figure(figsize=(12, 6.6), layout="constrained")
    for b, axes in enumerate(figure.subplots(rows, columns).flat):
        axes.imshow(scenes.images[b], cmap="gray_r", vmin=0, vmax=1.1, extent=(0, SIDE, SIDE, 0))
        axes.set_axis_off()
        for box in scenes.boxes[b][scenes.valid[b]]:
            axes.add_patch(rectangle(box, **truth))
        for i in found.valid[b].nonzero()[0]:
            box, iou = found.boxes[b, i], best.values[b, i]
            axes.add_patch(rectangle(box, **guess))
            label = axes.text(box[0], max(box[1] - 1.5, 3), f"{iou:.2f}", color="#d7301f", size=9)
            label.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    handles = [Patch(fill=False, label="truth", **truth)]
    handles += [Patch(fill=False, label="detection, with its best IoU", **guess)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title)
    return figure


def rectangle(box: Array, **style) -> Rectangle:
    x, y, width, height = boxes.to_xywh(box)
    return Rectangle((x, y), width, height, fill=False, **style)


def table(title: str, before: dict[str, float], after: dict[str, float]) -> Table:
    result = Table("", "before", "after training", title=title)
    for name in after:
        result.add_row(name, f"{before[name]:.3f}", f"{after[name]:.3f}")
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=LOSSES, default="giou", help="of the boxes")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("outputs"), help="folder")
    options = parser.parse_args(arguments)

    # This generator compiles several times faster than JAX's default one.
    key = jax.random.key(options.seed, impl="rbg")
    parameters_key, test_key, training_key = jax.random.split(key, 3)
    training, test = map(scans, split(options.seed))
    scenes = jax.jit(make_scenes, static_argnums=2)(test_key, test, TEST_SCENES)
    parameters = jax.jit(init)(parameters_key)

    before = evaluate(parameters, scenes)
    with progress(options.steps) as report:
        parameters = train(parameters, training_key, training, options.loss, options.steps, report)
    after = evaluate(parameters, scenes)

    digits = f"{int(scenes.valid.sum()):,} digits never seen in training, by --loss {options.loss}"
    Console().print(table(digits, before, after))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"train_{options.loss}.png"
    recall = f"{after['recall at IoU 0.5']:.1%} found at IoU 0.5"
    draw(parameters, scenes, f"{digits}: {recall}").savefig(path, dpi=100)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
