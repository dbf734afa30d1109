"""What a row of the catalogue is, and the inputs that rows are run on."""

import ast
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import jaxiou

Item = tuple[Any, ...]
"""One item's arguments: arrays, or pytrees of arrays."""

TRANSFORMATIONS = (
    "eager",
    "jit",
    "vmap",
    "jit of vmap",
    "retrace",
    "grad",
    "jvp",
    "bfloat16",
    "float16",
    "uint8",
    "int32",
    "x64",
    "where",
    "debug_nans",
    "auto mesh",
    "shard_map",
    "explicit mesh",
    "export",
)
"""The names under which a row may be exempt."""


@dataclass(frozen=True, eq=False)
class Row:
    """One public function, or one product of a factory, on inputs away from its kinks.

    Attributes:
      name: the expression that makes the function, such as `boxes.iou`,
        `pairing.pairwise(boxes.iou)` or `partial(losses.iou_loss, form="log")`, over the
        modules of `jaxiou` and `np`. It is evaluated again where retracing is tested.
      item: makes one item's arguments from a generator: a pair of boxes, a pair of sets, one
        label map. Floats are float64 that bfloat16 and float16 hold exactly; arguments that
        are integers or bools by nature have that type. The tests stack eight items.
      differentiable: which arguments have a gradient.
      leading: whether the function takes leading batch axes; if not, it is mapped.
      where: makes, for one item, the argument `where` and one array for each argument: which
        of its leading rows count, or None if all do. A function that has `where` needs it.
      frozen: for functions with a `stop_gradient`: takes an item's arguments, and returns
        the function with its stopped terms held at these, in NumPy, over leading axes.
      exempt: transformations that do not apply, each with the reason.
    """

    name: str
    item: Callable[[np.random.Generator], Item]
    differentiable: tuple[int, ...] = ()
    leading: bool = True
    where: Callable[[np.random.Generator], tuple[np.ndarray, tuple[Any, ...]]] | None = None
    frozen: Callable[..., Callable[..., Any]] | None = None
    exempt: Mapping[str, str] = field(default_factory=dict)

    def make(self) -> Callable[..., Any]:
        modules = {name: getattr(jaxiou, name) for name in jaxiou.__all__}
        return eval(self.name, {"partial": functools.partial, "np": np, **modules})

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        return self.make()

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @property
    def covers(self) -> str:
        """The dotted name of the public function that this row drives."""
        node = ast.parse(self.name, mode="eval").body
        while any(isinstance(part, ast.Call) for part in ast.walk(node)):
            if isinstance(node, ast.Attribute):  # a field of a product: `factory(...).update`
                node = node.value
            elif isinstance(node, ast.Call):
                is_partial = ast.unparse(node.func) == "partial"
                node = node.args[0] if is_partial else node.func
        return ast.unparse(node)


HOST = dict.fromkeys(set(TRANSFORMATIONS) - {"eager"}, "runs on the host, on values")
"""`exempt` of functions that look at values."""


def box_set(rng: np.random.Generator, count: int) -> np.ndarray:
    """`count` boxes in [0, 32), on a grid of eighths, no two of them near a kink.

    Sides of any two differ by three eighths or more, and so do edges and centres, the centre
    of one and an edge of the other included. With eight bits a coordinate, bfloat16 and
    float16 hold them exactly; rounded to integers, their areas would wrap in uint8.
    """
    found: list[np.ndarray] = []
    while len(found) < count:
        size = rng.integers(16, rng.choice([40, 240]), 2)
        corner = rng.integers(0, 256 - size)
        box = np.concatenate([corner, corner + size])
        if all(_apart(box, other) for other in found):
            found.append(box)
    return np.array(found) / 8


def _apart(a: np.ndarray, b: np.ndarray) -> bool:
    def lines(box):
        """Both edges and the centre, in x and in y."""
        return np.array([[low, high, (low + high) / 2] for low, high in (box[::2], box[1::2])])

    def sides(box):
        return box[2:] - box[:2]

    between_lines = np.abs(lines(a)[:, :, None] - lines(b)[:, None, :])
    return between_lines.min() >= 3 and np.abs(sides(a) - sides(b)).min() >= 3


def box(rng: np.random.Generator) -> Item:
    return (box_set(rng, 1)[0],)


def box_pair(rng: np.random.Generator) -> Item:
    return tuple(box_set(rng, 2))


def box_sets(rng: np.random.Generator) -> Item:
    """Five boxes and three."""
    boxes = box_set(rng, 8)
    return boxes[:5], boxes[5:]


def whole_item(arguments: int):
    """`where` of functions that mask items: a scalar for each."""

    def make(rng: np.random.Generator):
        keep = rng.random() < 0.5
        return np.array(keep), (np.array(keep),) * arguments

    return make
