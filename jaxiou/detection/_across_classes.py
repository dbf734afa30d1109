"""What the diagnoses share, which compare detections with truths of every class."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxiou._typing import ArrayLike
from jaxiou.detection import matching
from jaxiou.detection.packing import Detections, GroundTruth
from jaxiou.pairing import Overlap


def table_of_all(
    detections: Detections,
    truths: GroundTruth,
    overlap: Overlap,
    crowd_overlap: Overlap,
    overlaps: ArrayLike | None,
) -> Array:
    """Overlaps of detections with truths of any class, `[..., D, G]`; -1 where one is not valid."""

    def unlabelled(side: Any) -> Any:
        return side._replace(labels=jnp.zeros(side.valid.shape, jnp.int32))

    matching.check(detections, truths)
    return matching.overlap_table(
        unlabelled(detections),
        unlabelled(truths),
        overlap=overlap,
        crowd_overlap=crowd_overlap,
        overlaps=overlaps,
    )


def split(truths: GroundTruth) -> tuple[Array, Array]:
    """Which truths are to be found, and which only excuse detections, `[..., G]`."""
    valid = jnp.asarray(truths.valid)
    excusing = jnp.zeros_like(valid)
    for kind in (truths.crowd, truths.ignored):
        if kind is not None:
            excusing |= valid & kind
    return valid & ~excusing & (truths.labels >= 0), excusing


def may_excuse(labels: Array, truth_labels: Array) -> Array:
    """By class, `[D, G]`: a truth of a negative class excuses those of any."""
    return (labels[:, None] == truth_labels[None]) | (truth_labels[None] < 0)


def over_images(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """Mapped over leading axes, of which all arguments have as many."""
    for _ in range(axes):
        function = jax.vmap(function)
    return function
