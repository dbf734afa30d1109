"""Trains a segmentation of real handwritten digits by a loss made of IoU.

    python examples/train_segmentation.py

A small fully convolutional network in plain JAX, its parameters a pytree, says of every pixel
which digit it is the ink of, or that it is none: background, clutter and fragments of digits.
optax trains it by a loss of `jaxiou.losses` and cross entropy (`--loss` compares them) on
scenes drawn anew in every step from one part of the digits (`digits.py`). It takes one to two
minutes on two CPU cores, twice that with the sort of Lovász-Softmax, and ends with a table of
the IoU of each class before and after, and a picture of scenes of digits it has never seen, the
truth and what it says.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from digits import make_label_maps, make_scenes, names, scans, split
from jax import Array
from matplotlib import colormaps
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from rich.console import Console
from rich.table import Table
from train_giou import STRIDE, convolve, normalise, progress

from jaxiou import losses, segmentation

CLASSES = ["background", *map(str, range(10))]
COLOURS = ListedColormap(["white", *colormaps["tab10"].colors])
WIDTH = 32  # channels of the network
BATCH = 8
LEARNING_RATE = 2e-2
TEST_SCENES = 500


def cross_entropy(logits: Array, labels: Array) -> Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def with_cross_entropy(loss: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Cross entropy, which learns fast from nothing, and a fifth of the loss.

    The loss is that of the whole batch at once: an image has few of the digits.
    """

    def total(logits: Array, labels: Array) -> Array:
        return cross_entropy(logits, labels) + 0.2 * loss(logits, labels, axis=(0, 1, 2))

    return total


LOSSES = {
    "cross_entropy": cross_entropy,
    "soft_jaccard": with_cross_entropy(losses.soft_jaccard_loss),
    "dice": with_cross_entropy(losses.dice_loss),
    "generalized_dice": with_cross_entropy(losses.generalized_dice_loss),
    "tversky": with_cross_entropy(losses.tversky_loss),
    "focal_tversky": with_cross_entropy(losses.focal_tversky_loss),
    "lovasz_softmax": with_cross_entropy(losses.lovasz_softmax_loss),
}


# The network


def init(key: Array) -> dict:
    """The parameters, a pytree: each layer has weights `[size, size, inputs, outputs]`."""
    keys = iter(jax.random.split(key, 16))

    def layer(size: int, inputs: int, outputs: int, gain: float = 2.0) -> dict:
        weights = jax.random.normal(next(keys), (size, size, inputs, outputs))
        weights = weights * (gain / (size * size * inputs)) ** 0.5
        return {"weights": weights, "bias": jnp.zeros((1, 1, 1, outputs))}

    def block(width: int) -> list[dict]:
        return [layer(3, width, width), layer(3, width, width, gain=0.1)]

    return {
        "stem": [layer(5, 1, WIDTH // 2), layer(3, WIDTH // 2, WIDTH)],
        "early": [block(WIDTH) for _ in range(2)],
        "down": layer(3, WIDTH, 2 * WIDTH),
        "coarse": [block(2 * WIDTH) for _ in range(2)],
        "up": layer(1, 2 * WIDTH, WIDTH),
        "late": [block(WIDTH)],
        "head": layer(1, WIDTH, STRIDE**2 * len(CLASSES), gain=0.1),
    }


def residual(blocks: list[list[dict]], x: Array) -> Array:
    for first, second in blocks:
        x = x + convolve(second, jax.nn.relu(convolve(first, normalise(x))))
    return x


def forward(parameters: dict, images: Array) -> Array:
    """The logits of the classes in every pixel, `[B, SIDE, SIDE, K]`."""
    x = images[..., None] - 0.3
    for layer in parameters["stem"]:
        x = jax.nn.relu(convolve(layer, x, stride=2))
    x = residual(parameters["early"], x)
    wide = jax.nn.relu(convolve(parameters["down"], normalise(x), stride=2))
    wide = convolve(parameters["up"], normalise(residual(parameters["coarse"], wide)))
    x = residual(parameters["late"], x + wide.repeat(2, axis=1).repeat(2, axis=2))
    return pixels_of_cells(convolve(parameters["head"], normalise(x)))


def pixels_of_cells(x: Array) -> Array:
    """`[B, h, w, STRIDE * STRIDE * K]`, a cell with its rows of pixels, as one image."""
    batch, height, width, _ = x.shape
    x = x.reshape(batch, height, width, STRIDE, STRIDE, -1).swapaxes(2, 3)
    return x.reshape(batch, height * STRIDE, width * STRIDE, -1)


# Training


def labelled_scenes(key: Array, glyphs: Array, shown: Array, batch: int) -> tuple[Array, Array]:
    """Images and their label maps, `[B, SIDE, SIDE]` both."""
    labels = make_label_maps(key, glyphs, shown, batch)
    return make_scenes(key, glyphs, batch).images, labels


def train(
    parameters: dict,
    key: Array,
    glyphs: Array,
    shown: Array,
    loss: str,
    steps: int,
    report: Callable[[int, Array], None],
) -> dict:
    """The parameters after `steps` steps, each on `BATCH` new scenes, with `report` called."""
    schedule = optax.cosine_onecycle_schedule(steps, LEARNING_RATE)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))

    def total_loss(parameters: dict, images: Array, labels: Array) -> Array:
        return LOSSES[loss](forward(parameters, images), labels)

    @jax.jit
    def step(parameters, state, key):
        scenes = labelled_scenes(key, glyphs, shown, BATCH)
        value, gradients = jax.value_and_grad(total_loss)(parameters, *scenes)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    state = jax.jit(optimizer.init)(parameters)
    for i in range(steps):
        parameters, state, value = step(parameters, state, jax.random.fold_in(key, i))
        report(i + 1, value)
    return parameters


# What it says


@jax.jit
def predict(parameters: dict, images: Array) -> Array:
    """The class of every pixel, `[B, SIDE, SIDE]`."""
    return forward(parameters, images).argmax(-1).astype(jnp.int32)


def evaluate(parameters: dict, images: Array, labels: Array) -> tuple[np.ndarray, float]:
    """The IoU of each class over all pixels of all scenes, and their mean."""
    found = predict(parameters, images)
    matrix = segmentation.confusion_matrix(found, labels, len(CLASSES))
    return np.asarray(segmentation.class_iou(matrix)), float(segmentation.mean_iou(matrix))


def draw(parameters: dict, images: Array, labels: Array, title: str) -> Figure:
    """The first scenes: the picture, the truth, what the network says."""
    columns = 8
    images, labels = images[:columns], labels[:columns]
    rows = jax.device_get((images, labels, predict(parameters, images)))
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    for i, axes in enumerate(figure.subplots(3, columns).flat):
        style = {"cmap": "gray_r", "vmin": 0, "vmax": 1.1}
        if i >= columns:
            style = {"cmap": COLOURS, "vmin": -0.5, "vmax": len(CLASSES) - 0.5}
        axes.imshow(rows[i // columns][i % columns], interpolation="nearest", **style)
        axes.set(xticks=[], yticks=[])
        if i % columns == 0:
            axes.set_ylabel(("image", "truth", "prediction")[i // columns])
    handles = [Patch(color=COLOURS(i), label=CLASSES[i]) for i in range(1, len(CLASSES))]
    figure.legend(handles=handles, loc="outside lower center", ncols=10, frameon=False)
    figure.suptitle(title)
    return figure


def table(title: str, before: tuple[np.ndarray, float], after: tuple[np.ndarray, float]) -> Table:
    result = Table("IoU of", "before", "after training", title=title)
    for name, *values in zip(CLASSES, before[0], after[0], strict=True):
        result.add_row(name, *(f"{value:.3f}" for value in values))
    result.add_section()
    result.add_row("mean", f"{before[1]:.3f}", f"{after[1]:.3f}")
    return result


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loss", choices=LOSSES, default="soft_jaccard")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="outputs/segmentation_LOSS.png by default")
    options = parser.parse_args(arguments)

    # This generator compiles several times faster than JAX's default one.
    key = jax.random.key(options.seed, impl="rbg")
    parameters_key, test_key, training_key = jax.random.split(key, 3)
    training, test = ((scans(numbers), names(numbers)) for numbers in split(options.seed))
    images, labels = jax.jit(labelled_scenes, static_argnums=3)(test_key, *test, TEST_SCENES)
    parameters = jax.jit(init)(parameters_key)

    before = evaluate(parameters, images, labels)
    with progress(options.steps) as report:
        parameters = train(parameters, training_key, *training, options.loss, options.steps, report)
    after = evaluate(parameters, images, labels)

    scenes = f"{TEST_SCENES} scenes of digits never seen in training, by --loss {options.loss}"
    Console().print(table(scenes, before, after))
    path = options.picture or Path("outputs") / f"segmentation_{options.loss}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(parameters, images, labels, f"{scenes}: mIoU {after[1]:.3f}").savefig(path, dpi=100)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
