"""Intersection over union in all its forms, as pure functions for JAX."""

from jaxiou import boxes, losses, pairing, suppression, testing, variants
from jaxiou.pairing import pairwise

__version__ = "0.1.0"

__all__ = ["boxes", "losses", "pairing", "pairwise", "suppression", "testing", "variants"]
