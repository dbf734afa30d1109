"""Files into arrays. Nothing is skipped silently: a bad file is an error that names it."""

from jaxiou.readers import label_maps
from jaxiou.readers._errors import FileError

__all__ = ["label_maps", "FileError"]
