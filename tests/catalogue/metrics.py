"""Rows of `jaxiou.metrics`."""

import jaxiou
from catalogue.row import HOST, Row

COUNTS = dict.fromkeys(("grad", "jvp"), "counts have no gradient")


def _labels(rng, *shape):
    return rng.integers(0, 4, shape, "int32")


def _image(rng):
    return _labels(rng, 3, 4), _labels(rng, 3, 4)


def _state(metric, *batch):
    return metric.update(metric.init(), *batch)


def _confusion(rng):
    return _state(jaxiou.metrics.mean_iou(3), *_image(rng))


def _panoptic_batch(rng):
    """Two images with three segments each."""
    maps = (rng.integers(0, 3, (2, 3, 4), "int32") for _ in "pt")
    labels = (rng.integers(0, 2, (2, 3), "int32") for _ in "pt")
    return *maps, *labels


def _panoptic(rng):
    return _state(jaxiou.metrics.panoptic_quality(2, things=(0,)), *_panoptic_batch(rng))


def _some_of(arguments, *shape):
    """`where`; labels have no NaN to hide."""
    return lambda rng: (rng.random(shape) < 0.5, (None,) * arguments)


_SCORES = COUNTS | {
    "debug_nans": "of nothing seen the score is NaN",
    "eager": "takes seconds, and the rows of scores do the same arithmetic",
    "x64": "counts have no width: scores are float64 wherever that is on",
}
_SUMS = COUNTS | dict.fromkeys(
    ("bfloat16", "float16", "uint8", "int32", "x64"), "a state keeps its types"
)

ROWS = [
    Row(
        "metrics.mean_iou(3, ignore=1).update",
        lambda rng: (_confusion(rng), *_image(rng)),
        leading=False,
        where=_some_of(3, 3, 4),
    ),
    Row(
        "metrics.mean_iou(3).compute",
        lambda rng: (_confusion(rng),),
        leading=False,
        exempt=_SCORES,
    ),
    Row(
        "metrics.dice(3).merge",
        lambda rng: (_confusion(rng), _confusion(rng)),
        leading=False,
    ),
    Row(
        "metrics.semantic_segmentation("
        "protocols.mmseg(3)._replace(categories=(('first', (0, 1)),))).compute",
        lambda rng: (_confusion(rng),),
        leading=False,
        exempt=_SCORES,
    ),
    Row(
        "metrics.panoptic_quality(2, things=(0,)).update",
        lambda rng: (_panoptic(rng), *_panoptic_batch(rng)),
        leading=False,
        where=_some_of(5, 2),
        exempt=_SUMS | {"eager": "takes seconds, and `panoptic_counts` does it"},
    ),
    Row(
        "metrics.panoptic_quality(2, things=(0,)).compute",
        lambda rng: (_panoptic(rng),),
        leading=False,
        exempt=_SUMS | _SCORES,
    ),
    Row(
        "metrics.tracking(2, 2).compute",
        lambda rng: (jaxiou.metrics.tracking(2, 2).init(),),
        leading=False,
        exempt=_SUMS | _SCORES,
    ),
    Row(
        "metrics.coco_average_precision(2, 3, num_detections=2, num_truths=2).compute",
        lambda rng: (jaxiou.metrics.coco_average_precision(2, 3).init(),),
        leading=False,
        exempt=_SCORES
        | {
            "eager": "by its parts, as `coco.accumulate`",
            "explicit mesh": "what all images have is sorted along one axis",
        },
    ),
    Row("metrics.to_numpy", lambda rng: (_confusion(rng),), leading=False, exempt=HOST),
]
