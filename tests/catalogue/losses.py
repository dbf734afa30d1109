"""Rows of `jaxiou.losses`."""

import numpy as np
import reference

from catalogue.boxes import ciou_with_alpha_held
from catalogue.row import Row, box_pair, whole_item
from catalogue.variants import wiou_with_diagonal_held


def _numbers(rng):
    return (rng.integers(0, 256, 5) / 8,)


def _numbers_that_count(rng):
    keep = rng.random(5) < 0.5
    return keep, (keep,)


def _state_and_numbers(rng):
    return np.array(0.75), *_numbers(rng)


def _state_and_numbers_that_count(rng):
    keep = rng.random(5) < 0.5
    return keep, (None, keep)


def _ciou_loss_with_alpha_held(predictions, targets):
    held = ciou_with_alpha_held(predictions, targets)
    return lambda predictions, targets: 1 - held(predictions, targets)


def _wise(weight):
    """A weight of the loss over its running mean, times Wise-IoU v1's loss."""

    def frozen(predictions, targets):
        held = wiou_with_diagonal_held(predictions, targets)
        held_weight = weight((1 - reference.iou(predictions, targets)) / 0.75)
        return lambda predictions, targets: held_weight * (1 - held(predictions, targets))

    return frozen


def _loss(name, **more):
    return Row(name, box_pair, (0, 1), where=whole_item(2), **more)


ROWS = [
    *(_loss(f"losses.{name}_loss") for name in ["iou", "giou", "diou", "eiou"]),
    *(_loss(f"partial(losses.iou_loss, form='{form}')") for form in ["log", "square"]),
    _loss("losses.ciou_loss", frozen=_ciou_loss_with_alpha_held),
    _loss("losses.extended_iou_loss"),
    _loss("partial(losses.bounded_iou_loss, beta=0.23)"),  # 0.2 is a kink on the boxes' grid
    _loss(
        "partial(losses.wiou_v2_loss, running_mean=0.75)",
        frozen=_wise(lambda level: level**0.5),
    ),
    _loss(
        "partial(losses.wiou_v3_loss, running_mean=0.75)",
        frozen=_wise(lambda level: level / (3 * 1.9 ** (level - 3))),
    ),
    _loss("losses.overlap_loss(boxes.dice)"),
    Row("losses.mean", _numbers, (0,), leading=False, where=_numbers_that_count),
    Row(
        "losses.update_running_mean",
        _state_and_numbers,
        leading=False,
        where=_state_and_numbers_that_count,
        exempt={"grad": "state, under stop_gradient", "jvp": "state, under stop_gradient"},
    ),
]
