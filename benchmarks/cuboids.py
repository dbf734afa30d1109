"""Cuboids beside rotated boxes and beside half spaces in SciPy: `python benchmarks/cuboids.py`.

Needs the `bench` extra. No other library gives volumes of oriented cuboids with gradients; SciPy
intersects half spaces and takes the volume of the hull, one pair after the other, on one core.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection
from side_by_side import Row, arguments, medians, show

from jaxiou import cuboids, pairing, rotated

SIZE, PAIRS, BY_SCIPY = 1000, 100_000, 200


def upright(seed: int, count: int) -> np.ndarray:
    """Cars and the like in a scene of 40 by 40 metres, `[count, 7]` float32."""
    rng = np.random.default_rng(seed)
    center, size = rng.uniform([0, 0, -1], [40, 40, 1], (count, 3)), rng.uniform(1, 5, (count, 3))
    return np.column_stack([center, size, rng.uniform(-4, 4, count)]).astype(np.float32)


def oriented(seed: int, count: int) -> np.ndarray:
    """Cuboids that mostly meet, turned in any way, `[count, 10]` float32."""
    rng = np.random.default_rng(seed)
    center, size = rng.uniform(-1.5, 1.5, (count, 3)), rng.uniform(0.5, 4, (count, 3))
    return np.column_stack([center, size, rng.normal(size=(count, 4))]).astype(np.float32)


def ready(function, *args):
    """A case that waits for the device."""
    return lambda: jax.block_until_ready(function(*args))


def half_spaces(cuboid: np.ndarray) -> np.ndarray:
    turn = scipy.spatial.transform.Rotation.from_quat(np.roll(cuboid[6:], -1)).as_matrix()
    normals = np.concatenate([turn.T, -turn.T])
    return np.column_stack([normals, -normals @ cuboid[:3] - np.tile(cuboid[3:6] / 2, 2)])


def shared_volumes(a: np.ndarray, b: np.ndarray) -> list[float]:
    """By SciPy, in float64; the point inside by a linear program."""
    volumes = []
    for one, other in zip(a.astype(np.float64), b.astype(np.float64), strict=True):
        spaces = np.concatenate([half_spaces(one), half_spaces(other)])
        inside = linprog(
            [0, 0, 0, -1],
            A_ub=np.column_stack([spaces[:, :3], np.ones(len(spaces))]),
            b_ub=-spaces[:, 3],
            bounds=[(None, None)] * 3 + [(0, None)],
        )
        meet = inside.success and inside.x[3] > 1e-9
        corners = meet and HalfspaceIntersection(spaces, inside.x[:3]).intersections
        volumes.append(ConvexHull(corners).volume if meet else 0.0)
    return volumes


def bench_upright(rounds: int) -> list[Row]:
    a, b = jnp.asarray(upright(0, SIZE)), jnp.asarray(upright(1, SIZE))
    columns = jnp.array([0, 1, 3, 4, 6])
    p, q = a[:, columns], b[:, columns]
    spent = medians(
        {
            "ours": ready(pairing.pairwise(cuboids.iou), a, b),
            "peer": ready(pairing.pairwise(rotated.iou), p, q),
        },
        rounds,
    )
    ours, peer = spent["ours"], spent["peer"]
    what = f"pairwise iou {SIZE} x {SIZE}, upright; peer: rotated.iou"
    return [Row(what, ours, peer, ours / peer, "<= 1.5")]


def bench_oriented(rounds: int) -> list[Row]:
    a, b = jnp.asarray(oriented(0, PAIRS)), jnp.asarray(oriented(1, PAIRS))

    def mean(a, b):
        return cuboids.oriented_iou(a, b).mean()

    both = medians(
        {
            "forward": ready(jax.jit(mean), a, b),
            "gradient": ready(jax.jit(jax.value_and_grad(mean, (0, 1))), a, b),
        },
        max(3, rounds // 3),
    )
    few = oriented(0, BY_SCIPY), oriented(1, BY_SCIPY)
    peer = medians({"peer": lambda: shared_volumes(*few)}, 3)["peer"]
    each, by_scipy = both["forward"] / PAIRS * 1e3, peer / BY_SCIPY * 1e3
    forward, gradient = both["forward"], both["gradient"]
    return [
        Row("oriented iou, microseconds a pair; peer: 10", each, 10, each, "<= 10"),
        Row("the same; peer: SciPy's half spaces", each, by_scipy, by_scipy / each, ">= 100"),
        Row(
            f"value and gradient to both, {PAIRS:,} pairs; peer: value",
            gradient,
            forward,
            gradient / forward,
            "<= 4",
        ),
    ]


def bench_compilation() -> list[Row]:
    a, b = jnp.asarray(oriented(0, 50)), jnp.asarray(oriented(1, 60))
    start = time.perf_counter()
    jax.block_until_ready(pairing.pairwise(cuboids.oriented_iou)(a, b))
    spent = (time.perf_counter() - start) * 1e3
    return [
        Row("first call of pairwise oriented iou; peer: 3 s", spent, 3000, spent / 3000, "<= 1")
    ]


def main() -> None:
    rounds = arguments(__doc__).rounds
    versions = f"jax {jax.__version__} on {jax.default_backend()}, scipy {scipy.__version__}"
    show(
        f"cuboids, milliseconds ({versions})",
        [*bench_compilation(), *bench_upright(rounds), *bench_oriented(rounds)],
    )


if __name__ == "__main__":
    main()
