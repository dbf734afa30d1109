"""Suppression and matching beside torchvision's and scipy's: `python benchmarks/suppression.py`.

Needs the `bench` extra. Every `nms` is checked to keep the same boxes as torchvision's, at
threshold 0.5. "spread" are boxes of which nearly all are kept, "clustered" are twenty
near-duplicates of each of a twentieth as many.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchvision.ops as tv
from side_by_side import Row, arguments, medians, show

from jaxiou import suppression

MOST = 300  # outputs, where not all that is kept


def spread(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of 10 to 60 pixels in an image of 2000, `[count, 4]`, and scores."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 2000, (count, 2))
    regions = np.concatenate([corner, corner + rng.uniform(10, 60, (count, 2))], 1)
    return regions.astype(np.float32), rng.random(count, np.float32)


def clustered(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of 30 to 120 pixels in an image of 1000, each some twenty times, 4 pixels apart."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 1000, (count // 20, 2))
    objects = np.concatenate([corner, corner + rng.uniform(30, 120, corner.shape)], 1)
    regions = objects[rng.integers(0, len(objects), count)] + rng.normal(0, 4, (count, 4))
    return regions.astype(np.float32), rng.random(count, np.float32)


def bench_nms(data, count: int, most: int, rounds: int, target: str = "") -> Row:
    """One image."""
    regions, scores = data(0, count)
    run = functools.partial(suppression.nms, threshold=0.5, max_outputs=most)
    x, y = jnp.asarray(regions), jnp.asarray(scores)
    s, t = torch.from_numpy(regions), torch.from_numpy(scores)
    wanted = tv.nms(s, t, 0.5).numpy()
    found = run(x, y)
    np.testing.assert_array_equal(found.indices[: int(found.valid.sum())], wanted[:most])
    spent = medians(
        {"ours": lambda: jax.block_until_ready(run(x, y)), "peer": lambda: tv.nms(s, t, 0.5)},
        rounds,
    )
    what = f"nms, {count:,} {data.__name__}, {min(most, len(wanted)):,} of {len(wanted):,} kept"
    if most == count:
        memory = jax.jit(run).lower(x, y).compile().memory_analysis()
        what += f", {memory.temp_size_in_bytes / 1e6:.1f} MB"
    return Row(what, spent["ours"], spent["peer"], spent["peer"] / spent["ours"], target)


def bench_batch(data, images: int, count: int, rounds: int) -> Row:
    """A batch by `vmap`, and a loop of torchvision."""
    made = [data(seed, count) for seed in range(images)]
    x, y = (jnp.asarray(np.stack(part)) for part in zip(*made, strict=True))
    peers = [(torch.from_numpy(regions), torch.from_numpy(scores)) for regions, scores in made]
    run = jax.jit(jax.vmap(functools.partial(suppression.nms, threshold=0.5, max_outputs=MOST)))
    spent = medians(
        {
            "ours": lambda: jax.block_until_ready(run(x, y)),
            "peer": lambda: [tv.nms(s, t, 0.5) for s, t in peers],
        },
        rounds,
    )
    what = f"nms, {images} x {count:,} {data.__name__}, {MOST} kept at most"
    return Row(what, spent["ours"], spent["peer"], spent["peer"] / spent["ours"], ">= 4")


def main() -> None:
    rounds = arguments(__doc__).rounds
    versions = f"jax {jax.__version__} on {jax.default_backend()}, torch {torch.__version__}"
    few = max(3, rounds // 5)
    show(
        f"Suppression, milliseconds ({versions}, {torch.get_num_threads()} threads)",
        [
            bench_nms(clustered, 1000, MOST, 3 * rounds, ">= 0.8"),
            bench_nms(spread, 1000, MOST, 3 * rounds, ">= 0.8"),
            bench_nms(clustered, 4096, MOST, rounds, ">= 1.5"),
            bench_nms(spread, 4096, MOST, rounds, ">= 5"),
            bench_nms(clustered, 16_384, MOST, rounds, ">= 8"),
            bench_nms(spread, 16_384, MOST, few, ">= 8"),
            bench_nms(clustered, 100_000, MOST, few, ">= 15"),
            bench_nms(spread, 100_000, MOST, 1, ">= 15"),
            bench_batch(clustered, 8, 4096, rounds),
            bench_batch(spread, 8, 4096, few),
            bench_nms(clustered, 4096, 4096, rounds),
            bench_nms(spread, 4096, 4096, few),
            bench_nms(clustered, 16_384, 16_384, few),
            bench_nms(spread, 16_384, 16_384, few),
        ],
    )


if __name__ == "__main__":
    main()
