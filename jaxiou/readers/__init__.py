"""Files into arrays. Nothing is skipped silently: a bad file is an error that names it."""

from jaxiou.readers import (
    coco,
    kitti,
    kitti_tracking,
    label_maps,
    lvis,
    mot,
    mots,
    open_images,
    voc,
)
from jaxiou.readers._detections import LoadedDetections
from jaxiou.readers._errors import FileError
from jaxiou.readers._tracks import LoadedSequence, Tracks

__all__ = [
    "coco",
    "kitti",
    "kitti_tracking",
    "label_maps",
    "lvis",
    "mot",
    "mots",
    "open_images",
    "voc",
    "FileError",
    "LoadedDetections",
    "LoadedSequence",
    "Tracks",
]
