"""Label maps: against NumPy in int64, scikit-learn and real annotations; stated edge values."""

import functools
import json
import math
from fractions import Fraction
from pathlib import Path

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_USERS
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from PIL import Image
from sklearn import metrics as sklearn_metrics

from jaxiou import _histogram
from jaxiou._histogram import pair_counts
from jaxiou.segmentation import (
    boundary_confusion_matrix,
    category_iou,
    check_values,
    class_counts,
    class_dice,
    class_iou,
    confusion_matrix,
    frequency_weighted_iou,
    mean_accuracy,
    mean_dice,
    mean_iou,
    pixel_accuracy,
    precision,
    recall,
    target_counts,
)

NAN = float("nan")
DATA = Path(__file__).parents[2] / "shared" / "data" / "seg"
METHODS = ["scatter", "private scatter", "matmul", "sort"]
DTYPES = ["uint8", "int8", "uint16", "int32", "int64"]

needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared data is not there")


def labels(*values, dtype="int32"):
    return np.array(values, dtype)


# Oracles -----------------------------------------------------------------------------------


def loop_matrix(predictions, targets, k, ignore=(), where=True):
    """The definition, class by class, in int64."""
    p, t = np.asarray(predictions, np.int64), np.asarray(targets, np.int64)
    where = np.broadcast_to(where, t.shape)
    classes = [c for c in range(k) if c not in ignore]
    matrix = np.zeros((k, k + 1), np.int64)
    for g in classes:
        pixels = (t == g) & where
        for c in classes:
            matrix[g, c] = (pixels & (p == c)).sum()
        matrix[g, k] = pixels.sum() - matrix[g].sum()
    return matrix


def counted_in_numpy(p, t, k):
    """The same in one pass, for many classes."""
    inside = (t >= 0) & (t < k)
    p, t = np.where((p >= 0) & (p < k), p, k)[inside], t[inside]
    return np.bincount(t * (k + 1) + p, minlength=k * (k + 1)).reshape(k, k + 1)


def exact_scores(matrix):
    """Every score in rational numbers, None for 0/0, by Python's own integers."""
    matrix = [[int(x) for x in row] for row in matrix]
    k = len(matrix)

    def ratio(x, y):
        return Fraction(x, y) if y else None

    def mean(values):
        values = [x for x in values if x is not None]
        return sum(values) / len(values) if values else None

    tp = [matrix[c][c] for c in range(k)]
    n = [sum(matrix[c]) for c in range(k)]
    m = [sum(row[c] for row in matrix) for c in range(k)]
    iou = [ratio(tp[c], n[c] + m[c] - tp[c]) for c in range(k)]
    dice = [ratio(2 * tp[c], n[c] + m[c]) for c in range(k)]
    accuracy = [ratio(tp[c], n[c]) for c in range(k)]
    return {
        "class_iou": iou,
        "mean_iou": mean(iou),
        "class_dice": dice,
        "mean_dice": mean(dice),
        "pixel_accuracy": ratio(sum(tp), sum(n)),
        "mean_accuracy": mean(accuracy),
        "frequency_weighted_iou": ratio(sum(n[c] * (iou[c] or 0) for c in range(k)), sum(n)),
        "precision": [ratio(tp[c], m[c]) for c in range(k)],
        "recall": accuracy,
    }


def as_floats(exact):
    return np.array([NAN if x is None else float(x) for x in np.ravel(np.array(exact, object))])


def random_maps(rng, shape, k, agreement=0.7, spread=0):
    """Labels of `k` classes, and up to `spread` beyond either end."""
    t = rng.integers(-spread, k + spread, shape)
    p = np.where(rng.random(shape) < agreement, t, rng.integers(-spread, k + spread, shape))
    return p, t


# Counts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_of_labels_is_counted_as_the_numbers_that_they_are(dtype):
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    # All that the type can say, far labels, -1 and 255 among it.
    odd = np.array([-1, 255, 4, 5, 300, info.min, info.max])
    odd = odd[(odd >= max(info.min, -(2**31))) & (odd <= min(info.max, 2**31 - 1))]
    p, t = random_maps(rng, (40, 50), 5)
    p, t = (np.where(rng.random(x.shape) < 0.3, rng.choice(odd, x.shape), x) for x in (p, t))
    p, t = p.astype(dtype), t.astype(dtype)
    got = confusion_matrix(p, t, 5, ignore=(2, 255))
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, loop_matrix(p, t, 5, (2, 255)))


def test_wide_labels_do_not_wrap_under_x64(x64):
    far = np.int64(2**32)
    t, p = labels(0, 1, far, far + 1, dtype="int64"), labels(0, far + 1, 0, 1, dtype="int64")
    assert confusion_matrix(p, t, 2).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert [int(x) for x in target_counts(t, 2)] == [2, 0, 2]


def test_numpy_labels_that_would_wrap_raise():
    with pytest.raises(ValueError, match=r"targets holds integers .* do not fit in 32 bits"):
        confusion_matrix(labels(0), labels(2**32, dtype="int64"), 2)


def test_s1_small_integers_do_not_wrap():
    x = labels(16, dtype="uint8")
    matrix = np.asarray(confusion_matrix(x, x, 17))
    assert np.argwhere(matrix).tolist() == [[16, 16]]
    matrix = confusion_matrix(labels(18, 3, dtype="uint8"), labels(18, 18, dtype="uint8"), 19)
    assert np.flatnonzero(np.asarray(matrix)[:, :19]).tolist() == [345, 360]


@pytest.mark.parametrize("k", [17, 150, 255])
def test_s2_uint8_maps_of_many_classes_give_the_int64_matrix(k):
    p, t = random_maps(np.random.default_rng(k), (60, 70), k)
    got = confusion_matrix(p.astype(np.uint8), t.astype(np.uint8), k)
    np.testing.assert_array_equal(got, loop_matrix(p, t, k))


def test_s3_more_pixels_than_float32_counts_are_counted_twice_alike():
    x = np.broadcast_to(np.uint8(1), (4096, 4096 + 3))
    for _ in range(2):
        assert confusion_matrix(x, x, 2).tolist() == [[0, 0, 0], [0, 4096 * 4099, 0]]


def test_s5_and_s6_counts_add_up_past_float32_and_every_label_has_its_row():
    one = confusion_matrix(np.arange(4), np.arange(4), 4)
    np.testing.assert_array_equal(one, np.eye(4, 5))
    total = jnp.full((4, 5), 2**24, jnp.int32)
    for _ in range(1000):
        total = total + one
    assert int(total[3, 3]) == 16778216


def test_s11_s12_s13_s16_labels_out_of_range_reach_no_other_cell():
    assert confusion_matrix(labels(4, -1), labels(0, 1), 3).tolist() == [
        [0, 0, 0, 1],
        [0, 0, 0, 1],
        [0, 0, 0, 0],
    ]
    assert not np.asarray(confusion_matrix(labels(2), labels(3), 3)).any()
    assert target_counts(labels(3, 3, 0), 3).invalid == 2
    matrix = np.asarray(
        confusion_matrix(labels(255, 200, dtype="uint8"), labels(7, 33, dtype="uint8"), 34)
    )
    assert np.argwhere(matrix).tolist() == [[7, 34], [33, 34]]
    matrix = confusion_matrix(labels(0, 1, 5), labels(0, 1, 1), 2)
    assert class_iou(matrix).tolist() == [1, 0.5]
    assert mean_iou(matrix) == 0.75


def test_a_predicted_ignored_label_is_a_miss_and_no_false_positive():
    matrix = confusion_matrix(labels(0, 1, 2, 255), labels(1, 1, 1, 1), 3, ignore=(0, 255))
    assert matrix.tolist() == [[0, 0, 0, 0], [0, 1, 1, 2], [0, 0, 0, 0]]
    counts = class_counts(matrix)
    assert [x.tolist() for x in counts] == [[0, 1, 0], [0, 0, 1], [0, 3, 0]]


@pytest.mark.parametrize("ignore", [3, (3,), (0, 3, 255), (-1, 7, 255), (0, 1, 2, 3, 4)])
def test_one_or_several_labels_are_ignored_in_range_or_not(ignore):
    rng = np.random.default_rng(0)
    p, t = random_maps(rng, (40, 50), 5, spread=3)
    t[rng.random(t.shape) < 0.1] = 255
    ignored = np.ravel(ignore)
    matrix = confusion_matrix(p, t, 5, ignore=ignore)
    np.testing.assert_array_equal(matrix, loop_matrix(p, t, 5, ignored))
    found = target_counts(t, 5, ignore=ignore)
    is_ignored = np.isin(t, ignored)
    is_class = (t >= 0) & (t < 5) & ~is_ignored
    wanted = [is_class.sum(), is_ignored.sum(), (~is_class & ~is_ignored).sum()]
    assert [int(x) for x in found] == wanted
    assert int(found.valid) == int(matrix.sum())


@pytest.mark.parametrize("shape", [(3, 40, 50), (3, 1, 1), (1, 40, 1)])
def test_where_leaves_pixels_out_whatever_they_hold(shape):
    rng = np.random.default_rng(0)
    p, t = random_maps(rng, (3, 40, 50), 5, spread=2)
    where = rng.random(shape) < 0.6
    got = confusion_matrix(p, t, 5, ignore=1, where=where)
    np.testing.assert_array_equal(got, loop_matrix(p, t, 5, (1,), where))
    counts = target_counts(t, 5, ignore=1, where=where)
    assert sum(map(int, counts)) == np.broadcast_to(where, t.shape).sum()
    odd = np.where(where, t, -7)
    assert counts == target_counts(odd, 5, ignore=1, where=where)
    np.testing.assert_array_equal(confusion_matrix(p, odd, 5, ignore=1, where=where), got)


def test_no_pixels_give_zeros_and_a_scalar_map_is_one_pixel():
    nothing = np.zeros((0, 4), np.int32)
    for method in ["auto", *METHODS]:
        assert not np.asarray(confusion_matrix(nothing, nothing, 3, method=method)).any()
    assert [int(x) for x in target_counts(nothing, 3)] == [0, 0, 0]
    assert confusion_matrix(np.array(1), np.array(1), 2).tolist() == [[0, 0, 0], [0, 1, 0]]


# How they are counted ------------------------------------------------------------------------

MESH = {"mesh": jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))}


@pytest.fixture
def one_device(monkeypatch):
    """The form that a process with one device uses: pixels by blocks."""
    monkeypatch.setattr(_histogram, "_is_on_one_device", lambda: True)


def counted(p, t, k, method="auto"):
    return pair_counts(t, p, (k, k), others=True, method=method)


@pytest.mark.parametrize("k", [1, 3, 40, 300])
@pytest.mark.parametrize("by_blocks", [False, True])
def test_all_methods_give_the_same_integers(k, by_blocks, request):
    if by_blocks:
        request.getfixturevalue("one_device")
    p, t = random_maps(np.random.default_rng(k), (2, 300, 301), k, spread=2)
    p, t = p.astype(np.int32), t.astype(np.int32)
    wanted = counted_in_numpy(p, t, k)
    for method in METHODS if k < 300 else ["scatter", "sort"]:
        got = jax.jit(functools.partial(counted, k=k, method=method))(p, t)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("by_blocks", [False, True])
def test_vmap_gives_a_matrix_per_image_also_nested_and_over_one_argument(by_blocks, request):
    if by_blocks:
        request.getfixturevalue("one_device")
    # More pixels than a block, and a batch of none.
    p, t = random_maps(np.random.default_rng(0), (2, 3, 260, 261), 4)
    p, t = p.astype(np.uint8), t.astype(np.uint8)
    each = jax.vmap(functools.partial(counted, k=4))
    wanted = np.stack([[loop_matrix(a, b, 4) for a, b in zip(x, y)] for x, y in zip(p, t)])  # noqa: B905
    np.testing.assert_array_equal(jax.jit(jax.vmap(each))(p, t), wanted)
    np.testing.assert_array_equal(jax.jit(each)(p[0], t[0]), wanted[0])
    shared = jax.jit(jax.vmap(functools.partial(counted, k=4), (0, None)))(p[0], t[0, 0])
    np.testing.assert_array_equal(shared, [loop_matrix(x, t[0, 0], 4) for x in p[0]])
    assert jax.jit(each)(p[0][:0], t[0][:0]).shape == (0, 4, 5)


def test_every_method_lowers_for_every_platform(one_device):
    x = jax.ShapeDtypeStruct((2, 300, 300), np.uint8)
    for method in ["auto", *METHODS]:
        each = jax.jit(jax.vmap(functools.partial(counted, k=19, method=method)))
        exported = jax.export.export(each, platforms=["tpu", "cuda", "cpu"])(x, x)
        assert exported.platforms == ("tpu", "cuda", "cpu")


@pytest.mark.parametrize(
    ("k", "method"), [(5, "auto"), (5, "private scatter"), (5, "matmul"), (600, "auto")]
)
def test_batches_sharded_over_devices_need_one_sum_and_no_gather(k, method):
    """With few classes each image has a table of its own, with many there is one for all."""
    p, t = random_maps(np.random.default_rng(0), (8, 270, 270), k, spread=2)
    p, t = p.astype(np.int32), t.astype(np.int32)
    sharded = jax.device_put((p, t), NamedSharding(MESH["mesh"], P("batch")))
    count = functools.partial(confusion_matrix, num_classes=k, method=method)
    program = jax.jit(count).lower(*sharded).compile()
    np.testing.assert_array_equal(program(*sharded), counted_in_numpy(p, t, k))
    text = program.as_text()
    assert text.count(" all-reduce(") == 1
    assert "all-gather" not in text


def test_in_shard_map_each_device_counts_its_share_by_blocks():
    p, t = random_maps(np.random.default_rng(0), (8, 200, 210), 5, spread=2)
    p, t = p.astype(np.int32), t.astype(np.int32)

    def share(p, t):
        assert _histogram._is_on_one_device()
        each = jax.vmap(functools.partial(confusion_matrix, num_classes=5))(p, t)
        return jax.lax.psum(confusion_matrix(p, t, 5), "batch"), each

    over_devices = jax.shard_map(share, **MESH, in_specs=P("batch"), out_specs=(P(), P("batch")))
    total, each = jax.jit(over_devices)(p, t)
    np.testing.assert_array_equal(total, loop_matrix(p, t, 5))
    np.testing.assert_array_equal(each.sum(axis=0), total)


@pytest.mark.parametrize("by_blocks", [False, True])
def test_a_matrix_may_be_made_inside_of_a_function_that_is_differentiated(by_blocks, request):
    if by_blocks:
        request.getfixturevalue("one_device")
    x = np.random.default_rng(0).normal(size=(3, 300, 300, 2)).astype(np.float32)
    t = (x[..., 0] > 0.3).astype(np.int32)

    def loss(x, t):
        p = jax.lax.argmax(x, 2, jnp.int32)
        return (x**2).sum(), counted(p, t, 2)

    slope, matrix = jax.vmap(jax.grad(loss, has_aux=True))(x, t)
    np.testing.assert_array_equal(slope, 2 * x)
    np.testing.assert_array_equal(
        matrix, [loop_matrix(*z, 2) for z in zip(x.argmax(-1), t, strict=True)]
    )


def test_s29_memory_grows_with_the_table_and_not_with_the_pixels(one_device):
    def temporary(pixels):
        x = jax.ShapeDtypeStruct((pixels,), np.uint8)
        program = jax.jit(functools.partial(counted, k=19)).lower(x, x).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporary(2**21) <= 16 * _histogram.BLOCK
    assert temporary(2**21) == temporary(2**24)


def test_a_table_that_cannot_be_indexed_raises():
    with pytest.raises(ValueError, match="a table of 50000 x 50000 counts has too many cells"):
        jax.eval_shape(functools.partial(counted, k=50000), labels(0), labels(0))


# Scores ----------------------------------------------------------------------------------------

SCORES = {
    "class_iou": class_iou,
    "mean_iou": mean_iou,
    "class_dice": class_dice,
    "mean_dice": mean_dice,
    "pixel_accuracy": pixel_accuracy,
    "mean_accuracy": mean_accuracy,
    "frequency_weighted_iou": frequency_weighted_iou,
    "precision": precision,
    "recall": recall,
}
WITH_ABSENT = [name for name in SCORES if name not in ("pixel_accuracy", "frequency_weighted_iou")]


@functools.cache
def compiled(**options):
    """All scores that have these options, in one program."""
    names = WITH_ABSENT if "absent" in options else SCORES

    def scores(matrix):
        return {name: SCORES[name](matrix, **options) for name in names}

    return jax.jit(scores, compiler_options=AS_USERS)  # they are to be right to the last digits


def every_score(matrix, **options):
    return jax.device_get(compiled(**options)(matrix))


@functools.cache
def hard_matrices():
    """int32 matrices `[images, 4, 5]`: small, with absent classes, near the largest integer."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 50, (6, 4, 5))
    small[0] = 0
    small[1, 2], small[1, :, 2] = 0, 0  # absent
    small[2, 1] = 0  # predicted, never a target
    small[3, :, 3] = 0  # a target, never predicted
    far = 2**31 - 1 - rng.integers(0, 9, (6, 4, 5))
    far[1:3] = np.where(np.eye(4, 5), far[1:3], rng.integers(0, 3, (2, 4, 5)))  # nearly perfect
    far[3] = np.where(np.eye(4, 5), rng.integers(1, 3, (4, 5)), far[3])  # nearly all wrong
    return np.concatenate([small, far]).astype(np.int32)


@pytest.mark.parametrize("columns", [4, 5])
def test_scores_of_counts_up_to_the_largest_are_right_to_the_last_digits(columns):
    """S4's matrix: its row sums pass 2^31, which int32 would wrap."""
    matrices = hard_matrices()[..., :columns]
    exact = [exact_scores(m) for m in matrices]
    narrow = every_score(matrices)
    with jax.enable_x64(True):
        wide = every_score(matrices.astype(np.int64))
    for name in SCORES:
        wanted = np.stack([as_floats(scores[name]) for scores in exact])
        assert narrow[name].dtype == np.float32
        assert wide[name].dtype == np.float64
        got = (x[name].reshape(wanted.shape) for x in (narrow, wide))
        for x, digits in zip(got, (3e-7, 1e-15), strict=True):
            np.testing.assert_allclose(x, wanted, rtol=digits, atol=0, err_msg=name)


def test_a_perfect_score_of_huge_counts_is_exactly_one_and_a_near_one_is_not():
    cells = np.diag(np.full(3, 2**31 - 1)).astype(np.int32)
    assert class_iou(cells).tolist() == [1, 1, 1]
    cells[0, 1] = 2**12
    got = np.asarray(class_iou(cells), np.float64)
    np.testing.assert_allclose(1 - got[:2], 2**12 / 2**31, rtol=0.04)


def test_wide_counts_are_exact_past_32_bits(x64):
    cells = np.array([[2**50, 3, 5], [2**49, 2**40, 0]], np.int64)
    tp, fp, fn = class_counts(cells)
    assert tp.tolist() == [2**50, 2**40]
    assert fp.tolist() == [2**49, 3]
    assert fn.tolist() == [8, 2**49]


def test_leading_axes_are_scored_apart_and_floats_as_the_integers_that_they_are():
    matrices = hard_matrices()[:6]
    batch, narrow = (
        every_score(matrices.reshape(2, 3, 4, 5)),
        every_score(matrices.astype(np.uint8)),
    )
    floats = every_score(matrices.astype(np.float32))
    each = [every_score(m) for m in matrices]
    for name in SCORES:
        wanted = np.stack([scores[name] for scores in each])
        np.testing.assert_allclose(batch[name].reshape(wanted.shape), wanted, rtol=2e-7)
        # Sums of small integers are exact in float32.
        for got in (floats, narrow):
            np.testing.assert_allclose(got[name], wanted, rtol=2e-7)


@pytest.mark.parametrize(("absent", "value"), [("zero", 0), ("one", 1), ("nan", NAN)])
def test_absent_classes_are_what_is_asked_for(absent, value):
    means = {"mean_iou": "class_iou", "mean_dice": "class_dice", "mean_accuracy": "recall"}
    for m in hard_matrices()[:6]:
        exact, got = exact_scores(m), every_score(m, absent=absent)
        for name in WITH_ABSENT:
            per_class = as_floats(exact[means.get(name, name)])
            filled = np.where(np.isnan(per_class), value, per_class)
            wanted = filled.mean() if name in means else filled
            np.testing.assert_allclose(got[name], wanted, rtol=3e-7)


def test_a_subset_of_classes_is_scored_in_its_order_against_all_pixels():
    classes = [3, 0]
    for m in hard_matrices()[:6]:
        got, everything = every_score(m, classes=tuple(classes)), exact_scores(m)
        n = m[classes].sum(axis=1)
        for name in SCORES:
            per_class = {"mean_iou": "class_iou", "mean_dice": "class_dice"}.get(name, name)
            if name in ("mean_accuracy", "pixel_accuracy"):
                per_class = "recall"
            elif name == "frequency_weighted_iou":
                per_class = "class_iou"
            wanted = as_floats(everything[per_class])[classes]
            if name in ("pixel_accuracy", "frequency_weighted_iou"):
                wanted = (n * np.nan_to_num(wanted)).sum() / n.sum() if n.sum() else NAN
            elif name != per_class:
                found = wanted[~np.isnan(wanted)]
                wanted = found.mean() if found.size else NAN
            np.testing.assert_allclose(got[name], wanted, rtol=1e-6)


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    sk = sklearn_metrics
    for seed in range(4):
        p, t = random_maps(rng, (30, 40), 5, agreement=0.5)
        t[t == seed % 3], p[p == 4] = 3, 0  # a class that is no target, one never predicted
        y, z = t.ravel(), p.ravel()
        matrix = confusion_matrix(p, t, 5)
        wanted = sk.confusion_matrix(y, z, labels=range(5))
        np.testing.assert_array_equal(matrix[:, :5], wanted)
        zero, skipped = every_score(matrix, absent="zero"), every_score(matrix)
        # There the classes of a recall are those of the targets, unless absent ones count.
        every, present = {"labels": range(5), "zero_division": 0}, {"labels": np.unique(y)}
        for got, wanted in [
            (zero["class_iou"], sk.jaccard_score(y, z, average=None, **every)),
            (zero["mean_iou"], sk.jaccard_score(y, z, average="macro", **every)),
            (zero["class_dice"], sk.f1_score(y, z, average=None, **every)),
            (zero["mean_dice"], sk.f1_score(y, z, average="macro", **every)),
            (zero["precision"], sk.precision_score(y, z, average=None, **every)),
            (zero["recall"], sk.recall_score(y, z, average=None, **every)),
            (
                skipped["frequency_weighted_iou"],
                sk.jaccard_score(y, z, average="weighted", **every),
            ),
            (skipped["pixel_accuracy"], sk.accuracy_score(y, z)),
            (skipped["mean_accuracy"], sk.recall_score(y, z, average="macro", **present)),
        ]:
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_s7_the_data_set_s_score_is_not_the_mean_of_the_images():
    p, t = labels([1, 1, 1, 1], [0, 0, 0, 1]), labels([1, 1, 1, 0], [0, 0, 0, 1])
    each = jax.vmap(functools.partial(confusion_matrix, num_classes=2))(p, t)
    np.testing.assert_allclose(mean_iou(each.sum(axis=0)), 0.775)
    np.testing.assert_allclose(mean_iou(each).mean(), 0.6875)


def test_s8_s9_and_s24_a_class_absent_from_both_is_skipped_and_a_predicted_one_is_0():
    matrix = confusion_matrix(labels(0, 1, 0, 1), labels(0, 1, 0, 0), 3)
    np.testing.assert_allclose(mean_iou(matrix), 7 / 12, rtol=1e-7)
    np.testing.assert_allclose(mean_iou(matrix, absent="zero"), 7 / 18, rtol=1e-7)
    np.testing.assert_allclose(class_iou(matrix)[2], NAN)
    matrix = confusion_matrix(labels(0, 2), labels(0, 0), 3)
    np.testing.assert_array_equal(class_iou(matrix), [0.5, NAN, 0])
    np.testing.assert_array_equal(class_dice(matrix)[2], 0)


def test_s10_s14_and_s17_an_ignored_class_leaves_every_mean():
    for ignore in (0, (0, 255)):
        assert (
            mean_iou(confusion_matrix(labels(2, 1, 0, 1), labels(2, 1, 0, 0), 3, ignore=ignore))
            == 1
        )
    matrix = confusion_matrix(labels(0, 1, 2, 0), labels(0, 1, 2, 1), 3, ignore=0)
    assert mean_iou(matrix) == 0.75
    np.testing.assert_array_equal(class_iou(matrix), [NAN, 0.5, 1])
    assert frequency_weighted_iou(matrix) == (2 * 0.5 + 1) / 3
    p, t = labels(1, 1, 1, 1), labels(0, 0, 1, 1)
    assert class_iou(confusion_matrix(p, t, 2, ignore=0))[1] == 1
    assert class_iou(confusion_matrix(p, t, 2))[1] == 0.5


def test_s15_weights_make_a_matrix_of_floats():
    weights = np.float32([0.3, 0.3, 0.3, 0.1])
    matrix = np.zeros((2, 2), np.float32)
    np.add.at(matrix, (labels(0, 0, 1, 1), labels(0, 1, 0, 1)), weights)
    np.testing.assert_allclose(mean_iou(matrix), 5 / 21, rtol=1e-6)


def test_s19_a_class_without_a_hit_has_dice_0():
    matrix = confusion_matrix(labels(1, 1), labels(0, 1), 2)
    assert class_dice(matrix).tolist() == [0, np.float32(2 / 3)]
    assert mean_dice(matrix) == np.float32(1 / 3)


def test_s21_a_class_that_is_only_predicted_counts_as_0():
    assert mean_iou(confusion_matrix(labels(0, 0, 1, 2), labels(0, 0, 1, 1), 3)) == 0.5


def test_s25_a_perfect_result_is_1_whatever_the_classes_weigh():
    x = labels(0, 1, 1, 2, 2, 2, 3)
    for value in every_score(confusion_matrix(x, x, 4)).values():
        assert (value == 1).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_s26_narrow_floats_are_summed_wide(dtype):
    cells = np.full((64, 65), 3e4).astype(jnp.dtype(dtype))
    got = class_iou(cells)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, 1 / 128, rtol=1e-6)
    np.testing.assert_allclose(pixel_accuracy(cells), 1 / 65, rtol=1e-6)


def test_s27_an_image_s_scores_do_not_depend_on_its_batch():
    p, t = random_maps(np.random.default_rng(0), (6, 20, 30), 4)
    t[:, :3] = 255
    count = functools.partial(confusion_matrix, num_classes=4, ignore=(0, 255))
    together = class_dice(jax.vmap(count)(p, t))
    assert np.isnan(together[:, 0]).all()
    assert np.asarray(mean_dice(jax.vmap(count)(t, t)) == 1).all()
    for size in (1, 2):
        parts = [class_dice(jax.vmap(count)(p[i : i + size], t[i : i + size])) for i in (0, 2, 4)]
        for i, part in zip((0, 2, 4), parts, strict=True):
            np.testing.assert_array_equal(part, together[i : i + size])


def test_of_nothing_the_scores_are_what_is_stated():
    nothing = np.zeros((4, 5), np.int32)
    assert all(np.isnan(x).all() for x in every_score(nothing).values())
    assert all((x == 0).all() for x in every_score(nothing, absent="zero").values())
    assert all((x == 1).all() for x in every_score(nothing, absent="one").values())
    assert np.isnan(mean_iou(np.eye(2, 3), classes=()))
    assert class_iou(np.eye(2, 3), classes=()).shape == (0,)


def test_gradients_are_finite_and_0_for_an_absent_class():
    cells = np.float32([[3, 1, 0, 2], [0, 4, 0, 1], [0, 0, 0, 0]])
    slopes = jax.jit(jax.jacrev(compiled().__wrapped__))(cells)
    assert all(np.isfinite(slopes[name]).all() for name in WITH_ABSENT)
    slope = jax.grad(lambda m: mean_iou(m))(cells)
    # IoU_0 = 3/6, IoU_1 = 4/6, and half of each counts.
    np.testing.assert_allclose(
        slope[0], [3 / 36 / 2, (-3 / 36 - 4 / 36) / 2, -3 / 36 / 2, -3 / 36 / 2]
    )
    assert (
        jax.grad(lambda m: jnp.nansum(class_iou(m)[2]))(np.zeros((3, 3), np.float32)).tolist()
        == [[0, 0, 0]] * 3
    )


# Groups of classes -----------------------------------------------------------------------------


def test_category_iou_counts_confusion_within_a_group_as_right():
    rng = np.random.default_rng(0)
    p, t = random_maps(rng, (40, 50), 7, agreement=0.4, spread=1)
    groups = ((0, 3), (5,), (1, 4, 6))
    matrix = confusion_matrix(p, t, 7)
    counts = (t >= 0) & (t < 7)
    for group, got in zip(groups, category_iou(matrix, categories=groups), strict=True):
        is_target, is_predicted = np.isin(t, group), np.isin(p, group) & counts
        wanted = (is_target & is_predicted).sum() / (is_target | is_predicted).sum()
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    each = category_iou(np.stack([matrix, 2 * matrix]), categories=groups)
    np.testing.assert_array_equal(each[0], each[1])
    single = tuple((c,) for c in range(7))
    np.testing.assert_array_equal(category_iou(matrix, categories=single), class_iou(matrix))


def test_an_absent_group_is_what_is_asked_for():
    matrix = np.diag(labels(1, 0, 0))
    groups = ((0,), (1, 2))
    np.testing.assert_array_equal(category_iou(matrix, categories=groups), [1, NAN])
    assert category_iou(matrix, categories=groups, absent="zero").tolist() == [1, 0]
    assert category_iou(matrix, categories=()).shape == (0,)


# Boundaries ------------------------------------------------------------------------------------


def eroded_boundary(mask, d):
    """A mask less its erosion by a square, with nothing outside of the image."""
    padded = np.pad(mask, d)
    h, w = mask.shape
    inside = np.ones_like(mask)
    for y in range(2 * d + 1):
        for x in range(2 * d + 1):
            inside &= padded[y : y + h, x : x + w]
    return mask & ~inside


def boundary_iou_by_class(p, t, k, d, ignore=(), where=True):
    """Of each class, image by image: boundaries by erosion, compared where targets count."""
    where = np.broadcast_to(where, t.shape)
    counts = (t >= 0) & (t < k) & ~np.isin(t, ignore) & where
    scores = []
    for c in range(k):
        both = either = 0
        for pi, ti, counted, w in zip(p, t, counts, where, strict=True):
            target = eroded_boundary((ti == c) & w & (c not in ignore), d)
            predicted = eroded_boundary((pi == c) & w & (c not in ignore), d)
            both += (target & predicted & counted).sum()
            either += ((target | predicted) & counted).sum()
        scores.append(both / either if either else NAN)
    return scores


def smooth_maps(rng, shape, k):
    t = rng.integers(0, k, (shape[0], shape[1] // 6, shape[2] // 6)).repeat(6, 1).repeat(6, 2)
    return np.roll(t, (1, 2), (1, 2)), t


@pytest.mark.parametrize("ignore", [(), (2, 255)])
@pytest.mark.parametrize("masked", [False, True])
def test_boundary_iou_of_all_classes_is_that_of_each_class_s_erosion(ignore, masked):
    rng = np.random.default_rng(0)
    p, t = smooth_maps(rng, (2, 42, 48), 5)
    t[:, 20:26, :9], t[0, :3, :3], p[1, 30:33] = 255, -1, 77
    where = rng.random((2, 1, 1)) < 2
    if masked:
        where = np.ones(t.shape, bool)
        where[0, :, 40:] = where[1, 36:] = False
    for ratio in (0.01, 0.03, 0.05):
        d = max(1, round(ratio * math.hypot(42, 48)))
        matrix = boundary_confusion_matrix(p, t, 5, ratio=ratio, ignore=ignore, where=where)
        assert matrix.shape == (6, 7)
        got = class_iou(matrix, classes=tuple(range(5)))
        np.testing.assert_allclose(got, boundary_iou_by_class(p, t, 5, d, ignore, where), rtol=1e-6)
        # Each pixel that counts is in it once.
        counts = target_counts(t, 5, ignore=ignore, where=where)
        assert int(matrix.sum()) == int(counts.valid)


def test_padding_under_where_ends_an_image_as_its_edge_does():
    p, t = smooth_maps(np.random.default_rng(0), (2, 42, 48), 5)
    pad = ((0, 0), (0, 3), (0, 4))
    where = np.pad(np.ones(t.shape, bool), pad)
    odd = np.random.default_rng(1).integers(0, 5, where.shape)
    p_padded, t_padded = (np.where(where, np.pad(x, pad), odd) for x in (p, t))
    got = boundary_confusion_matrix(p_padded, t_padded, 5, ratio=0.03, where=where)
    np.testing.assert_array_equal(got, boundary_confusion_matrix(p, t, 5, ratio=0.03))


def test_s20_two_labels_side_by_side_have_a_boundary_each():
    t = np.repeat(labels([7] * 10 + [3] * 10), 20, axis=0)
    matrix = np.asarray(boundary_confusion_matrix(t, t, 8, ratio=0.01))
    # All round each half of 20 x 10 pixels one pixel is boundary; the rest is inside.
    wanted = np.zeros((9, 10), int)
    wanted[7, 7] = wanted[3, 3] = 20 * 10 - 18 * 8
    wanted[8, 8] = 2 * 18 * 8
    np.testing.assert_array_equal(matrix, wanted)


# Real annotations --------------------------------------------------------------------------------


def image(*parts):
    with Image.open(DATA.joinpath(*parts)) as opened:
        return np.asarray(opened)


@needs_data
@pytest.mark.parametrize("prediction", ["identity", "roll_2_1", "drop_small_to_void"])
def test_coco_s_semantic_scores_are_those_of_the_annotations(prediction):
    folder = DATA / "panopticapi_sample"
    truth = json.loads((folder / "panoptic_examples.json").read_text())
    predicted = json.loads((folder / f"pred_{prediction}.json").read_text())
    ids = [c["id"] for c in truth["categories"]]
    expected = json.loads((folder / "expected.json").read_text())
    expected = expected[f"pred_{prediction}"]["semantic"]

    def semantic(annotation, *name):
        rgb = image("panopticapi_sample", *name).astype(np.int64)
        segments = rgb[..., 0] + 256 * rgb[..., 1] + 65536 * rgb[..., 2]
        out = np.full(segments.shape, 255, np.uint8)
        for s in annotation["segments_info"]:
            out[segments == s["id"]] = ids.index(s["category_id"])
        return out

    matrix = np.zeros((133, 134), np.int64)
    for a, b in zip(truth["annotations"], predicted["annotations"], strict=True):
        stem = Path(a["file_name"]).stem
        target = semantic(a, f"gt_{stem}.png")
        got = semantic(b, f"pred_{prediction}", b["file_name"])
        matrix += np.asarray(confusion_matrix(got, target, 133, ignore=255))
    classes = tuple(ids.index(c) for c in expected["classes"])
    counts = np.array(expected["confusion_rows_gt_last_row_void_last_col_other"])[:-1]
    np.testing.assert_array_equal(matrix[np.ix_(classes, classes)], counts[:, :-1])
    assert matrix.sum() == counts.sum()
    with jax.enable_x64(True):
        for name, f in [
            ("iou", functools.partial(class_iou, classes=classes)),
            ("dice", functools.partial(class_dice, classes=classes)),
            ("miou", mean_iou),
            ("pixel_accuracy", pixel_accuracy),
            ("mean_class_accuracy", mean_accuracy),
            ("fwiou", frequency_weighted_iou),
        ]:
            np.testing.assert_allclose(f(matrix), expected[name], rtol=1e-12, atol=0)


# Invariants --------------------------------------------------------------------------------------

settings = hypothesis.settings(
    max_examples=30, deadline=None, derandomize=True, database=None, print_blob=False
)
seeds = st.integers(0, 2**32 - 1)


@settings
@hypothesis.given(seeds)
def test_matrices_of_parts_add_up_and_renamed_classes_permute(seed):
    rng = np.random.default_rng(seed)
    p, t = random_maps(rng, (4, 40), 5, spread=1)
    parts = sum(np.asarray(confusion_matrix(p[i], t[i], 5)) for i in range(4))
    whole = np.asarray(confusion_matrix(p, t, 5))
    np.testing.assert_array_equal(whole, parts)
    new = rng.permutation(5)
    renamed = [np.where((x >= 0) & (x < 5), new[x % 5], x) for x in (p, t)]
    matrix = np.asarray(confusion_matrix(*renamed, 5))
    np.testing.assert_array_equal(matrix[new][:, [*new, 5]], whole)
    np.testing.assert_array_equal(np.asarray(class_iou(matrix))[new], class_iou(whole))


@settings
@hypothesis.given(seeds)
def test_iou_and_dice_tell_the_same_and_lie_between_0_and_1(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 2 ** rng.integers(1, 31), (4, 5)).astype(np.int32)
    iou, dice = (np.asarray(f(matrix, absent="zero"), np.float64) for f in (class_iou, class_dice))
    np.testing.assert_allclose(dice, 2 * iou / (1 + iou), rtol=1e-6)
    assert (iou >= 0).all()
    assert (iou <= dice).all()
    assert (dice <= 1).all()
    assert iou.min() <= mean_iou(matrix, absent="zero") <= iou.max() * (1 + 1e-6)


# Errors ------------------------------------------------------------------------------------------


def test_s31_check_values_names_the_first_label_that_is_no_class():
    good = labels([0, 1], [2, 255])
    check_values(good, 3, ignore=255)
    check_values(jnp.asarray(good), 3, ignore=(7, 255))
    for bad, k, ignore, text in [
        (labels([0, 1]), 1, (), r"labels\[0, 1\] is 1, .* 0 to 0, nor ignored \(1 of 2 pixels\)"),
        (good, 3, (), r"labels\[1, 1\] is 255, .* 0 to 2, nor ignored \(1 of 4 pixels\)"),
        (np.array(-1), 3, 255, r"labels is -1, "),
    ]:
        with pytest.raises(ValueError, match=text):
            check_values(bad, k, ignore=ignore)
    with pytest.raises(TypeError, match="labels is traced and has no values yet"):
        jax.jit(lambda x: check_values(x, 3))(good)
    # What is counted there: nothing reaches the one class, and all is told.
    assert target_counts(labels(0, 1), 1).invalid == 1


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_maps_are_errors_that_name_them():
    x = labels([0, 1], [1, 0])
    for p, t, error, text in [
        (x.tolist(), x, TypeError, "predictions must be a JAX or NumPy array, got list"),
        (x, x > 0, TypeError, "targets must hold integers, got dtype bool"),
        (x.astype(np.float32), x, TypeError, "predictions must hold integers, got dtype float32"),
        (
            x[0],
            x,
            ValueError,
            r"predictions must have shape \[2, 2\] \(that of targets\), got \[2\]",
        ),
    ]:
        for f in (confusion_matrix, boundary_confusion_matrix):
            if f is confusion_matrix or error is TypeError:
                with pytest.raises(error, match=text):
                    f(p, t, 2)
    with pytest.raises(
        ValueError, match=r"must have shape \[..., _, _\] \(label maps\), got \[2\]"
    ):
        boundary_confusion_matrix(x[0], x[0], 2)
    for k, error, text in [
        (0, ValueError, "num_classes must be 1 or more, got 0"),
        (2.0, TypeError, "num_classes must be an integer, got float"),
    ]:
        with pytest.raises(error, match=text):
            confusion_matrix(x, x, k)
    with pytest.raises(ValueError, match=r"method must be one of .* got 'loop'"):
        confusion_matrix(x, x, 2, method="loop")
    for ignore in (0.5, (0, None), True):
        with pytest.raises(TypeError, match="ignore must be an integer or a tuple of integers"):
            confusion_matrix(x, x, 2, ignore=ignore)
    with pytest.raises(ValueError, match=r"where must have rank 2 and broadcast to \[2, 2\]"):
        target_counts(x, 2, where=np.ones(2, bool))


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_matrices_are_errors_that_name_them():
    for f in (*SCORES.values(), class_counts, functools.partial(category_iou, categories=())):
        for bad, error, text in [
            (np.eye(3)[:2], None, None),
            (np.eye(3)[:1], ValueError, r"matrix must have shape \[..., K, K\] or .* got \[1, 3\]"),
            (np.ones(3), ValueError, r"matrix must have shape .* got \[3\]"),
            (np.eye(3) > 0, TypeError, "matrix must hold floats or integers, got dtype bool"),
            ([[1]], TypeError, "matrix must be a JAX or NumPy array, got list"),
        ]:
            if error:
                with pytest.raises(error, match=text):
                    f(bad)
            else:
                f(bad)
    cells = np.eye(3, dtype=np.int32)
    with pytest.raises(ValueError, match=r"absent must be one of .* got 'skip'"):
        class_iou(cells, absent="skip")
    with pytest.raises(ValueError, match=r"classes must lie in 0 to 2, got 3"):
        mean_iou(cells, classes=(0, 3))
    with pytest.raises(ValueError, match=r"categories must lie in 0 to 2, got -1"):
        category_iou(cells, categories=((0,), (-1,)))
    with pytest.raises(ValueError, match=r"categories must not share a class"):
        category_iou(cells, categories=((0, 1), (1,)))
