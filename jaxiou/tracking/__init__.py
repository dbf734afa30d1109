"""Tracking scores, association and a tracker, on padded arrays of one sequence."""

from jaxiou.tracking import association, clear, combine, hota, identity, packing

__all__ = ["association", "clear", "combine", "hota", "identity", "packing"]
