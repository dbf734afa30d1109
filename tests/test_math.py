"""The arithmetic everything rests on: values, NaN, and derivatives where plain ones fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou._math import (
    absolute,
    carry_nan,
    maximum,
    minimum,
    never_negative,
    per_pair,
    positive_part,
    product,
    safe_arctan2,
    safe_divide,
    safe_power,
    safe_sqrt,
    stored_product,
)

# Of numbers that are right to the last bit: no fused multiply-add may change them.
pytestmark = pytest.mark.usefixtures("compiled_as_users_have_it")

NAN = float("nan")
root3 = functools.partial(safe_power, exponent=1 / 3)
cube = functools.partial(safe_power, exponent=3.0)

UNARY = {
    "positive_part": positive_part,
    "never_negative": never_negative,
    "absolute": absolute,
    "safe_sqrt": safe_sqrt,
    "root3": root3,
    "cube": cube,
}
BINARY = {
    "safe_divide": safe_divide,
    "product": product,
    "stored_product": stored_product,
    "maximum": maximum,
    "minimum": minimum,
    "safe_arctan2": safe_arctan2,
}
PLAIN = {
    "positive_part": lambda x: np.maximum(x, 0),
    "never_negative": lambda x: np.maximum(x, 0),
    "absolute": np.abs,
    "safe_sqrt": np.sqrt,
    "root3": lambda x: x ** (1 / 3),
    "cube": lambda x: x**3,
    "safe_divide": np.divide,
    "product": np.multiply,
    "stored_product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "safe_arctan2": np.arctan2,
}


@functools.cache
def derivatives(f, count):
    """The value, the first and the second derivatives of `f`, the latter in two ways."""
    places = tuple(range(count))
    slopes = jax.grad(f, places)

    def at(*x):
        reverse, forward = jax.jacrev(slopes, places)(*x), jax.jacfwd(slopes, places)(*x)
        return f(*x), jnp.stack(slopes(*x)), jnp.array(reverse), jnp.array(forward)

    return jax.jit(at)


def first(f, *x):
    value, slopes, _, _ = derivatives(f, len(x))(*map(jnp.float32, x))
    return [float(value), *slopes.tolist()]


def second(f, *x):
    _, _, reverse, forward = derivatives(f, len(x))(*map(jnp.float32, x))
    np.testing.assert_array_equal(reverse, forward)
    return reverse.tolist()


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_away_from_the_special_points_it_is_the_plain_function(name):
    f, plain, count = (UNARY | BINARY)[name], PLAIN[name], 2 if name in BINARY else 1
    x = np.random.default_rng(0).uniform(0.1, 9, (count, 1000)).astype(np.float32)
    x = x[:, np.abs(x[0] - x[-1] * (count == 2)) > 1e-3]
    exact = x.astype(np.float64)
    value, *slopes = jax.jit(jax.vmap(lambda *x: (f(*x), *jax.grad(f, range(count))(*x))))(*x)
    np.testing.assert_allclose(value, plain(*exact), rtol=3e-7)
    for step, slope in zip(1e-5 * np.eye(count)[:, :, None], slopes, strict=True):
        expected = (plain(*(exact + step)) - plain(*(exact - step))) / 2e-5
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtypes", [["bfloat16", "float16", "float32"], ["float64"]])
def test_value_and_gradient_keep_the_dtype(dtypes):
    with jax.enable_x64("float64" in dtypes):
        for f, count in [*((f, 1) for f in UNARY.values()), *((f, 2) for f in BINARY.values())]:
            for dtype in dtypes:
                x = [jax.ShapeDtypeStruct((), jnp.dtype(dtype))] * count
                out = jax.eval_shape(jax.value_and_grad(f, tuple(range(count))), *x)
                assert [leaf.dtype for leaf in jax.tree.leaves(out)] == [dtype] * (1 + count)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_nan_passes_through_and_makes_no_other_element_nan(name):
    f = (UNARY | BINARY)[name]
    if name in UNARY:
        assert np.isnan(f(jnp.array([NAN, 4.0]))).tolist() == [True, False]
        return
    # A maximum and a minimum forget NaN in their first argument, for speed.
    forgets = name in ("maximum", "minimum")
    x, y = jnp.array([NAN, 1.0, NAN, 4.0]), jnp.array([1.0, NAN, NAN, 2.0])
    assert np.isnan(f(x, y)).tolist() == [not forgets, True, True, False]


def test_nan_is_carried_from_one_number_to_another():
    value, source = jnp.array([1.0, 2.0, NAN]), jnp.array([NAN, 4.0, 5.0])
    assert np.isnan(carry_nan(value, source)).tolist() == [True, False, True]
    assert carry_nan(value, source)[1] == 2
    slopes = jax.grad(lambda v, s: carry_nan(v, s).sum(), (0, 1))(value[1:2], source[1:2])
    assert [s.tolist() for s in slopes] == [[1], [0]]


def test_gradients_at_zero_are_clean_under_debug_nans_one_operation_after_another():
    with jax.debug_nans(True):
        for f, count in [*((f, 1) for f in UNARY.values()), *((f, 2) for f in BINARY.values())]:
            slopes = jax.grad(f, tuple(range(count)))(*(jnp.zeros(()),) * count)
            assert np.isfinite(slopes).all()


def test_division_by_zero_gives_zero_and_no_slope():
    assert first(safe_divide, 0, 0) == [0, 0, 0]
    assert first(safe_divide, 5, 0) == [0, 0, 0]
    assert second(safe_divide, 5, 0) == [[0, 0], [0, 0]]


def test_zero_over_something_is_zero_with_the_slope_of_a_quotient():
    assert first(safe_divide, 0, 4) == [0, 0.25, 0]
    assert first(safe_divide, 3, 4) == [0.75, 0.25, -0.1875]  # -3/16
    assert second(safe_divide, 3, 4) == [[0, -0.0625], [-0.0625, 0.09375]]  # 2 * 3/64


def test_slope_of_a_quotient_survives_denominators_whose_square_vanishes():
    y = 1e-30  # 1e-60 is 0 in float32
    value, by_x, by_y = first(safe_divide, 0.5 * y, y)
    assert value == 0.5
    assert by_x == pytest.approx(1e30, rel=1e-6)
    assert by_y == pytest.approx(-0.5e30, rel=1e-6)
    value, by_x, by_y = first(safe_divide, 2e30, 4e30)  # 1.6e61 is infinite in float32
    assert [value, by_x, by_y] == pytest.approx([0.5, 0.25e-30, -0.125e-30], rel=1e-6)


def test_a_number_other_than_zero_over_itself_is_exactly_one():
    x = jnp.asarray(np.random.default_rng(0).uniform(1e-6, 1e6, 5000), jnp.float32)
    assert (jax.jit(safe_divide)(x, x) == 1).all()


def test_one_divisor_for_many_numbers_divides_each_of_them_truly():
    # XLA would multiply by the rounded reciprocal of y, which is off for one y in six.
    y = jnp.asarray(np.random.default_rng(0).uniform(1e-6, 1e6, (500, 1)), jnp.float32)
    rows = jax.jit(lambda x, y: safe_divide(x, per_pair(y, x)))(jnp.tile(y, 64), y)
    assert (rows == 1).all()


@pytest.mark.parametrize("multiply", [product, stored_product])
def test_a_product_is_rounded_before_it_is_added_to(multiply):
    # (1 + e)^2 - (1 + 2 e) is e^2, and 0 if the product is rounded first.
    x = jnp.full(1000, 1 + 2.0**-12, jnp.float32)
    difference = jax.jit(lambda x, y: multiply(x, x) - y)(x, x + 2.0**-12)
    assert (difference == 0).all()


def test_ties_of_maximum_and_minimum_split_the_slope_evenly():
    assert first(maximum, 3, 3) == first(minimum, 3, 3) == [3, 0.5, 0.5]
    assert first(maximum, 0.0, -0.0)[1:] == [0.5, 0.5]
    assert first(maximum, 2, 3) == [3, 0, 1]
    assert first(minimum, 2, 3) == [2, 1, 0]
    assert second(maximum, 3, 3) == second(minimum, 3, 3) == [[0, 0], [0, 0]]


def test_positive_part_has_no_slope_at_zero():
    assert first(positive_part, 0) == [0, 0]
    assert first(positive_part, -1) == [0, 0]
    assert first(positive_part, 2) == [2, 1]
    assert second(positive_part, 0) == [[0]]


def test_what_only_rounding_makes_negative_keeps_its_slope():
    assert first(never_negative, 0) == [0, 1]
    assert first(never_negative, -1e-7) == [0, 1]
    assert first(never_negative, 2) == [2, 1]
    assert second(never_negative, 0) == [[0]]


def test_absolute_value_has_no_slope_at_zero():
    assert first(absolute, 0) == [0, 0]
    assert first(absolute, -3) == [3, -1]
    assert first(absolute, 3) == [3, 1]


def test_square_root_of_zero_has_slope_zero_and_of_a_negative_number_is_nan():
    assert first(safe_sqrt, 0) == [0, 0]
    assert first(safe_sqrt, 4) == [2, 0.25]
    assert second(safe_sqrt, 0) == [[0]]
    assert np.isnan(safe_sqrt(jnp.array(-1.0)))


def test_power_of_zero_has_slope_zero():
    assert first(root3, 0) == [0, 0]
    assert first(functools.partial(safe_power, exponent=0.5), 4) == [2, 0.25]
    assert second(root3, 0) == [[0]]


def test_angle_of_the_origin_is_zero_with_slope_zero():
    assert first(safe_arctan2, 0, 0) == [0, 0, 0]
    assert second(safe_arctan2, 0, 0) == [[0, 0], [0, 0]]
    # Along the axes: d/dy = x / r^2, d/dx = -y / r^2.
    assert first(safe_arctan2, 0, 2) == [0, 0.5, 0]
    assert first(safe_arctan2, 2, 0) == pytest.approx([np.pi / 2, 0, -0.5], rel=1e-6)
