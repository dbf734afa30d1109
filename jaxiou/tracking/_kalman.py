"""The constant-velocity Kalman filter of SORT, for many tracks at once.

SORT's state is (u, v, s, r, du, dv, ds): the centre, the area, the ratio of width to height,
and the velocities of the first three. All of its matrices let each coordinate meet its own
velocity and nothing else, so the filter is four small ones: of a position p and a velocity w,
or of r alone, whose velocity is 0 and certain. Arrays are `[4, N]`, one row a coordinate.

The covariance of p and w, [[a, b], [b, c]], is held as a, b / a and c - b^2 / a: what p has to
say leaves the last two as they are, and nothing is ever the difference of two large numbers.
SORT's first covariance, 10 and 10,000, would lose three digits of float32 in one update.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxiou._math import safe_divide, safe_sqrt

POSITION_NOISE = (1.0, 1.0, 1.0, 1.0)
VELOCITY_NOISE = (0.01, 0.01, 0.0001, 0.0)
MEASUREMENT_NOISE = (1.0, 1.0, 10.0, 10.0)
FIRST_VARIANCE = (10.0, 10.0, 10.0, 10.0)
FIRST_VELOCITY_VARIANCE = (10000.0, 10000.0, 10000.0, 0.0)


class State(NamedTuple):
    """What is believed of each coordinate of each track, `[4, N]`.

    Attributes:
      position: u, v, s and r.
      velocity: of each, a frame; that of r is 0.
      variance: a, of the position.
      slope: b / a, by how much the velocity is off for each unit that the position is off.
      rest: c - b^2 / a, the variance of the velocity once the position is known.
    """

    position: Array
    velocity: Array
    variance: Array
    slope: Array
    rest: Array


def measured(regions: Array) -> Array:
    """u, v, s and r of boxes `[N, 4]`, as `[4, N]`."""
    x1, y1, x2, y2 = regions.T
    width, height = x2 - x1, y2 - y1
    ratio = safe_divide(width, height)
    return jnp.stack([x1 + width / 2, y1 + height / 2, width * height, ratio])


def boxes_of(state: State) -> Array:
    """The boxes `[N, 4]` that the positions stand for."""
    u, v, area, ratio = state.position
    width = safe_sqrt(area * ratio)
    height = safe_divide(area, width)
    corners = [u - width / 2, v - height / 2, u + width / 2, v + height / 2]
    return jnp.stack(corners, axis=-1)


def begun(measurement: Array) -> State:
    """Tracks at rest, each seen once."""
    return State(
        measurement,
        jnp.zeros_like(measurement),
        _rows(FIRST_VARIANCE, measurement),
        jnp.zeros_like(measurement),
        _rows(FIRST_VELOCITY_VARIANCE, measurement),
    )


def predicted(state: State) -> State:
    """One frame later. An area that would not stay above 0 stops shrinking."""
    position, velocity, a, slope, rest = state
    area = jnp.arange(4)[:, None] == 2
    velocity = jnp.where(area & (position + velocity <= 0), 0, velocity)
    p_noise, w_noise = (_rows(x, a) for x in (POSITION_NOISE, VELOCITY_NOISE))
    after = a * (1 + slope) ** 2 + rest + p_noise
    determinant = a * rest + p_noise * (rest + slope**2 * a) + w_noise * after
    return State(
        position + velocity,
        velocity,
        after,
        safe_divide(slope * (1 + slope) * a + rest, after),
        safe_divide(determinant, after),
    )


def updated(state: State, measurement: Array) -> State:
    """What is believed once each track is measured."""
    noise = _rows(MEASUREMENT_NOISE, measurement)
    gain = state.variance / (state.variance + noise)
    step = gain * (measurement - state.position)
    return state._replace(
        position=state.position + step,
        velocity=state.velocity + state.slope * step,
        variance=gain * noise,
    )


def _rows(values: tuple[float, ...], like: Array) -> Array:
    column = jnp.array(values, like.dtype)[:, None]
    return jnp.broadcast_to(column, like.shape)
