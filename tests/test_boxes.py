"""Boxes: values against float64 NumPy, stated values at the edges and kinks, invariants."""

import functools
import math

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from jaxiou import boxes, pairwise

# Of numbers that are right to the last bit: no fused multiply-add may change them.
pytestmark = pytest.mark.usefixtures("compiled_as_users_have_it")

NAN = float("nan")
RANGES = {
    "iou": (0, 1),
    "giou": (-1, 1),
    "diou": (-1, 1),
    "ciou": (-1.5, 1),
    "ioa": (0, 1),
    "dice": (0, 1),
}
OVERLAPS = ["intersection", "union", *RANGES]
SYMMETRIC = [name for name in OVERLAPS if name != "ioa"]


def array(*boxes, dtype=jnp.float32):
    return jnp.array(boxes if len(boxes) != 4 else list(boxes), dtype)


def box(*coordinates, dtype="float32"):
    return np.array(coordinates, jnp.dtype(dtype))


def evaluate(name, a, b):
    """The library's function on pairs, as NumPy."""
    with jax.enable_x64(a.dtype == np.float64):
        return np.asarray(getattr(boxes, name)(a, b))


COUNT = 4000  # pairs in a call, whatever for, so that each function is compiled once a type


@functools.cache
def slopes(name):
    """The gradients by both boxes of `COUNT` pairs."""
    return jax.jit(jax.vmap(jax.grad(getattr(boxes, name), (0, 1))))


@functools.cache
def curvature(name):
    """One row of each pair's Hessian, in reverse over reverse mode."""

    def row(x, i):
        gradient = jax.grad(lambda x: getattr(boxes, name)(x[:4], x[4:]))
        return jax.grad(lambda x: jnp.take(gradient(x), i))(x)

    return jax.jit(jax.vmap(row))


def gradient(name, a, b):
    """The gradient by `a` of one float32 pair, as a list."""
    pairs = (np.tile(box(*x), (COUNT, 1)) for x in (a, b))
    return slopes(name)(*pairs)[0][0].tolist()


# A million pairs -------------------------------------------------------------------------


class Million:
    """A million random and adversarial pairs of one type, and what the library makes of them."""

    def __init__(self, dtype):
        self.a, self.b = reference.pairs(dtype, 10**6)
        # int32 does not fit into float32; every other type is widened without loss.
        self.working = np.float64 if dtype == "float64" else np.float32
        self.exact = self.a.astype(self.working), self.b.astype(self.working)
        self.values = functools.cache(lambda name: evaluate(name, self.a, self.b))


@pytest.fixture(scope="module", params=reference.DTYPES)
def million(request):
    return Million(request.param)


@pytest.mark.parametrize("name", RANGES)
def test_a_million_pairs_are_in_range_and_within_1e_6_of_float64(million, name):
    values, (low, high) = million.values(name), RANGES[name]
    assert values.dtype == million.working
    assert not np.isnan(values).any()
    assert values.max() <= high
    assert values.min() >= (below(low, values.dtype) if name == "ciou" else low)
    errors = np.abs(values - getattr(reference, name)(*million.exact))
    worst = errors.argmax()
    assert errors[worst] <= 1e-6, (million.a[worst], million.b[worst])


def below(number, dtype):
    """The next number: CIoU comes so near to -1.5 that it may round to less."""
    return np.nextafter(np.dtype(dtype).type(number), -np.inf)


@pytest.mark.parametrize("name", ["area", "intersection", "union"])
def test_a_million_areas_are_within_1e_6_of_float64_relatively(million, name):
    if name == "area":
        with jax.enable_x64(million.working == np.float64):
            values, expected = np.asarray(boxes.area(million.a)), reference.area(million.exact[0])
    else:
        values, expected = million.values(name), getattr(reference, name)(*million.exact)
    assert (values >= 0).all()
    assert np.isfinite(values).all()
    # Below the smallest normal number the processor rounds to 0.
    allowed = 1e-6 * expected + np.finfo(values.dtype).tiny
    assert (np.abs(values - expected) <= allowed).all()


def test_a_million_enclosing_boxes_are_exact(million):
    expected = reference.enclosing(*million.exact)
    np.testing.assert_array_equal(million.values("enclosing"), expected)


def test_no_bound_between_two_of_a_million_values_is_broken_by_rounding(million):
    assert (million.values("union") >= million.values("intersection")).all()
    for name in ("giou", "diou"):
        assert (million.values(name) <= million.values("iou")).all()


# Types and shapes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["bool", "complex64"],
)
def test_other_types_raise_and_name_the_argument(dtype, without_jaxtyping):
    with pytest.raises(TypeError, match=f"b must hold floats or integers, got dtype {dtype}"):
        boxes.iou(jnp.zeros(4), jnp.zeros(4, dtype))
    with pytest.raises(TypeError, match="regions must hold floats or integers"):
        boxes.area(jnp.zeros(4, dtype))


@pytest.mark.parametrize("x", [[0.0, 0.0, 1.0, 1.0], None, (0, 0, 1, 1)])
def test_a_list_raises_and_names_the_argument(x, without_jaxtyping):
    with pytest.raises(TypeError, match=r"a must be a JAX or NumPy array, got \w+"):
        boxes.iou(x, jnp.zeros(4))


@pytest.mark.parametrize("shape", [(), (3,), (4, 2), (0,), (2, 5)])
def test_a_wrong_last_axis_raises_and_names_the_argument(shape, without_jaxtyping):
    with pytest.raises(ValueError, match=r"b must have shape \[..., 4\] \(one box a row\), got"):
        boxes.giou(jnp.zeros(4), jnp.zeros(shape))


def test_leading_axes_that_do_not_broadcast_raise_and_show_both_shapes(without_jaxtyping):
    message = r"leading axes of a and b must broadcast, got a \[3, 4\] and b \[2, 4\]"
    with pytest.raises(ValueError, match=message):
        boxes.diou(jnp.zeros((3, 4)), jnp.zeros((2, 4)))


@pytest.mark.parametrize("name", ["giou", "enclosing"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((), ()), ((3,), ()), ((), (3,)), ((3, 1), (1, 5)), ((2, 1, 3), (3,)), ((0,), (1,)),
     ((2, 0), (1, 1)), ((0,), ())],
)  # fmt: skip
def test_leading_axes_broadcast_as_in_numpy(name, left, right):
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(0, 9, (*shape, 4)).astype(np.float32) for shape in (left, right))
    expected = getattr(reference, name)(*np.broadcast_arrays(a, b))
    values = evaluate(name, a, b)
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("float32", "float32", "float32"),
        ("bfloat16", "float16", "float32"),
        ("float8_e5m2", "int4", "float32"),
        ("uint8", "int32", "float32"),
        ("float64", "float32", "float64"),
        ("int64", "int8", "float64"),
        ("bfloat16", "uint64", "float64"),
    ],
)
def test_results_are_float64_if_an_input_has_64_bits_and_float32_otherwise(
    left, right, result, x64
):
    a, b = (jnp.array([0, 0, 2, 1]).astype(dtype) for dtype in (left, right))
    assert jax.eval_shape(boxes.enclosing, a, b).dtype == result
    value = boxes.iou(a, b)
    assert (value, value.dtype) == (1, result)
    assert boxes.area(a).dtype == ("float64" if jnp.dtype(left).itemsize == 8 else "float32")


def test_float64_numpy_boxes_are_float32_while_x64_is_off():
    value = boxes.iou(np.array([0.0, 0, 1, 1]), np.array([0.0, 0, 2, 1]))
    assert (value.dtype, value) == (jnp.float32, 0.5)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_numpy_integers_beyond_32_bits_raise_rather_than_wrap(dtype):
    large = np.array([0, 0, 5_000_000_000, 1], dtype)
    with pytest.raises(ValueError, match=r"a holds integers .* which do not fit in 32 bits"):
        boxes.iou(large, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="b holds integers"):
        boxes.iou(a=np.zeros(4, np.float32), b=large)
    with jax.enable_x64(True):
        assert boxes.area(large) == 5e9


def test_memory_mapped_integers_beyond_32_bits_raise_rather_than_wrap(tmp_path):
    large = np.memmap(tmp_path / "boxes", np.int64, "w+", shape=(4,))
    large[:] = [0, 0, 5_000_000_000, 1]
    with pytest.raises(ValueError, match="do not fit in 32 bits"):
        boxes.area(large)


def test_read_only_strided_and_fortran_ordered_arrays_are_taken():
    x = np.arange(48, dtype=np.float32).reshape(6, 8)[:, ::2]
    x.setflags(write=False)
    np.testing.assert_array_equal(boxes.area(x), reference.area(x))
    np.testing.assert_array_equal(boxes.area(np.asfortranarray(x)), reference.area(x))


# Golden cases: what other libraries got wrong -----------------------------------------------


def test_two_boxes_with_swapped_corners_have_iou_zero():
    # Signed areas would cancel to 0/0.
    assert boxes.iou(box(10, 40, 20, 20, dtype="int32"), box(60, 50, 40, 40, dtype="int32")) == 0


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("point", [(5, 5, 5, 5), (0, 0, 0, 0)])
def test_a_point_overlaps_itself_by_zero(name, point):
    assert evaluate(name, box(*point), box(*point)) == 0


@pytest.mark.parametrize("name", RANGES)
def test_a_box_inverted_in_both_directions_overlaps_itself_by_zero(name):
    # (-10) * (-10) is not an area of 100.
    assert evaluate(name, box(55, 60, 45, 50), box(55, 60, 45, 50)) == 0


def test_an_inverted_box_keeps_its_first_corner():
    # Collapsed to the point (100, 100): centres (100, 100) and (0.5, 0.5), hull [0, 0, 100, 100].
    value = boxes.diou(box(100, 100, 0, 0), box(0, 0, 1, 1))
    assert value == pytest.approx(-2 * 99.5**2 / (2 * 100**2), rel=1e-6)


def test_corners_swapped_by_float16_rounding_give_a_finite_value():
    drifted = box(100.06, 10, 100.0, 20, dtype="float16")
    assert drifted[2] < drifted[0]
    for name in RANGES:
        assert np.isfinite(evaluate(name, drifted, box(90, 10, 110, 20, dtype="float16")))


def test_the_area_of_an_int32_box_does_not_wrap():
    assert boxes.area(box(0, 0, 50000, 50000, dtype="int32")) == 2.5e9
    assert boxes.area(box(0, 0, 60000, 60000, dtype="int32")) == 3.6e9
    whole, half = box(0, 0, 60000, 60000, dtype="int32"), box(0, 0, 60000, 30000, dtype="int32")
    assert [evaluate(name, whole, half) for name in ("iou", "giou", "ioa", "dice")] == [
        0.5, 0.5, 0.5, np.float32(2 / 3),
    ]  # fmt: skip


def test_uint8_boxes_do_not_wrap_before_the_cast():
    a, b = box(0, 0, 10, 10, dtype="uint8"), box(20, 20, 30, 30, dtype="uint8")
    assert boxes.iou(a, b) == 0
    assert boxes.giou(a, b) == np.float32(-700 / 900)
    # An inverted one: 10 - 200 is not 66.
    assert boxes.area(box(200, 0, 10, 10, dtype="uint8")) == 0


def test_the_centre_of_a_uint8_or_float16_box_neither_wraps_nor_overflows():
    assert boxes.to_cxcywh(box(200, 10, 220, 30, dtype="uint8")).tolist() == [210, 20, 20, 20]
    assert boxes.to_cxcywh(box(32768, 0, 49152, 32, dtype="float16"))[0] == 40960


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int8", "float16", "bfloat16"])
def test_equal_boxes_of_any_type_have_iou_one_as_a_float(dtype):
    value = boxes.iou(box(1, 2, 4, 8, dtype=dtype), box(1, 2, 4, 8, dtype=dtype))
    assert (value, value.dtype) == (1, jnp.float32)


def test_bfloat16_boxes_are_what_bfloat16_holds():
    # Neighbours of 300 in bfloat16 are 298 and 302; 305.3 is stored as 306.
    assert boxes.area(box(300.3, 300.3, 305.3, 305.3, dtype="bfloat16")) == 36


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("side", [1.0, 1e-3, 1e-4, 1e-15])
def test_equal_squares_overlap_by_exactly_one_however_small(name, side):
    square = box(0, 0, side, side)
    assert evaluate(name, square, square) == 1


@pytest.mark.parametrize(
    ("dtype", "row"),
    [
        ("float32", (1000.3, 1000.7, 0.003, 0.003)),
        ("float32", (1000, 1000, 0.01, 0.01)),
        ("float16", (2000, 2000, 3, 3)),
        ("bfloat16", (2000, 2000, 3, 3)),
    ],
)
def test_a_box_given_by_centre_and_size_has_iou_one_with_itself(dtype, row):
    converted = boxes.from_cxcywh(box(*row, dtype=dtype))
    assert [evaluate(name, converted, converted) for name in RANGES] == [1] * len(RANGES)


@pytest.mark.parametrize("name", RANGES)
def test_moving_a_pair_far_away_changes_nothing_while_its_corners_are_representable(name):
    a, b = box(0, 0, 10.25, 8), box(3.5, 2, 12, 9.75)
    assert evaluate(name, a + np.float32(2e6), b + np.float32(2e6)) == evaluate(name, a, b)


def test_no_plus_one_is_added_to_widths():
    assert boxes.iou(box(0, 0, 10, 10), box(1, 1, 11, 11)) == np.float32(81 / 119)
    assert boxes.iou(box(0, 0, 10, 10), box(0, 5, 10, 10)) == 0.5


def test_inclusive_pixels_are_a_format_and_give_the_plus_one_iou():
    a, b = boxes.from_inclusive(array(0, 0, 10, 10)), boxes.from_inclusive(array(1, 1, 11, 11))
    assert boxes.iou(a, b) == np.float32(100 / 142)  # 11 * 11 twice, 10 * 10 shared


def test_ciou_is_the_paper_s_where_aspect_ratios_differ():
    # 2 x 1 and 1 x 2 at one corner: IoU 1/3, centres (1, .5) and (.5, 1), hull 2 x 2.
    v = 4 / math.pi**2 * (math.atan(0.5) - math.atan(2)) ** 2
    assert v == pytest.approx(0.16783, abs=1e-5)
    expected = 1 / 3 - 0.5 / 8 - v**2 / (1 - 1 / 3 + v)
    assert boxes.ciou(box(0, 0, 2, 1), box(0, 0, 1, 2)) == pytest.approx(expected, abs=1e-6)


def test_ciou_of_a_box_without_height_is_finite():
    # IoU 0, rho^2 / c^2 = 49^2 / 20000, v = 4/pi^2 (pi/4)^2 = 1/4, alpha = 1/5.
    flat, square = (200, 599, 300, 599), (200, 500, 300, 600)
    assert evaluate("ciou", box(*flat), box(*square)) == pytest.approx(
        -(49**2 / 20000) - 0.05, abs=1e-6
    )
    # Only the left edge of the hull moves with x1, by half as the edges coincide.
    expected = 49**2 / 20000 * (-100) / 20000
    assert gradient("ciou", flat, square)[0] == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(gradient("ciou", flat, square)).all()


def test_giou_of_far_boxes_is_near_minus_one_and_no_sentinel():
    value = boxes.giou(box(0, 0, 10, 10), box(1e6, 1e6, 1e6 + 1, 1e6 + 1))
    assert value == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("giou", (0, 0, 1, 1), (3, 0, 4, 1), -0.5),  # hull 4, union 2
        ("giou", (1, 2, 1, 2), (4, 6, 4, 6), -1),  # points: hull 12, nothing in it
        ("giou", (1, 2, 1, 5), (1, 7, 1, 9), 0),  # on one line: 0/0
        ("giou", (0, 0, 0, 2), (1, 0, 2, 2), -0.5),  # a line beside a box
        ("diou", (1, 2, 1, 2), (4, 6, 4, 6), -1),
        ("diou", (1, 2, 1, 5), (1, 7, 1, 9), -(4.5**2) / 7**2),
        ("diou", (0, 0, 4, 4), (1, 1, 3, 3), 0.25),  # one centre
        ("ciou", (1, 2, 1, 2), (1, 2, 1, 2), 0),
        ("ciou", (0, 0, 4, 4), (1, 1, 3, 3), 0.25),  # one shape: v = 0
        # Lines at right angles through one point: v = 1, alpha = 1/2, offset 1, hull 2 x 2.
        ("ciou", (0, 0, 2, 0), (0, 0, 0, 2), -0.25 - 0.5),
        ("ioa", (0, 0, 2, 2), (1, 0, 9, 9), 0.5),
        ("ioa", (1, 0, 9, 9), (0, 0, 2, 2), 2 / 72),
        ("ioa", (1, 1, 2, 2), (0, 0, 9, 9), 1),
        ("ioa", (5, 5, 5, 5), (0, 0, 9, 9), 0),  # an empty box within another
        ("dice", (0, 0, 3, 1), (1, 0, 4, 1), 2 / 3),
        ("iou", (0, 0, 2, 2), (2, 2, 4, 4), 0),  # corners touch
        ("iou", (0, 0, 2, 2), (0, 2, 2, 4), 0),  # edges touch
        ("union", (0, 0, 2, 2), (1, 1, 3, 3), 7),
        ("intersection", (0, 0, 2, 2), (1, 1, 3, 3), 1),
    ],
)
def test_values_at_the_edges_are_those_stated(name, a, b, expected):
    assert evaluate(name, box(*a), box(*b)) == pytest.approx(expected, rel=2e-7, abs=0)


# NaN -----------------------------------------------------------------------------------------


def poisoned(batch):
    """Boxes that hold NaN in one coordinate or in all, `[5, 4]`, made of one box."""
    rows = np.tile(batch, (5, 1))
    rows[np.arange(4), np.arange(4)] = NAN
    rows[4] = NAN
    return rows


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("other", [(0, 0, 2, 2), (7, 7, 9, 9), (1, 1, 1, 1), (3, 3, 2, 2)])
def test_nan_in_a_coordinate_makes_its_own_pair_nan(name, other):
    bad, good = poisoned(box(0, 0, 2, 2)), np.tile(box(*other), (5, 1))
    assert np.isnan(evaluate(name, bad, good)).all()
    assert np.isnan(evaluate(name, good, bad)).all()


@pytest.mark.parametrize("name", RANGES)
def test_nan_changes_no_other_value_and_no_other_gradient(name):
    def results(a, b):
        return [np.asarray(x) for x in (*slopes(name)(a, b), getattr(boxes, name)(a, b))]

    a, b = (x.copy() for x in reference.pairs("float32", COUNT, seed=3))
    clean = results(a, b)
    a[::4], b[1::4] = NAN, NAN
    for x, y in zip(results(a, b), clean, strict=True):
        np.testing.assert_array_equal(x[2::4], y[2::4])
        np.testing.assert_array_equal(x[3::4], y[3::4])


def test_conversions_and_clip_keep_nan_in_its_coordinate():
    row = array(1, NAN, 4, 8)
    assert np.isnan(boxes.clip(row, 5, 5)).tolist() == [False, True, False, False]
    assert np.isnan(boxes.from_xywh(row)).tolist() == [False, True, False, True]
    assert np.isnan(boxes.to_yxyx(row)).tolist() == [True, False, False, False]
    assert np.isnan(boxes.area(row))


# Exactness ---------------------------------------------------------------------------------


def self_pairs(dtype):
    """100,000 boxes: sides down to 1e-4 at offset 0, and representable ones at offset 1e6."""
    rng = np.random.default_rng(0)
    size = 10 ** rng.uniform(-4, 3, (50_000, 2))
    corner = rng.uniform(-1, 1, (50_000, 2)) * size
    near = np.concatenate([corner, corner + size], axis=1)
    # Multiples of 1/16, the spacing of float32 at 1e6.
    corner = 1e6 + rng.integers(0, 2**14, (50_000, 2)) / 16
    size = rng.integers(1, 2**12, (50_000, 2)) / 16
    far = np.concatenate([corner, corner + size], axis=1)
    return np.concatenate([near, far]).astype(dtype)


@pytest.mark.parametrize("name", RANGES)
def test_every_box_overlaps_itself_by_exactly_one_in_every_transformation(name):
    f, x = getattr(boxes, name), self_pairs("float32")
    sets = x.reshape(1000, 100, 4)
    for values in (
        f(x, x),
        jnp.diagonal(pairwise(f)(sets, sets), axis1=1, axis2=2),
        jax.vmap(f, (0, None))(np.tile(x[7], (64, 1)), x[7]),  # one divisor for a whole row
    ):
        assert (values == 1).all()


def test_every_box_overlaps_itself_by_exactly_one_if_it_is_one_argument():
    # XLA may merge what is equal, and all overlaps of one program.
    for values in jax.jit(lambda x: [getattr(boxes, name)(x, x) for name in RANGES])(
        self_pairs("float32")
    ):
        assert (values == 1).all()


def test_every_float64_box_overlaps_itself_by_exactly_one(x64):
    x = self_pairs("float64")
    sets = x.reshape(1000, 100, 4)
    for values in jax.jit(lambda x: [getattr(boxes, name)(x, x) for name in RANGES])(x):
        assert (values == 1).all()
    for values in jax.jit(lambda x: [pairwise(getattr(boxes, name))(x, x) for name in RANGES])(
        sets
    ):
        assert (jnp.diagonal(values, axis1=1, axis2=2) == 1).all()


def test_iou_has_the_same_bits_in_every_transformation():
    a, b = (x[::4000] for x in reference.pairs("float32", 10**6))
    assert a.shape == (250, 4)
    every = np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1))
    expected = evaluate("iou", *every).reshape(len(a), len(b))
    for values in (
        pairwise(boxes.iou)(a, b),
        boxes.iou(a[:, None], b[None]),
        jax.jit(jax.vmap(jax.vmap(boxes.iou, (None, 0)), (0, None)))(a, b),
        jax.vmap(jax.vmap(boxes.iou, (0, None)), (None, 0))(a, b).T,
        jax.jit(lambda a, b: (pairwise(boxes.iou)(a, b), pairwise(boxes.ciou)(a, b))[0])(a, b),
        jax.jit(lambda a, b: jax.lax.map(lambda x: boxes.iou(x, b), a))(a, b),
    ):
        np.testing.assert_array_equal(values, expected)
    with jax.disable_jit():
        np.testing.assert_array_equal(boxes.iou(a[:, None], b[None]), expected)
    one_by_one = [boxes.iou(x, y) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(one_by_one, expected.diagonal())


def test_float64_iou_has_the_same_bits_pairwise_and_pair_by_pair(x64):
    a, b = (x[::4000] for x in reference.pairs("float64", 10**6))
    np.testing.assert_array_equal(pairwise(boxes.iou)(a, b), boxes.iou(a[:, None], b[None]))


# Invariants ----------------------------------------------------------------------------------

settings = hypothesis.settings(
    max_examples=60, deadline=None, derandomize=True, database=None, print_blob=False
)


def lattice(denominator, limit):
    """Eight boxes of any kind whose corners are multiples of `1 / denominator`."""
    numbers = st.integers(-limit, limit)
    return st_numpy.arrays(np.int32, (8, 4), elements=numbers).map(
        lambda x: x.astype(np.float32) / np.float32(denominator)
    )


floats = st.floats(-1e4, 1e4, width=32, allow_subnormal=False)
eight = st.one_of(st_numpy.arrays(np.float32, (8, 4), elements=floats), lattice(1, 4))


@jax.jit
def every_overlap(a, b):
    return {name: getattr(boxes, name)(a, b) for name in (*OVERLAPS, "enclosing")}


def assert_same_bits(left, right, names):
    for name in names:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@settings
@hypothesis.given(eight, eight)
def test_every_overlap_but_ioa_is_symmetric_to_the_last_bit(a, b):
    assert_same_bits(every_overlap(a, b), every_overlap(b, a), [*SYMMETRIC, "enclosing"])


@settings
@hypothesis.given(eight, eight)
def test_overlaps_are_in_range_and_bound_each_other(a, b):
    values = {name: np.asarray(value) for name, value in every_overlap(a, b).items()}
    for name, (low, high) in RANGES.items():
        lowest = below(low, np.float32) if name == "ciou" else low
        assert ((values[name] >= lowest) & (values[name] <= high)).all()
    assert (values["giou"] <= values["iou"]).all()
    assert (values["ciou"] <= values["diou"] + 1e-6).all()
    assert (values["diou"] <= values["iou"]).all()
    assert (values["iou"] <= values["ioa"] + 1e-6).all()
    iou = values["iou"].astype(np.float64)
    np.testing.assert_allclose(values["dice"], 2 * iou / (1 + iou), atol=1e-6)


@settings
@hypothesis.given(lattice(8, 2**12), lattice(8, 2**12), st.integers(-(2**15), 2**15))
def test_a_representable_translation_changes_no_bit(a, b, offset):
    moved = every_overlap(a + np.float32(offset), b + np.float32(offset))
    assert_same_bits(moved, every_overlap(a, b), OVERLAPS)


@settings
@hypothesis.given(lattice(8, 2**12), lattice(8, 2**12), st.integers(-20, 20))
def test_scaling_by_a_power_of_two_changes_no_bit(a, b, exponent):
    scale = np.float32(2.0**exponent)
    assert_same_bits(every_overlap(a * scale, b * scale), every_overlap(a, b), RANGES)


def upright(box):
    """Corners in order, so that a mirrored box is the same set of points."""
    return np.concatenate(
        [np.minimum(box[:, :2], box[:, 2:]), np.maximum(box[:, :2], box[:, 2:])], 1
    )


@settings
@hypothesis.given(eight, eight)
def test_mirroring_changes_no_bit_and_turning_by_a_right_angle_only_the_last(a, b):
    a, b = upright(a), upright(b)
    values = every_overlap(a, b)
    left_right = np.float32([-1, 1, -1, 1])
    mirrored = every_overlap(a[:, [2, 1, 0, 3]] * left_right, b[:, [2, 1, 0, 3]] * left_right)
    assert_same_bits(mirrored, values, OVERLAPS)
    turned = every_overlap(a[:, [1, 0, 3, 2]], b[:, [1, 0, 3, 2]])
    solid = (reference.area(a) > 0) & (reference.area(b) > 0)  # the angle of a point is 0
    for name in RANGES:
        where = solid if name == "ciou" else slice(None)
        np.testing.assert_allclose(turned[name][where], values[name][where], atol=5e-7)


@settings
@hypothesis.given(eight, eight)
def test_a_box_within_another_shares_all_of_its_area(a, b):
    a = upright(a)
    around = reference.enclosing(a, upright(b)).astype(np.float32)
    values = every_overlap(a, around)
    np.testing.assert_array_equal(values["intersection"], boxes.area(a))
    np.testing.assert_array_equal(values["ioa"], reference.area(a) > 0)
    # |a| + |around| is rounded before |a| is taken away again.
    np.testing.assert_array_max_ulp(values["union"], np.asarray(boxes.area(around)), maxulp=2)
    np.testing.assert_allclose(values["giou"], values["iou"], rtol=0, atol=3e-7)


# Gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        # Identical: each edge of the intersection moves by half; I = U = 4.
        ("iou", (0, 0, 2, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("giou", (0, 0, 2, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("diou", (0, 0, 2, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("ciou", (0, 0, 2, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("dice", (0, 0, 2, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("ioa", (0, 0, 2, 2), (0, 0, 2, 2), [0.25, 0.25, -0.25, -0.25]),  # (-1 + 2) / 4
        ("intersection", (0, 0, 2, 2), (0, 0, 2, 2), [-1, -1, 1, 1]),
        ("union", (0, 0, 2, 2), (0, 0, 2, 2), [-1, -1, 1, 1]),
        # A side of 0 has half the slope of an open one, an inverted side none.
        ("union", (5, 0, 5, 2), (0, 0, 2, 2), [-1, 0, 1, 0]),
        ("union", (5, 0, 4, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        # Touching, by an edge or a corner: the intersection has no slope.
        ("iou", (0, 0, 2, 2), (2, 0, 4, 2), [0, 0, 0, 0]),
        ("iou", (0, 0, 2, 2), (2, 2, 4, 4), [0, 0, 0, 0]),
        ("dice", (0, 0, 2, 2), (2, 0, 4, 2), [0, 0, 0, 0]),
        ("ioa", (0, 0, 2, 2), (2, 0, 4, 2), [0, 0, 0, 0]),
        ("union", (0, 0, 2, 2), (2, 0, 4, 2), [-2, -2, 2, 2]),
        # GIoU = U/C - 1 with U = 8, C = 16: (dU C - U dC) / C^2.
        ("giou", (0, 0, 2, 2), (2, 2, 4, 4), [0, 0, 0.125, 0.125]),
        # DIoU: offset (-2, 0), hull 4 x 2, q = 4/20. x1: (-2 + q 8) / -20, x2: -2 / -20.
        ("diou", (0, 0, 2, 2), (2, 0, 4, 2), [0.02, -0.02, 0.1, 0.02]),
        # Disjoint.
        ("iou", (0, 0, 2, 2), (5, 0, 7, 2), [0, 0, 0, 0]),
        # GIoU: U = 8, C = 14; x1: (-2 * 14 + 8 * 2) / 196; x2: 2 / 14; y: (-2 * 14 + 8 * 3.5) = 0.
        ("giou", (0, 0, 2, 2), (5, 0, 7, 2), [-3 / 49, 0, 1 / 7, 0]),
        # Contained: U = 16 does not move, I = 1.
        ("iou", (1, 1, 2, 2), (0, 0, 4, 4), [-1 / 16, -1 / 16, 1 / 16, 1 / 16]),
        ("giou", (1, 1, 2, 2), (0, 0, 4, 4), [-1 / 16, -1 / 16, 1 / 16, 1 / 16]),
        ("ioa", (1, 1, 2, 2), (0, 0, 4, 4), [0, 0, 0, 0]),
        # Containing: I = 1 does not move, U = 16 does, by 4: q = 1/16.
        ("iou", (0, 0, 4, 4), (1, 1, 2, 2), [1 / 64, 1 / 64, -1 / 64, -1 / 64]),
        ("giou", (0, 0, 4, 4), (1, 1, 2, 2), [1 / 64, 1 / 64, -1 / 64, -1 / 64]),
        # Two shared edges: I and U move by -1 each with x1, the mean of 0 and -2.
        ("iou", (0, 0, 2, 2), (0, 0, 4, 4), [-0.75 / 16, -0.75 / 16, 0.125, 0.125]),
        # The hull moves by -2, the mean of 0 and -4, and leaves (-2 + 1) / 16 of it uncovered.
        ("giou", (0, 0, 2, 2), (0, 0, 4, 4), [0.25 / 16, 0.25 / 16, 0.125, 0.125]),
        # Not equal, but the IoU rounds to 1: a's left edge alone moves U, by -1 of 4096.
        ("iou", (0, 0, 4096, 1), (2**-14, 0, 4096, 1), [1 / 4096, 0, 0, 0]),
        # A side of zero: nothing shared, no slope, wherever the other box is.
        ("iou", (1, 0, 1, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("dice", (1, 0, 1, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        # GIoU counts the area that would open, half of 2: U = C = 4; y: half of the hull's 2.
        ("giou", (1, 0, 1, 2), (0, 0, 2, 2), [-0.25, 0.25, 0.25, -0.25]),
        ("ioa", (1, 0, 1, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("iou", (0, 0, 2, 2), (1, 0, 1, 2), [0, 0, 0, 0]),
        # DIoU at a side of zero: offset (0.5, 0) of 1.5 and 1, hull 2 x 2, both edges inside.
        # x1: -(0.5 + 0.25) / 8, x2: -0.25 / 8; y: the hull's height moves by half, q = 1/32.
        ("diou", (1.5, 0, 1.5, 2), (0, 0, 2, 2), [-3 / 32, -1 / 128, -1 / 32, 1 / 128]),
        # Inverted: x2 has no say, the box is the line x = 5, hull 5 x 2, U = 4.
        ("iou", (5, 0, 4, 2), (0, 0, 2, 2), [0, 0, 0, 0]),
        ("giou", (5, 0, 4, 2), (0, 0, 2, 2), [-0.08, 0.1, 0, -0.1]),
        # Empty pairs, equal and not.
        ("iou", (0, 0, 0, 0), (0, 0, 0, 0), [0, 0, 0, 0]),
        ("giou", (0, 0, 0, 0), (0, 0, 0, 0), [0, 0, 0, 0]),
        ("diou", (0, 0, 0, 0), (0, 0, 0, 0), [0, 0, 0, 0]),
        ("ciou", (0, 0, 0, 0), (0, 0, 0, 0), [0, 0, 0, 0]),
        ("ioa", (0, 0, 0, 0), (0, 0, 0, 0), [0, 0, 0, 0]),
        ("dice", (0, 0, 0, 0), (0, 0, 0, 0), [0, 0, 0, 0]),
        # Points at offset (-3, -4), hull 3 x 4, q = 1. x1 moves the centre by 3/4 (x2 follows
        # it by half) and the hull by 1: (2 * -3 * 3/4 + 2 * 3) / -25; x2 the centre by 1/4.
        ("diou", (1, 2, 1, 2), (4, 6, 4, 6), [-0.06, -0.08, 0.06, 0.08]),
        # A hull with area and nothing in it: U = 0 has no slope, and GIoU = U/C - 1.
        ("giou", (1, 2, 1, 2), (4, 6, 4, 6), [0, 0, 0, 0]),
    ],
)
def test_gradients_at_the_kinks_are_those_stated(name, a, b, expected):
    np.testing.assert_allclose(gradient(name, a, b), expected, rtol=2e-6, atol=1e-8)


def test_the_gradient_is_zero_where_it_has_to_be_exactly_zero():
    for a, b in [((0, 0, 2, 2), (0, 0, 2, 2)), ((0, 0, 2, 2), (5, 5, 6, 6)), ((0,) * 4, (0,) * 4)]:
        for name in ("iou", "dice"):
            assert gradient(name, a, b) == [0, 0, 0, 0]


def test_the_giou_of_a_box_about_to_open_has_the_mean_of_its_one_sided_slopes():
    # The line x = 5 and a square, U = 4, C = 10. If x2 grows, U and C grow by 2 each:
    # (2 * 10 - 4 * 2) / 100 = 0.12; if it shrinks the box stays collapsed: 0. If x1 grows,
    # the collapsed box moves: -4 * 2 / 100; if it shrinks the box opens: -2 / 10.
    slopes = gradient("giou", (5, 0, 5, 2), (0, 0, 2, 2))
    np.testing.assert_allclose(slopes, [-0.14, 0.1, 0.06, -0.1], rtol=1e-5)


def test_the_giou_of_boxes_that_touch_in_a_row_has_the_slope_it_has_on_both_sides():
    # A step of h apart: U = 8 - 2h, C = 8. A step of h into each other: I = 2h, U = C = 8 - ...
    # Both times GIoU moves by h / 4 to first order.
    a, b = np.array([0.0, 0, 2, 2]), np.array([2.0, 0, 4, 2])
    for h in (1e-6, -1e-6):
        moved = reference.giou(a + np.array([0, 0, h, 0]), b) - reference.giou(a, b)
        assert moved / h == pytest.approx(0.25, rel=1e-5)
    np.testing.assert_allclose(gradient("giou", a, b), [0, 0, 0.25, 0], atol=1e-6)


def ordinary(dtype):
    """Pairs of boxes of sides 1 to 10 with no two edges within 0.01."""
    rng = np.random.default_rng(0)
    corner, size = rng.uniform(0, 10, (2, 4 * COUNT, 2)), rng.uniform(1, 10, (2, 4 * COUNT, 2))
    a, b = np.concatenate([corner, corner + size], axis=-1).astype(dtype)
    apart = np.abs(a.reshape(-1, 2, 1, 2) - b.reshape(-1, 1, 2, 2)).min(axis=(1, 2, 3)) > 0.01
    a, b = a[apart][:COUNT], b[apart][:COUNT]
    assert len(a) == COUNT
    assert 0.1 < (reference.iou(a, b) == 0).mean() < 0.9
    return a, b


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-8)])
def test_gradients_equal_central_differences_away_from_kinks(name, dtype, tolerance):
    a, b = ordinary(dtype)
    oracle = getattr(reference, name)
    if name == "ciou":  # alpha is a constant to the gradient
        oracle = functools.partial(oracle, weight=reference.alpha(a, b))
    with jax.enable_x64(dtype == "float64"):
        by_a, by_b = map(np.asarray, slopes(name)(a, b))
    for values, expected in (
        (by_a, reference.slopes(lambda x: oracle(x, b), a)),
        (by_b, reference.slopes(lambda x: oracle(a, x), b)),
    ):
        np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)


# CIoU's gradient moves with alpha, the derivative of its gradient does not.
@pytest.mark.parametrize("name", ["giou", "ioa"])
def test_second_derivatives_equal_differences_of_the_gradient_away_from_kinks(name, x64):
    a, b = ordinary("float64")
    rows = np.arange(COUNT) % 8
    result = np.asarray(curvature(name)(np.concatenate([a, b], axis=1), rows))

    def slope(a, b):
        both = np.concatenate(slopes(name)(a, b), axis=1)
        return both[np.arange(COUNT), rows]

    by_a = reference.slopes(lambda x: slope(x, b), a)
    by_b = reference.slopes(lambda x: slope(a, x), b)
    expected = np.concatenate([by_a, by_b], axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_first_derivatives_are_finite_over_the_stated_range(name, dtype):
    a, b = reference.pairs(dtype, 25 * COUNT, seed=1)
    with jax.enable_x64(dtype == "float64"):
        for i in range(0, len(a), COUNT):
            by_a, by_b = slopes(name)(a[i : i + COUNT], b[i : i + COUNT])
            assert np.isfinite(by_a).all()
            assert np.isfinite(by_b).all()


def curvatures_are_finite(name, dtype, largest):
    a, b = reference.pairs(dtype, 25 * COUNT, seed=2, smallest=1e-9, largest=largest)
    x = np.concatenate([a, b], axis=1)
    rows = np.random.default_rng(0).integers(8, size=len(x))
    with jax.enable_x64(dtype == "float64"):
        for i in range(0, len(x), COUNT):
            if not np.isfinite(curvature(name)(x[i : i + COUNT], rows[i : i + COUNT])).all():
                return False
    return True


# A term of CIoU that were not finite, IoU or DIoU, would make CIoU's derivative so too.
@pytest.mark.parametrize("name", ["giou", "ciou", "ioa"])
@pytest.mark.parametrize(("dtype", "largest"), [("float32", 1e4), ("float64", 1e150)])
def test_second_derivatives_are_finite_for_sides_of_zero_or_from_1e_9(name, dtype, largest):
    assert curvatures_are_finite(name, dtype, largest)


@pytest.mark.xfail(reason="NaN for a line 1e6 or longer beside a box of side 1e-9")
def test_second_derivatives_are_finite_for_sides_of_zero_or_from_1e_9_and_up_to_1e15():
    assert curvatures_are_finite("giou", "float32", 1e15)


@pytest.mark.parametrize("name", RANGES)
def test_points_nearer_than_the_stated_range_stay_finite(name):
    # Distances whose squares vanish or lose bits; the stated range ends at 1e-15.
    for distance in (1e-17, 1e-18, 1e-19, 1e-20, 1e-22, 1e-25, 1e-38):
        point, other = (distance, distance / 3) * 2, (0, 0, 0, 0)
        assert np.isfinite(evaluate(name, box(*point), box(*other)))
        assert np.isfinite(gradient(name, point, other)).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_gradients_have_the_type_of_their_input(dtype):
    a, b = box(0, 0, 2, 2, dtype=dtype), box(1, 1, 3, 3)
    by_a, by_b = jax.jit(jax.grad(boxes.iou, (0, 1)))(a, b)
    assert (by_a.dtype, by_b.dtype) == (a.dtype, jnp.float32)
    # I = 1, U = 7; x1: (0 + 2 / 7) / 7 = 2/49, x2: (1 - (2 - 1) / 7) / 7 = 6/49.
    expected = np.array([2, 2, 6, 6]) / 49 * [1, 1, 1, 1]
    np.testing.assert_allclose(np.asarray(by_a, np.float32), expected, rtol=2**-8)


# Formats -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("xywh", [10, 20, 30, 40]),
        ("cxcywh", [25, 40, 30, 40]),
        ("yxyx", [20, 10, 60, 40]),
        ("inclusive", [10, 20, 39, 59]),
    ],
)
def test_a_box_in_every_format(name, row):
    # Columns 10 to 40, rows 20 to 60.
    corners = [10, 20, 40, 60]
    for dtype in ("float32", "int32", "uint8", "float16"):
        assert getattr(boxes, f"from_{name}")(box(*row, dtype=dtype)).tolist() == corners
        assert getattr(boxes, f"to_{name}")(box(*corners, dtype=dtype)).tolist() == row
    assert getattr(boxes, f"from_{name}")(jnp.zeros((0, 3, 4))).shape == (0, 3, 4)


@pytest.mark.parametrize("name", ["xywh", "cxcywh", "yxyx", "inclusive"])
def test_formats_there_and_back(name):
    there, back = getattr(boxes, f"to_{name}"), getattr(boxes, f"from_{name}")
    # Exactly on a lattice, inverted boxes included; up to rounding elsewhere.
    lattice = np.random.default_rng(0).integers(-(2**12), 2**12, (1000, 4)).astype(np.float32) / 4
    np.testing.assert_array_equal(back(there(lattice)), lattice)
    np.testing.assert_array_equal(there(back(lattice)), lattice)
    a = np.random.default_rng(0).uniform(-1, 1, (1000, 4)).astype(np.float32)
    np.testing.assert_allclose(back(there(a)), a, atol=3e-7)


def test_a_pixel_box_of_negative_size_stays_inverted():
    assert boxes.from_xywh(array(5, 5, -2, 1)).tolist() == [5, 5, 3, 6]
    assert boxes.to_xywh(array(5, 5, 3, 6)).tolist() == [5, 5, -2, 1]
    assert boxes.to_xywh(box(5, 5, 3, 6, dtype="uint8")).tolist() == [5, 5, -2, 1]


# Clip, validity, the host's check -------------------------------------------------------------


def test_clip_equals_numpy_s_clip():
    a, _ = reference.pairs("float32", 1000, seed=4)
    expected = np.clip(a, 0, np.float32([80, 60, 80, 60]))
    np.testing.assert_array_equal(boxes.clip(a, 60, 80), expected)
    np.testing.assert_array_equal(boxes.clip(a, height=60.0, width=jnp.int32(80)), expected)
    traced = jax.jit(boxes.clip)(a, jnp.float32(60), jnp.int32(80))
    np.testing.assert_array_equal(traced, expected)


def test_clip_has_slope_one_inside_zero_outside_and_a_half_on_the_border():
    slopes = jax.grad(lambda x: boxes.clip(x, 10, 10).sum())(array(-1, 0, 5, 10))
    assert slopes.tolist() == [0, 0.5, 1, 0.5]


def test_clip_of_whole_numbers_gives_floats():
    clipped = boxes.clip(box(-5, 10, 50, 90, dtype="int32"), 60, 40)
    assert (clipped.tolist(), clipped.dtype) == ([0, 10, 40, 60], jnp.float32)


def test_a_numpy_limit_beyond_32_bits_raises_rather_than_wraps():
    with pytest.raises(ValueError, match=r"width holds integers .* do not fit in 32 bits"):
        boxes.clip(box(0, 0, 9, 9), 5, np.int64(3_000_000_000))


def test_clip_names_a_limit_that_is_no_number(without_jaxtyping):
    with pytest.raises(ValueError, match=r"height must be a number, got shape \[2\]"):
        boxes.clip(jnp.zeros(4), jnp.zeros(2), 5)
    with pytest.raises(TypeError, match="width must hold floats or integers"):
        boxes.clip(jnp.zeros(4), 5, True)


def test_a_valid_box_is_finite_and_has_a_width_and_a_height():
    rows = {
        (0, 0, 4, 3): True,
        (0, 0, 1e-30, 1e-30): True,
        (4, 0, 0, 3): False,
        (0, 3, 4, 0): False,
        (0, 0, 0, 3): False,
        (0, 0, 4, 0): False,
        (NAN, 0, 4, 3): False,
        (0, 0, 4, NAN): False,
        (0, 0, math.inf, 3): False,
        (-math.inf, 0, 4, 3): False,
    }
    assert boxes.is_valid(array(*rows)).tolist() == list(rows.values())
    assert boxes.is_valid(box(0, 0, 1, 1, dtype="uint8"))
    assert not boxes.is_valid(box(9, 0, 1, 1, dtype="uint8"))


def test_the_least_size_is_allowed_itself():
    assert boxes.is_valid(array((0, 0, 2, 2), (0, 0, 2, 1.5)), min_size=2).tolist() == [True, False]
    assert not boxes.is_valid(array(0, 0, 0, 0), min_size=-1)


def test_check_values_names_the_first_bad_box_and_counts_them():
    good = np.array([[0, 0, 4, 3]], np.float32)
    assert boxes.check_values(good) is None
    assert boxes.check_values(np.zeros((0, 4), np.float32)) is None
    cases = {
        (4, 0, 0, 3): "regions[1] is [4.0, 0.0, 0.0, 3.0]: x2 must exceed x1",
        (0, 0, 0, 3): "regions[1] is [0.0, 0.0, 0.0, 3.0]: x2 must exceed x1",
        (0, 3, 4, 3): "regions[1] is [0.0, 3.0, 4.0, 3.0]: y2 must exceed y1",
        (0, 0, NAN, 3): "regions[1] is [0.0, 0.0, nan, 3.0]: corners must be finite",
        (0, 0, math.inf, 3): "regions[1] is [0.0, 0.0, inf, 3.0]: corners must be finite",
    }
    for row, message in cases.items():
        with pytest.raises(ValueError) as error:  # noqa: PT011
            boxes.check_values(np.concatenate([good, box(*row)[None], good]))
        assert str(error.value) == f"{message} (1 of 3 boxes is invalid)"


def test_check_values_finds_a_place_in_a_batch():
    rows = np.tile(np.array([0, 0, 4, 3], np.int32), (2, 3, 1))
    rows[1, 2] = rows[1, 0] = 7
    message = r"^regions\[1, 0\] is \[7.0, .*\]: x2 .* \(2 of 6 boxes are invalid\)$"
    with pytest.raises(ValueError, match=message):
        boxes.check_values(jnp.asarray(rows))
    with pytest.raises(ValueError, match=r"^regions is \[7.0, .*\]: x2 .* \(1 of 1 boxes"):
        boxes.check_values(rows[1, 0])


def test_check_values_does_not_look_where_it_is_told_not_to():
    rows = np.array([[4, 0, 0, 3], [0, 0, 1, 1], [NAN] * 4], np.float32)
    assert boxes.check_values(rows, where=np.array([False, True, False])) is None
    with pytest.raises(ValueError, match=r"regions\[2\] .* finite \(1 of 3"):
        boxes.check_values(rows, where=jnp.array([False, True, True]))


def test_check_values_raises_on_tracers_and_wrong_masks(without_jaxtyping):
    with pytest.raises(TypeError, match="regions is traced and has no values yet"):
        jax.jit(boxes.check_values)(jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"where must have rank 1 and broadcast to \[2\]"):
        boxes.check_values(jnp.zeros((2, 4)), where=jnp.ones((2, 4), bool))
    with pytest.raises(TypeError, match="where must be boolean"):
        boxes.check_values(jnp.zeros((2, 4)), where=jnp.ones(2))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (np.array([1e9, 0, 1e9 + 1, 5]), "x2 must exceed x1"),
        (np.array([2**24, 0, 2**24 + 1, 5], np.int32), "x2 must exceed x1"),
        (np.array([0.0, 0, 1e300, 5]), "finite"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_check_values_gives_the_right_reason_for_a_box_that_float32_cannot_hold(row, reason):
    with pytest.raises(ValueError, match=reason):
        boxes.check_values(row)
