"""Oriented boxes as Gaussians, against their definitions by matrices in float64 NumPy and SciPy.

Everything is compiled in one program a type, over all pairs that the tests ask about.
"""

import functools
import math

import jax
import numpy as np
import pytest
import scipy.linalg

from jaxiou import gaussians, losses, pairwise, suppression, testing

# The definitions.


def gaussian(box, k):
    """Mean and covariance."""
    x, y, w, h, angle = (float(number) for number in box)
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return np.array([x, y]), turn @ np.diag([(w / k) ** 2, (h / k) ** 2]) @ turn.T


def bhattacharyya(a, b):
    (m, s), (n, t) = gaussian(a, math.sqrt(12)), gaussian(b, math.sqrt(12))
    offset = (m - n) @ np.linalg.inv((s + t) / 2) @ (m - n) / 8
    _, log_mean = np.linalg.slogdet((s + t) / 2)
    return offset + log_mean / 2 - (np.linalg.slogdet(s)[1] + np.linalg.slogdet(t)[1]) / 4


def prob_iou(a, b):
    return 1 - math.sqrt(1 - math.exp(-bhattacharyya(a, b)))


def kf_iou(a, b):
    (_, s), (_, t) = gaussian(a, 2), gaussian(b, 2)
    merged = s - s @ np.linalg.inv(s + t) @ s  # the Kalman gain is s (s + t)^-1
    v1, v2, v3 = (4 * math.sqrt(np.linalg.det(x)) for x in (s, t, merged))
    return v3 / (v1 + v2 - v3)


def gwd(a, b):
    (m, s), (n, t) = gaussian(a, 2), gaussian(b, 2)
    root = scipy.linalg.sqrtm(s)
    return (m - n) @ (m - n) + np.trace(s + t - 2 * scipy.linalg.sqrtm(root @ t @ root).real)


def normalized_gwd(a, b):
    scale = 2 * (np.linalg.det(gaussian(a, 2)[1]) * np.linalg.det(gaussian(b, 2)[1])) ** (1 / 8)
    return gwd(a, b) / scale**2


def kld(prediction, target):
    (m, s), (n, t) = gaussian(prediction, 2), gaussian(target, 2)
    inverse = np.linalg.inv(s)
    logs = np.linalg.slogdet(s)[1] - np.linalg.slogdet(t)[1]
    return ((m - n) @ inverse @ (m - n) + np.trace(inverse @ t) + logs - 2) / 2


def mgiou(a, b):
    """By the corners of both boxes and the normals of all their edges."""

    def shape(box):
        x, y, w, h, angle = (float(number) for number in box)
        u, v = (
            np.array([math.cos(angle), math.sin(angle)]),
            np.array([-math.sin(angle), math.cos(angle)]),
        )
        corners = [s * w / 2 * u + t * h / 2 * v for s, t in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        return np.array([x, y]) + np.array(corners), [u, v]

    (p, normals), (q, others) = shape(a), shape(b)
    ratios = []
    for n in (*normals, *others):
        low, high = (
            np.array([(p @ n).min(), (q @ n).min()]),
            np.array([(p @ n).max(), (q @ n).max()]),
        )
        ratios.append((high.min() - low.max()) / (high.max() - low.min()))
    return np.mean(ratios)


def loss(form, tau, distance):
    """As mmrotate's `postprocess` has it."""

    def value(a, b):
        d = distance(a, b)
        f = {
            "linear": d,
            "sqrt": math.sqrt(max(d, 0)),
            "log1p": math.log1p(d),
            "log1p_sqrt": math.log1p(math.sqrt(max(d, 0))),
        }
        return 1 - f[form] if tau is None else 1 / (tau + f[form])

    return value


DISTANCES = {
    "bhattacharyya": bhattacharyya,
    "gwd": gwd,
    "normalized_gwd": normalized_gwd,
    "kld": kld,
    "jd": lambda a, b: (kld(a, b) + kld(b, a)) / 2,
    "kld_max": lambda a, b: max(kld(a, b), kld(b, a)),
    "kld_min": lambda a, b: min(kld(a, b), kld(b, a)),
}
LIKENESSES = {"prob_iou": prob_iou, "kf_iou": kf_iou, "mgiou": mgiou}
SETTINGS = [
    ("gwd", "log1p", 1.0),
    ("gwd", "sqrt", 2.0),
    ("normalized_gwd", "log1p_sqrt", 1.0),
    ("kld", "log1p", 1.0),
    ("bhattacharyya", "linear", None),
]
FUNCTIONS = {name: getattr(gaussians, name) for name in (*DISTANCES, *LIKENESSES)}
ORACLES = DISTANCES | LIKENESSES
for _name, _form, _tau in SETTINGS:
    _key = f"{_name}, {_form}, {_tau}"
    FUNCTIONS[_key] = gaussians.likeness(distance=FUNCTIONS[_name], form=_form, tau=_tau)
    ORACLES[_key] = loss(_form, _tau, DISTANCES[_name])
BOUNDED = {name for name in FUNCTIONS if name not in DISTANCES}

every_function = pytest.mark.parametrize("name", FUNCTIONS)
every_distance = pytest.mark.parametrize("name", DISTANCES)

# The pairs.


def boxes(rng, count, smallest=0.5):
    return np.column_stack(
        [
            rng.uniform(-4, 4, (count, 2)),
            rng.uniform(smallest, 6, (count, 2)),
            rng.uniform(-4, 4, count),
        ]
    )


@functools.cache
def random():
    rng = np.random.default_rng(5)
    a, b = boxes(rng, 100).astype(np.float32), boxes(rng, 100).astype(np.float32)
    # Some nearly alike, at all scales of a difference.
    steps = 10.0 ** rng.uniform(-3, 0, (40, 1))
    return a, np.concatenate([b[:60], (a[60:] + steps * rng.uniform(-0.3, 0.3, (40, 5)))]).astype(
        np.float32
    )


BOX, POINT, SEGMENT = [1, 2, 4, 2, 0.5], [3, 3, 0, 0, 0], [3, 3, 4, 0, 0.7]
SQUARE = [0, 0, 4, 4, 0]
HARD = {
    "zeros": ([0] * 5, [0] * 5),
    "equal boxes": (BOX, BOX),
    "equal squares": (SQUARE, SQUARE),
    "a square at 45 degrees": (SQUARE, [0, 0, 4, 4, math.pi / 4]),
    "touching squares": ([0, 0, 10, 10, 0], [10, 0, 10, 10, 0]),
    "equal points": (POINT, POINT),
    "distinct points": (POINT, [5, 6, 0, 0, 0]),
    "a box and a point": (BOX, POINT),
    "a box and a segment": (BOX, SEGMENT),
    "equal segments": (SEGMENT, SEGMENT),
    "a negative side": ([1, 2, -4, 2, 0.5], BOX),
    "thin, equal": ([0, 0, 1000, 0.01, 0.3], [0, 0, 1000, 0.01, 0.3]),
    "thin, crossed": ([0, 0, 1000, 0.01, 0.3], [0, 0, 1000, 0.01, 0.3 + math.pi / 2]),
    "thin and apart": ([0, 0, 1000, 0.01, 0.3], [5, 5, 1000, 0.01, 0.31]),
    "tiny, equal": ([1, 1, 1e-15, 2e-15, 1], [1, 1, 1e-15, 2e-15, 1]),
    "tiny and huge": ([0, 0, 1e-15, 1e-15, 0], [1, 1, 1e15, 1e15, 1]),
    "very far": ([0, 0, 1, 2, 0], [1e15, 1e15, 2, 1, 1]),
    "far from the origin": ([1e6, 1e6, 4, 2, 0.5], [1e6, 1e6, 4, 2, 0.5]),
    "turned by a thousand turns": (BOX, [1, 2, 4, 2, 0.5 + 2000 * math.pi]),
    "turned by half": (BOX, [1, 2, 4, 2, 0.5 + math.pi]),
    "sides exchanged": (BOX, [1, 2, 2, 4, 0.5 + math.pi / 2]),
    "not a number": ([math.nan, 2, 4, 2, 0.5], BOX),
}
EQUAL = ("equal boxes", "equal squares", "thin, equal", "tiny, equal", "far from the origin")


@functools.cache
def pairs():
    """The random pairs, then the hard ones."""
    hard = zip(*HARD.values(), strict=True)
    return [np.concatenate([x, np.array(y)]) for x, y in zip(random(), hard, strict=True)]


QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@functools.cache
def compiled():
    return jax.jit(lambda a, b: {name: function(a, b) for name, function in FUNCTIONS.items()})


def everything(a, b, dtype):
    """What each function gives for all pairs of two arrays."""
    with jax.enable_x64(dtype == np.float64):
        return jax.tree.map(np.asarray, compiled()(a.astype(dtype), b.astype(dtype)))


@functools.cache
def values(dtype):
    return everything(*pairs(), dtype)


@functools.cache
def slopes(dtype):
    def gradients(a, b):
        return {
            name: jax.vmap(jax.grad(function, (0, 1)))(a, b) for name, function in FUNCTIONS.items()
        }

    with jax.enable_x64(dtype == np.float64):
        found = jax.jit(gradients, compiler_options=QUICK)(*(x.astype(dtype) for x in pairs()))
    return {name: np.concatenate(x, axis=-1) for name, x in found.items()}


@functools.cache
def differences():
    """Slopes of the random pairs by central differences in float64."""
    step, both = 1e-6, np.concatenate(random(), axis=-1).astype(np.float64)
    steps = step * np.eye(10)[:, None]
    moved = np.concatenate([both + steps, both - steps])
    found = everything(moved[..., :5], moved[..., 5:], np.float64)
    return {name: ((x[:10] - x[10:]) / (2 * step)).T for name, x in found.items()}


def value(name, dtype=np.float32):
    return values(dtype)[name]


def slope(name, dtype=np.float32):
    return slopes(dtype)[name]


def of(case, x):
    return x[len(random()[0]) + list(HARD).index(case)]


# Values.


@every_function
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-11)])
def test_values_are_those_of_the_matrices(name, dtype, tolerance):
    a, b = random()
    wanted = np.array([ORACLES[name](x, y) for x, y in zip(a, b, strict=True)])
    got = value(name, dtype)[: len(a)]
    # The matrices lose digits themselves where boxes are nearly alike: their rounding is absolute.
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance / 10)


@every_distance
def test_nearly_equal_boxes_keep_their_digits_in_float32(name):
    narrow, wide = (nearly_equal(dtype)[name] for dtype in (np.float32, np.float64))
    assert wide.max() < 1e-4
    np.testing.assert_allclose(narrow, wide, rtol=2e-5)


@functools.cache
def nearly_equal(dtype):
    rng = np.random.default_rng(2)
    a = boxes(rng, len(pairs()[0])).astype(np.float32)
    return everything(a, (a + 1e-3 * rng.uniform(-1, 1, a.shape)).astype(np.float32), dtype)


@functools.cache
def with_themselves():
    a = boxes(np.random.default_rng(3), len(pairs()[0]), smallest=1e-4)
    return everything(a, a, np.float32)


def best(name):
    one = {"kf_iou": np.float32(1 / 3), "gwd, sqrt, 2.0": np.float32(0.5)}
    return one.get(name, 0 if name in DISTANCES else 1)


@every_function
def test_a_box_equals_itself_exactly(name):
    assert (with_themselves()[name] == best(name)).all()
    assert all(of(case, value(name)) == best(name) for case in EQUAL)


@functools.cache
def swapped():
    return everything(*pairs()[::-1], np.float32)


@every_function
def test_swapped_pairs_have_the_same_bits(name):
    directed = name.startswith("kld") and name not in ("kld_max", "kld_min")
    assert np.array_equal(value(name), swapped()[name], equal_nan=True) != directed


@pytest.mark.parametrize("case", ["turned by half", "sides exchanged"])
@every_function
def test_the_same_box_in_other_words_is_the_same_box(name, case):
    same = of("equal boxes", value(name))
    # The angle is rounded to 2e-7, and a likeness falls with it linearly.
    assert of(case, value(name)) == pytest.approx(same, abs=1e-6)
    assert of(case, value(name, np.float64)) == pytest.approx(
        same, abs=1e-14 if name in DISTANCES else 1e-7
    )


def test_a_thousand_turns_cost_what_the_angle_is_rounded_by():
    assert of("turned by a thousand turns", value("prob_iou")) > 1 - 1e-3


@every_function
def test_values_stay_in_their_range(name):
    x = np.delete(value(name), len(random()[0]) + list(HARD).index("not a number"))
    assert not np.isnan(x).any()
    if name in DISTANCES:
        assert (x >= 0).all()
    elif "None" not in name:
        assert ((x >= (-1 if name == "mgiou" else 0)) & (x <= best(name))).all()


@every_function
def test_not_a_number_stays_with_its_own_pair(name):
    if name == "kf_iou":  # which does not look at the centres
        return
    assert np.isnan(of("not a number", value(name)))
    assert np.isnan(value(name)).sum() == 1


# Stated values.


def test_a_square_equals_itself_at_45_degrees_for_a_gaussian_and_not_for_projections():
    assert of("a square at 45 degrees", value("prob_iou")) == 1
    assert of("a square at 45 degrees", value("gwd")) == 0
    # On each normal of one, the other's shadow is its diagonal: 1 / sqrt 2.
    assert of("a square at 45 degrees", value("mgiou")) == pytest.approx(math.sqrt(0.5), abs=1e-6)


def test_touching_squares_have_a_prob_iou_of_0_118598():
    # d = (10, 0), variances 100 / 12: B = d^2 / (8 variance) = 1.5.
    wanted = 1 - math.sqrt(1 - math.exp(-1.5))
    assert wanted == pytest.approx(0.118598, abs=1e-6)
    assert of("touching squares", value("prob_iou")) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("case", ["zeros", "equal points", "equal segments"])
def test_equal_empty_boxes_have_no_overlap_and_no_distance(case):
    assert of(case, value("prob_iou")) == of(case, value("kf_iou")) == 0
    assert all(of(case, value(name)) == 0 for name in DISTANCES)


@pytest.mark.parametrize(
    "case", ["distinct points", "a box and a point", "a box and a segment", "a negative side"]
)
def test_an_empty_box_has_no_likeness_and_is_infinitely_far(case):
    assert of(case, value("prob_iou")) == of(case, value("kf_iou")) == 0
    infinite = [name for name in DISTANCES if name != "gwd"]
    assert all(np.isposinf(of(case, value(name))) for name in infinite)
    assert of(case, value("kld, log1p, 1.0")) == 0


def test_the_wasserstein_distance_of_points_is_that_of_their_centres():
    assert of("distinct points", value("gwd")) == 2**2 + 3**2
    # (2, 1) apart, and sides 4 and 2 to shrink: 5 + (16 + 4) / 4.
    assert of("a box and a point", value("gwd")) == pytest.approx(10, rel=1e-6)


def test_points_have_projections():
    assert of("zeros", value("mgiou")) == of("equal points", value("mgiou")) == 0
    assert of("distinct points", value("mgiou")) == -1


def test_crossed_thin_boxes_agree_with_the_formula_of_their_aspect():
    # Sides 1000 and 0.01: det(S1 + S2) = (r^2 + q^2)^2, against 4 r^2 q^2.
    ratio = (1000**2 + 0.01**2) ** 2 / (4 * 10.0**2)
    # Half the determinant's logarithm, over two for its root.
    wanted = math.log(ratio / 1) / 2
    assert of("thin, crossed", value("bhattacharyya")) == pytest.approx(wanted, rel=1e-6)


# Gradients.


@every_function
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-5), (np.float64, 1e-6)])
def test_slopes_are_those_of_differences(name, dtype, tolerance):
    wanted = differences()[name]
    scale = 1 + np.abs(wanted).max(axis=-1, keepdims=True)
    error = np.abs(slope(name, dtype)[: len(wanted)] - wanted) / scale
    if name in ("mgiou", "kld_max", "kld_min"):  # a kink may lie within the step of one pair
        error = np.sort(error.max(axis=-1))[:-1]
    assert error.max() < tolerance


@every_function
def test_slopes_are_finite_whatever_the_boxes(name):
    for dtype in (np.float32, np.float64):
        x = slope(name, dtype)
        spoiled = len(random()[0]) + list(HARD).index("not a number")
        assert np.isfinite(np.delete(x, spoiled, axis=0)).all()


@every_function
def test_equal_boxes_have_no_slope(name):
    for case in EQUAL:
        # By a step of the shorter side.
        assert np.abs(of(case, slope(name))).max() * min(1, *HARD[case][0][2:4]) < 1e-6


@every_function
def test_zeros_have_no_slope(name):
    assert (of("zeros", slope(name)) == 0).all()


def test_second_derivatives_are_finite():
    names = ["prob_iou", "gwd", "kld"]
    equal = np.array([BOX, SQUARE], np.float32)
    a, b = (np.concatenate([x[:6], equal]) for x in random())

    def all_of_them(a, b):
        return {name: jax.vmap(jax.hessian(FUNCTIONS[name]))(a, b) for name in names}

    second = jax.jit(all_of_them, compiler_options=QUICK)(a, b)
    assert all(np.isfinite(x).all() for x in second.values())


def test_half_precision_is_cast_before_any_product():
    a = np.array([100, 100, 300, 2, 0.5], np.float16)
    b = a + np.array([1, 0, 0, 0, 0], np.float16)
    narrow = compiled()(a, b)
    wide = compiled()(a.astype(np.float32), b.astype(np.float32))
    assert narrow == wide
    assert all(np.isfinite(x) for x in wide.values())


# The rest of the library takes them.


def test_likenesses_keep_the_contract_of_overlaps():
    testing.check_overlap(gaussians.prob_iou, regions=random()[0][:4], minimum=0)


def test_pairs_of_two_sets_are_single_pairs():
    a, b = random()
    table = pairwise(gaussians.kf_iou)(a[:3], b[:4])
    assert table.shape == (3, 4)
    np.testing.assert_allclose(np.diag(table), value("kf_iou")[:3], rtol=1e-6)


def test_losses_are_one_less_the_likeness_and_the_distance_itself():
    a, b = random()
    first = losses.overlap_loss(gaussians.prob_iou)(a, b)
    second = losses.overlap_loss(FUNCTIONS["bhattacharyya, linear, None"])(a, b)
    distance = np.array([bhattacharyya(x, y) for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(first, np.sqrt(1 - np.exp(-distance)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, distance, rtol=1e-5, atol=1e-6)


def test_suppression_takes_them():
    regions = np.array([BOX, [1.1, 2, 4, 2, 0.5], [40, 40, 4, 2, 0]], np.float32)
    scores = np.array([0.9, 0.8, 0.7], np.float32)
    kept = suppression.nms(
        regions, scores, threshold=0.5, max_outputs=3, overlap=gaussians.prob_iou
    )
    np.testing.assert_array_equal(kept.indices, [0, 2, -1])


def test_equal_settings_give_the_same_overlap():
    assert gaussians.likeness(distance=gaussians.kld, tau=1) is gaussians.likeness(
        distance=gaussians.kld, form="log1p", tau=1.0
    )


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_settings_and_regions_are_named():
    with pytest.raises(ValueError, match=r"^tau must be a finite number above 0"):
        gaussians.likeness(tau=0)
    with pytest.raises(ValueError, match=r"^form must be one of"):
        gaussians.likeness(form="square")
    with pytest.raises(ValueError, match=r"^a must have shape \[\.\.\., 5\]"):
        gaussians.prob_iou(np.zeros(4), np.zeros(5))
