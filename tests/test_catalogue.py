"""Every row of the catalogue through every transformation.

A test is one row and one group of transformations, so that pytest-xdist can balance them.
Tracing and compiling are nearly all of the cost, and gradients most of that: inputs are
small and alike for all rows, and what can share a compilation does. The value that all else
is compared with is compiled as users have it, all else quickly.
"""

import functools
import re

import catalogue
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from catalogue.row import TRANSFORMATIONS, Row, box_pair
from compiling import AS_USERS
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

ITEMS = 8
"""Items in a batch: two for each of four devices."""

ULPS = 4
"""How far two compilations of one function may differ, in spacings of its largest result.

XLA contracts a multiplication and an addition into one rounding where both are in one loop.
The worst row measured is `variants.powerful_iou_v2` with 3, all others have 0 or 1.
"""

GRADIENT_TOLERANCE = {np.float32: 1e-5, np.float64: 1e-8}
"""How far a derivative may lie from differences, relative to the largest of its array."""

STEP = 1e-5
"""Of central differences: their error is then near 1e-10 for sides of 2 to 30."""

every_row = pytest.mark.parametrize(
    "row",
    catalogue.ROWS,
    ids=lambda row: row.name,
    scope="module",  # pytest then runs one row's tests together, and they share programs
)


@pytest.fixture
def applies(record_property):
    """Whether a transformation applies to a row; exemptions go to the terminal summary."""

    def applies(row: Row, transformation: str) -> bool:
        if transformation in row.exempt:
            record_property("exempt", (row.name, row.exempt[transformation], transformation))
        return transformation not in row.exempt

    return applies


@pytest.fixture
def traces():
    """A list that grows whenever JAX traces or compiles a function."""
    events = []

    def listen(event, *_, **__):
        if event.startswith("/jax/core/compile/"):
            events.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


# What the tests share: inputs, functions, comparisons.


def inputs(row: Row, dtype=np.float32):
    """Eight items, stacked, with floats as `dtype`."""
    items = [row.item(np.random.default_rng(seed)) for seed in range(ITEMS)]
    args = as_type(stack(items), dtype)
    # Data may be NumPy's; what the library made, such as a `Match`, holds JAX arrays.
    return tuple(x if isinstance(x, np.ndarray) else jax.tree.map(jnp.asarray, x) for x in args)


def masked_inputs(row: Row, dtype=np.float32):
    """The inputs with NaN in all that does not count, and the masks that say what does."""
    assert row.where
    # Other seeds than those of the inputs.
    where, counts = stack([row.where(np.random.default_rng(100 + i)) for i in range(ITEMS)])
    args = list(inputs(row, dtype))
    for place, count in enumerate(counts):
        if count is not None:
            count = count.reshape(count.shape + (1,) * (args[place].ndim - count.ndim))
            args[place] = np.where(count, args[place], np.array(np.nan, dtype))
    return tuple(args), where


def first(tree, item=0):
    return jax.tree.map(lambda x: x[item], tree)


def mask_of_ones(row: Row):
    return np.ones_like(masked_inputs(row)[1]) if row.where else None


def stack(items):
    return jax.tree.map(lambda *x: np.stack(x), *items)


def as_type(args, dtype):
    """Floats as `dtype`, rounded if it is an integer; integers and bools as they are."""

    def leaf(x):
        if not is_float(x):
            return x
        return (np.round(x) if jnp.issubdtype(dtype, jnp.integer) else x).astype(dtype)

    return jax.tree.map(leaf, args)


def is_float(x) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def floats(tree):
    return [x for x in jax.tree.leaves(tree) if is_float(x)]


def normal(tree, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(x.dtype), tree)


def call(row: Row, args, where=None):
    """The row's function over a leading axis of items."""

    def function(where, *args):
        return row.function(*args) if where is None else row.function(*args, where=where)

    return (function if row.leading else jax.vmap(function))(where, *args)


def differentiable(row: Row, args):
    return [args[place] for place in row.differentiable]


def derivatives(row: Row, args, cotangents=None, tangents=None, where=None):
    """The value; the gradient of its floats, weighted by `cotangents`, or by 1; and their
    slopes along `tangents`, if there are any.
    """

    def f(*xs):
        full = list(args)
        for place, x in zip(row.differentiable, xs, strict=True):
            full[place] = x
        value = call(row, full, where)
        return floats(value), value

    xs = differentiable(row, args)
    if not xs:
        return call(row, args, where), (), ()
    results, pullback, value = jax.vjp(f, *xs, has_aux=True)
    gradients = pullback(cotangents or [jnp.ones_like(x) for x in results])
    slopes = tangents and jax.jvp(f, tuple(xs), tuple(tangents), has_aux=True)[1]
    return value, gradients, slopes


@functools.cache
def compiled(row: Row):
    return jax.jit(functools.partial(call, row), compiler_options=AS_USERS)


@functools.cache
def compiled_derivatives(row: Row):
    return jax.jit(functools.partial(derivatives, row))


def directions(row: Row, dtype=np.float32):
    """Cotangents and tangents, normal numbers."""
    args = inputs(row, dtype)
    results = floats(jax.eval_shape(functools.partial(call, row), args))
    return normal(results, seed=1), normal(differentiable(row, args), seed=2)


@functools.cache
def differences(row: Row):
    """Slopes by central differences in float64, `[argument][result]`, each of shape
    `[elements of one item's argument, items, *result of one item]`.
    """
    args = inputs(row, np.float64)
    xs = differentiable(row, args)
    ends = np.cumsum([x[0].size for x in xs])
    shifted = list(args)
    for place, x, end in zip(row.differentiable, xs, ends, strict=True):
        steps = np.zeros((ends[-1], x[0].size))
        steps[end - x[0].size : end] = STEP * np.eye(x[0].size)
        steps = steps.reshape(-1, 1, *x.shape[1:])
        shifted[place] = np.stack([x + steps, x - steps])
    axes = [0 if place in row.differentiable else None for place in range(len(args))]

    def everywhere(function):
        return jax.vmap(jax.vmap(function, axes), axes)(*shifted)

    if row.frozen is None:
        run = jax.jit(lambda: floats(everywhere(lambda *args: call(row, args))))
        results = run()
    else:
        held = row.frozen(*args)
        np.testing.assert_allclose(held(*args), call(row, args), rtol=1e-12, atol=1e-12)
        results = [held(*shifted)]
    slopes = [np.asarray(above - below) / (2 * STEP) for above, below in results]
    return list(zip(*(np.split(slope, ends[:-1]) for slope in slopes), strict=True))


def assert_agree(got, wanted, ulps=ULPS):
    """Equal structure, shapes and types; equal integers; floats within `ulps` spacings."""
    got, wanted = jax.device_get((got, wanted))
    (got, structure), (wanted, wanted_structure) = map(jax.tree.flatten, (got, wanted))
    assert structure == wanted_structure
    for x, y in zip(got, wanted, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        finite = np.isfinite(y)
        np.testing.assert_array_equal(x[~finite], y[~finite])
        if finite.any():
            unit = np.spacing(np.abs(y[finite]).max()) if is_float(y) else 0
            np.testing.assert_allclose(x[finite], y[finite], rtol=0, atol=ulps * unit)


def assert_slope(got, wanted):
    scale = np.abs(wanted).max()
    assert scale > 0, "the inputs show no slope"
    tolerance = GRADIENT_TOLERANCE[got.dtype.type]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=tolerance * scale)


# The catalogue itself.


def test_every_public_function_is_in_the_catalogue():
    covered = {row.covers for row in catalogue.ROWS}
    assert covered == set(catalogue.public_functions())


def test_rows_are_told_apart_and_exemptions_are_known():
    names = [row.name for row in catalogue.ROWS]
    assert len(set(names)) == len(names)
    assert {name for row in catalogue.ROWS for name in row.exempt} <= set(TRANSFORMATIONS)


def test_pairs_of_boxes_cross_contain_and_miss_each_other():
    a, b = stack([box_pair(np.random.default_rng(seed)) for seed in range(ITEMS)])
    shared = reference.intersection(a, b)
    within = (shared == reference.area(a)) | (shared == reference.area(b))
    assert (shared == 0).any()
    assert within.any()
    assert ((shared > 0) & ~within).any()


@every_row
def test_row_leaves_out_no_gradient_and_no_mask(row, applies):
    if "where" in row.parameters and applies(row, "where"):
        assert row.where
    if applies(row, "grad") and not row.differentiable:
        assert not floats(compiled(row)(inputs(row)))


# The transformations.


@every_row
def test_jit_vmap_eager_and_single_calls_agree(row, applies):
    args = inputs(row)
    if not applies(row, "jit"):
        row.function(*first(args))
        return
    wanted = compiled(row)(args)
    assert_agree(row.function(*first(args)), first(wanted))
    if applies(row, "eager"):
        with jax.disable_jit():
            assert_agree(call(row, args), wanted)
    if applies(row, "vmap"):
        assert_agree(jax.vmap(row.function)(*args), wanted)
    if applies(row, "jit of vmap") and row.leading:  # if not, it is what is wanted
        assert_agree(jax.jit(jax.vmap(row.function))(*args), wanted)


@every_row
def test_second_call_does_not_trace(row, applies, traces):
    """Also when the expression is written twice: a factory gives the same function again."""
    if not applies(row, "retrace"):
        return
    args = inputs(row)
    row.make()(*first(args, 0))
    traces.clear()
    row.make()(*first(args, 1))
    assert not traces


@every_row
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_derivatives_equal_central_differences(row, applies, dtype):
    if not row.differentiable:
        return
    with jax.enable_x64(True):
        exact = differences(row)
    with jax.enable_x64(dtype == np.float64):
        cotangents, tangents = directions(row, dtype)
        everything = mask_of_ones(row)
        _, gradients, slopes = compiled_derivatives(row)(
            inputs(row, dtype), cotangents, tangents, everything
        )
    if applies(row, "grad"):
        for gradient, by_result in zip(gradients, exact, strict=True):
            weighted = sum(
                (cotangent * slope).sum(axis=tuple(range(2, slope.ndim)))
                for cotangent, slope in zip(cotangents, by_result, strict=True)
            )
            assert_slope(gradient, weighted.T.reshape(gradient.shape))
    if applies(row, "jvp"):
        for result, slope in enumerate(slopes):
            along = sum(
                np.einsum("ie,ei...->i...", tangent.reshape(ITEMS, -1), by_result[result])
                for tangent, by_result in zip(tangents, exact, strict=True)
            )
            assert_slope(slope, along)


@every_row
def test_types_give_the_value_of_the_same_numbers(row, applies):
    """Narrow types are cast before any arithmetic; with x64 on, 64-bit numbers stay wide."""

    @functools.partial(jax.jit)
    def run(batches):
        return {name: call(row, args) for name, args in batches.items()}

    args = inputs(row)
    names = [t for t in ("bfloat16", "float16", "uint8", "int32") if applies(row, t)]
    batches = {t: as_type(args, jnp.dtype(t)) for t in names}
    results = run(batches)
    for t in names:
        same = jax.tree.map(lambda x, y: x.astype(y.dtype), batches[t], args)
        assert_agree(results[t], compiled(row)(same))

    if applies(row, "x64"):
        with jax.enable_x64(True):
            batches = {t: as_type(args, jnp.dtype(t)) for t in ("float32", "int64")}
            results = run(batches)
            directed = directions(row, np.float64)
            double = compiled_derivatives(row)(
                inputs(row, np.float64), *directed, mask_of_ones(row)
            )
        assert_agree(results["float32"], compiled(row)(args))
        assert_wide(double[0], compiled(row)(args))
        same = jax.tree.map(lambda x, y: x.astype(y.dtype), batches["int64"], args)
        assert_wide(results["int64"], compiled(row)(same))


def assert_wide(got, wanted):
    """Floats are float64 and near those in float32; integers are of the same type and equal."""
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == (np.float64 if is_float(y) else y.dtype)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@every_row
def test_rows_of_nan_under_where_change_nothing(row, applies):
    if not row.where or not applies(row, "where"):
        return
    run, directed = compiled_derivatives(row), directions(row)
    args, where = masked_inputs(row)
    zeroed = jax.tree.map(lambda x: np.nan_to_num(x, nan=0), args)

    result = run(args, *directed, where)
    value, gradients, _ = result
    assert_agree(result, run(zeroed, *directed, where), ulps=0)
    assert not any(np.isnan(x).any() for x in floats(result))
    for x, gradient in zip(differentiable(row, args), gradients, strict=True):
        assert (gradient[np.isnan(x)] == 0).all()

    everything = run(inputs(row), *directed, mask_of_ones(row))
    assert_agree(everything[0], compiled(row)(inputs(row)))
    if applies(row, "eager"):
        # Not the gradient: under `debug_nans` JAX's own `where` trips over a tangent's NaN.
        args = jax.tree.map(jnp.asarray, args)
        with jax.debug_nans(applies(row, "debug_nans")), jax.disable_jit():
            assert_agree(call(row, args, where), value)


@every_row
def test_padding_is_clean_under_debug_nans(row, applies):
    """Items of zeros, which is what padding becomes: the value eagerly, operation by
    operation, and the derivatives compiled.
    """
    if not applies(row, "debug_nans"):
        return
    zeros = jax.tree.map(lambda x: x * x.dtype.type(0), inputs(row))
    with jax.debug_nans(True):
        result = compiled_derivatives(row)(zeros, *directions(row), mask_of_ones(row))
        if applies(row, "eager"):
            with jax.disable_jit():
                assert_agree(call(row, zeros), result[0])
    assert all(np.isfinite(x).all() for x in floats(result))


@every_row
def test_sharded_batches_agree(row, applies):
    """Values run on four devices; gradients are traced, which is where they would fail."""
    args = inputs(row)

    def value(*args):
        return call(row, args)

    def gradient(*args):
        return derivatives(row, args)[1]

    def mesh(kind):
        return jax.make_mesh((4,), ("batch",), axis_types=(kind,))

    def program(function, args):
        return jax.jit(function).lower(*args).compile()

    if applies(row, "auto mesh"):
        over_batch = NamedSharding(mesh(AxisType.Auto), P("batch"))
        sharded = jax.device_put(args, over_batch)
        compiled_value = program(value, sharded)
        result = compiled_value(*sharded)
        assert_agree(result, compiled(row)(args))
        assert all(x.sharding.is_equivalent_to(over_batch, x.ndim) for x in jax.tree.leaves(result))
        # Devices may tell each other whether a loop goes on, and nothing else.
        sent = re.findall(r"= (\S+) ((?:all|collective)-[\w-]+)\(", compiled_value.as_text())
        assert set(sent) <= {("pred[]", "all-reduce")}
    if applies(row, "shard_map"):
        specs = {"in_specs": P("batch"), "out_specs": P("batch")}
        shard = functools.partial(jax.shard_map, mesh=mesh(AxisType.Auto), **specs)
        assert_agree(program(shard(value), args)(*args), compiled(row)(args))
        jax.eval_shape(shard(gradient), *args)
    if applies(row, "explicit mesh"):
        with jax.set_mesh(mesh(AxisType.Explicit)):
            sharded = jax.device_put(args, P("batch"))
            assert_agree(program(value, sharded)(*sharded), compiled(row)(args))
            jax.eval_shape(gradient, *sharded)


@every_row
def test_lowers_for_every_platform(row, applies):
    if applies(row, "export"):
        run = jax.jit(lambda *args: derivatives(row, args)[:2])
        exported = jax.export.export(run, platforms=["tpu", "cuda", "cpu"])(*inputs(row))
        assert exported.platforms == ("tpu", "cuda", "cpu")
