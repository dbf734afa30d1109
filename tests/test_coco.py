"""COCO's average precision beside pycocotools, on real and random sets; its traps."""

import contextlib
import functools
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coco_reference import (
    CLASSES,
    IMAGES,
    NEEDS_DATA,
    ROWS,
    TRUTHS,
    B,
    as_dicts,
    found,
    ours,
    random_set,
    real,
    reference,
    small,
    truth,
)
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from pycocotools.cocoeval import COCOeval

from jaxiou import boxes, masks, metrics
from jaxiou.detection import COCOeval as OurCOCOeval
from jaxiou.detection import coco, matching, packing, precision
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table
from jaxiou.readers import coco as files

# The traps of the protocol note: an input and its right value.


def test_a_truth_with_id_0_is_found():
    assert ours([truth(id=0)], [found()]).summary.ap == pytest.approx(1, abs=1e-15)


def test_of_three_equal_detections_one_finds_the_truth():
    result = ours([truth()], [found()] * 3)
    assert result.summary.ar_100 == 1
    assert result.matches.matched[0, :3, 0].tolist() == [2**10 - 1, 0, 0]


def test_the_field_ignore_of_a_file_is_not_looked_at():
    assert ours([truth(ignore=1)], [found([100.0, 100.0, 50.0, 50.0])]).summary.ap == 0


def test_the_ninth_threshold_is_a_spacing_below_nine_tenths():
    assert coco.THRESHOLDS[8] == 0.8999999999999999
    assert np.argmax(np.isclose(coco.THRESHOLDS, 0.9)) == 8


@pytest.mark.parametrize(("hit_first", "value"), [(True, 1.0), (False, 0.5)])
@pytest.mark.parametrize("images", [(0, 0), (0, 1)])
def test_equal_scores_keep_their_order_in_an_image_and_across_images(hit_first, value, images):
    miss = [300.0, 300.0, 100.0, 100.0]
    pair = [B, miss] if hit_first else [miss, B]
    found_in = [found(box, 1.0, image) for box, image in zip(pair, images, strict=True)]
    hit_image = images[pair.index(B)]
    result = ours([truth(image=hit_image)], found_in)
    assert result.summary.ap == pytest.approx(value, abs=1e-15)


def test_of_equal_overlaps_the_last_truth_is_taken():
    truths = [truth([0.0, 0.0, 100.0, 100.0]), truth([40.0, 0.0, 100.0, 100.0])]
    detections = [found([20.0, 0.0, 100.0, 100.0], 0.9), found([45.0, 0.0, 100.0, 100.0], 0.8)]
    result = ours(truths, detections)
    assert result.summary.ap == 0.32821782178217823
    assert result.summary.ar_100 == 0.45
    second = result.matches.matched[0, 1, 0]
    assert [bool(second >> t & 1) for t in range(10)] == [False] * 4 + [True] * 5 + [False]


@pytest.mark.parametrize(
    ("hits", "of", "value"),
    [
        (1, 1, 1.0),
        (1, 2, 0.504950495049505),
        (2, 3, 67 / 101),
        (7, 20, 35 / 101),
        (11, 20, 56 / 101),
    ],
)
def test_a_recall_that_is_not_reached_counts_as_0(hits, of, value):
    """A float32 grid of recalls would give 36/101 for 7 of 20, and 55/101 for 11 of 20."""
    truths = [truth([0.0, 0.0, 10.0, 10.0], n % IMAGES, n % 2, id=n) for n in range(of)]
    truths = [truth([20.0 * (n // IMAGES), 0.0, 10.0, 10.0], n % IMAGES) for n in range(of)]
    detections = [found(x["bbox"], 0.5, x["image_id"]) for x in truths[:hits]]
    result = ours(truths, detections)
    assert result.summary.ap == pytest.approx(value, abs=1e-15)
    assert result.summary.ar_100 == pytest.approx(hits / of, abs=1e-15)
    jitted = in_jit(small(truths, detections))
    assert jitted.ap == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("area", [1024.0, 9216.0])
def test_an_area_on_a_limit_counts_on_both_sides(area):
    side = area**0.5
    box = [0.0, 0.0, side, side]
    result = ours([truth(box)], [found(box)])
    both = (result.summary.ap_small, result.summary.ap_medium, result.summary.ap_large)
    wanted = (1, 1, -1) if area == 1024 else (-1, 1, 1)
    np.testing.assert_allclose(both, wanted, rtol=1e-15)


def test_what_ranks_behind_the_limit_of_an_image_and_class_is_lost():
    miss = [found([300.0, 300.0, 5.0, 5.0], 0.9) for _ in range(20)]
    run = functools.partial(ours, [truth()], [*miss, found(score=0.1)])
    assert run(max_detections=(1, 10, 20)).summary.ap == 0
    assert run(max_detections=(1, 10, 21)).summary.ar_100 == 1
    other = [found([300.0, 300.0, 5.0, 5.0], 0.9, label=1) for _ in range(20)]
    assert (
        ours([truth()], [*other, found(score=0.1)], max_detections=(1, 10, 20)).summary.ar_100 == 1
    )


def test_other_overlaps_and_thresholds_need_no_half_and_no_three_quarters():
    batch = small([truth([0.0, 0.0, 1.0, 1.0])], [found([0.5, 0.5, 0.5, 0.5])])
    corners = jax.tree.map(lambda x: x, batch)
    corners = corners._replace(
        detections=batch.detections._replace(
            regions=np.asarray(boxes.from_xywh(jnp.asarray(batch.detections.regions, jnp.float32)))
        ),
        truths=batch.truths._replace(
            regions=np.asarray(boxes.from_xywh(jnp.asarray(batch.truths.regions, jnp.float32)))
        ),
    )
    result = coco.average_precision(
        [corners],
        num_classes=CLASSES,
        overlap=boxes.iou,
        crowd_overlap=boxes.ioa,
        thresholds=(0.2,),
    )
    assert result.summary.ap == pytest.approx(1, abs=1e-15)
    assert result.summary.ap50 == result.summary.ap75 == -1


def test_detections_in_images_without_truths_are_wrong():
    result = ours([truth()], [found(score=0.5), found(score=0.9, image=3)])
    assert result.summary.ap == pytest.approx(0.5, abs=1e-15)


def test_a_crowd_takes_any_number_and_a_regular_truth_comes_first():
    crowd = truth(B, iscrowd=1)
    apart = truth([150.0, 150.0, 40.0, 40.0])
    inside = [found([10.0, 10.0, 20.0, 20.0], 0.9), found([50.0, 50.0, 20.0, 20.0], 0.8)]
    result = ours([crowd, apart], [*inside, found(apart["bbox"], 0.7)])
    assert result.summary.ap == pytest.approx(1, abs=1e-15)
    regular = truth([0.0, 0.0, 75.0, 100.0])
    both = ours([regular, crowd], [found()]).matches
    ignored = [bool(both.ignored[0, 0, 0] >> t & 1) for t in range(10)]
    assert ignored == [False] * 6 + [True] * 4
    assert both.matched[0, 0, 0] == 2**10 - 1


def test_the_area_of_a_truth_is_its_field_and_that_of_a_detection_its_box():
    small_in_mask = ours(
        [truth([0.0, 0.0, 40.0, 40.0], area=900.0)], [found([0.0, 0.0, 40.0, 40.0])]
    )
    assert small_in_mask.summary.ap_small == pytest.approx(1, abs=1e-15)
    assert small_in_mask.summary.ap_medium == -1
    little = [0.0, 0.0, 20.0, 20.0]
    far = found([300.0, 300.0, 100.0, 100.0], 0.9)
    result = ours([truth(little)], [far, found(little, 0.5)])
    assert result.summary.ap == pytest.approx(0.5, abs=1e-15)
    assert result.summary.ap_small == pytest.approx(1, abs=1e-15)


def test_boxes_without_area_never_match():
    flat = [5.0, 5.0, 0.0, 0.0]
    assert ours([truth(flat)], [found(flat)]).summary.ap == 0


@pytest.mark.parametrize("detections", [[], [found()]], ids=["nothing", "detections"])
def test_without_truths_every_number_is_minus_one(detections):
    assert set(map(float, ours([], detections).summary)) == {-1.0}


def test_without_detections_every_number_of_a_class_with_truths_is_0():
    result = ours([truth()], [])
    assert (result.summary.ap, result.summary.ar_100) == (0, 0)
    assert result.per_class[0] == 0
    assert np.isnan(result.per_class[1:]).all()


def test_a_nan_overlap_is_no_match_and_a_nan_score_comes_last():
    batch = small([truth()], [found(score=0.5), found(score=0.9)])
    scores = batch.detections.scores.copy()
    scores[0, 1] = np.nan
    late = batch._replace(detections=batch.detections._replace(scores=scores))
    matches = coco.average_precision([late], num_classes=CLASSES).matches
    assert matches.matched[0, :2, 0].tolist() == [2**10 - 1, 0]
    regions = batch.detections.regions.copy()
    regions[0, :2] = np.nan
    nowhere = batch._replace(detections=batch.detections._replace(regions=regions))
    assert coco.average_precision([nowhere], num_classes=CLASSES).summary.ap == 0


# Settings, and the class for scripts.


def test_more_than_32_thresholds_are_matched_in_groups():
    truths, detections = random_set(5)
    many = tuple(np.linspace(0.3, 0.95, 40).tolist())
    whole = ours(truths, detections, thresholds=many).curves
    last = ours(truths, detections, thresholds=many[30:]).curves
    np.testing.assert_array_equal(whole.precision[30:], last.precision)


@pytest.mark.parametrize("use_classes", [True, False])
def test_a_script_for_pycocotools_runs_with_the_class_of_that_name(use_classes, capsys):
    truths, detections = random_set(7)
    theirs = reference(truths, detections, use_classes=use_classes)
    mine = reference(truths, detections, use_classes=use_classes, evaluator=OurCOCOeval)
    np.testing.assert_array_equal(mine.stats, theirs.stats)
    for name in ("precision", "recall", "scores", "counts"):
        np.testing.assert_array_equal(mine.eval[name], theirs.eval[name])
    theirs.summarize()
    table = capsys.readouterr().out
    mine.summarize()
    assert capsys.readouterr().out == table


def test_the_class_takes_some_images_and_classes_like_pycocotools():
    truths, detections = random_set(11)
    stats = []
    for evaluator in (COCOeval, OurCOCOeval):
        run = reference(truths, detections, evaluator=evaluator)
        with contextlib.redirect_stdout(io.StringIO()):
            run.params.imgIds, run.params.catIds = [4, 0, 2, 2], [1, 0]
            run.params.maxDets = [100, 1, 10]
            run.evaluate()
            run.accumulate()
            run.summarize()
        stats.append(run.stats)
    np.testing.assert_array_equal(stats[1], stats[0])


def test_the_class_says_what_to_call_first():
    run = OurCOCOeval()
    with pytest.raises(RuntimeError, match=r"call evaluate\(\) first"):
        run.accumulate()
    with pytest.raises(RuntimeError, match=r"call accumulate\(\) first"):
        run.summarize()
    with pytest.raises(ValueError, match="iouType must be one of"):
        OurCOCOeval(iouType="box")


def keypoint_sets(seed):
    rng = np.random.default_rng(seed)
    truths, detections = [], []
    for image in range(IMAGES):
        for _ in range(rng.integers(0, 4)):
            points = rng.uniform(0, 100, (17, 2)).round(1)
            seen = rng.integers(0, 3, 17) * (rng.random() < 0.9)
            box = [*points.min(axis=0), *np.ptp(points, axis=0)]
            flat = np.concatenate([points, seen[:, None]], axis=1).ravel().tolist()
            more = {"keypoints": flat, "num_keypoints": int((seen > 0).sum())}
            area = float(rng.choice([2000, 9216, 20000]))
            truths.append(truth(list(map(float, box)), image, area=area, **more))
            for _ in range(rng.integers(0, 3)):
                moved = points + rng.normal(0, rng.choice([1, 8]), (17, 2)).round(1)
                flat = np.concatenate([moved, np.ones((17, 1))], axis=1).ravel().tolist()
                score = float(rng.integers(0, 9) / 9)
                one = {"image_id": image, "category_id": 0, "keypoints": flat, "score": score}
                detections.append(one)
    return truths, detections


@pytest.mark.parametrize("seed", [0, 1])
def test_keypoints_have_the_numbers_of_pycocotools(seed):
    """Their similarity has an exponential, whose last bits are the platform's."""
    truths, detections = keypoint_sets(seed)
    theirs = reference(truths, detections, "keypoints")
    loaded = files.from_dicts(*as_dicts(truths, detections), kind="keypoints")
    batches = packing.pack(loaded.table, overlaps=loaded.overlaps, batch_size=IMAGES)
    result = coco.keypoint_average_precision(batches, num_classes=CLASSES)
    np.testing.assert_allclose(np.array(result.summary), theirs.stats, rtol=0, atol=1e-15)
    mine = reference(truths, detections, "keypoints", evaluator=OurCOCOeval)
    np.testing.assert_allclose(mine.stats, theirs.stats, rtol=0, atol=1e-15)


# Inside `jit`, and where the exact mode is not.


@functools.partial(jax.jit, static_argnames="num_classes")
def numbers(batch, num_classes=CLASSES):
    matches = coco.evaluate(batch.detections, batch.truths, overlaps=batch.overlaps)
    return coco.summarize(coco.accumulate(matches, num_classes=num_classes))


def in_jit(batch):
    return jax.tree.map(np.asarray, numbers(jax.tree.map(narrow, batch)))


def narrow(x):
    return x.astype(np.float32) if x.dtype == np.float64 else x


def test_the_float32_mode_differs_by_rounding_alone_where_no_overlap_is_near_a_threshold():
    for seed in (0, 1, 3, 4):  # on the coarse grid overlaps are ratios of small integers
        truths, detections = random_set(seed)
        exact = ours(truths, detections)
        np.testing.assert_allclose(
            np.array(in_jit(small(truths, detections))), np.array(exact.summary), atol=2e-6
        )


@NEEDS_DATA
def test_the_float32_mode_on_real_images_is_off_by_one_pair():
    """Of which the overlap is 0.6000000000000004, and 0.5999999 in float32."""
    _, loaded, batches = real("bbox")
    value = numbers(jax.tree.map(narrow, batches[0]), loaded.num_classes)
    order = np.argsort(batches[0].indices)
    assert (np.diff(batches[0].indices[order]) == 1).all()
    in_order = jax.tree.map(lambda x: narrow(x[order]), batches[0])
    value = numbers(in_order, loaded.num_classes)
    assert float(value.ap) == pytest.approx(0.504234, abs=2e-6)


def test_the_exact_mode_leaves_a_program_in_float32_as_it_is():
    result = ours([truth()], [found()])
    assert isinstance(result.curves.precision, np.ndarray)
    assert result.curves.precision.dtype == np.float64
    assert not jax.config.jax_enable_x64
    assert jnp.ones(1).dtype == jnp.float32


def test_inside_jit_the_exact_mode_says_what_to_call():
    batch = small([truth()], [found()])
    with pytest.raises(TypeError, match="call `evaluate`, `accumulate` and `summarize`"):
        jax.jit(lambda x: coco.average_precision([x], num_classes=CLASSES).summary)(batch)
    with pytest.raises(TypeError, match="matches is traced"):
        jax.jit(
            lambda x: precision.accumulate_exactly(
                coco.evaluate(x.detections, x.truths), num_classes=CLASSES, num_thresholds=10
            )
        )(batch)


def test_an_image_that_occurs_twice_counts_once():
    truths, detections = random_set(4)
    batch = small(truths, detections)
    once = coco.average_precision([batch], num_classes=CLASSES)
    twice = coco.average_precision([batch, batch], num_classes=CLASSES)
    np.testing.assert_array_equal(np.array(twice.summary), np.array(once.summary))


def test_masks_of_a_batch_are_compared_inside_jit_as_pycocotools_does():
    rng = np.random.default_rng(0)
    shapes = rng.random((2, 5, 12, 14)) < 0.6
    shapes[:, 1] = shapes[:, 0] & (rng.random((2, 12, 14)) < 0.9)
    areas = shapes.sum(axis=(-2, -1)).astype(np.float32)
    labels, valid = np.zeros((2, 5), np.int32), np.ones((2, 5), bool)
    scores = rng.random((2, 5)).astype(np.float32)
    detections = Detections(shapes, scores, labels, valid, areas)
    crowd = np.zeros((2, 3), bool)
    crowd[0, 2] = True
    truths = GroundTruth(shapes[:, :3], labels[:, :3], valid[:, :3], areas[:, :3], crowd)
    got = coco.evaluate(detections, truths, overlap=masks.iou, crowd_overlap=masks.ioa)
    from pycocotools import mask as rle

    for image in range(2):
        codes = [rle.encode(np.asfortranarray(x.astype(np.uint8))) for x in shapes[image]]
        table = rle.iou(codes, codes[:3], crowd[image].tolist())[None].astype(np.float32)
        one = jax.tree.map(lambda x, image=image: x[image : image + 1], (detections, truths))
        wanted = coco.evaluate(*one, overlaps=table)
        assert np.array_equal(got.matched[image], wanted.matched[0])


# The metric.

METRIC = metrics.coco_average_precision(CLASSES, IMAGES, num_detections=30, num_truths=20)


def part(batch, *images):
    return jax.tree.map(lambda x: narrow(x[list(images)]), batch)


@pytest.fixture(scope="module")
def streamed():
    """A set in a batch, and its numbers in one pass."""
    truths, detections = random_set(3)
    batch = part(small(truths, detections), *range(IMAGES))
    value = METRIC.compute(METRIC.update(METRIC.init(), batch))
    np.testing.assert_allclose(
        np.array(value), np.array(ours(truths, detections).summary), atol=2e-6
    )
    return batch, value


def test_states_merge_in_any_order_and_an_image_that_both_have_seen_counts_once(streamed):
    batch, value = streamed
    parts = [(0, 1, 2), (5, 3, 4), (2, 2, 0)]
    a, b, c = (METRIC.update(METRIC.init(), part(batch, *some)) for some in parts)
    for order in ((a, b, c), (c, b, a), (b, a, c)):
        merged = METRIC.merge(METRIC.merge(*order[:2]), order[2])
        np.testing.assert_array_equal(np.array(METRIC.compute(merged)), np.array(value))
    assert METRIC.compute(a).ap != value.ap


def test_images_that_fill_up_a_batch_do_not_count(streamed):
    batch, value = streamed
    full = part(batch, 0, 1, 2, 3, 4, 5, 0, 0)
    garbage = full._replace(
        detections=full.detections._replace(scores=full.detections.scores * 0 + 7),
        indices=np.array([0, 1, 2, 3, 4, 5, -1, IMAGES], np.int32),
    )
    state = METRIC.update(METRIC.init(), part(batch, 0, 1, 2, 3, 4, 5, 0, 0))
    np.testing.assert_array_equal(np.array(METRIC.compute(state)), np.array(value))
    keep = np.arange(8) < 6
    masked = METRIC.update(METRIC.init(), garbage._replace(detections=full.detections), where=keep)
    np.testing.assert_array_equal(np.array(METRIC.compute(masked)), np.array(value))
    alone = METRIC.update(METRIC.init(), part(garbage, 6, 7, 6))
    assert not alone.seen.any()
    assert METRIC.compute(alone).ap == -1


def test_a_state_goes_through_scan_and_may_be_donated(streamed):
    batch, value = streamed
    steps = jax.tree.map(lambda x: jnp.asarray(x).reshape(2, 3, *x.shape[1:]), batch)

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state, steps):
        return jax.lax.scan(lambda s, x: (METRIC.update(s, x), None), state, steps)[0]

    state = run(METRIC.init(), steps)
    np.testing.assert_array_equal(np.array(METRIC.compute(state)), np.array(value))


def test_devices_reduce_to_one_pass_though_two_have_seen_the_same_image(streamed):
    batch, value = streamed
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    spread = part(batch, 0, 1, 2, 3, 4, 5, 5, 0)

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P())
    def run(images):
        return METRIC.reduce(METRIC.update(METRIC.init(), images), "x")

    np.testing.assert_array_equal(np.array(METRIC.compute(run(spread))), np.array(value))


def test_the_metric_names_what_does_not_fit_its_state(streamed):
    batch, _ = streamed
    tight = metrics.coco_average_precision(CLASSES, IMAGES, num_detections=5)
    with pytest.raises(ValueError, match="at most num_detections = 5 rows, got 24"):
        tight.update(tight.init(), batch)
    with pytest.raises(ValueError, match="num_images must be 0 or more, got -1"):
        metrics.coco_average_precision(CLASSES, -1)


# Packing.


def test_packed_images_hold_their_rows_in_order_and_each_is_there_once():
    rng = np.random.default_rng(1)
    counts = np.array([0, 1, 40, 3, 3, 0, 9])
    images = rng.permutation(np.repeat(np.arange(7), counts)).astype(np.int32)
    rows = np.arange(len(images), dtype=np.float64)
    labels, valid = np.zeros(len(rows), np.int32), np.ones(len(rows), bool)
    regions = np.tile(rows[:, None], 4)
    table = Table(
        Detections(regions, rows, labels, valid),
        images,
        GroundTruth(regions, labels, valid),
        images,
        7,
    )
    batches = packing.pack(table, batch_size=2)
    seen = []
    for batch in batches:
        for place, image in enumerate(batch.indices):
            keep = batch.detections.valid[place]
            if image < 0:
                assert not keep.any()
                continue
            seen.append(image)
            wanted = rows[images == image]
            np.testing.assert_array_equal(batch.detections.scores[place][keep], wanted)
            assert keep[: len(wanted)].all()
            assert batch.truths.valid[place].sum() == len(wanted)
    assert sorted(seen) == list(range(7))


def test_rows_of_no_image_and_tables_of_another_shape_are_refused():
    one = np.zeros(1, np.int32), np.ones(1, bool)
    table = Table(
        Detections(None, np.ones(1), *one), one[0] + 3, GroundTruth(None, *one), one[0], 2
    )
    with pytest.raises(ValueError, match="detection_images must lie in 0 to 1, got 3 in row 0"):
        packing.pack(table)
    fine = table._replace(detection_images=one[0])
    with pytest.raises(ValueError, match=r"overlaps\[0\] must have shape \[1, 1\], got \[2, 1\]"):
        packing.pack(fine, overlaps=[np.zeros((2, 1)), np.zeros((0, 0))])
    with pytest.raises(ValueError, match="overlaps must be 2 tables, got 1"):
        packing.pack(fine, overlaps=[np.zeros((1, 1))])


def test_zero_images_rows_and_truths_give_minus_one_or_zero():
    assert coco.average_precision([], num_classes=2).summary.ap == -1
    none = np.zeros((2, 0))
    labels, valid = np.zeros((2, 0), np.int32), np.zeros((2, 0), bool)
    empty = Detections(np.zeros((2, 0, 4)), none, labels, valid)
    truths = GroundTruth(np.zeros((2, 0, 4)), labels, valid)
    batch = Images(empty, truths, np.arange(2, dtype=np.int32))
    assert coco.average_precision([batch], num_classes=2).summary.ap == -1
    some = GroundTruth(np.ones((2, 1, 4)), np.zeros((2, 1), np.int32), np.ones((2, 1), bool))
    assert coco.average_precision([batch._replace(truths=some)], num_classes=2).summary.ap == 0
    assert numbers(jax.tree.map(narrow, batch._replace(truths=some))).ap == 0


def test_numbers_of_any_type_keep_all_their_digits_in_the_exact_mode():
    batch = small([truth()], [found(score=0.1), found([300.0, 300.0, 9.0, 9.0], 0.2)])
    scores = np.zeros((IMAGES, ROWS), np.int32)
    scores[0, :2] = 2**24 + 1, 2**24
    wide = batch._replace(detections=batch.detections._replace(scores=scores))
    assert coco.average_precision([wide], num_classes=CLASSES).summary.ap50 > 0.99
    regions = [np.zeros((IMAGES, x, 4)) for x in (ROWS, TRUTHS)]
    regions[0][0, 0], regions[1][0, 0] = (0, 0, 6, 10), (0, 0, 10, 10)
    for dtype in (np.int8, jnp.bfloat16):
        narrow = batch._replace(
            detections=batch.detections._replace(regions=regions[0].astype(dtype)),
            truths=batch.truths._replace(regions=regions[1].astype(dtype)),
        )
        result = coco.average_precision(
            [narrow], num_classes=CLASSES, thresholds=(0.6, 0.6000000000000001)
        )
        assert result.matches.matched[0, 0, 0] == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, jnp.bfloat16])
def test_areas_of_narrow_types_do_not_wrap(dtype):
    side = 200 if dtype == np.uint8 else 304
    regions = np.array([[[0, 0, side, side]]]).astype(dtype)
    one = np.zeros((1, 1), np.int32), np.ones((1, 1), bool)
    matches = coco.evaluate(
        Detections(regions, np.ones((1, 1), np.float32), *one), GroundTruth(regions, *one)
    )
    assert matches.truth_counts.tolist() == [[[True, False, False, True]]]


def test_large_images_go_in_smaller_batches():
    images = np.zeros(3000, np.int32)
    ones = np.zeros(3000, np.int32), np.ones(3000, bool)
    found = Detections(np.ones((3000, 4)), np.ones(3000), *ones)
    some = GroundTruth(np.ones((300, 4)), ones[0][:300], ones[1][:300])
    (batch,) = packing.pack(Table(found, images, some, images[:300], 1))
    assert batch.detections.valid.shape == (3, 3000)


@pytest.mark.parametrize("use", [[4, 0, 2], [-1, 0], []])
def test_without_classes_those_of_the_parameters_count_in_their_order(use):
    truths, detections = random_set(12)
    stats = []
    for evaluator in (COCOeval, OurCOCOeval):
        run = reference(truths, detections, evaluator=evaluator)
        with contextlib.redirect_stdout(io.StringIO()):
            run.params.useCats, run.params.catIds = 0, use
            run.evaluate()
            run.accumulate()
            run.summarize()
        stats.append(run.stats)
    np.testing.assert_array_equal(stats[1], stats[0])


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_settings_are_named():
    batch = small([truth()], [found()])
    with pytest.raises(ValueError, match="thresholds must be 1 to 32, got 33"):
        coco.evaluate(batch.detections, batch.truths, thresholds=(0.5,) * 33)
    with pytest.raises(ValueError, match=r"thresholds must be above 0 and at most 1, got 1\.5"):
        ours([], [], thresholds=(1.5,))
    with pytest.raises(ValueError, match="recalls must be one or more rising numbers"):
        ours([], [], recalls=(0.5, 0.1))
    with pytest.raises(ValueError, match="detections must have areas"):
        coco.evaluate(
            batch.detections._replace(regions=np.zeros((IMAGES, ROWS, 5)), areas=None), batch.truths
        )
    with pytest.raises(ValueError, match="detections must have areas: only those of boxes x, y"):
        coco.evaluate(batch.detections._replace(areas=None), batch.truths, overlap=boxes.iou)
    with pytest.raises(ValueError, match=r"detections.scores must have shape \[6, 24\]"):
        coco.evaluate(
            batch.detections._replace(scores=np.ones((6, 3))), batch.truths, class_agnostic=True
        )
    with pytest.raises(TypeError, match="detections must have the fields of packing, got tuple"):
        coco.evaluate((1, 2), batch.truths)
    matches = coco.evaluate(batch.detections, batch.truths)
    curves = coco.accumulate(matches, num_classes=CLASSES)
    with pytest.raises(ValueError, match="thresholds must be those of the curves, 10 of them, got"):
        coco.summarize(curves, thresholds=(0.5,))
    for settings, reason in (
        ({"num_thresholds": 40}, "num_thresholds must be 32 or less, got 40"),
        ({"max_detections": (100, 1)}, "max_detections must be one or more rising limits"),
    ):
        with pytest.raises(ValueError, match=reason):
            coco.accumulate(matches, num_classes=2, **settings)
    with pytest.raises(ValueError, match="recalls must be fractions of up to a thousandth"):
        coco.accumulate(matches, num_classes=2, recalls=(0.123456789,))


def test_ranks_are_places_by_falling_score():
    scores = np.array([0.5, np.nan, 0.9, 0.5, 0.9], np.float32)
    valid = np.array([True, True, True, True, False])
    assert matching.ranks_by_score(scores, valid).tolist()[:4] == [1, 3, 0, 2]
    labels = np.array([0, 1, 1, 0, 0], np.int32)
    assert matching.ranks_by_score(scores, valid, labels).tolist()[:4] == [0, 1, 0, 1]
