"""Box overlaps and losses beside torchvision's, in one run: `python benchmarks/boxes.py`.

Needs the `bench` extra. Both libraries use all cores they find and float32. "write" is
the time XLA needs to write a matrix of that size with next to nothing computed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torchvision.ops as tv
from side_by_side import Row, arguments, medians, show

from jaxiou import boxes, losses, pairing

PAIRWISE = {
    "iou": (boxes.iou, tv.box_iou),
    "giou": (boxes.giou, tv.generalized_box_iou),
    "diou": (boxes.diou, tv.distance_box_iou),
    "ciou": (boxes.ciou, tv.complete_box_iou),
}
LOSSES = {
    "giou": (losses.giou_loss, tv.generalized_box_iou_loss, ">= 2"),
    "diou": (losses.diou_loss, tv.distance_box_iou_loss, ""),
    "ciou": (losses.ciou_loss, tv.complete_box_iou_loss, ">= 1.2"),
}


def random_boxes(seed: int, count: int) -> np.ndarray:
    """Boxes of 1 to 50 pixels a side in an image of 100 pixels, `[count, 4]` float32."""
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 100, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(1, 50, (count, 2))], 1).astype(np.float32)


def ready(function, *args):
    """A case that waits for the device."""
    return lambda: jax.block_until_ready(function(*args))


def bench_pairwise(size: int, rounds: int) -> list[Row]:
    """All pairs of two sets: against torchvision, and against writing the matrix."""
    a, b = random_boxes(0, size), random_boxes(1, size)
    x, y = jnp.asarray(a), jnp.asarray(b)
    s, t = torch.from_numpy(a), torch.from_numpy(b)
    cases = {"write": ready(jax.jit(lambda x, y: x[:, None, 0] + y[None, :, 0]), x, y)}
    for name, (ours, _) in PAIRWISE.items():
        cases[name] = ready(pairing.pairwise(ours), x, y)
    fast = medians(cases, 3 * rounds)
    slow = medians({n: lambda f=f: f(s, t) for n, (_, f) in PAIRWISE.items()}, max(3, rounds // 5))
    rows = []
    for name in PAIRWISE:
        what = f"pairwise {name} {size} x {size}"
        rows.append(Row(what, fast[name], slow[name], slow[name] / fast[name], ">= 10"))
        floor = fast["write"]
        rows.append(Row(f"{what}, to write", fast[name], floor, fast[name] / floor, "<= 1.3"))
    return rows


def bench_gradients(count: int, rounds: int) -> list[Row]:
    """Value and gradient of the mean loss over aligned pairs, as in a training step."""
    a, b = random_boxes(0, count), random_boxes(1, count)
    x, y = jnp.asarray(a), jnp.asarray(b)
    s, t = torch.from_numpy(a).requires_grad_(), torch.from_numpy(b)

    def backward(loss):
        s.grad = None
        loss(s, t, reduction="mean").backward()

    cases = {}
    for name, (ours, peer, _) in LOSSES.items():
        step = jax.jit(jax.value_and_grad(lambda p, t, loss=ours: losses.mean(loss(p, t))))
        cases[name] = ready(step, x, y)
        cases[f"torch {name}"] = lambda loss=peer: backward(loss)
    spent = medians(cases, rounds)
    return [
        Row(
            f"value and gradient of {name}_loss, {count:,} pairs",
            spent[name],
            spent[f"torch {name}"],
            spent[f"torch {name}"] / spent[name],
            target,
        )
        for name, (_, _, target) in LOSSES.items()
    ]


def bench_eager(rounds: int) -> list[Row]:
    """One call from Python, not inside a user's jit."""
    a, b = random_boxes(0, 100), random_boxes(1, 20)
    x, y = jnp.asarray(a), jnp.asarray(b)
    s, t = torch.from_numpy(a), torch.from_numpy(b)
    spent = medians(
        {
            "ours": lambda: [
                jax.block_until_ready(pairing.pairwise(boxes.iou)(x, y)) for _ in range(100)
            ],
            "peer": lambda: [tv.box_iou(s, t) for _ in range(100)],
        },
        rounds,
    )
    ours, peer = spent["ours"] / 100, spent["peer"] / 100
    return [Row("one eager call of pairwise iou, 100 x 20", ours, peer, peer / ours, ">= 1")]


def bench_best_match(rounds: int) -> list[Row]:
    """The best truth of every anchor, without the table."""
    a, b = random_boxes(0, 200_000), random_boxes(1, 500)
    x, y = jnp.asarray(a), jnp.asarray(b)
    s, t = torch.from_numpy(a), torch.from_numpy(b)
    best = pairing.best_match(boxes.iou)
    spent = medians(
        {"ours": ready(best, x, y), "peer": lambda: tv.box_iou(s, t).max(1)}, max(3, rounds // 5)
    )
    rows = [
        Row(
            "best_match iou, 200,000 x 500",
            spent["ours"],
            spent["peer"],
            spent["peer"] / spent["ours"],
            ">= 1",
        )
    ]
    table = a.shape[0] * b.shape[0] * 4 / 1e6
    gradient = jax.grad(lambda x, y: best(x, y).values.sum())
    for what, function in (("", best), (", gradient", gradient)):
        memory = jax.jit(function).lower(x, y).compile().memory_analysis()
        held = (memory.temp_size_in_bytes + memory.output_size_in_bytes) / 1e6
        rows.append(Row(f"best_match{what}: MB held, table in MB", held, table, held, "<= 100"))
    return rows


def main() -> None:
    rounds = arguments(__doc__).rounds
    versions = f"jax {jax.__version__} on {jax.default_backend()}, torch {torch.__version__}"
    show(
        f"jaxiou and torchvision, milliseconds ({versions}, {torch.get_num_threads()} threads)",
        [
            *bench_pairwise(1000, rounds),
            *bench_pairwise(4000, rounds),
            *bench_gradients(1_000_000, rounds),
            *bench_eager(rounds),
            *bench_best_match(rounds),
        ],
    )


if __name__ == "__main__":
    main()
