"""Streaming metrics: exact past 2^31, in any order, on any number of devices and processes."""

import functools
import itertools
import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxiou import _counts, metrics, panoptic
from jaxiou._math import two_sum
from jaxiou.tracking import clear, combine, hota, identity, packing

ROOT = Path(__file__).parents[1]
K = 3
METRIC = metrics.mean_iou(K, ignore=255)


def label_maps(seed, batch=4, classes=K):
    """Predictions, some of them no class, and targets, some of them ignored or invalid."""
    rng = np.random.default_rng(seed)
    labels = np.array([*range(classes), 255, 100], np.uint8)
    return tuple(rng.choice(labels, (batch, 4, 6), p=[0.3, 0.3, 0.3, 0.06, 0.04]) for _ in "pt")


def counted(*batches):
    """The matrix of all batches in int64, and the ignored and invalid pixels."""
    matrix, others = np.zeros((K, K + 1), np.int64), np.zeros(2, np.int64)
    for predictions, targets in batches:
        for p, t in zip(predictions.ravel().tolist(), targets.ravel().tolist(), strict=True):
            if t < K:
                matrix[t, min(p, K)] += 1
            else:
                others[int(t != 255)] += 1
    return matrix, *others


def scored(matrix):
    """IoU of each class, in float64."""
    hits = np.diag(matrix)
    return hits / (matrix.sum(1) + matrix[:, :K].sum(0) - hits)


def state_of(matrix):
    """A state that holds a matrix of any size."""
    parts = [
        (np.asarray(matrix, np.uint64) >> np.uint64(16 * i)) & np.uint64(65535) for i in range(4)
    ]
    return METRIC.init()._replace(matrix=jnp.asarray(np.stack(parts).astype(np.uint32)))


def assert_same(state, other):
    for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(x, y)


def run(batches, state=None):
    state = METRIC.init() if state is None else state
    for batch in batches:
        state = METRIC.update(state, *batch)
    return state


# Limbs.


def limbs(values):
    return state_of(values).matrix


def numbers(seed, high=2**63):
    return np.random.default_rng(seed).integers(0, high, 50, dtype=np.uint64)


def test_limbs_add_and_subtract_like_64_bit_integers():
    a, b = numbers(0, 2**62), numbers(1, 2**62)
    big, small = np.maximum(a, b), np.minimum(a, b)
    np.testing.assert_array_equal(_counts.to_numpy(_counts.add(limbs(a), limbs(b))), a + b)
    got = _counts.subtract(limbs(big), limbs(small))
    np.testing.assert_array_equal(_counts.to_numpy(got), big - small)


def test_limbs_of_65536_participants_are_carried():
    a = numbers(2, 2**47)
    total = limbs(a) * np.uint32(65536)  # as a sum over that many devices leaves them
    np.testing.assert_array_equal(_counts.to_numpy(_counts.carry(total)), a * np.uint64(65536))


@pytest.mark.parametrize("dtype", ["int32", "uint32", "uint8"])
def test_integers_of_any_type_become_limbs(dtype):
    top = np.iinfo(dtype).max
    x = np.array([0, 1, top - 1, top], dtype)
    np.testing.assert_array_equal(_counts.to_numpy(_counts.from_integers(jnp.asarray(x))), x)


@pytest.mark.usefixtures("x64")
def test_integers_of_64_bits_become_limbs():
    x = np.array([0, 2**31, 2**53 + 1, 2**63 - 1])
    np.testing.assert_array_equal(_counts.to_numpy(_counts.from_integers(jnp.asarray(x))), x)


def test_limbs_are_rounded_as_a_float_once():
    x = np.concatenate([numbers(3, 2**24), numbers(4), [2**24 + 1, 2**32 - 1, 2**32, 2**53]])
    got = np.asarray(_counts.to_float(limbs(x), np.dtype(np.float32)), np.float64)
    np.testing.assert_array_equal(got, x.astype(np.float32))


def test_a_rest_of_a_sum_is_exact():
    x, y = (np.float32(np.random.default_rng(s).normal(size=99) * 10.0**s) for s in (0, 3))
    total, rest = jax.jit(two_sum)(x, y)
    np.testing.assert_array_equal(
        np.float64(total) + np.float64(rest), np.float64(x) + np.float64(y)
    )
    assert np.any(rest != 0)


# Counts.


def test_a_state_counts_like_a_loop_over_pixels():
    batches = [label_maps(seed) for seed in range(3)]
    state = metrics.to_numpy(run(batches))
    for got, wanted in zip(state, counted(*batches), strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_allclose(METRIC.compute(run(batches)).per_class, scored(state.matrix), 1e-6)


@pytest.mark.parametrize("start", [2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1, 2**53, 2**62])
def test_one_more_pixel_counts_however_many_there_were(start):
    """S4, S5: no count saturates, wraps or is rounded, with x64 off."""
    before = np.full((K, K + 1), start, np.uint64)
    one = np.zeros((1, 1, 1), np.uint8)
    state = functools.reduce(
        lambda state, _: METRIC.update(state, one, one), range(5), state_of(before)
    )
    wanted = before.copy()
    wanted[0, 0] += np.uint64(5)
    np.testing.assert_array_equal(metrics.to_numpy(state).matrix, wanted)


def test_scores_of_the_pixels_of_cityscapes_are_right_to_the_last_digit():
    """2975 images of 2048 x 1024 pixels; a third of them do not fit in 31 bits."""
    matrix = np.zeros((K, K + 1), np.int64)
    matrix[:, :] = [[2975 * 2**21 // 3, 7, 1, 5], [12345, 99, 2**33 + 1, 0], [0, 3, 2**40, 2**20]]
    result = METRIC.compute(state_of(matrix))
    np.testing.assert_allclose(result.per_class, scored(matrix), rtol=3e-7)
    with jax.enable_x64(True):
        result = METRIC.compute(state_of(matrix))
        assert result.mean.dtype == np.float64
        np.testing.assert_allclose(result.per_class, scored(matrix), rtol=1e-15)
        np.testing.assert_allclose(result.mean, scored(matrix).mean(), rtol=1e-15)


def test_merging_in_any_order_gives_the_same_bits():
    parts = [
        METRIC.update(state_of(numbers(i, 2**60)[: K * (K + 1)].reshape(K, K + 1)), *label_maps(i))
        for i in range(4)
    ]
    wanted = functools.reduce(METRIC.merge, parts)
    for order in itertools.permutations(parts):
        assert_same(functools.reduce(METRIC.merge, order), wanted)
    assert_same(METRIC.merge(METRIC.merge(*parts[:2]), METRIC.merge(*parts[2:])), wanted)
    assert_same(METRIC.merge(wanted, METRIC.init()), wanted)


def test_merged_states_are_one_pass():
    batches = [label_maps(seed) for seed in range(4)]
    assert_same(METRIC.merge(run(batches[:1]), run(batches[1:])), run(batches))


def test_padded_images_do_not_count():
    """S28: the last batch is filled up with images that are there already."""
    predictions, targets = label_maps(0)
    where = np.array([True, True, False, False]).reshape(4, 1, 1)
    got = METRIC.update(METRIC.init(), predictions, targets, where=where)
    assert_same(got, METRIC.update(METRIC.init(), predictions[:2], targets[:2]))


def test_nothing_seen_has_no_score():
    assert np.isnan(METRIC.compute(METRIC.init()).mean)
    assert np.isnan(METRIC.compute(METRIC.init()).per_class).all()


def test_an_ignored_class_is_no_class_of_the_mean():
    """S10, S14, also where absent classes count as zero."""
    metric = metrics.mean_iou(3, ignore=0, absent="zero")
    t, p = np.array([[0, 1, 2, 1]]), np.array([[0, 1, 2, 0]])
    assert metric.compute(metric.update(metric.init(), p, t)).mean == 0.75


def test_dice_is_the_harmonic_mean_of_precision_and_recall():
    metric = metrics.dice(K, ignore=255)
    result = metric.compute(run([label_maps(0)]))
    iou = scored(counted(label_maps(0))[0])
    np.testing.assert_allclose(result.per_class, 2 * iou / (1 + iou), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: metrics.mean_iou(2, classes=(9,)), "classes must lie in 0 to 1, got 9"),
        (lambda: metrics.dice(0), "num_classes must be 1 or more"),
        (lambda: metrics.mean_iou(2, absent="bogus"), "absent must be one of"),
        (lambda: metrics.panoptic_quality(2, things=(7,)), "things must lie in 0 to 1, got 7"),
        (lambda: metrics.panoptic_quality(2, threshold=0.3), "threshold must be"),
    ],
)
@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_settings_raise_before_any_data_is_seen(make, reason):
    with pytest.raises(ValueError, match=reason):
        make()


# Where states go.


def test_a_state_goes_through_scan():
    batches = [label_maps(seed) for seed in range(3)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *batches)
    state, _ = jax.lax.scan(
        lambda state, batch: (METRIC.update(state, *batch), None), METRIC.init(), stacked
    )
    assert_same(state, run(batches))


def test_a_state_may_be_donated():
    update = jax.jit(METRIC.update, donate_argnums=0)
    first = METRIC.init()
    state = update(first, *label_maps(0))
    assert all(x.is_deleted() for x in first)
    assert_same(update(state, *label_maps(1)), run([label_maps(0), label_maps(1)]))


def test_equal_settings_give_the_same_metric_and_one_compilation():
    assert metrics.mean_iou(K, ignore=255) is METRIC
    state = METRIC.init()
    traces = []

    @jax.jit
    def update(state, predictions, targets):
        traces.append(1)
        return metrics.mean_iou(K, ignore=255).update(state, predictions, targets)

    for seed in range(3):
        state = update(state, *label_maps(seed))
    assert len(traces) == 1


def mesh():
    return jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))


def test_devices_in_shard_map_reduce_to_one_pass():
    predictions, targets = label_maps(0, batch=8)

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh(), in_specs=P("batch"), out_specs=P())
    def step(predictions, targets):
        return METRIC.reduce(METRIC.update(METRIC.init(), predictions, targets), "batch")

    assert_same(step(predictions, targets), run([(predictions, targets)]))


def test_a_sharded_batch_in_plain_jit_is_counted_with_sums_alone():
    batch = label_maps(0, batch=8)
    sharded = jax.device_put(batch, NamedSharding(mesh(), P("batch")))
    program = jax.jit(METRIC.update).lower(METRIC.init(), *sharded).compile()
    text = program.as_text()
    assert "all-reduce" in text
    assert not any(other in text for other in ("all-gather", "all-to-all", "collective-permute"))
    assert_same(program(METRIC.init(), *sharded), run([batch]))


PROCESS = """
    import sys
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
    import functools, json
    import numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    from jaxiou import metrics

    mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,))
    metric = metrics.mean_iou(3, ignore=255)
    local = np.load(sys.argv[3])
    batch = [
        jax.make_array_from_process_local_data(NamedSharding(mesh, P("batch")), local[name])
        for name in ("predictions", "targets")
    ]

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("batch"), out_specs=P())
    def by_hand(predictions, targets):
        return metric.reduce(metric.update(metric.init(), predictions, targets), "batch")

    states = [by_hand(*batch), jax.jit(metric.update)(metric.init(), *batch)]
    print(json.dumps([metrics.to_numpy(state).matrix.tolist() for state in states]))
"""


def test_two_processes_reduce_to_one_pass(tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    batches = [label_maps(seed) for seed in range(2)]
    environment = {**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(ROOT)}
    processes = []
    for i, (predictions, targets) in enumerate(batches):
        path = tmp_path / f"{i}.npz"
        np.savez(path, predictions=predictions, targets=targets)
        arguments = [sys.executable, "-c", textwrap.dedent(PROCESS), address, str(i), str(path)]
        processes.append(
            subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment, text=True)
        )
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    wanted = counted(*batches)[0].tolist()
    for output in outputs:
        assert json.loads(output.splitlines()[-1]) == [wanted, wanted]


def test_a_state_has_stable_names_and_comes_back_from_a_file(tmp_path):
    state = run([label_maps(0)])
    assert metrics.ConfusionCounts._fields == ("matrix", "ignored", "invalid")
    assert [(x.shape, x.dtype) for x in state] == [((4, K, K + 1), np.uint32)] + 2 * [
        ((4,), np.uint32)
    ]
    np.savez(tmp_path / "state.npz", **state._asdict())
    with np.load(tmp_path / "state.npz") as stored:
        restored = metrics.ConfusionCounts(**stored)
    assert_same(METRIC.update(restored, *label_maps(1)), run([label_maps(0), label_maps(1)]))


# Panoptic quality.


PANOPTIC = metrics.panoptic_quality(3, things=(0, 1))


def segments(seed, batch=2):
    """Maps of four segments, predictions that mostly agree, and classes."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 4, (batch, 2, 4, 1)).repeat(6, 3).reshape(batch, 8, 6)
    noise = rng.integers(0, 4, targets.shape)
    predictions = np.where(rng.random(targets.shape) < 0.9, targets, noise)
    target_labels = rng.integers(0, 3, (batch, 4))
    same = rng.random(target_labels.shape) < 0.8
    labels = np.where(same, target_labels, rng.integers(0, 3, target_labels.shape)), target_labels
    return tuple(x.astype(np.int32) for x in (predictions, targets, *labels))


def run_panoptic(seeds):
    def update(state, seed):
        return PANOPTIC.update(state, *segments(seed))

    return functools.reduce(update, seeds, PANOPTIC.init())


def test_panoptic_quality_streamed_is_that_of_all_images():
    images = [segments(seed) for seed in range(3)]
    each = [
        panoptic.panoptic_counts(*image, num_classes=3)
        for batch in images
        for image in zip(*batch, strict=True)
    ]
    total = jax.tree.map(lambda *x: sum(x), *each)
    assert total.true_positives.sum() > 5
    result = PANOPTIC.compute(run_panoptic(range(3)))
    for got, classes in zip(result, (None, (0, 1), (2,)), strict=True):
        wanted = panoptic.panoptic_quality(total, classes=classes)
        for x, y in zip(got, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6)


def test_panoptic_states_merge_to_one_pass_in_any_order():
    parts = [run_panoptic([seed]) for seed in range(3)]
    wanted = metrics.to_numpy(run_panoptic(range(3)))
    for order in itertools.permutations(parts):
        got = metrics.to_numpy(functools.reduce(PANOPTIC.merge, order))
        np.testing.assert_allclose(got.iou, wanted.iou, rtol=1e-13)
        assert_same(got[1:], wanted[1:])


def test_a_sum_of_a_million_matches_loses_no_digits():
    """A float32 sum of a million terms near 0.7 is off by 1e-5 and more."""
    step = PANOPTIC.init()._replace(iou=jnp.stack([jnp.full(3, 0.7), jnp.zeros(3)]))
    state, _ = jax.lax.scan(
        lambda state, _: (PANOPTIC.merge(state, step), None), PANOPTIC.init(), length=10**6
    )
    wanted = 10**6 * np.float64(np.float32(0.7))
    np.testing.assert_allclose(metrics.to_numpy(state).iou, wanted, rtol=1e-9)
    assert abs(np.float64(np.cumsum(np.full(10**6, 0.7, np.float32))[-1]) / wanted - 1) > 1e-6


def test_panoptic_devices_reduce_to_one_pass():
    batch = segments(0, batch=8)

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh(), in_specs=P("batch"), out_specs=P())
    def step(*batch):
        return PANOPTIC.reduce(PANOPTIC.update(PANOPTIC.init(), *batch), "batch")

    got = metrics.to_numpy(step(*batch))
    wanted = metrics.to_numpy(PANOPTIC.update(PANOPTIC.init(), *batch))
    np.testing.assert_allclose(got.iou, wanted.iou, rtol=1e-6)
    assert_same(got[1:], wanted[1:])


def test_images_that_fill_up_a_batch_have_no_panoptic_count():
    batch = segments(0, batch=4)
    got = PANOPTIC.update(PANOPTIC.init(), *batch, where=np.array([True, False, True, False]))
    wanted = PANOPTIC.update(PANOPTIC.init(), *(x[::2] for x in batch))
    for x, y in zip(got, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


# Tracking.


TRACKING = metrics.tracking(4, 3)


def sequences(seed, batch=2, frames=5):
    """Three targets, most of them found, under four ids that switch now and then."""
    rng = np.random.default_rng(seed)
    target_ids = np.broadcast_to(np.arange(3, dtype=np.int32), (batch, frames, 3))
    prediction_ids = np.argsort(rng.random((batch, frames, 4)), axis=-1).astype(np.int32)
    prediction_ids[:, 1:][rng.random((batch, frames - 1)) < 0.7] = [2, 0, 1, 3]
    similarities = rng.random((batch, frames, 4, 3)) * 0.4
    similarities[..., np.arange(3), np.arange(3)] += 0.5
    valid = [rng.random((batch, frames, n)) < 0.8 for n in (4, 3)]
    both = valid[0][..., :, None] & valid[1][..., None, :]
    table = np.where(both, similarities, 0).astype(np.float32)
    return packing.Sequence(prediction_ids, target_ids, *valid, table)


def test_tracking_scores_streamed_are_those_of_the_summed_counts():
    batches = [sequences(seed) for seed in range(2)]
    each = [jax.tree.map(lambda x, i=i: x[i], batch) for batch in batches for i in range(2)]
    sizes = {"num_predictions": 4, "num_targets": 3}
    parts = [
        (hota.count(s, **sizes), clear.count(s, num_targets=3), identity.count(s, **sizes))
        for s in each
    ]
    total = jax.tree.map(lambda *x: sum(x), *parts)
    assert total[1].idsw > 0
    wanted = (
        hota.summarize(total[0]),
        clear.summarize(total[1], empty="formula"),
        identity.summarize(total[2]),
    )
    state = functools.reduce(TRACKING.update, batches, TRACKING.init())
    assert_near(TRACKING.compute(state), wanted)
    parts = [TRACKING.update(TRACKING.init(), batch) for batch in batches]
    assert_near(TRACKING.compute(TRACKING.merge(*parts[::-1])), wanted)
    # Counts of classes add, also where a metric gives them as floats.
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), TRACKING.compute(state).clear)
    assert int(combine.class_averaged(twice).clr_tp) == 2 * int(total[1].clr_tp)


def assert_near(state, other):
    for x, y in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_sequences_and_frames_that_fill_up_have_no_count():
    batch = sequences(3, batch=3)
    longer = jax.tree.map(lambda x: np.pad(x, [(0, 0), (0, 2)] + [(0, 0)] * (x.ndim - 2)), batch)
    frames = np.full(3, 5, np.int32)
    where = np.array([True, False, True])
    got = TRACKING.update(TRACKING.init(), longer, num_frames=frames, where=where)
    wanted = TRACKING.update(TRACKING.init(), jax.tree.map(lambda x: x[::2], batch))
    assert_near(metrics.to_numpy(got), metrics.to_numpy(wanted))


def test_tracking_devices_reduce_to_one_pass():
    batch = sequences(4, batch=4)

    # optax's solver has loops whose carries do not vary over the mesh.
    @jax.jit
    @functools.partial(
        jax.shard_map, mesh=mesh(), in_specs=P("batch"), out_specs=P(), check_vma=False
    )
    def step(batch):
        return TRACKING.reduce(TRACKING.update(TRACKING.init(), batch), "batch")

    wanted = TRACKING.update(TRACKING.init(), batch)
    assert_near(metrics.to_numpy(step(batch)), metrics.to_numpy(wanted))
