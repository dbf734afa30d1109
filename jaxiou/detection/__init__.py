"""Average precision as the reference evaluators have it, and what it is made of."""

from jaxiou.detection import (
    coco,
    crowd_human,
    diagnosis,
    kitti,
    lvis,
    matching,
    open_images,
    packing,
    precision,
    tide,
    voc,
)
from jaxiou.detection._drop_in import COCOeval

__all__ = [
    "coco",
    "lvis",
    "voc",
    "open_images",
    "kitti",
    "crowd_human",
    "packing",
    "matching",
    "precision",
    "diagnosis",
    "tide",
    "COCOeval",
]
