"""What every introduction to IoU teaches, computed.

    python examples/iou_tour.py

Each function below returns the numbers of one fact, and `main` prints them. The arithmetic
of boxes is jaxiou's; masks are boolean NumPy arrays, and their IoU is two sums.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxiou import boxes, losses

HEIGHT, WIDTH = 80, 120  # of the canvas, in pixels
SIDES = jnp.array([8.0, 16.0, 32.0, 64.0, 128.0])
SHIFTS = (4, 3), (-3, 4)
GAPS = jnp.array([2.0, 10.0, 40.0])


class Ellipse(NamedTuple):
    """An ellipse, its tight box, and both shifted by every row of `SHIFTS`.

    Attributes:
      box: `[4]`, in pixels.
      fill: the share of the box that the ellipse covers.
      box_iou: `[shifts]`.
      mask_iou: `[shifts]`.
    """

    box: Array
    fill: float
    box_iou: Array
    mask_iou: np.ndarray


class Apart(NamedTuple):
    """Overlaps of two boxes that do not meet, and the slopes of the losses as the gap grows."""

    iou: Array
    iou_slope: Array
    giou: Array
    giou_slope: Array


def ellipse_mask(dx: int, dy: int) -> np.ndarray:
    """`[HEIGHT, WIDTH]`, True in pixels whose centre lies in the ellipse.

    Semi-axes of 30 and 12 pixels, the long one turned by 30 degrees from +x towards +y; the
    centre is that of the canvas. Pixel i covers [i, i + 1), so its centre is i + 0.5.
    """
    x = np.arange(WIDTH) + 0.5 - WIDTH / 2 - dx
    y = np.arange(HEIGHT)[:, None] + 0.5 - HEIGHT / 2 - dy
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    along, across = cos * x + sin * y, cos * y - sin * x
    return (along / 30) ** 2 + (across / 12) ** 2 <= 1


def tight_box(mask: np.ndarray) -> Array:
    """The smallest box around the pixels of a mask."""
    rows, columns = np.nonzero(mask)
    return boxes.from_inclusive(jnp.array([columns.min(), rows.min(), columns.max(), rows.max()]))


def mask_iou(a: np.ndarray, b: np.ndarray) -> float:
    return (a & b).sum() / (a | b).sum()


def ellipse() -> Ellipse:
    """A box is a crude mask: it answers to the size of a shift, hardly to its direction."""
    mask = ellipse_mask(0, 0)
    box = tight_box(mask)
    moved = [ellipse_mask(*shift) for shift in SHIFTS]
    return Ellipse(
        box=box,
        fill=mask.sum() / boxes.area(box).item(),
        box_iou=boxes.iou(box, jnp.stack([tight_box(other) for other in moved])),
        mask_iou=np.array([mask_iou(mask, other) for other in moved]),
    )


def squares(dx: float, dy: float) -> Array:
    """IoU of a square with itself shifted, `[sides]`: a pixel off costs small boxes most."""
    square = jnp.stack([0 * SIDES, 0 * SIDES, SIDES, SIDES], axis=-1)
    return boxes.iou(square, square + jnp.array([[dx, dy, dx, dy]], float))


def tenth_off() -> Array:
    """IoU of a box with itself, a tenth of its side off both ways."""
    return boxes.iou(jnp.array([100, 100, 200, 200]), jnp.array([110, 110, 210, 210]))


def third_off() -> Array:
    """IoU of two equal boxes a third of their width apart."""
    return boxes.iou(jnp.array([0, 0, 30, 20]), jnp.array([10, 0, 40, 20]))


def dice(iou: float) -> Array:
    """Dice of two boxes with the given IoU: one is that share of the other."""
    return boxes.dice(jnp.array([0.0, 0.0, iou, 1.0]), jnp.array([0.0, 0.0, 1.0, 1.0]))


def apart() -> Apart:
    """A box and its equal to the right, `[gaps]`: the IoU does not feel the gap, GIoU does."""
    target = jnp.array([10.0, 10.0, 30.0, 30.0])

    def shifted(shift):
        return target + shift * jnp.array([1.0, 0.0, 1.0, 0.0])

    def slope(loss):
        return jax.vmap(jax.grad(lambda shift: loss(shifted(shift), target)))(20 + GAPS)

    moved = jax.vmap(shifted)(20 + GAPS)
    return Apart(
        iou=boxes.iou(moved, target),
        iou_slope=slope(losses.iou_loss),
        giou=boxes.giou(moved, target),
        giou_slope=slope(losses.giou_loss),
    )


def inclusive() -> Array:
    """IoU of a square with its own label, `(first, first, last, last)` read as corners.

    `[sides]`. Read so, a box loses a row and a column.
    """
    label = jnp.stack([0 * SIDES, 0 * SIDES, SIDES - 1, SIDES - 1], axis=-1)
    return boxes.iou(label, boxes.from_inclusive(label))


def pixel() -> Array:
    """Area of the label of one pixel, `[2]`: converted, and read as corners."""
    label = jnp.array([5, 5, 5, 5])
    return boxes.area(jnp.stack([boxes.from_inclusive(label), label.astype(float)]))


def line(name: str, values: Array | np.ndarray, digits: int = 3) -> str:
    numbers = "".join(f"{value:9.{digits}f}" for value in np.atleast_1d(values))
    return f"  {name:<38}{numbers}"


def main() -> None:
    shape = ellipse()
    corners = ", ".join(f"{x:.0f}" for x in shape.box)
    print("A 30 x 12 ellipse, tilted by 30 degrees, on a canvas of 120 x 80 pixels")
    print(f"  tight box [{corners}], of which it fills {shape.fill:.0%}")
    print(f"  {'shifted by':<38}{'(4, 3)':>9}{'(-3, 4)':>9}")
    print(line("box IoU", shape.box_iou))
    print(line("mask IoU", shape.mask_iou))

    print("\nA square of s pixels and itself, some pixels off")
    print(line("s", SIDES, 0))
    print(line("1 pixel to the right", squares(1, 0)))
    print(line("2 pixels right and 2 down", squares(2, 2)))

    print("\nTwo equal boxes")
    print(line("a tenth off, both ways: 8100 / 11900", tenth_off()))
    print(line("a third of the width apart", third_off()))

    print("\nLabels of inclusive pixels, (first, first, last, last)")
    print(line("s", SIDES, 0))
    print(line("read as corners, IoU with the square", inclusive()))
    print(line("area of one pixel: converted, read so", pixel(), 0))

    print("\nDice = 2 IoU / (1 + IoU)")
    for iou in (0.5, 0.9):
        print(line(f"IoU {iou} is a Dice of", dice(iou)))

    gap = apart()
    print("\n[10, 10, 30, 30] and a 20-pixel box to its right")
    print(line("gap in pixels", GAPS, 0))
    print(line("IoU", gap.iou))
    print(line("d(1 - IoU)/dx", gap.iou_slope, 5))
    print(line("GIoU", gap.giou))
    print(line("d(1 - GIoU)/dx", gap.giou_slope, 5))


if __name__ == "__main__":
    main()
