"""Files into arrays. Nothing is skipped silently: a bad file is an error that names it."""

from jaxiou.readers import kitti_tracking, label_maps, mot, mots
from jaxiou.readers._errors import FileError
from jaxiou.readers._tracks import LoadedSequence, Tracks

__all__ = ["kitti_tracking", "label_maps", "mot", "mots", "FileError", "LoadedSequence", "Tracks"]
