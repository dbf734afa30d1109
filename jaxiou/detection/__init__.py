"""Average precision as the reference evaluators have it, and what it is made of."""

from jaxiou.detection import coco, drop_in, lvis, matching, packing, precision
from jaxiou.detection.drop_in import COCOeval

__all__ = ["coco", "lvis", "matching", "packing", "precision", "drop_in", "COCOeval"]
