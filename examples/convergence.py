"""The regression experiment of the DIoU paper: which loss brings a box to its target?

    python examples/convergence.py [--points 50] [--full]

Anchors at random points around a target, of seven areas and seven aspect ratios, are moved
to targets of seven aspect ratios by gradient descent on 1 - overlap, and the error is
followed. All cases are one `jax.vmap` of one case, and all iterations one `jax.lax.scan`.
50 points are 17,150 cases; the paper's 5,000 points, `--full`, are 1,715,000 and take some
minutes and 1 GB. It prints a table and draws `outputs/convergence.png`.

What comes out is the order of the paper: the IoU leaves every box that does not meet its
target exactly where it is, GIoU brings them home slowly, DIoU and CIoU fast. For the last two
that takes one thing more, as the table shows. Their penalty is a squared distance over the
squared diagonal c of the enclosing box, and **c has to be held constant** in the derivative.
The exact slope, which `losses.diou_loss` has, also rewards a larger c, and so weakens the pull
towards the target: DIoU is then no faster than GIoU, and CIoU overtakes GIoU after some 80
iterations. Wise-IoU holds c constant for that reason.

Departures from the paper:

- c is held constant, or slopes are exact: rows of the table say which. The code published
  with the paper has neither: `dDIOU.m` and `dCIOU.m` subtract the derivative of c in x and y
  where the quotient rule adds it, and count it for both sides of the enclosing box.
- Slopes in width and height are those of the loss; the published code doubles the IoU's.
- CIoU's v has its true slope, as everywhere in jaxiou; the paper's is without 1/(w^2 + h^2).
- Errors are means over the cases; the paper adds them up.
- 50 points instead of 5,000, unless `--full` is given; other random numbers.

Reference:
  Zheng et al., "Distance-IoU Loss: Faster and Better Learning for Bounding Box Regression",
  AAAI 2020, section 3, https://arxiv.org/abs/1911.08287.
"""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table

from jaxiou import boxes, variants

CENTRE, RADIUS = 10.0, 3.0
AREAS = (0.5, 0.67, 0.75, 1.0, 1.33, 1.5, 2.0)
ASPECTS = (1 / 4, 1 / 3, 1 / 2, 1.0, 2.0, 3.0, 4.0)  # width over height
RATES = (0.1,) * 160 + (0.01,) * 20 + (0.001,) * 20
SOLVED = 0.1

Overlap = Callable[[Array, Array], Array]


def diou_held(a: Array, b: Array) -> Array:
    """`boxes.diou` with the diagonal of the enclosing box held constant in the derivative."""
    offset = boxes.to_cxcywh(a)[..., :2] - boxes.to_cxcywh(b)[..., :2]
    sides = jax.lax.stop_gradient(boxes.to_cxcywh(boxes.enclosing(a, b))[..., 2:])
    return boxes.iou(a, b) - (offset**2).sum(-1) / (sides**2).sum(-1)


def ciou_held(a: Array, b: Array) -> Array:
    """`boxes.ciou` with the diagonal of the enclosing box held constant in the derivative."""
    return diou_held(a, b) - (boxes.diou(a, b) - boxes.ciou(a, b))


PAPER: dict[str, Overlap] = {
    "IoU": boxes.iou,
    "GIoU": boxes.giou,
    "DIoU, c held": diou_held,
    "CIoU, c held": ciou_held,
}
EXACT: dict[str, Overlap] = {"DIoU, exact": boxes.diou, "CIoU, exact": boxes.ciou}
VARIANTS: dict[str, Overlap] = {
    "EIoU": variants.eiou,
    "SIoU": variants.siou(theta=4.0),
    "alpha-CIoU": variants.alpha_iou(alpha=3.0),
    "WIoU v1": variants.wiou,
    "MPDIoU": variants.mpdiou(image_size=(2 * CENTRE, 2 * CENTRE)),
    "Inner-IoU": variants.inner_iou(ratio=1.25),
    "NWD": variants.nwd(constant=1.0),
    "Powerful-IoU": variants.powerful_iou,
    "Extended IoU": variants.extended_iou,
}


class Box(NamedTuple):
    """Boxes as the descent moves them: centre and sides, one array each.

    With a row of four numbers a case, XLA computes the whole chain anew for each column:
    the descent then takes 5 (GIoU) to 20 times (CIoU) as long.
    """

    x: Array
    y: Array
    width: Array
    height: Array

    def corners(self) -> Array:
        return boxes.from_cxcywh(jnp.stack(self, axis=-1))


class Descent(NamedTuple):
    """What became of the cases.

    Attributes:
      errors: mean error before the first and after every iteration, `[iterations + 1]`. The
        error is the sum of the absolute differences in x, y, width and height.
      final: error of each case after the last iteration, `[cases]`.
      boxes: where each case ended.
    """

    errors: Array
    final: Array
    boxes: Box


def make_cases(points: int, *, seed: int = 0) -> tuple[Box, Box]:
    """Anchors and their targets, one array element a case, `points * 343` in all.

    Points are uniform in the disc of `RADIUS` around the centre of the targets, whose area
    is 1.
    """
    random = np.random.default_rng(seed)
    radius, angle = RADIUS * np.sqrt(random.random(points)), 2 * np.pi * random.random(points)
    x, y = CENTRE + radius * np.cos(angle), CENTRE + radius * np.sin(angle)

    grid = np.meshgrid(np.arange(points), AREAS, ASPECTS, ASPECTS, indexing="ij")
    point, area, aspect, target = (values.ravel() for values in grid)
    centre = np.full(target.shape, CENTRE)
    anchors = x[point], y[point], np.sqrt(area * aspect), np.sqrt(area / aspect)
    targets = centre, centre, np.sqrt(target), 1 / np.sqrt(target)
    return _box(*anchors), _box(*targets)


def _box(*coordinates: np.ndarray) -> Box:
    return Box(*(jnp.asarray(values, jnp.float32) for values in coordinates))


def error(box: Box, target: Box) -> Array:
    dx, dy, dw, dh = (jnp.abs(x - y) for x, y in zip(box, target, strict=True))
    return dx + dy + dw + dh


def step(overlap: Overlap, box: Box, target: Box, rate: Array) -> Box:
    """One iteration of one case: down the slope of the loss, times 2 - IoU."""
    slope = jax.grad(lambda moved: 1 - overlap(moved.corners(), target.corners()))(box)
    stride = rate * (2 - boxes.iou(box.corners(), target.corners()))
    return Box(*(x - stride * dx for x, dx in zip(box, slope, strict=True)))


@functools.partial(jax.jit, static_argnames="overlap")
def descend(overlap: Overlap, anchors: Box, targets: Box) -> Descent:
    """All cases through all iterations."""
    move = jax.vmap(functools.partial(step, overlap), (0, 0, None))

    def iterate(moved, rate):
        moved = move(moved, targets, rate)
        return moved, error(moved, targets).mean()

    moved, errors = jax.lax.scan(iterate, anchors, jnp.array(RATES))
    first = error(anchors, targets).mean()
    return Descent(jnp.append(first, errors), error(moved, targets), moved)


def table(descents: dict[str, Descent]) -> Table:
    """Errors along the way, the iteration that halves them, the share of cases solved."""
    moments = (10, 25, 50, 100, 200)
    start = next(iter(descents.values())).errors[0]
    result = Table(title=f"Mean error after so many iterations, {start:.2f} at the start")
    result.add_column("1 - overlap", no_wrap=True)
    for moment in moments:
        result.add_column(str(moment), justify="right")
    result.add_column("halved", justify="right")
    result.add_column(f"cases < {SOLVED}", justify="right")
    for name, descent in descents.items():
        below = np.flatnonzero(np.asarray(descent.errors) < start / 2)
        result.add_row(
            name,
            *(f"{descent.errors[moment]:.3f}" for moment in moments),
            str(below[0]) if below.size else "never",
            f"{(descent.final < SOLVED).mean():.1%}",
            end_section=name in (list(PAPER)[-1], list(EXACT)[-1]),
        )
    return result


COLORS = {"IoU": "#444444", "GIoU": "#d55e00", "DIoU": "#0072b2", "CIoU": "#009e73"}


def style(name: str) -> dict:
    if name in VARIANTS:
        return {"label": name, "color": f"C{list(VARIANTS).index(name)}", "linewidth": 1.6}
    color = COLORS[name.split(",")[0]]
    if name in EXACT:
        return {"label": name, "color": color, "linewidth": 1.4, "linestyle": "--"}
    return {"label": name, "color": color, "linewidth": 2.2}


def draw_errors(axes: Axes, descents: dict[str, Descent]) -> None:
    """Error against iteration."""
    for name, descent in descents.items():
        axes.plot(descent.errors, **style(name))
    for change in np.flatnonzero(np.diff(RATES)) + 1:
        axes.axvline(float(change), color="#cccccc", linewidth=0.8, zorder=0)
    axes.set(xlabel="iteration", ylabel="mean error", xlim=(0, len(RATES)))
    axes.set(yscale="log", ylim=(1e-3, 6))


def draw_ends(axes: Axes, descents: dict[str, Descent], anchors: Box, targets: Box) -> None:
    """Error at the start and in the end, against the distance at the start."""
    edges = np.linspace(0, RADIUS, 13)
    middles = (edges[:-1] + edges[1:]) / 2
    distance = np.hypot(anchors.x - targets.x, anchors.y - targets.y)
    bins = np.digitize(distance, edges[1:-1])
    counts = np.bincount(bins, minlength=len(middles))

    def means(errors):
        sums = np.bincount(bins, errors, minlength=len(middles))
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)

    axes.plot(middles, means(error(anchors, targets)), "k:", linewidth=3, label="at the start")
    for name, descent in descents.items():
        axes.plot(middles, means(descent.final), **style(name))
    axes.set(xlabel="distance of the centres at the start", ylabel="mean error", xlim=(0, RADIUS))


def draw(descents: dict[str, Descent], anchors: Box, targets: Box) -> Figure:
    """The four losses, the variants, and where boxes end."""
    figure = Figure(figsize=(15, 4.8), layout="constrained")
    paper, others, far = figure.subplots(1, 3)
    draw_errors(paper, {name: descents[name] for name in PAPER | EXACT})
    paper.set_title("The four losses")

    for name in PAPER:
        others.plot(descents[name].errors, color="#bbbbbb", linewidth=1)
    others.plot([], color="#bbbbbb", linewidth=1, label="the four losses")
    draw_errors(others, {name: descents[name] for name in VARIANTS})
    others.set_title("Their variants")

    draw_ends(far, {name: descents[name] for name in PAPER}, anchors, targets)
    far.set_title(f"Where boxes end, after {len(RATES)} iterations")
    for axes in (paper, others, far):
        axes.legend(frameon=False, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=50, help="343 cases each (default: 50)")
    parser.add_argument("--full", action="store_true", help="the paper's 5,000 points")
    parser.add_argument("--output", type=Path, default=Path("outputs/convergence.png"))
    arguments = parser.parse_args()

    anchors, targets = make_cases(5000 if arguments.full else arguments.points)
    console = Console()
    console.print(f"{len(anchors.x):,} cases, {len(RATES)} iterations")
    descents = {
        name: jax.block_until_ready(descend(overlap, anchors, targets))
        for name, overlap in track((PAPER | EXACT | VARIANTS).items(), console=console)
    }
    console.print(table(descents))
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    draw(descents, anchors, targets).savefig(arguments.output, dpi=100)
    console.print(f"Wrote {arguments.output}")


if __name__ == "__main__":
    main()
