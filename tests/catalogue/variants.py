"""Rows of `jaxiou.variants`."""

import numpy as np
import reference

from catalogue.row import Row, box_pair


def distance(a, b):
    return reference.iou(a, b) - reference.diou(a, b)


def _alpha_iou_with_beta_held(a, b):
    beta = reference.alpha(a, b)

    def held(a, b):
        return reference.iou(a, b) ** 3 - distance(a, b) ** 3 - (beta * reference.aspect(a, b)) ** 3

    return held


def wiou_with_diagonal_held(a, b):
    def squared_diagonal(a, b):
        return sum(side**2 for side in reference.sides(reference.enclosing(a, b)))

    held_diagonal = squared_diagonal(a, b)

    def held(a, b):
        offset = distance(a, b) * squared_diagonal(a, b)
        return 1 - np.exp(offset / held_diagonal) * (1 - reference.iou(a, b))

    return held


_OVERLAPS = [
    "eiou",
    "siou()",
    "alpha_iou(alpha=1.5, penalty='giou')",
    "mpdiou(image_size=(480, 640))",
    "inner_iou(ratio=0.7)",
    "inner_iou(ratio=1.3, base=boxes.diou)",
    "nwd(constant=12.7)",
    "powerful_iou",
    "powerful_iou_v2()",
    "extended_iou",
]

ROWS = [
    *(Row(f"variants.{name}", box_pair, (0, 1)) for name in _OVERLAPS),
    Row("variants.alpha_iou()", box_pair, (0, 1), frozen=_alpha_iou_with_beta_held),
    Row("variants.wiou", box_pair, (0, 1), frozen=wiou_with_diagonal_held),
]
