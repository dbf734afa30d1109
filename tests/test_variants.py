"""The research family against its papers' formulas, written plainly in float64 NumPy.

All functions are compiled together, once a type, over all pairs that the tests ask about.
Formulas take `at`, the pair at which terms under `stop_gradient` are held.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import reference
from compiling import AS_USERS
from reference import corners, divide, iou, sides

from jaxiou import boxes, losses, variants

DTYPES = ("float32", "float64")
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}
SLOPE_TOLERANCE = {"float32": 1e-5, "float64": 1e-8}


# The formulas.


def offset(a, b):
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = corners(a), corners(b)
    return (ax1 - bx1) / 2 + (ax2 - bx2) / 2, (ay1 - by1) / 2 + (ay2 - by2) / 2


def around(a, b):
    return sides(reference.enclosing(a, b))


def distance(a, b, c2=None):
    """The squared distance of the centres over the squared enclosing diagonal."""
    (dx, dy), (cw, ch) = offset(a, b), around(a, b)
    return divide(dx**2 + dy**2, cw**2 + ch**2 if c2 is None else c2)


def eiou(a, b, at=None):
    (w, h), (wg, hg), (cw, ch) = sides(a), sides(b), around(a, b)
    return iou(a, b) - distance(a, b) - divide(w - wg, cw) ** 2 - divide(h - hg, ch) ** 2


def siou(a, b, at=None, theta=4):
    (dx, dy), (cw, ch) = offset(a, b), around(a, b)
    angle = np.arctan2(np.abs(dy), np.abs(dx))  # the paper's arcsin(dy / rho)
    gamma = 2 - (1 - 2 * np.sin(angle - np.pi / 4) ** 2)
    delta = sum(1 - np.exp(-gamma * divide(d, c) ** 2) for d, c in ((dx, cw), (dy, ch)))
    omega = sum(
        (1 - np.exp(-divide(np.abs(s - t), np.maximum(s, t)))) ** theta
        for s, t in zip(sides(a), sides(b), strict=True)
    )
    return iou(a, b) - (delta + omega) / 2


def alpha_ciou(a, b, at=None, alpha=3):
    beta = reference.alpha(*(at or (a, b)))
    penalties = distance(a, b) ** alpha + (beta * reference.aspect(a, b)) ** alpha
    return iou(a, b) ** alpha - penalties


def alpha_giou(a, b, at=None):
    return iou(a, b) ** 1.5 - (iou(a, b) - reference.giou(a, b)).clip(0) ** 1.5


def wiou(a, b, at=None):
    cw, ch = around(*(at or (a, b)))
    return 1 - np.exp(distance(a, b, cw**2 + ch**2)) * (1 - iou(a, b))


def mpdiou(a, b, at=None):
    squares = sum((p - q) ** 2 for p, q in zip(corners(a), corners(b), strict=True))
    return iou(a, b) - squares / (480**2 + 640**2)


def scaled(box, ratio):
    x1, y1, x2, y2 = corners(box)
    w, h = (ratio * side / 2 for side in sides(box))
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    return np.stack([x - w, y - h, x + w, y + h], axis=-1)


def inner_diou(a, b, at=None):
    return iou(scaled(a, 1.25), scaled(b, 1.25)) - distance(a, b)


def nwd(a, b, at=None):
    (dx, dy), (w, h), (wg, hg) = offset(a, b), sides(a), sides(b)
    return np.exp(-np.sqrt(dx**2 + dy**2 + ((w - wg) ** 2 + (h - hg) ** 2) / 4) / 12.7)


def edge_distance(a, b):
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2), (wg, hg) = corners(a), corners(b), sides(b)
    in_x, in_y = np.abs(ax1 - bx1) + np.abs(ax2 - bx2), np.abs(ay1 - by1) + np.abs(ay2 - by2)
    none = np.zeros_like(wg)
    return (
        np.divide(in_x, wg, out=none.copy(), where=wg > 0)
        + np.divide(in_y, hg, out=none.copy(), where=hg > 0)
    ) / 4


def powerful_iou(a, b, at=None):
    with np.errstate(over="ignore"):
        return iou(a, b) - (1 - np.exp(-(edge_distance(a, b) ** 2)))


def powerful_iou_v2(a, b, at=None):
    x = 1.3 * np.exp(-edge_distance(a, b))
    return 1 - 3 * x * np.exp(-(x**2)) * (1 - powerful_iou(a, b))


def extended_iou(a, b, at=None):
    """As published: four products of offsets from the upper left corner of the hull."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = corners(a), corners(b)
    left, top = np.minimum(ax1, bx1), np.minimum(ay1, by1)
    x1, x2 = np.maximum(ax1, bx1) - left, np.minimum(ax2, bx2) - left
    y1, y2 = np.maximum(ay1, by1) - top, np.minimum(ay2, by2) - top
    signed = x2 * y2 + np.minimum(x1, x2) * np.minimum(y1, y2)
    signed = signed - x1 * np.maximum(y1, y2) - np.maximum(x1, x2) * y1
    return divide(signed, reference.area(a) + reference.area(b) - signed)


def smooth(x, width):
    return np.where(x < width, x**2 / (2 * width), x - width / 2)


def focal_eiou_loss(a, b, at=None):
    return iou(*(at or (a, b))) ** 0.5 * (1 - eiou(a, b))


def extended_iou_loss(a, b, at=None):
    return smooth(1 - extended_iou(a, b), 0.1)


def bounded_iou_loss(a, b, at=None):
    total = 0
    for d, s, t in zip(offset(a, b), sides(a), sides(b), strict=True):
        place = np.maximum(0, divide(t - 2 * np.abs(d), t + 2 * np.abs(d)))
        total = total + smooth(1 - place, 0.2)
        total = total + smooth(1 - divide(np.minimum(s, t), np.maximum(s, t)), 0.2)
    return total


def wiou_v2_loss(a, b, at=None):
    level = (1 - iou(*(at or (a, b)))) / 0.6
    return level**0.5 * (1 - wiou(a, b, at))


def wiou_v3_loss(a, b, at=None):
    level = (1 - iou(*(at or (a, b)))) / 0.6
    return level / (3 * 1.9 ** (level - 3)) * (1 - wiou(a, b, at))


class Case(NamedTuple):
    function: Callable
    formula: Callable
    lowest: float = -math.inf
    highest: float = 1.0
    magnified: float = 1.0  # how much the formula makes of an error in the IoU
    directed: bool = False


INNER_DIOU = variants.inner_iou(ratio=1.25, base=boxes.diou)
E, THIRD = math.e, 1 / math.e

OVERLAPS = {
    "eiou": Case(variants.eiou, eiou, -2.25),
    "siou": Case(variants.siou(), siou, -(1 - E**-2) - (1 - THIRD) ** 4),
    "alpha_ciou": Case(variants.alpha_iou(), alpha_ciou, -1.125, magnified=3),
    "alpha_giou": Case(
        variants.alpha_iou(alpha=1.5, penalty="giou"), alpha_giou, -1, magnified=1.5
    ),
    "wiou": Case(variants.wiou, wiou, 1 - E),
    "mpdiou": Case(variants.mpdiou(image_size=(480, 640)), mpdiou),
    "inner_diou": Case(INNER_DIOU, inner_diou, -1),
    "nwd": Case(variants.nwd(constant=12.7), nwd, 0),
    "powerful_iou": Case(variants.powerful_iou, powerful_iou, -1, directed=True),
    "powerful_iou_v2": Case(
        variants.powerful_iou_v2(), powerful_iou_v2, -0.86782, magnified=1.3, directed=True
    ),
    "extended_iou": Case(variants.extended_iou, extended_iou, -1),
}


def _focal(p, t):
    return losses.eiou_loss(p, t, gamma=0.5)


def _wise_v2(p, t):
    return losses.wiou_v2_loss(p, t, running_mean=0.6)


def _wise_v3(p, t):
    return losses.wiou_v3_loss(p, t, running_mean=0.6)


LOSSES = {
    "focal_eiou_loss": Case(_focal, focal_eiou_loss, 0, 3.25),
    "extended_iou_loss": Case(losses.extended_iou_loss, extended_iou_loss, 0, 1.95),
    "bounded_iou_loss": Case(losses.bounded_iou_loss, bounded_iou_loss, 0, 3.6, directed=True),
    "wiou_v2_loss": Case(_wise_v2, wiou_v2_loss, 0, E * 0.6**-0.5),
    "wiou_v3_loss": Case(_wise_v3, wiou_v3_loss, 0, 3.57),
}
CASES = OVERLAPS | LOSSES
CURVED = (*OVERLAPS, "bounded_iou_loss")  # the other losses are products of these


# The pairs.


@functools.cache
def ordinary(dtype):
    """Pairs that meet and that do not, with no kink of any function near."""
    rng = np.random.default_rng(11)
    corner, size = rng.uniform(0, 6, (2, 4000, 2)), rng.uniform(0.5, 6, (2, 4000, 2))
    a, b = np.concatenate([corner, corner + size], axis=-1).astype(dtype)

    def apart(*lengths):
        return np.logical_and.reduce([np.abs(x) > 0.02 for x in lengths])

    def edges(a, b):
        (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = corners(a), corners(b)
        xs, ys = (ax1 - bx1, ax1 - bx2, ax2 - bx1, ax2 - bx2), (ay1 - by1, ay1 - by2)
        return apart(*xs, *ys, ay2 - by1, ay2 - by2)

    clear = apart(*offset(a, b), *(s - t for s, t in zip(sides(a), sides(b), strict=True)))
    for ratio in (1, 1.25):
        clear &= edges(scaled(a, ratio), scaled(b, ratio))
    for d, t in zip(offset(a, b), sides(b), strict=True):
        clear &= apart(t - 2 * np.abs(d), 1 - 0.2 - divide(t - 2 * np.abs(d), t + 2 * np.abs(d)))
    for s, t in zip(sides(a), sides(b), strict=True):
        clear &= apart(1 - 0.2 - divide(np.minimum(s, t), np.maximum(s, t)))
    clear &= apart(1 - 0.1 - extended_iou(a, b))
    return a[clear][:200], b[clear][:200]


@functools.cache
def hostile(dtype):
    return reference.pairs(dtype, 3000, seed=7)


POINT, ELSEWHERE, BOX = [5, 5, 5, 5], [7, 6, 7, 6], [0, 0, 4, 2]
DEGENERATE = {
    "zeros": ([0, 0, 0, 0], [0, 0, 0, 0]),
    "equal points": (POINT, POINT),
    "distinct points": (POINT, ELSEWHERE),
    "points on a line": (POINT, [7, 5, 7, 5]),
    "equal boxes": (BOX, BOX),
    "equal inverted boxes": ([4, 2, 0, 0], [4, 2, 0, 0]),
    "inverted against a box": ([4, 2, 0, 0], BOX),
    "a box against a point": (BOX, [0, 0, 0, 0]),
    "a point at the centre": ([2, 1, 2, 1], BOX),
    "flat against upright": ([0, 0, 4, 0], [2, -1, 2, 1]),
    "equal segments": ([0, 0, 4, 0], [0, 0, 4, 0]),
    "one centre": ([1, 0.5, 3, 1.5], BOX),
    "a shared edge": ([0, 0, 2, 1], BOX),
    "touching": ([4, 0, 8, 2], BOX),
    "touching at a corner": ([4, 2, 8, 4], BOX),
    "not a number": ([math.nan, 0, 4, 2], BOX),
}


@functools.cache
def identical(dtype):
    a, _ = hostile(dtype)
    a = a[reference.area(a) > 0][:500]
    return a, a


def small(dtype):
    """No side, also of the box around both, between 0 and 1e-9."""
    return reference.pairs(dtype, 3000, seed=13, smallest=1e-9)


def parts(dtype):
    degenerate = np.array(list(DEGENERATE.values()), dtype).transpose(1, 0, 2)
    return {
        "ordinary": ordinary(dtype),
        "hostile": hostile(dtype),
        "identical": identical(dtype),
        "small": small(dtype),
        "degenerate": tuple(degenerate),
    }


def mapped(kind, dtype, options=None):
    """What `kind` makes of each case, mapped over all pairs: name, output, part."""
    pairs = parts(dtype)
    a, b = (np.concatenate(boxes) for boxes in zip(*pairs.values(), strict=True))
    ends = np.cumsum([len(a) for a, _ in pairs.values()])[:-1]

    def everything(a, b):
        return {name: jax.vmap(functools.partial(kind, name))(a, b) for name in CASES}

    with jax.enable_x64(dtype == "float64"):
        results = jax.jit(everything, compiler_options=options)(a, b)
    return {
        name: {
            key: dict(zip(pairs, np.split(np.asarray(x), ends), strict=True))
            for key, x in outputs.items()
        }
        for name, outputs in results.items()
    }


def plain(name, a, b):
    return {"value": CASES[name].function(a, b)}


def slopes(name, a, b):
    """The value, and the gradient by the first box; by both where their roles differ."""
    arguments = (0, 1) if CASES[name].directed else (0,)
    value, gradients = jax.value_and_grad(CASES[name].function, arguments)(a, b)
    return {"value": value, **dict(zip(("by first", "by second"), gradients, strict=False))}


DIRECTION = np.array([0.3, -0.7, 1.1, 0.5])


def slopes_and_curvature(name, a, b):
    """The same, and the second derivative by the first box along one direction."""
    if name not in CURVED:
        return slopes(name, a, b)
    direction = DIRECTION.astype(a.dtype)
    outputs, changes = jax.jvp(lambda a: slopes(name, a, b), (a,), (direction,))
    return outputs | {"curvature": changes["by first"]}


@functools.cache
def unoptimised(dtype):
    """Derivatives; the compiler's optimisation would take most of this file's time."""
    kind = slopes_and_curvature if dtype == "float32" else slopes
    return mapped(kind, dtype)


@functools.cache
def values(dtype):
    results = mapped(plain, dtype, AS_USERS) if dtype == "float32" else unoptimised(dtype)
    return {name: outputs["value"] for name, outputs in results.items()}


def gradients(dtype, name):
    outputs = unoptimised(dtype)[name]
    return [outputs[key] for key in ("by first", "by second") if key in outputs]


def at(pair, parts):
    return parts["degenerate"][list(DEGENERATE).index(pair)]


# Values.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_values_are_the_papers(name, dtype):
    for part in ("ordinary", "hostile"):
        a, b = parts(dtype)[part]
        wanted = CASES[name].formula(a, b)
        if part == "hostile" and name.startswith(("inner", "extended")):
            continue  # no arithmetic in float64 is good enough: the next test
        got = values(dtype)[name][part]
        assert got.dtype == dtype
        error = np.abs(got - wanted) / np.maximum(1, np.abs(wanted)) / CASES[name].magnified
        worst = error.argmax()
        assert error[worst] <= TOLERANCE[dtype], (a[worst], b[worst], got[worst], wanted[worst])


def exact_intersection(a, b):
    width, height = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    return max(width, 0) * max(height, 0)


def exact_area(box):
    return (box[2] - box[0]) * (box[3] - box[1])


def exact_inner_iou(a, b, ratio):
    a, b = (
        [(box[i % 2] + box[i % 2 + 2] + (ratio if i > 1 else -ratio) * side[i % 2]) / 2
         for i in range(4)]
        for box, side in ((x, (x[2] - x[0], x[3] - x[1])) for x in (a, b))
    )  # fmt: skip
    shared = exact_intersection(a, b)
    union = exact_area(a) + exact_area(b) - shared
    return shared / union if union else Fraction(0)


def exact_extended_iou(a, b):
    left, top = min(a[0], b[0]), min(a[1], b[1])
    x1, x2 = max(a[0], b[0]) - left, min(a[2], b[2]) - left
    y1, y2 = max(a[1], b[1]) - top, min(a[3], b[3]) - top
    signed = x2 * y2 + min(x1, x2) * min(y1, y2) - x1 * max(y1, y2) - max(x1, x2) * y1
    union = exact_area(a) + exact_area(b) - signed
    return signed / union if union else Fraction(0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inner_and_extended_iou_are_right_to_rounding_at_any_scale(dtype):
    a, b = (x[::10] for x in hostile(dtype))
    for i, pair in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        pair = [[Fraction(x) for x in box] for box in pair]
        pair = [[x1, y1, max(x1, x2), max(y1, y2)] for x1, y1, x2, y2 in pair]
        extended = exact_extended_iou(*pair)
        excess = 1 - extended
        small = 10 * excess * excess / 2
        inner_diou = float(exact_inner_iou(*pair, Fraction(5, 4))) - distance(a[i], b[i])
        for name, wanted in {
            "inner_diou": inner_diou,
            "extended_iou": extended,
            "extended_iou_loss": small if excess < Fraction(1, 10) else excess - Fraction(1, 20),
        }.items():
            got = values(dtype)[name]["hostile"][10 * i]
            assert abs(got - float(wanted)) <= TOLERANCE[dtype], (name, a[i], b[i], got)


@pytest.mark.parametrize("name", CASES)
def test_values_stay_in_the_stated_range(name):
    for dtype in DTYPES:
        got, ulps = values(dtype)[name]["hostile"], 4 * np.finfo(dtype).eps
        assert got.min() >= CASES[name].lowest * (1 + ulps)
        assert got.max() <= CASES[name].highest * (1 if name in OVERLAPS else 1 + ulps)


@pytest.mark.parametrize("name", OVERLAPS)
def test_a_box_with_area_gives_exactly_1_with_itself(name):
    for dtype in DTYPES:
        assert (values(dtype)[name]["identical"] == 1).all()


@pytest.mark.parametrize("name", CASES)
def test_nan_stays_in_its_own_pair(name):
    nan = np.isnan(values("float32")[name]["degenerate"])
    np.testing.assert_array_equal(nan, [pair == "not a number" for pair in DEGENERATE])


# By hand: points 5,5 and 7,6 are (2, 1) apart, so the enclosing box is 2 x 1.
ON_AN_AXIS = 1 - E**-2  # Delta of two points on a line: Lambda 0, rho_x 1
STATED = {
    # Sides and half sides over those of the enclosing box, which is the box: 1 + 1 + 1/4.
    ("eiou", "a box against a point"): -2.25,
    ("eiou", "distinct points"): -1,
    ("siou", "points on a line"): -ON_AN_AXIS / 2,
    # Lambda = 2 * 2 / (4 + 1), and both rho are 1.
    ("siou", "distinct points"): -(1 - math.exp(-(2 - 0.8))),
    # IoU 1/4; both omega are 1/2.
    ("siou", "one centre"): 0.25 - (1 - math.exp(-0.5)) ** 4,
    ("alpha_ciou", "distinct points"): -1,
    ("alpha_ciou", "one centre"): 0.25**3,
    # The areas of two crossing segments are 0, and the hull is 4 x 2.
    ("alpha_giou", "flat against upright"): -1,
    ("wiou", "distinct points"): 1 - E,
    # Centres half a hull apart: rho^2 / c^2 = 1/4.
    ("wiou", "a box against a point"): 1 - math.exp(0.25),
    # Both corners (2, 1) apart.
    ("mpdiou", "distinct points"): -10 / (480**2 + 640**2),
    # Scaled about their one centre, 2.5 x 1.25 in 5 x 2.5.
    ("inner_diou", "one centre"): 0.25,
    # Sides 5 x 2.5 about centres (4, 0) apart: 1 x 2.5 of 25 - 2.5; hull 8 x 2: 16/68.
    ("inner_diou", "touching"): 2.5 / 22.5 - 16 / 68,
    ("nwd", "equal points"): 1,
    ("nwd", "distinct points"): math.exp(-math.sqrt(5) / 12.7),
    # A side 4 and a side 2 lost, the centre 2 and 1 away: 4 + 1 + (16 + 4) / 4.
    ("nwd", "a box against a point"): math.exp(-math.sqrt(10) / 12.7),
    # P = (4/4 + 2/2) / 4.
    ("powerful_iou", "a point at the centre"): math.exp(-0.25) - 1,
    ("powerful_iou", "a box against a point"): 0,
    ("powerful_iou_v2", "a box against a point"): 1 - 3 * 1.3 * math.exp(-1.69),
    # Gaps 2 and 1; the middle of the overlap is 1 and 1/2 off: -(2 * 1 + 1 * 2), over itself.
    ("extended_iou", "distinct points"): -1,
    ("extended_iou", "points on a line"): 0,
    ("extended_iou", "touching"): 0,
    ("extended_iou_loss", "touching"): 0.95,
    ("focal_eiou_loss", "distinct points"): 0,
    ("bounded_iou_loss", "equal points"): 3.6,
    ("bounded_iou_loss", "equal boxes"): 0,
    # The widths agree, both heights are 0: 0.9 for y and 0.9 for h.
    ("bounded_iou_loss", "equal segments"): 1.8,
    ("wiou_v2_loss", "equal points"): 0.6**-0.5,
    ("wiou_v3_loss", "equal points"): (1 / 0.6) / (3 * 1.9 ** (1 / 0.6 - 3)),
}
STATED |= {
    (name, pair): 0
    for name in OVERLAPS
    if name not in ("nwd", "powerful_iou_v2")
    for pair in ("zeros", "equal points")
}


@pytest.mark.parametrize(("name", "pair"), STATED)
def test_stated_values(name, pair):
    assert at(pair, values("float64")[name]) == pytest.approx(STATED[name, pair], abs=1e-15)


@pytest.mark.parametrize(("shift", "delta"), [(1, 0.0199), (3, 0.1721), (6, 0.6046)])
def test_siou_grows_with_distance(shift, delta):
    # Equal squares in a hull of 10 x 10, along its diagonal: Lambda 1, Omega 0.
    a = jnp.array([0.0, 0.0, 10.0 - shift, 10.0 - shift])
    b = a + shift
    assert float(2 * (boxes.iou(a, b) - variants.siou()(a, b))) == pytest.approx(delta, abs=5e-5)


def test_eiou_compares_sides_not_centres():
    # Widths 4 and 2 in a hull 4 wide, heights 2 and 4 in a hull 5 high: 4/16 + 4/25.
    a, b = jnp.array([0.0, 0.0, 4.0, 2.0]), jnp.array([1.0, 1.0, 3.0, 5.0])
    assert float(boxes.diou(a, b) - variants.eiou(a, b)) == pytest.approx(0.41, abs=1e-6)


def test_alpha_iou_of_power_1_is_the_plain_overlap():
    a, b = ordinary("float32")
    for penalty, plain in {"giou": boxes.giou, "diou": boxes.diou, "ciou": boxes.ciou}.items():
        powered = variants.alpha_iou(alpha=1, penalty=penalty)
        np.testing.assert_allclose(powered(a, b), plain(a, b), rtol=0, atol=1e-6)
    cubed = variants.alpha_iou(penalty="none")
    np.testing.assert_allclose(cubed(a, b), iou(a, b) ** 3, rtol=0, atol=1e-6)


def test_inner_iou_is_the_iou_of_scaled_boxes():
    a, b = ordinary("float32")
    got = variants.inner_iou(ratio=0.75)(a, b)
    np.testing.assert_allclose(got, iou(scaled(a, 0.75), scaled(b, 0.75)), rtol=0, atol=1e-6)


def test_extended_iou_is_the_iou_where_boxes_meet():
    a, b = ordinary("float32")
    meet = np.asarray(boxes.intersection(a, b)) > 0
    assert 50 < meet.sum() < 150
    extended = np.asarray(variants.extended_iou(a, b))
    np.testing.assert_array_equal(extended[meet], np.asarray(boxes.iou(a, b))[meet])
    assert (extended[~meet] < 0).all()


def test_powerful_iou_v2_is_no_likeness():
    far = jnp.array([1e6, 0.0, 1e6 + 4, 2.0])
    assert variants.powerful_iou_v2()(far, jnp.array([0.0, 0.0, 4.0, 2.0])) == 1


# Gradients.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_the_differences_of_the_formula(name, dtype):
    a, b = (x.astype(np.float64) for x in ordinary(dtype))
    formula = CASES[name].formula

    by_a = functools.partial(reference.slopes, lambda x: formula(x, b, at=(a, b)), a)
    by_b = functools.partial(reference.slopes, lambda x: formula(a, x, at=(a, b)), b)
    differences = (by_a, by_b) if CASES[name].directed else (by_a,)
    for got, by in zip(gradients(dtype, name), differences, strict=True):
        wanted = (4 * by(5e-4) - by(1e-3)) / 3  # errors of order 2 cancel
        assert np.abs(wanted).max() > 0.01
        np.testing.assert_allclose(got["ordinary"], wanted, rtol=0, atol=SLOPE_TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_finite_for_hostile_and_degenerate_pairs(name, dtype):
    for part in ("hostile", "degenerate"):
        a, b = parts(dtype)[part]
        for gradient in gradients(dtype, name):
            bad = ~np.isfinite(gradient[part]).all(axis=1) & np.isfinite(a).all(axis=1)
            assert not bad.any(), (a[bad][0], b[bad][0], gradient[part][bad][0])


@pytest.mark.parametrize("name", CURVED)
def test_second_derivatives_are_finite_from_sides_of_1e_9(name):
    a, b = small("float32")
    bad = ~np.isfinite(unoptimised("float32")[name]["curvature"]["small"]).all(axis=1)
    assert not bad.any(), (a[bad][0], b[bad][0])


@pytest.mark.parametrize("name", CASES)
def test_equal_boxes_have_gradient_0(name):
    for gradient in gradients("float64", name):
        assert (gradient["identical"] == 0).all()
        for pair in ("equal boxes", "equal points", "equal segments", "zeros"):
            assert (at(pair, gradient) == 0).all()


def test_forward_mode_meets_no_product_of_0_and_infinity():
    # P is 1e30, and its slope beyond float32; reverse mode would begin with exp(-P^2) = 0.
    far, tiny = jnp.array([9e14, 9e14, 1e15, 1e15]), jnp.array([0.0, 0.0, 1e-15, 1e-15])
    assert (jax.jacfwd(variants.powerful_iou, 1)(far, tiny) == 0).all()
    # Lambda curves as 1 / offset^2, which is 1e50, where the offset itself is below rounding.
    a, b = jnp.array([0.0, 0.0, 1.0, 1.0]), jnp.array([1e-25, 1e-25, 1.0, 1.0])
    assert jnp.isfinite(jax.jacfwd(jax.jacfwd(variants.siou()))(a, b)).all()


def test_siou_has_the_mean_slope_where_centres_share_an_axis():
    # The centres are (1, 1) and (1, 7): Lambda is 2 |dx| / |dy| nearby, and all else in x is
    # the likeness of the widths, which pulls the edges apart by equal amounts.
    a, b = jnp.array([0.0, 0.0, 2.0, 2.0]), jnp.array([-1.0, 5.0, 3.0, 9.0])
    x1, y1, x2, y2 = jax.grad(variants.siou())(a, b)
    assert x1 == -x2 != 0
    assert y1 + y2 > 0


def test_touching_boxes_have_the_mean_slope_of_extended_iou():
    (gradient,) = gradients("float64", "extended_iou")
    # Areas 8 and 8. Side by side, an overlap of width u has 2 u / 16, a gap g -2 g / 16.
    by_a = at("touching", gradient)
    np.testing.assert_allclose(by_a, [-2 / 16, 0, 0, 0], rtol=0, atol=1e-15)
    # At a corner, moving in x shares nothing, and parts by g * 2 m with m = 2: half of -4 / 16;
    # in y with m = 4, half of -8 / 16.
    by_a = at("touching at a corner", gradient)
    np.testing.assert_allclose(by_a, [-2 / 16, -4 / 16, 0, 0], rtol=0, atol=1e-15)


# Settings.


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        (variants.siou(), variants.siou(theta=4), variants.siou(theta=2)),
        (variants.alpha_iou(), variants.alpha_iou(alpha=3.0, penalty="ciou"),
         variants.alpha_iou(penalty="none")),
        (variants.mpdiou(image_size=(480, 640)), variants.mpdiou(image_size=(480.0, 640.0)),
         variants.mpdiou(image_size=(640, 480))),
        (variants.inner_iou(ratio=0.5), variants.inner_iou(base=boxes.iou, ratio=0.5),
         variants.inner_iou(ratio=0.5, base=boxes.ciou)),
        (variants.nwd(constant=12), variants.nwd(constant=12.0), variants.nwd(constant=12.7)),
        (variants.powerful_iou_v2(), variants.powerful_iou_v2(attention=1.3),
         variants.powerful_iou_v2(attention=1)),
    ],
    ids=["siou", "alpha_iou", "mpdiou", "inner_iou", "nwd", "powerful_iou_v2"],
)  # fmt: skip
def test_equal_settings_give_one_object(first, second, other):
    assert first is second
    assert first is not other
    assert losses.overlap_loss(first) is losses.overlap_loss(second)


@pytest.fixture
def _untyped():
    """Our own errors, where the types of the tests' import hook would be first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


BOXES = jnp.array([[0.0, 0.0, 2.0, 2.0]])


@pytest.mark.usefixtures("_untyped")
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: variants.nwd(), TypeError, "constant"),
        (lambda: variants.nwd(12.7), TypeError, "positional"),
        (lambda: variants.nwd(constant=0), ValueError, "constant must be a finite number above 0"),
        (lambda: variants.siou(theta=-1), ValueError, "theta must"),
        (lambda: variants.alpha_iou(alpha=math.nan), ValueError, "alpha must"),
        (lambda: variants.alpha_iou(penalty="eiou"), ValueError, "penalty must be one of"),
        (lambda: variants.mpdiou(), TypeError, "image_size"),
        (lambda: variants.mpdiou(image_size=640), ValueError, r"image_size must have shape"),
        (lambda: variants.mpdiou(image_size=(3, 480, 640)), ValueError, "image_size must have"),
        (lambda: variants.mpdiou(image_size=(480, 0)), ValueError, "image_size must"),
        (lambda: variants.inner_iou(ratio=0), ValueError, "ratio must"),
        (lambda: variants.powerful_iou_v2(attention=math.inf), ValueError, "attention must"),
        (lambda: variants.eiou(jnp.zeros(5), jnp.zeros(4)), ValueError, r"a must .* \[5\]"),
        (lambda: variants.powerful_iou(BOXES, jnp.zeros(3)), ValueError, "targets must"),
        (lambda: variants.wiou([0.0] * 4, jnp.zeros(4)), TypeError, "a"),
        (lambda: losses.eiou_loss(BOXES, BOXES, gamma=-1), ValueError, "gamma must"),
        (lambda: losses.extended_iou_loss(BOXES, BOXES, smooth=0), ValueError, "smooth must"),
        (lambda: losses.bounded_iou_loss(BOXES, BOXES, beta=0), ValueError, "beta must"),
        (lambda: losses.wiou_v2_loss(BOXES, BOXES), TypeError, "running_mean"),
        (lambda: losses.wiou_v2_loss(BOXES, BOXES, running_mean=BOXES), ValueError,
         "running_mean must be a number"),
        (lambda: losses.wiou_v3_loss(BOXES, BOXES, running_mean=1.0, alpha=1.0), ValueError,
         "alpha must be above 1"),
        (lambda: losses.update_running_mean(1.0, jnp.ones(2), momentum=0), ValueError,
         "momentum must"),
    ],
)  # fmt: skip
def test_errors_name_the_argument(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Losses.


def test_one_minus_the_overlap_is_the_loss():
    a, b = ordinary("float32")
    plain = np.asarray(losses.eiou_loss(a, b))
    np.testing.assert_array_equal(plain, losses.overlap_loss(variants.eiou)(a, b))
    np.testing.assert_allclose(plain, 1 - eiou(a, b), rtol=0, atol=1e-6)


def test_masked_pairs_have_no_part():
    p = jnp.array([[0.0, 0.0, 4.0, 2.0], [math.nan] * 4])
    t = jnp.array([[1.0, 0.0, 4.0, 2.0], [math.nan] * 4])
    where = jnp.array([True, False])
    wise = {"running_mean": 0.6, "where": where}

    def total(p):
        each = [
            losses.eiou_loss(p, t, gamma=0.5, where=where),
            losses.extended_iou_loss(p, t, where=where),
            losses.bounded_iou_loss(p, t, where=where),
            losses.wiou_v2_loss(p, t, **wise),
            losses.wiou_v3_loss(p, t, **wise),
        ]
        return jnp.stack(each).sum(axis=1), each

    slopes, each = jax.jit(jax.jacrev(total, has_aux=True))(p)
    assert slopes.shape == (5, 2, 4)
    assert (slopes[:, 0] != 0).any(axis=1).all()
    assert (slopes[:, 1] == 0).all()
    for loss in each:
        assert loss[0] > 0
        assert loss[1] == 0


def test_the_running_mean_moves_towards_the_batch():
    values = jnp.array([[0.2, 0.4], [math.nan, 0.9]])
    where = jnp.array([[True, True], [False, False]])
    moved = losses.update_running_mean(1.0, values, momentum=0.1, where=where)
    assert float(moved) == pytest.approx(0.9 * 1 + 0.1 * 0.3, abs=1e-6)


def test_the_running_mean_stays_where_nothing_counts():
    for values, where in (
        (jnp.full(2, math.nan), jnp.zeros(2, bool)),
        (jnp.zeros(0), None),
    ):
        assert losses.update_running_mean(jnp.array(0.7), values, where=where) == jnp.float32(0.7)


def test_the_running_mean_has_no_gradient():
    def loss(p, mean):
        mean = losses.update_running_mean(mean, losses.iou_loss(p, jnp.array([[0.0, 0, 4, 2]])))
        return mean + losses.wiou_v3_loss(p, p + 1, running_mean=mean).sum()

    p = jnp.array([[0.0, 0.0, 4.0, 2.0]])
    assert jax.grad(loss, 1)(p, jnp.array(0.5)) == 0


def test_a_running_mean_of_0_gives_no_loss():
    a, b = ordinary("float32")
    assert (losses.wiou_v2_loss(a, b, running_mean=0.0) == 0).all()
    assert (losses.wiou_v3_loss(a, b, running_mean=0.0) == 0).all()
