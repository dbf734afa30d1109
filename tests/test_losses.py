"""Losses: values, forms, masks that hide NaN from value and gradient, and the mean."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference

from jaxiou import boxes, losses
from jaxiou.pairing import best_match

NAN = float("nan")
LOSSES = {
    "iou": losses.iou_loss,
    "giou": losses.giou_loss,
    "diou": losses.diou_loss,
    "ciou": losses.ciou_loss,
    "ioa": losses.overlap_loss(boxes.ioa),
    "dice": losses.overlap_loss(boxes.dice),
}
FORMS = {
    "linear": lambda q: 1 - q,
    "log": lambda q: -np.log(np.maximum(q, 1e-6)),
    "square": lambda q: 1 - q**2,
}
COUNT = 4000  # pairs in a call, so that each function is compiled once


def box(*coordinates, dtype="float32"):
    return np.array(coordinates, jnp.dtype(dtype))


@functools.cache
def slopes(loss, **options):
    """The gradients by both boxes of `COUNT` pairs."""
    return jax.jit(jax.vmap(jax.grad(functools.partial(loss, **options), (0, 1))))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_one_less_the_overlap(name):
    a, b = reference.pairs("float32", COUNT)
    values = np.asarray(LOSSES[name](a, b))
    np.testing.assert_allclose(values, 1 - getattr(reference, name)(a, b), atol=1e-6)
    assert (values >= 0).all()
    assert values.shape == (COUNT,)


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_zero_for_a_box_with_itself_and_one_for_a_point_with_itself(name):
    a = box(1, 2, 4, 8)
    assert LOSSES[name](a, a) == 0
    assert LOSSES[name](a * 0, a * 0) == 1


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_the_iou_loss_are_their_formulas(form):
    a, b = reference.pairs("float32", COUNT)
    q = reference.iou(a, b)
    assert 0.1 < (q > 0).mean() < 0.9
    values = losses.iou_loss(a, b, form=form)
    # An error of 1e-6 in q is one of 1e-6 / q in its logarithm.
    allowed = 1e-6 / np.maximum(q, 1e-6) if form == "log" else 2e-6
    assert (np.abs(values - FORMS[form](q)) <= allowed).all()


def test_the_log_form_ends_at_its_floor_where_boxes_do_not_meet():
    assert losses.iou_loss(box(0, 0, 1, 1), box(5, 5, 6, 6), form="log") == pytest.approx(
        -math.log(1e-6), rel=1e-6
    )
    # IoU 1e-8, below the floor: flat too.
    small, large = box(0, 0, 1e-4, 1), box(0, 0, 1e4, 1)
    assert losses.iou_loss(small, large, form="log") == pytest.approx(-math.log(1e-6), rel=1e-6)
    slope = jax.grad(functools.partial(losses.iou_loss, form="log"))
    assert slope(small, large).tolist() == [0, 0, 0, 0]
    assert slope(box(0, 0, 1, 1), box(5, 5, 6, 6)).tolist() == [0, 0, 0, 0]


def test_gradients_of_the_forms_at_kinks_are_those_stated():
    def gradient(form, a, b):
        pairs = (np.tile(box(*x), (COUNT, 1)) for x in (a, b))
        return slopes(losses.iou_loss, form=form)(*pairs)[0][0]

    inside = (0, 0, 2, 2), (0, 0, 4, 4)  # q = 1/4, dq = [-3/64, -3/64, 1/8, 1/8]
    dq = np.array([-3 / 64, -3 / 64, 1 / 8, 1 / 8])
    np.testing.assert_allclose(gradient("linear", *inside), -dq, rtol=1e-6)
    np.testing.assert_allclose(gradient("log", *inside), -4 * dq, rtol=1e-6)
    np.testing.assert_allclose(gradient("square", *inside), -dq / 2, rtol=1e-6)
    for form in FORMS:
        for pair in [(0, 0, 2, 2)] * 2, [(0, 0, 2, 2), (2, 0, 4, 2)], [(0, 0, 0, 0)] * 2:
            assert gradient(form, *pair).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("form", ["log", "square"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-8)])
def test_gradients_of_the_forms_equal_central_differences(form, dtype, tolerance):
    rng = np.random.default_rng(0)
    corner, size = rng.uniform(0, 5, (2, 8 * COUNT, 2)), rng.uniform(2, 10, (2, 8 * COUNT, 2))
    a, b = np.concatenate([corner, corner + size], axis=-1).astype(dtype)
    apart = np.abs(a.reshape(-1, 2, 1, 2) - b.reshape(-1, 1, 2, 2)).min(axis=(1, 2, 3)) > 0.01
    apart &= reference.iou(a, b) > 0.05  # where a logarithm's own slope is below 20
    a, b = a[apart][:COUNT], b[apart][:COUNT]
    with jax.enable_x64(dtype == "float64"):
        by_a, by_b = slopes(losses.iou_loss, form=form)(a, b)
    f = FORMS[form]
    expected = reference.slopes(lambda x: f(reference.iou(x, b)), a, step=3e-6)
    np.testing.assert_allclose(by_a, expected, rtol=tolerance, atol=tolerance)
    expected = reference.slopes(lambda x: f(reference.iou(a, x)), b, step=3e-6)
    np.testing.assert_allclose(by_b, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("form", ["log", "square"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_of_the_forms_are_finite_over_the_stated_range(form, dtype):
    loss = functools.partial(losses.iou_loss, form=form)

    def row(x, i):
        gradient = jax.grad(lambda x: loss(x[:4], x[4:]))
        return jax.grad(lambda x: jnp.take(gradient(x), i))(x)

    curvature = jax.jit(jax.vmap(row))
    with jax.enable_x64(dtype == "float64"):
        a, b = reference.pairs(dtype, 10 * COUNT, seed=1)
        for i in range(0, len(a), COUNT):
            results = slopes(losses.iou_loss, form=form)(a[i : i + COUNT], b[i : i + COUNT])
            assert all(np.isfinite(x).all() for x in results)
        x = np.concatenate(reference.pairs(dtype, 10 * COUNT, seed=2, smallest=1e-9), axis=1)
        rows = np.random.default_rng(0).integers(8, size=len(x))
        for i in range(0, len(x), COUNT):
            assert np.isfinite(curvature(x[i : i + COUNT], rows[i : i + COUNT])).all()


# Masks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ciou", "ioa"])
def test_nan_under_the_mask_leaves_no_trace_in_value_or_gradient(name):
    loss = LOSSES[name]
    rng = np.random.default_rng(0)
    a, b = (x.copy() for x in reference.pairs("float32", 64, seed=5))
    where = rng.random(64) < 0.5

    def total(a, b):
        values = loss(a, b, where=where)
        return losses.mean(values, where=where), values

    f = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))
    clean_a, clean_b = (np.where(where[:, None], x, 7) for x in (a, b))
    dirty_a = np.where(where[:, None] | (rng.random((64, 4)) < 0.5), a, NAN)
    dirty_b = np.where(where[:, None] | (rng.random((64, 4)) < 0.5), b, np.inf)
    with jax.debug_nans(True):
        (clean_mean, clean_values), clean_slopes = f(clean_a, clean_b)
        (mean, values), gradients = f(dirty_a, dirty_b)
        unmasked = np.asarray(loss(a, b))

    assert mean == clean_mean
    np.testing.assert_array_equal(values, clean_values)
    np.testing.assert_array_equal(np.asarray(values)[~where], 0)
    np.testing.assert_allclose(np.asarray(values)[where], unmasked[where], rtol=1e-6, atol=1e-7)
    for x, y in zip(gradients, clean_slopes, strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(np.asarray(x)[~where], 0)


def test_a_masked_row_of_nan_is_clean_also_one_operation_after_another():
    a, b = box(*[0, 0, 2, 2] * 2).reshape(2, 4), box(*[1, 1, 3, 3] * 2).reshape(2, 4)
    a[1] = NAN
    where = np.array([True, False])
    with jax.debug_nans(True):
        slope = jax.grad(lambda a: losses.ciou_loss(a, b, where=where).sum())(a)
    assert np.isfinite(slope).all()
    assert slope[1].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("left", "right", "mask"),
    [
        ((5,), (5,), (5,)),
        ((5,), (5,), (1,)),
        ((5,), (), (5,)),
        ((), (5,), (1,)),
        ((3, 1), (5,), (3, 5)),
        ((3, 1), (1, 5), (3, 1)),
        ((3, 1), (5,), (1, 5)),
        ((), (), ()),
        ((0,), (1,), (1,)),
        ((0,), (), (0,)),
    ],
)
def test_masks_broadcast_to_the_result(left, right, mask):
    rng = np.random.default_rng(1)
    a, b = (np.sort(rng.uniform(0, 9, (*s, 2, 2)), axis=-2) for s in (left, right))
    a, b = (x.reshape(*x.shape[:-2], 4).astype(np.float32) for x in (a, b))
    where = rng.random(mask) < 0.5
    values = losses.giou_loss(a, b, where=where)
    expected = np.where(where, 1 - reference.giou(a, b), 0)
    assert values.shape == np.broadcast_shapes(left, right)
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_a_mask_of_nothing_gives_zeros_and_no_gradient():
    a = np.full((3, 4), NAN, np.float32)

    def mean(a):
        where = np.zeros(3, bool)
        return losses.mean(losses.ciou_loss(a, a, where=where), where=where)

    value, slope = jax.jit(jax.value_and_grad(mean))(a)
    assert value == 0
    assert slope.tolist() == [[0] * 4] * 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "uint8", "int32"])
def test_masked_losses_of_other_types_are_float32(dtype):
    a = np.tile(box(0, 0, 4, 4, dtype=dtype), (2, 1))
    values = losses.giou_loss(a, a[:1], where=np.array([True, False]))
    assert (values.dtype, values.tolist()) == (jnp.float32, [0, 0])
    values = losses.diou_loss(a, box(0, 0, 2, 4, dtype=dtype), where=np.array([True, False]))
    # IoU 1/2, centres 1 apart, diagonal^2 32.
    np.testing.assert_allclose(values, [0.5 + 1 / 32, 0], rtol=1e-6)


def test_a_padded_target_of_ciou_costs_nothing_and_pulls_nothing():
    predictions = np.array([[0, 0, 2, 2], [1, 1, 3, 5]], np.float32)
    padded = np.array([[0, 0, 4, 4], [NAN] * 4], np.float32)
    where = np.array([True, False])

    def total(p):
        return losses.ciou_loss(p, padded, where=where).sum()

    value, slope = jax.value_and_grad(total)(predictions)
    # IoU 1/4, offset (-1, -1) of a diagonal of 4 x 4, equal aspect ratios.
    assert value == pytest.approx(0.75 + 2 / 32, rel=1e-6)
    assert slope[1].tolist() == [0, 0, 0, 0]
    assert (slope[0] != 0).all()


# Any overlap -----------------------------------------------------------------------------


def share_of_width(p, q):
    """An overlap of one's own, of two boxes: in x alone."""
    (a1, _, a2, _), (b1, _, b2, _) = p, q
    shared = jnp.maximum(jnp.minimum(a2, b2) - jnp.maximum(a1, b1), 0)
    return shared / (jnp.maximum(a2, b2) - jnp.minimum(a1, b1))


def mask_iou(p, q):
    return (p & q).sum() / jnp.maximum((p | q).sum(), 1)


def test_equal_calls_of_overlap_loss_give_one_object():
    assert losses.overlap_loss(boxes.giou) is losses.overlap_loss(boxes.giou)
    first = losses.overlap_loss(mask_iou, region_rank=2)
    assert first is losses.overlap_loss(mask_iou, region_rank=2)


def test_overlap_loss_takes_a_function_of_two_single_regions_of_one_s_own():
    loss = losses.overlap_loss(share_of_width)
    a = np.array([[0, 0, 4, 1], [0, 5, 4, 6], [NAN] * 4], np.float32)
    b = box(2, 0, 6, 1)
    np.testing.assert_allclose(loss(a[:2], b), [2 / 3, 2 / 3], rtol=1e-6)
    where = np.array([True, False, False])
    np.testing.assert_allclose(loss(a, b, where=where), [2 / 3, 0, 0], rtol=1e-6)
    slope = jax.grad(lambda a: loss(a, b, where=where).sum())(a)
    # Shared 2 of 6: x1 moves the hull (q / 6 = 1/18), x2 the shared part (-1/6).
    np.testing.assert_allclose(slope[0], [-1 / 18, 0, -1 / 6, 0], rtol=1e-6, atol=1e-8)
    assert slope[1:].tolist() == [[0] * 4] * 2


@pytest.mark.parametrize("dtype", ["uint8", "bool"])
def test_overlap_loss_takes_regions_of_two_axes(dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.random((2, 5, 6, 7)) < 0.5).astype(dtype)
    where = np.array([True, True, False, True, True])
    values = losses.overlap_loss(mask_iou, region_rank=2)(a, b, where=where)
    expected = [1 - (x & y).sum() / (x | y).sum() for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(values, np.where(where, expected, 0), rtol=1e-6)


@pytest.mark.parametrize("name", ["giou", "dice", "ioa"])
def test_overlap_loss_of_a_library_overlap_is_one_less_it(name):
    a, b = reference.pairs("float32", 100, seed=7)
    values = losses.overlap_loss(getattr(boxes, name))(a[:, None], b)
    expected = 1 - getattr(reference, name)(a[:, None], b)
    np.testing.assert_allclose(values, expected, atol=1e-6)


def test_a_second_call_traces_nothing():
    traces = []

    def overlap(p, q):
        traces.append(1)
        return boxes.iou(p, q)

    for _ in range(2):
        losses.overlap_loss(overlap)(box(0, 0, 1, 1)[None], box(0, 0, 1, 2)[None])
    assert len(traces) == 1


# The mean --------------------------------------------------------------------------------


def test_the_mean_is_the_sum_over_the_count():
    values = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    assert losses.mean(values) == 3
    assert losses.mean(values, where=jnp.array([[True, False], [False, True]])) == 3.5
    assert losses.mean(values, where=jnp.array([[True], [False]])) == 1.5
    assert losses.mean(values, where=jnp.array([[True, False]])) == 2
    assert losses.mean(values, where=jnp.array([[True]])) == 3
    assert losses.mean(jnp.array(5.0)) == 5
    assert losses.mean(jnp.array(5.0), where=jnp.array(False)) == 0
    assert losses.mean(np.array([1, 2], np.int32)) == 1.5


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0), (2, 3)])
def test_the_mean_of_nothing_is_zero_with_gradient_zero(shape):
    values = jnp.full(shape, NAN)
    where = jnp.zeros(shape, bool)
    value, slope = jax.value_and_grad(lambda v: losses.mean(v, where=where))(values)
    assert value == 0
    assert (slope == 0).all()
    if 0 in shape:
        assert losses.mean(values) == 0


def test_the_mean_has_slope_one_over_the_count_where_values_count():
    values, where = jnp.array([1.0, NAN, 3.0, math.inf]), jnp.array([True, False, True, False])
    value, slope = jax.value_and_grad(lambda v: losses.mean(v, where=where))(values)
    assert value == 2
    assert slope.tolist() == [0.5, 0, 0.5, 0]


def test_nan_that_counts_is_not_hidden_by_the_mean():
    assert np.isnan(losses.mean(jnp.array([1.0, NAN])))


@pytest.mark.parametrize(
    ("dtype", "result"),
    [("bfloat16", "float32"), ("float16", "float32"), ("int32", "float32"), ("float64", "float64")],
)
def test_the_mean_adds_in_float32_or_wider(dtype, result):
    with jax.enable_x64(dtype == "float64"):
        # 4097 ones would stop at 256 in bfloat16 and at 2048 in float16.
        value = losses.mean(jnp.ones(4097, dtype))
        assert (value, value.dtype) == (1, result)
        value = losses.mean(jnp.ones((4097, 2), dtype), where=jnp.array([[True, False]]))
        assert (value, value.dtype) == (1, result)


def test_the_mean_counts_past_2_to_the_24():
    # A running count in float32 would stop at 16,777,216.
    value = jax.jit(lambda: losses.mean(jnp.ones((2**13, 2**12)), where=jnp.ones((1, 1), bool)))()
    assert value == 1


# Means over a data set ---------------------------------------------------------------------


def matched_mean(predictions, labels, targets, target_labels, valid=None):
    """The mean over predictions of the IoU with the best target of the same class, else 0."""
    same = labels[..., :, None] == target_labels[..., None, :]
    if valid is not None:
        same &= valid[..., None, :]
    match = best_match(boxes.iou)(predictions, targets, where=same)
    return losses.mean(jnp.where(match.valid, match.values, 0))


def test_a_perfect_image_of_two_classes_scores_one_for_each():
    a = np.array([[0, 0, 4, 4], [0, 0, 5, 5]], np.float32)
    labels = np.array([0, 1])
    assert matched_mean(a, labels, a, labels) == 1
    for label in (0, 1):
        assert losses.mean(boxes.iou(a, a), where=labels == label) == 1


def test_two_perfect_boxes_of_one_class_score_one_in_any_order():
    a = np.array([[0, 0, 4, 4], [6, 6, 9, 9]], np.float32)
    labels = np.zeros(2, int)
    assert matched_mean(a, labels, a, labels) == 1
    assert matched_mean(a, labels, a[::-1], labels) == 1


def test_an_image_without_targets_counts_its_predictions_as_zero():
    square = np.array([[0, 0, 4, 4]], np.float32)
    predictions, labels = np.stack([square, square]), np.zeros((2, 1), int)
    valid = np.array([[True], [False]])
    assert matched_mean(predictions, labels, predictions, labels, valid) == 0.5
    # Two predictions in the second image, one, padded, in the first.
    match = best_match(boxes.iou)(np.tile(square, (2, 2, 1)), predictions, where=valid[:, None, :])
    counts = np.array([[True, False], [True, True]])
    mean = losses.mean(jnp.where(match.valid, match.values, 0), where=counts)
    assert mean == np.float32(1 / 3)


def test_no_predictions_at_all_score_zero():
    none, some = np.zeros((0, 4), np.float32), np.zeros((3, 4), np.float32)
    assert matched_mean(none, np.zeros(0, int), some, np.zeros(3, int)) == 0
    assert matched_mean(some, np.zeros(3, int), none, np.zeros(0, int)) == 0


def test_a_far_pair_and_a_perfect_pair_have_a_mean_giou_near_zero():
    a = np.array([[0, 0, 10, 10], [0, 0, 1, 1]], np.float32)
    b = np.array([[1e6, 1e6, 1e6 + 1, 1e6 + 1], [0, 0, 1, 1]], np.float32)
    assert losses.mean(boxes.giou(a, b)) == pytest.approx(0, abs=1e-6)


def test_a_perfect_pair_and_a_pair_without_area_have_a_mean_iou_of_a_half():
    a = np.array([[0, 0, 10, 10], [5, 5, 5, 5]], np.float32)
    assert losses.mean(boxes.iou(a, a)) == 0.5


# Errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*list(LOSSES.values())[:4], losses.overlap_loss(boxes.iou)])
def test_errors_name_the_argument(loss, without_jaxtyping):
    a = jnp.zeros((3, 4))
    with pytest.raises(TypeError, match="predictions must be a JAX or NumPy array, got list"):
        loss([0, 0, 1, 1], a)
    with pytest.raises(ValueError, match=r"leading axes of predictions and targets must broad"):
        loss(a, jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match=r"must have shape \[\.\.\., 4\].* got \[5\]"):
        loss(a, jnp.zeros(5))
    with pytest.raises(TypeError, match="where must be boolean, got dtype float32"):
        loss(a, a, where=jnp.ones(3))
    with pytest.raises(ValueError, match=r"where must have rank 1 and broadcast to \[3\]"):
        loss(a, a, where=jnp.ones((3, 1), bool))
    with pytest.raises(ValueError, match=r"where must .* broadcast to \[3\], got \[2\]"):
        loss(a, a, where=jnp.ones(2, bool))
    with pytest.raises(TypeError):
        loss(a, a, jnp.ones(3, bool))  # keyword only


def test_an_unknown_form_raises_and_names_the_known_ones(without_jaxtyping):
    with pytest.raises(ValueError, match=r"form must be one of \['linear', 'log', 'square'\]"):
        losses.iou_loss(jnp.zeros(4), jnp.zeros(4), form="focal")


def test_the_mean_checks_its_mask(without_jaxtyping):
    with pytest.raises(ValueError, match=r"where must have rank 2 and broadcast to \[2, 3\]"):
        losses.mean(jnp.zeros((2, 3)), where=jnp.ones(3, bool))
    with pytest.raises(TypeError, match="where must be boolean"):
        losses.mean(jnp.zeros(3), where=jnp.ones(3))
    with pytest.raises(TypeError, match="values must be a JAX or NumPy array"):
        losses.mean([1.0, 2.0])
