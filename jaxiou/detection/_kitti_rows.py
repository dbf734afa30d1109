"""KITTI's data set on the host: rows of all images, and of those the ones that may meet."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou import _checks, boxes
from jaxiou._typing import ArrayLike
from jaxiou.detection import _pairs
from jaxiou.detection._kitti import (
    CLASSES,
    DONT_CARE,
    MIN_HEIGHT,
    OVERLAPS,
    Detections,
    GroundTruth,
    Table,
    cast,
    detection_states,
    truth_states,
)
from jaxiou.detection._pairs import Block, Pairs, Sides
from jaxiou.pairing import Overlap


def by_image(table: Table) -> tuple[Table, Sides]:
    """Rows by image, floats as float64."""
    num_images = operator.index(table.num_images)
    _checks.count("num_images", num_images)

    def side(name: str, rows: Any, images: ArrayLike) -> tuple[Any, np.ndarray]:
        images = np.asarray(images)
        for field, x in rows._asdict().items():
            if x is not None and len(x) != len(images):
                raise ValueError(
                    f"{field} of the {name}s must have {len(images)} rows, as {name}_images has, "
                    f"got {len(x)}"
                )
        for row in np.flatnonzero((images < 0) | (images >= num_images))[:1]:
            raise ValueError(
                f"{name}_images must lie in 0 to {num_images - 1}, got {images[row]} in row {row}"
            )
        order = np.argsort(images, kind="stable")
        return jax.tree.map(lambda x: _wide(x)[order], rows), images[order]

    found, found_images = side("detection", table.detections, table.detection_images)
    for row in np.flatnonzero(found.valid & ~np.isfinite(found.scores))[:1]:
        raise ValueError(
            f"scores must be finite, got {found.scores[row]} in image {found_images[row]}"
        )
    truths, truth_images = side("truth", table.truths, table.truth_images)
    sides = Sides(found_images, truth_images, num_images)
    return Table(found, found_images, truths, truth_images, num_images), sides


def _wide(x: ArrayLike) -> np.ndarray:
    return np.asarray(x, np.float64 if jnp.issubdtype(x.dtype, jnp.floating) else None)


@jax.jit
def states_of_classes(detections: Detections, truths: GroundTruth) -> list[tuple[Array, Array]]:
    """For each class the states of all detections and truths, `[3, rows]`."""
    found, truths = cast("detections", detections), cast("truths", truths)
    labels = jnp.arange(len(CLASSES), dtype=jnp.int32)
    return [(detection_states(found, k), truth_states(truths, k)) for k in labels]


def that_may_meet(table: Table, sides: Sides) -> Pairs:
    found, truths = table.detections, table.truths
    height = np.abs(found.regions[:, 3] - found.regions[:, 1])
    scored = (found.labels >= 0) & (found.labels < len(CLASSES))
    known = (truths.labels >= 0) & (truths.labels != DONT_CARE)
    first = found.valid & (scored | (height < max(MIN_HEIGHT)))
    return _pairs.together(sides, first, truths.valid & known)


def along(
    table: Table,
    sides: Sides,
    pairs: Pairs,
    measure: str,
    overlap: Mapping[str, Overlap],
    overlaps: Mapping[str, Sequence[np.ndarray]],
) -> np.ndarray | None:
    """The overlap of each pair; None where there are no regions to compare."""
    if measure in overlaps:
        return _pairs.look_up(f"overlaps[{measure!r}]", overlaps[measure], sides, pairs)
    name = "regions" if measure == "image" else "cuboids"
    a, b = getattr(table.detections, name), getattr(table.truths, name)
    if a is None or b is None:
        return None
    return _pairs.compare(overlap.get(measure) or OVERLAPS[measure], a, b, pairs)


def shares_of_rows(table: Table, sides: Sides) -> np.ndarray:
    """The largest share of each detection's area in a DontCare region."""
    found, truths = table.detections, table.truths
    pairs = _pairs.together(sides, found.valid, truths.valid & (truths.labels == DONT_CARE))
    shares = np.zeros(len(sides.first))
    values = _pairs.compare(boxes.ioa, found.regions, truths.regions, pairs)
    np.fmax.at(shares, pairs.first, values)
    return shares


class Some(NamedTuple):
    """What both passes take of a block of images."""

    detections: Detections
    truths: GroundTruth
    overlaps: np.ndarray
    shares: np.ndarray


def some_of(table: Table, block: Block, shares: np.ndarray) -> Some:
    found, truths = (
        jax.tree.map(lambda x, rows=rows: x[rows], side._replace(cuboids=None))
        for side, rows in ((table.detections, block.first), (table.truths, block.second))
    )
    return Some(
        found._replace(valid=block.first >= 0),
        truths._replace(valid=block.second >= 0),
        block.values,
        shares[block.first],
    )
