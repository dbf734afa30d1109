"""The exact mode: a host entry that computes in float64, whatever the user's program does.

It switches 64-bit types on in its own scope, which is a thread's, and gives NumPy arrays; JAX
arrays of float64 would act oddly in a program without them.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Images

THREADS = 2
"""That feed batches to the device at once: JAX lets other threads run while it computes."""


def run(function: Callable[..., Any], *args: Any) -> Any:
    """The result of a function in float64 on the CPU, as NumPy arrays.

    TPUs have no float64 of IEEE, and a CPU is there in every process.
    """
    with jax.enable_x64(True), jax.default_device(jax.local_devices(backend="cpu")[0]):
        return jax.device_get(function(*args))


def refuse_tracers(**values: Any) -> None:
    """Raises TypeError inside `jit`, where the exact mode cannot be."""
    for name, value in values.items():
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value)):
            raise TypeError(
                f"{name} is traced: the exact mode runs outside of jit, on arrays with values; "
                f"inside jit, call `evaluate`, `accumulate` and `summarize` of this module, which "
                f"compute in the type of their arguments"
            )


def collect(
    evaluate: Callable[[Images], Matches],
    batches: Sequence[Images],
    *,
    num_images: int | None = None,
    areas: int = 1,
) -> Matches:
    """The matches of all batches, `[num_images, D]` and `[num_images, G]`, in the order of images.

    Args:
      evaluate: from a batch to its matches, pure.
      batches: from `packing.pack`. An image that occurs twice counts once.
      num_images: how many there are; None takes the highest index and one.
      areas: how many area ranges there are.
    """
    refuse_tracers(batches=batches)
    batches = [wide(batch) for batch in batches]
    # One batch of each shape first, so that no two threads compile the same program.
    shapes = [[x.shape for x in jax.tree.leaves(batch)] for batch in batches]
    turns = sorted(range(len(batches)), key=lambda n: shapes.index(shapes[n]) != n)
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(turns, pool.map(lambda n: run(evaluate, batches[n]), turns), strict=True))
    parts = [found[n] for n in range(len(batches))]
    indices = [np.asarray(batch.indices) for batch in batches]
    if num_images is None:
        num_images = max((int(x.max(initial=-1)) + 1 for x in indices), default=0)
    return together(parts, indices, num_images, areas)


def wide(batch: Images) -> Images:
    """Its numbers as float64, whatever they were: an integer too may need all of its digits."""

    def side(x: Any) -> Any:
        numbers = {
            name: _wide(getattr(x, name))
            for name in ("regions", "scores", "areas")
            if getattr(x, name, None) is not None
        }
        return x._replace(**numbers)

    overlaps = None if batch.overlaps is None else _wide(batch.overlaps)
    batch = batch._replace(
        detections=side(batch.detections), truths=side(batch.truths), overlaps=overlaps
    )
    return jax.tree.map(np.asarray, batch)


def _wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x if x.dtype == np.bool_ else x.astype(np.float64, copy=False)


def together(
    parts: Sequence[Matches], indices: Sequence[np.ndarray], num_images: int, areas: int
) -> Matches:
    """Matches of batches, each image at its place; what no batch has, is an image without rows."""
    rows = max((part.scores.shape[1] for part in parts), default=0)
    truths = max((part.truth_labels.shape[1] for part in parts), default=0)
    empty = Matches(
        scores=np.full((num_images, rows), -np.inf),
        labels=np.full((num_images, rows), -1, np.int32),
        ranks=np.zeros((num_images, rows), np.int32),
        valid=np.zeros((num_images, rows), np.bool_),
        matched=np.zeros((num_images, rows, areas), np.uint32),
        ignored=np.zeros((num_images, rows, areas), np.uint32),
        truth_labels=np.full((num_images, truths), -1, np.int32),
        truth_counts=np.zeros((num_images, truths, areas), np.bool_),
    )
    for part, places in zip(parts, indices, strict=True):
        for full, x in zip(empty, part, strict=True):
            full[places[places >= 0], : x.shape[1]] = x[places >= 0]
    return empty
