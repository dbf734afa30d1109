"""Rows of `jaxiou.protocols`."""

import numpy as np

from catalogue.row import HOST, Row

from .segmentation import EMPTY_IS_NAN, matrix, which_pixels_count

INSTANCES = np.array([7, 24, 24001, 24002, 26001, 29001, 33007], np.int32)


def city_maps(rng):
    """Predictions, labels and instances of a Cityscapes image."""
    instances = rng.choice(INSTANCES, (6, 7))
    targets = np.where(instances < 1000, instances, instances // 1000)
    others = rng.choice(np.array([7, 24, 25, 26, 29, 33], np.int32), targets.shape)
    return np.where(rng.random(targets.shape) < 0.6, targets, others), targets, instances


def counts(rng):
    from jaxiou import protocols

    per_class = (rng.integers(8, 128, 8) / 8, rng.integers(8, 128, 8) / 8, rng.integers(1, 50, 8))
    per_category = tuple(x[:2] for x in per_class)
    integers = tuple(
        x if x.dtype == np.float64 else x.astype(np.int32) for x in (*per_class, *per_category)
    )
    return (protocols.InstanceCounts(*integers),)


GROUPED = "protocols.mmseg(5)._replace(categories=(('a', (0, 3)), ('b', (2,))))"

NO_GRADIENT = dict.fromkeys(["grad", "jvp"], "counts of labels, which have no gradient")

ROWS = [
    Row("partial(protocols.mmseg, 5, ignore=(1, 255))", lambda rng: (), exempt=HOST),
    Row("partial(protocols.by_place, protocols.CITYSCAPES)", lambda rng: (), exempt=HOST),
    Row(f"partial(protocols.scores, protocol={GROUPED})", matrix, (0,), exempt=EMPTY_IS_NAN),
    Row(
        "protocols.instance_counts",
        city_maps,
        leading=False,
        where=which_pixels_count(3),
        exempt={
            **NO_GRADIENT,
            "x64": "float32 unless a map has 64 bits, and they stay what they are here",
        },
    ),
    Row("protocols.instance_iou", counts, exempt=EMPTY_IS_NAN | NO_GRADIENT),
]
