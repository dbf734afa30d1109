"""What COCO's and LVIS's exact modes share: all images matched, and means of what is there."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou.detection import _exact, matching, precision
from jaxiou.detection.matching import Matches
from jaxiou.detection.packing import Images
from jaxiou.detection.precision import Curves


@functools.lru_cache(maxsize=64)
def _evaluator(evaluate: Callable[..., Matches], **settings: Any) -> Callable[[Images], Matches]:
    return jax.jit(
        lambda batch: evaluate(batch.detections, batch.truths, overlaps=batch.overlaps, **settings)
    )


def matched(
    evaluate: Callable[..., Matches],
    batches: Sequence[Images],
    *,
    thresholds: tuple[float, ...],
    area_ranges: tuple[tuple[float, float], ...],
    num_images: int | None = None,
    **settings: Any,
) -> list[tuple[int, Matches]]:
    """The matches of all images in float64, for each 32 thresholds and how many they are."""
    if not thresholds:
        raise ValueError("thresholds must be one or more numbers")
    starts = range(0, len(thresholds), matching.MOST_THRESHOLDS)
    parts = [tuple(thresholds[start : start + matching.MOST_THRESHOLDS]) for start in starts]
    areas = tuple((float(low), float(high)) for low, high in area_ranges)
    return [
        (
            len(part),
            _exact.collect(
                _evaluator(evaluate, thresholds=part, area_ranges=areas, **settings),
                batches,
                areas=len(areas),
                num_images=num_images,
            ),
        )
        for part in parts
    ]


def accumulated(
    parts: list[tuple[int, Matches]],
    *,
    num_classes: int,
    max_detections: tuple[int, ...],
    recalls: tuple[float, ...],
) -> Curves:
    """The curves of `matched`, over all thresholds."""
    curves = [
        precision.accumulate_exactly(
            matches,
            num_classes=num_classes,
            num_thresholds=count,
            max_detections=max_detections,
            recalls=recalls,
        )
        for count, matches in parts
    ]
    if len(curves) == 1:
        return curves[0]
    return Curves(*(np.concatenate(x) for x in zip(*curves, strict=True)))


def at_threshold(x: Any, thresholds: tuple[float, ...], threshold: float) -> Any:
    """The part of `x`, `[T, ...]`, at one threshold; none of it, `[0, ...]`, if it is missing."""
    which = [t for t, given in enumerate(thresholds) if abs(given - threshold) < 1e-9]
    return x[which[0]] if which else x[:0].reshape(0, *x.shape[2:])


def check_thresholds(curves: Curves, thresholds: tuple[float, ...]) -> None:
    """Raises unless there is a threshold for each of those of the curves."""
    if len(thresholds) != curves.recall.shape[0]:
        raise ValueError(
            f"thresholds must be those of the curves, {curves.recall.shape[0]} of them, got "
            f"{len(thresholds)}"
        )


def mean_of_present(x: Array) -> Array:
    """Of the entries above -1; -1 if there are none."""
    counts = x > -1
    number = jnp.maximum(counts.sum(dtype=jnp.int32), 1).astype(x.dtype)
    return jnp.where(counts.any(), jnp.where(counts, x, 0).sum() / number, -1)


def exact_mean(x: Any) -> np.float64:
    """`mean_of_present` in NumPy's own order of additions."""
    present = x[x > -1]
    return np.mean(present) if present.size else np.float64(-1)


def per_class(curves: Curves) -> np.ndarray:
    """The mean precision of each class, without limits of area and with the last of detections."""
    classes = range(curves.precision.shape[2])
    means = np.array([exact_mean(curves.precision[:, :, k, 0, -1]) for k in classes])
    return np.where(means < 0, np.nan, means)
