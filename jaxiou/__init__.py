"""Intersection over union in all its forms, as pure functions for JAX."""

from jaxiou import (
    assigners,
    assignment,
    boxes,
    cuboids,
    detection,
    gaussians,
    losses,
    masks,
    metrics,
    pairing,
    panoptic,
    polygons,
    protocols,
    readers,
    rotated,
    segmentation,
    segmentation_losses,
    suppression,
    testing,
    tracking,
    variants,
)
from jaxiou.pairing import pairwise

__version__ = "0.1.0"

__all__ = [
    "assigners",
    "assignment",
    "boxes",
    "cuboids",
    "detection",
    "gaussians",
    "losses",
    "masks",
    "metrics",
    "pairing",
    "pairwise",
    "panoptic",
    "polygons",
    "protocols",
    "readers",
    "rotated",
    "segmentation",
    "segmentation_losses",
    "suppression",
    "testing",
    "tracking",
    "variants",
]
