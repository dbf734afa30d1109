"""Suppression and matching beside torchvision's and SciPy's: `python benchmarks/suppression.py`.

Needs the `bench` extra. Every `nms` is checked to keep the same boxes as torchvision's, at
threshold 0.5. Soft-NMS and weighted boxes fusion have no fast peer; the one here is NumPy, a
row of overlaps a step. "spread" are boxes of which nearly all are kept, "clustered" are
twenty near-duplicates of each of a twentieth as many.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchvision.ops as tv
from scipy.optimize import linear_sum_assignment
from side_by_side import Row, arguments, medians, show

from jaxiou import assignment, boxes, pairwise, suppression

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


def ious(one: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The IoU of one box with others, in NumPy."""
    sides = np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2])
    shared = np.maximum(sides, 0).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1)
    return shared / ((one[2:] - one[:2]).prod() + areas - shared)


def soft_nms_of_numpy(regions: np.ndarray, scores: np.ndarray, most: int) -> list[int]:
    """Gaussian Soft-NMS, the best `most`."""
    scores, kept = scores.copy(), []
    for _ in range(min(most, len(scores))):
        best = int(scores.argmax())
        if scores[best] < 1e-3:
            break
        kept.append(best)
        scores *= np.exp(-(ious(regions[best], regions) ** 2) / 0.5)
        scores[kept] = -1
    return kept


def fusion_of_numpy(regions: np.ndarray, scores: np.ndarray, threshold: float) -> np.ndarray:
    """Weighted boxes fusion: the mean boxes of the clusters, in the order they were begun."""
    means, sums = np.zeros_like(regions), np.zeros_like(scores)
    begun = 0
    for i in np.argsort(-scores, kind="stable"):
        overlaps = ious(regions[i], means[:begun])
        j = int(overlaps.argmax()) if begun else 0
        if not begun or overlaps[j] <= threshold:
            j, begun = begun, begun + 1
        sums[j] += scores[i]
        means[j] += scores[i] / sums[j] * (regions[i] - means[j])
    return means[:begun]


def bench_soft(data, count: int, rounds: int) -> list[Row]:
    """Soft-NMS and weighted boxes fusion beside NumPy."""
    regions, scores = data(0, count)
    x, y = jnp.asarray(regions), jnp.asarray(scores)
    soft = functools.partial(suppression.soft_nms, max_outputs=MOST)
    fuse = functools.partial(suppression.weighted_boxes_fusion, max_outputs=count)
    kept = soft_nms_of_numpy(regions, scores, MOST)
    np.testing.assert_array_equal(soft(x, y).selection.indices[: len(kept)], kept)
    assert int(fuse(x, y).selection.valid.sum()) == len(fusion_of_numpy(regions, scores, 0.55))
    spent = medians(
        {
            "soft": lambda: jax.block_until_ready(soft(x, y)),
            "soft in NumPy": lambda: soft_nms_of_numpy(regions, scores, MOST),
            "fuse": lambda: jax.block_until_ready(fuse(x, y)),
            "fuse in NumPy": lambda: fusion_of_numpy(regions, scores, 0.55),
        },
        rounds,
    )
    what = f"{count:,} {data.__name__}, beside NumPy"
    return [
        Row(f"{name}, {what}", spent[key], spent[peer], spent[peer] / spent[key])
        for name, key, peer in [
            ("soft_nms", "soft", "soft in NumPy"),
            ("weighted_boxes_fusion", "fuse", "fuse in NumPy"),
        ]
    ]


def bench_matching(images: int, count: int, rounds: int) -> list[Row]:
    """Tables of IoUs of detections with their truths, and SciPy in a loop."""
    rng = np.random.default_rng(0)
    tables = []
    for seed in range(images):
        truths = spread(seed, count)[0] / 4
        found = truths + rng.normal(0, 3, truths.shape).astype(np.float32)
        tables.append(np.asarray(pairwise(boxes.iou)(jnp.asarray(found), jnp.asarray(truths))))
    x = jnp.asarray(np.stack(tables))

    def peer():
        return [linear_sum_assignment(table, maximize=True) for table in tables]

    run = jax.jit(jax.vmap(functools.partial(assignment.maximum_matching, minimum=0)))
    host = jax.jit(
        jax.vmap(functools.partial(assignment.maximum_matching, minimum=0, solver="scipy"))
    )
    greedy = jax.jit(jax.vmap(assignment.greedy_matching))
    totals = [table[pairs].sum() for table, pairs in zip(tables, peer(), strict=True)]
    np.testing.assert_allclose(run(x).total, totals, rtol=1e-5)
    spent = medians(
        {
            "optax": lambda: jax.block_until_ready(run(x)),
            "solver scipy": lambda: jax.block_until_ready(host(x)),
            "greedy": lambda: jax.block_until_ready(greedy(x)),
            "peer": peer,
        },
        rounds,
    )
    what = f"{images} x {count} x {count}, SciPy in a loop"
    return [
        Row(f"{name}, {what}", spent[key], spent["peer"], spent["peer"] / spent[key])
        for name, key in [
            ("maximum_matching", "optax"),
            ("maximum_matching, solver scipy", "solver scipy"),
            ("greedy_matching", "greedy"),
        ]
    ]


def main() -> None:
    rounds = arguments(__doc__).rounds
    versions = f"jax {jax.__version__} on {jax.default_backend()}, torch {torch.__version__}"
    few = max(3, rounds // 5)
    show(
        f"Suppression and matching, milliseconds ({versions}, {torch.get_num_threads()} threads)",
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
            *bench_soft(clustered, 1000, rounds),
            *bench_soft(clustered, 4096, few),
            *bench_soft(spread, 4096, few),
            *bench_matching(64, 100, rounds),
        ],
    )


if __name__ == "__main__":
    main()
