"""The contract that every overlap keeps, as a check to run on an overlap of your own.

Losses, pairing and everything else here take any function of two regions, and rely on it
behaving where real data is degenerate. `check_overlap` says in one line of a test whether
yours does; the library's own overlaps pass it.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Real

from jaxiou import _checks
from jaxiou._typing import ArrayLike
from jaxiou.losses import overlap_loss
from jaxiou.pairing import Overlap, pairwise, region_rank_of

__all__ = ["check_overlap"]

TOLERANCE = 1e-5
"""How far two float32 results may differ that should be equal but for rounding."""


def check_overlap(
    overlap: Overlap,
    *,
    regions: Real[ArrayLike, "n ..."] | None = None,
    region_rank: int | None = None,
    symmetric: bool = True,
    identity: float | None = 1.0,
    minimum: float = -np.inf,
    maximum: float = 1.0,
) -> None:
    """Raises AssertionError naming the first clause of the overlap contract that fails.

    The clauses, in order:

    1. shape: two single regions give one number, float32 or wider.
    2. zeros: two regions of zeros, which padding becomes, give a finite number.
    3. range: every pair of `regions` is in [minimum, maximum].
    4. identity: every one of `regions` with itself gives exactly `identity`.
    5. symmetry: `f(a, b)` and `f(b, a)` agree.
    6. transformations: the table of `pairwise`, under `jit`, is what single calls give.
    7. NaN: a region of NaN makes its own pairs NaN, and no others.
    8. gradient: finite for every pair, the pair of zeros included, in both arguments.
    9. padding: under `where`, regions of NaN change no other pair's loss or gradient.

    Args:
      overlap: a function of two single regions.
      regions: floats, `[N, *region]`, at least two regions, none of them empty. None takes
        boxes `(x1, y1, x2, y2)` that contain, touch, cross and miss each other.
      region_rank: as in `pairwise`: None reads it off the overlap, else 1.
      symmetric: False for overlaps with a direction, such as `boxes.ioa`; skips clause 5.
      identity: what a region has with itself; None skips clause 4.
      minimum: the least value.
      maximum: the greatest value.

    Raises:
      AssertionError: with the clause and the pair that breaks it.

    Example:
      >>> from jaxiou import boxes
      >>> check_overlap(boxes.giou, minimum=-1)
      >>> check_overlap(lambda a, b: 2 * boxes.iou(a, b))
      Traceback (most recent call last):
      ...
      AssertionError: range: overlap(regions[0], regions[0]) must be in [-inf, 1.0], got 2.0
    """
    rank = region_rank_of(overlap, region_rank)
    x = _sample() if regions is None else jnp.asarray(regions)
    _checks.trailing_shape("regions", x, (None,) * (rank + 1), "a set of regions")
    if x.shape[0] < 2 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"regions must be two or more regions of floats, got {x.dtype}{list(x.shape)}"
        )
    zeros = jnp.zeros_like(x[:1])
    table = pairwise(overlap, region_rank=rank)

    one = overlap(x[0], x[1])
    _assert(
        one.shape == () and jnp.issubdtype(one.dtype, jnp.floating) and one.dtype.itemsize >= 4,
        f"shape: overlap of two regions must be one float32 or float64, "
        f"got {one.dtype}{list(one.shape)}",
    )

    empty = float(overlap(zeros[0], zeros[0]))
    _assert(math.isfinite(empty), f"zeros: two regions of zeros must give a number, got {empty}")

    values = np.asarray(table(x, x))
    _assert_all(
        (values >= minimum) & (values <= maximum), values, "range", f"in [{minimum}, {maximum}]"
    )
    if identity is not None:
        own = np.eye(len(x), dtype=bool)
        _assert_all(~own | (values == identity), values, "identity", f"{identity}")
    if symmetric:
        _assert_all(_close(values, values.T), values, "symmetry", "what the swapped pair gives")

    single = np.array([[float(overlap(a, b)) for b in x] for a in x])
    _assert_all(_close(values, single), values, "transformations", "what a single call gives")

    # One spoiled region in front: its row and column, and nothing else, must be NaN.
    spoiled = jnp.concatenate([jnp.full_like(zeros, jnp.nan), x])
    nan = np.isnan(np.asarray(table(spoiled, spoiled)))
    own = np.zeros_like(nan)
    own[0], own[:, 0] = True, True
    _assert_all(nan == own, nan, "NaN", "NaN just where region 0 is, which is NaN", "isnan is")

    padded = jnp.concatenate([x, zeros])
    for argument, name in enumerate("ab"):
        # Every pair once, so that a gradient belongs to one pair and cannot hide in a sum.
        a, b = (jnp.repeat(padded, len(padded), 0), jnp.tile(padded, (len(padded),) + (1,) * rank))
        gradient = jax.vmap(jax.grad(overlap, argument))(a, b)
        finite = np.isfinite(np.asarray(gradient)).reshape(len(padded), len(padded), -1).all(-1)
        _assert_all(finite, finite, "gradient", f"finite in {name}", "isfinite is")

    _check_padding(overlap, rank, x)


def _check_padding(overlap: Overlap, rank: int, x: Array) -> None:
    loss = overlap_loss(overlap, region_rank=rank)
    nan = jnp.full_like(x[:1], jnp.nan)
    where = jnp.arange(len(x) + 1) < len(x)
    targets = jnp.roll(x, 1, axis=0)

    def total(predictions, targets, where):
        return loss(predictions, targets, where=where).sum()

    value_and_gradient = jax.value_and_grad(total)
    value, gradient = value_and_gradient(x, targets, None)
    padded_value, padded_gradient = value_and_gradient(
        jnp.concatenate([x, nan]), jnp.concatenate([targets, nan]), where
    )
    _assert(
        bool(_close(padded_value, value)),
        f"padding: the sum of losses must stay {value} with a region of NaN under where, "
        f"got {padded_value}",
    )
    _assert(
        bool(_close(padded_gradient[:-1], gradient).all() and (padded_gradient[-1] == 0).all()),
        "padding: under where, a region of NaN must have gradient 0 and leave the others' as it is",
    )


def _sample() -> Array:
    return jnp.array(
        [
            [0.0, 0.0, 4.0, 3.0],
            [1.0, 1.0, 3.0, 2.5],
            [2.0, -1.0, 6.0, 2.0],
            [4.0, 0.0, 7.0, 3.0],
            [-9.0, -8.0, -7.5, -2.0],
            [0.0, 0.0, 0.25, 0.125],
        ]
    )


def _close(x: ArrayLike, y: ArrayLike) -> np.ndarray:
    return np.asarray(np.isclose(np.asarray(x), np.asarray(y), rtol=TOLERANCE, atol=TOLERANCE))


def _assert(holds: bool, message: str) -> None:
    # Not the statement, which `python -O` removes.
    if not holds:
        raise AssertionError(message)


def _assert_all(
    holds: np.ndarray, values: np.ndarray, clause: str, wanted: str, measured: str = "got"
) -> None:
    if holds.all():
        return
    i, j = (int(k) for k in np.argwhere(~holds)[0])
    raise AssertionError(
        f"{clause}: overlap(regions[{i}], regions[{j}]) must be {wanted}, {measured} {values[i, j]}"
    )
