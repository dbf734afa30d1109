"""Panoptic quality: against panopticapi's numbers, and a loop written from its rules."""

import functools
import json
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou.panoptic import (
    PanopticCounts,
    _Pairs,
    from_rgb,
    pack,
    panoptic_counts,
    panoptic_quality,
    relabel,
)

SAMPLE = Path(__file__).parents[2] / "shared" / "data" / "seg" / "panopticapi_sample"
VOID, K = 0, 4
needs_data = pytest.mark.skipif(not SAMPLE.exists(), reason="shared/data/seg is not there")


# Oracle: ids and dictionaries, one segment after the other --------------------------------


def boundary(mask, ratio):
    """Pixels of a mask whose window of 2 d + 1 leaves it or the image."""
    h, w = mask.shape
    d = max(1, round(ratio * (h**2 + w**2) ** 0.5))
    padded = np.pad(mask, d)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * d + 1, 2 * d + 1))
    return mask & ~windows.all(axis=(-2, -1))


def loop(prediction, target, p_info, t_info, *, ratio=None, threshold=0.5, stuff=()):
    """`{category: [sum of IoU, TP, FP, FN]}` of one image."""
    stats = defaultdict(lambda: [0.0, 0, 0, 0])
    void = target == VOID
    p_masks = {s["id"]: prediction == s["id"] for s in p_info}
    t_masks = {s["id"]: target == s["id"] for s in t_info}
    p_found, t_found, crowds = set(), set(), {}
    for t in t_info:
        if t.get("iscrowd"):
            crowds[t["category_id"]] = t_masks[t["id"]]
            continue
        for p in p_info:
            if p["category_id"] != t["category_id"]:
                continue
            a, b = p_masks[p["id"]], t_masks[t["id"]]
            shared = (a & b).sum()
            iou = shared / (a.sum() + t.get("area", b.sum()) - shared - (a & void).sum())
            if ratio is not None:
                a, b = boundary(a, ratio), boundary(b, ratio)
                shared = (a & b).sum()
                iou = min(iou, shared / (a.sum() + b.sum() - shared - (a & void).sum()))
            if t["category_id"] in stuff:
                stats[t["category_id"]][0] += iou
            elif iou > threshold:
                stats[t["category_id"]][0] += iou
                stats[t["category_id"]][1] += 1
                p_found.add(p["id"])
                t_found.add(t["id"])
        if t["category_id"] in stuff:
            stats[t["category_id"]][1] += 1
        elif t["id"] not in t_found:
            stats[t["category_id"]][3] += 1
    for p in p_info:
        mask, category = p_masks[p["id"]], p["category_id"]
        if p["id"] in p_found or category in stuff:
            continue
        excused = (mask & void).sum() + (mask & crowds.get(category, False)).sum()
        if excused / mask.sum() <= 0.5:
            stats[category][2] += 1
    return stats


def mean_quality(stats, categories):
    present = [stats[c] for c in categories if c in stats and sum(stats[c][1:])]
    pq = [s / (tp + fp / 2 + fn / 2) for s, tp, fp, fn in present]
    sq = [s / tp if tp else 0 for s, tp, fp, fn in present]
    rq = [tp / (tp + fp / 2 + fn / 2) for s, tp, fp, fn in present]
    return *(sum(x) / len(x) for x in (pq, sq, rq)), len(present)


def assert_counts(counts, stats):
    """Integers equal, whatever the type of the sums of IoU; these up to its rounding."""
    wanted = np.array([stats.get(k, [0, 0, 0, 0]) for k in range(counts.iou.shape[-1])])
    for found, column in zip(counts[1:], wanted.T[1:], strict=True):
        np.testing.assert_array_equal(found, column)
    tolerance = 1e-12 if counts.iou.dtype == jnp.float64 else 1e-6
    np.testing.assert_allclose(counts.iou, wanted.T[0], rtol=tolerance, atol=tolerance)


# Images ------------------------------------------------------------------------------------


def ids_and_info(rng, shape, with_void=True, with_crowd=True):
    """A target of rectangles, some of them crowds, and a prediction that is mostly like it."""
    target = np.full(shape, VOID if with_void else 1)
    t_info = [] if with_void else [{"id": 1, "category_id": 0, "iscrowd": 0}]
    for k in range(2, 12):
        y, x = rng.integers(0, shape)
        h, w = rng.integers(2, 9, 2)
        target[y : y + h, x : x + w] = 1000 * k
        crowd = int(with_crowd and rng.random() < 0.3)
        t_info.append({"id": 1000 * k, "category_id": int(rng.integers(K)), "iscrowd": crowd})
    prediction = np.roll(target, (1, 0) if rng.random() < 0.7 else (2, 2), (0, 1)) * 3
    p_info = [{"id": 3 * t["id"], "category_id": t["category_id"]} for t in t_info]
    for p in p_info:
        if rng.random() < 0.2:
            p["category_id"] = int(rng.integers(K))
        if rng.random() < 0.1:
            prediction[prediction == p["id"]] = VOID
    t_info = [t for t in t_info if (target == t["id"]).any()]
    p_info = [p for p in p_info if (prediction == p["id"]).any()]
    return prediction, target, p_info, t_info


def packed(prediction, target, p_info, t_info, size=14):
    """Positional and keyword arguments of `panoptic_counts`."""
    p, t = (
        pack(ids, info, category_ids=range(K), max_segments=size)
        for ids, info in ((prediction, p_info), (target, t_info))
    )
    return (p.indices, t.indices, p.labels, t.labels), {"crowd": t.crowd, "target_areas": t.areas}


IMAGES = [ids_and_info(np.random.default_rng(seed), (24, 31)) for seed in range(12)]
count = functools.partial(panoptic_counts, num_classes=K)


def simple(predictions, targets, p_labels, t_labels, **kwargs):
    """Counts of small maps, as lists."""
    arrays = (np.asarray(x, np.int32) for x in (predictions, targets, p_labels, t_labels))
    counts = panoptic_counts(*arrays, num_classes=2, **kwargs)
    return [x.tolist() for x in counts]


# The reference -----------------------------------------------------------------------------


@functools.cache
def load(name):
    """The entries of a JSON file of the sample, and the ids of its images, by image."""
    image = pytest.importorskip("PIL.Image")
    loaded = json.loads((SAMPLE / f"{name}.json").read_text())
    entries = {int(entry["image_id"]): entry["segments_info"] for entry in loaded["annotations"]}
    prefix = "gt_" if name == "panoptic_examples" else f"{name}/"
    files = {i: SAMPLE / f"{prefix}{i:012}.png" for i in entries}
    colors = {i: np.asarray(image.open(file).convert("RGB")) for i, file in files.items()}
    return entries, {i: np.asarray(from_rgb(x)) for i, x in colors.items()}, loaded


@needs_data
@pytest.mark.parametrize("ratio", [None, 0.02])
@pytest.mark.parametrize(
    "name",
    ["pred_identity", "pred_roll_2_1", "pred_drop_small_to_void", "pred_crowd_tiles_swap_stuff"],
)
def test_quality_of_the_sample_is_that_of_panopticapi(name, ratio, x64):
    gold = json.loads((SAMPLE / "expected.json").read_text())[name]
    gold = gold["panopticapi" if ratio is None else "boundary_pq_dilation_0.02"]
    targets, target_ids, dataset = load("panoptic_examples")
    predictions, prediction_ids, _ = load(name)
    categories = [c["id"] for c in dataset["categories"]]
    things = [bool(c["isthing"]) for c in dataset["categories"]]
    per_image = []
    for i in targets:
        t = pack(target_ids[i], targets[i], category_ids=categories, max_segments=40)
        p = pack(prediction_ids[i], predictions[i], category_ids=categories, max_segments=60)
        per_image.append(
            panoptic_counts(
                p.indices, t.indices, p.labels, t.labels, num_classes=len(categories),
                crowd=t.crowd, target_areas=t.areas, boundary_ratio=ratio,
            )
        )  # fmt: skip
    counts = jax.tree.map(lambda *x: sum(x), *per_image)
    assert counts.iou.dtype == jnp.float64

    groups = {
        "All": None,
        "Things": tuple(np.flatnonzero(things).tolist()),
        "Stuff": tuple(np.flatnonzero(~np.array(things)).tolist()),
    }
    for group, classes in groups.items():
        quality, wanted = panoptic_quality(counts, classes=classes), gold[group]
        assert quality.num_classes == wanted["n"]
        for field in ("pq", "sq", "rq"):
            assert abs(getattr(quality, field) - wanted[field]) <= 1e-12
    for category, wanted in gold["per_class"].items():
        k = categories.index(int(category))
        assert [int(x[k]) for x in counts[1:]] == [wanted[f] for f in ("tp", "fp", "fn")]
        assert abs(counts.iou[k] - wanted["iou_sum"]) <= 1e-12
        for field in ("pq", "sq", "rq"):
            assert abs(getattr(quality, f"class_{field}")[k] - wanted[field]) <= 1e-12
    assert np.isnan(quality.class_pq).sum() == len(categories) - len(gold["per_class"])


@pytest.mark.parametrize("wide", [False, True], ids=["float32", "float64"])
def test_counts_are_those_of_a_loop_over_segments(wide):
    """S22: void and crowd are no false positives."""
    kinds = np.zeros(3, int)
    with jax.enable_x64(wide):
        for image in IMAGES:
            arrays, options = packed(*image)
            counts = count(*arrays, **options)
            assert counts.iou.dtype == (jnp.float64 if wide else jnp.float32)
            assert_counts(counts, loop(*image))
            kinds += [int(x.sum()) for x in counts[1:]]
    assert (kinds > 5).all()  # of each kind


@pytest.mark.parametrize("ratio", [0.02, 0.05, 0.2])
def test_boundary_quality_is_the_lesser_of_two_ious(ratio, x64):
    for image in IMAGES:
        arrays, options = packed(*image)
        counts = count(*arrays, **options, boundary_ratio=ratio)
        assert_counts(counts, loop(*image, ratio=ratio))


def test_areas_of_targets_are_counted_if_they_are_not_given(x64):
    for image in IMAGES:
        arrays, options = packed(*image)
        del options["target_areas"]
        assert_counts(count(*arrays, **options), loop(*image))


def test_given_areas_of_targets_replace_those_in_the_image(x64):
    for prediction, target, p_info, t_info in IMAGES[:4]:
        t_info = [{**t, "area": 2 + int(1.2 * (target == t["id"]).sum())} for t in t_info]
        arrays, options = packed(prediction, target, p_info, t_info)
        assert_counts(count(*arrays, **options), loop(prediction, target, p_info, t_info))


@pytest.mark.parametrize("threshold", [0.6, 0.8])
def test_a_threshold_above_a_half_makes_fewer_matches(threshold, x64):
    for image in IMAGES:
        arrays, options = packed(*image)
        counts = count(*arrays, **options, threshold=threshold)
        assert_counts(counts, loop(*image, threshold=threshold))


def test_stuff_is_graded_without_matching(x64):
    """PQ†: every overlap counts, and neither kind of miss."""
    for image in IMAGES:
        arrays, options = packed(*image)
        assert_counts(count(*arrays, **options, stuff=(1, 3)), loop(*image, stuff=(1, 3)))


# Rules, one by one -------------------------------------------------------------------------


def test_an_iou_of_exactly_a_half_is_no_match():
    assert simple([0, 0, 0, 0], [0, 0, 1, 1], [1], [1, 0]) == [[0, 0], [0, 0], [0, 1], [1, 1]]
    assert simple([0, 0, 0, 1], [0, 0, 1, 1], [1, 0], [1, 0])[1] == [0, 1]


@pytest.mark.parametrize("excess", [0, 1])
def test_what_exceeds_a_half_is_decided_on_integers(excess):
    """The quotient is a half in float32 either way."""
    shared = jnp.array([[2**24 + excess]], jnp.int32)
    pairs = _Pairs(shared, shared[0], jnp.array([2**25 + 1], jnp.int32), jnp.zeros_like(shared[0]))
    assert pairs.iou()[0, 0] == 0.5
    assert bool(pairs.exceed(0.5)[0, 0]) == (excess == 1)


def test_void_leaves_the_prediction_but_not_the_target():
    # Three of the prediction's five pixels are void; what is left is the target.
    assert simple([0, 0, 0, 0, 0], [-1, -1, -1, 0, 0], [0], [0])[:2] == [[1, 0], [1, 0]]
    # Half of the target is not predicted.
    assert simple([-1, -1, 0, 0], [0, 0, 0, 0], [0], [0]) == [[0, 0], [0, 0], [1, 0], [1, 0]]


def test_a_prediction_is_excused_if_more_than_half_of_it_is_void():
    assert simple([0, 0, 0, 0, 0], [-1, -1, -1, 0, 0], [0], [1])[2] == [0, 0]
    assert simple([0, 0, 0, 0], [-1, -1, 0, 0], [0], [1])[2] == [1, 0]


def test_a_prediction_is_excused_by_the_crowd_of_its_class_and_void_together():
    crowd = np.array([True, False])
    # Two pixels of crowd and one of void, of five.
    targets = [0, 0, -1, 1, 1]
    assert simple([0] * 5, targets, [0], [0, 1], crowd=crowd)[2] == [0, 0]
    # The crowd of another class excuses nothing.
    assert simple([0] * 5, targets, [1], [0, 0], crowd=crowd)[2] == [0, 1]


def test_of_the_crowds_of_one_class_the_last_alone_excuses():
    targets, labels = [0, 0, 0, 1, 1], [0, 0]
    crowd = np.array([True, True])
    assert simple([0] * 5, targets, [0], labels, crowd=crowd)[2] == [1, 0]
    assert simple([0] * 5, [1, 1, 1, 0, 0], [0], labels, crowd=crowd)[2] == [0, 0]


def test_a_crowd_is_neither_matched_nor_missed():
    counts = simple([0, 0], [0, 0], [0], [0], crowd=np.array([True]))
    assert counts == [[0, 0], [0, 0], [0, 0], [0, 0]]
    assert simple([-1, -1], [0, 0], [0], [0], crowd=np.array([True]))[3] == [0, 0]


def test_segments_of_two_classes_do_not_match():
    assert simple([0, 0], [0, 0], [0], [1]) == [[0, 0], [0, 0], [1, 0], [0, 1]]


def test_segments_without_pixels_are_none():
    assert simple([0, 0], [0, 0], [0, 1], [0, 1]) == [[1, 0], [1, 0], [0, 0], [0, 0]]


def test_segments_and_pixels_of_padding_change_nothing():
    """S28."""
    for image in IMAGES[:4]:
        (predictions, targets, *labels), options = packed(*image)
        counts = count(predictions, targets, *labels, **options)
        wide = [np.pad(x, ((0, 3), (0, 2)), constant_values=-1) for x in (predictions, targets)]
        longer = [np.pad(x, (0, 5), constant_values=-1) for x in labels]
        options = {name: np.pad(x, (0, 5)) for name, x in options.items()}
        padded = count(*wide, *longer, **options)
        for x, y in zip(padded, counts, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("nothing", [-1, -7, 2, 99])
def test_numbers_of_no_segment_are_void(nothing):
    iou, *counts = simple([0, 0, 0, 0], [0, 0, 1, nothing], [0], [0, 1])
    assert iou == pytest.approx([2 / 3, 0])
    assert counts == [[1, 0], [0, 0], [0, 1]]


@pytest.mark.parametrize("label", [-1, 2, 300])
@pytest.mark.parametrize("ratio", [None, 0.01])
def test_segments_without_a_class_are_void(label, ratio, x64):
    rng = np.random.default_rng(0)
    targets = np.repeat(np.repeat(rng.integers(0, 4, (3, 4)), 4, axis=0), 5, axis=1)
    predictions = targets.copy()
    predictions[3:6] = np.roll(targets[3:6], 2, axis=1)
    labels = np.array([0, 1, label, 0])
    found = simple(predictions, targets, labels, labels, boundary_ratio=ratio)
    cleared = [np.where(x == 2, -1, x) for x in (predictions, targets)]
    assert found == simple(*cleared, labels, labels, boundary_ratio=ratio)
    assert sum(found[1]) > 0


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int32"])
def test_maps_and_labels_of_any_integer_type_are_taken(dtype):
    """S2: more segments than the type has numbers for."""
    targets = (np.arange(120).reshape(10, 12) // 2).astype(dtype)
    labels = np.zeros(300, dtype)
    counts = panoptic_counts(targets, targets, labels, labels, num_classes=200)
    assert counts.true_positives[0] == 60


# Nothing to grade --------------------------------------------------------------------------


def test_without_segments_the_counts_are_zero():
    none = np.zeros(0, np.int32)
    image = np.full((3, 4), -1)
    assert simple(image, image, none, none) == [[0, 0]] * 4
    assert simple(image, image, none, none, boundary_ratio=0.1) == [[0, 0]] * 4
    assert simple(image, image * 0, none, [1]) == [[0, 0]] * 3 + [[0, 1]]
    assert simple(image * 0, image, [1], none) == [[0, 0]] * 4  # all of it is void
    assert simple(image * 0, image, [1], [1, 0]) == [[0, 0]] * 4


def test_quality_of_nothing_is_nan_and_of_no_match_zero():
    """S22: no exception."""
    empty = panoptic_quality(PanopticCounts(*jnp.zeros((4, 3))))
    assert empty.num_classes == 0
    assert np.isnan([empty.pq, empty.sq, empty.rq, *empty.class_pq]).all()
    missed = panoptic_quality(PanopticCounts(*jnp.zeros((3, 3)), jnp.array([0.0, 2.0, 0.0])))
    assert (missed.pq, missed.sq, missed.rq, missed.num_classes) == (0, 0, 0, 1)
    assert np.isnan(missed.class_pq).tolist() == [True, False, True]


# Quality -----------------------------------------------------------------------------------


def total(images):
    per_image = []
    for image in images:
        arrays, options = packed(*image)
        per_image.append(count(*arrays, **options))
    return per_image, jax.tree.map(lambda *x: sum(x), *per_image)


def test_the_quality_of_a_data_set_is_that_of_its_summed_counts(x64):
    stats = defaultdict(lambda: np.zeros(4))
    for image in IMAGES:
        for category, numbers in loop(*image).items():
            stats[category] += numbers
    per_image, summed = total(IMAGES)
    for classes in (None, (0, 2), (3,)):
        quality = panoptic_quality(summed, classes=classes)
        pq, sq, rq, n = mean_quality(stats, range(K) if classes is None else classes)
        np.testing.assert_allclose(quality[:3], [pq, sq, rq], rtol=1e-12)
        assert quality.num_classes == n
    # In any order the integers are equal, and the sums of IoU up to rounding.
    backwards = jax.tree.map(lambda *x: sum(x), *per_image[::-1])
    for x, y in zip(backwards[1:], summed[1:], strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_allclose(backwards.iou, summed.iou, rtol=1e-15)


def test_a_batch_of_images_by_vmap_is_each_image_alone(x64):
    arrays, options = zip(*(packed(*image) for image in IMAGES), strict=True)
    stacked = jax.tree.map(lambda *x: np.stack(x), *arrays)
    keyword = jax.tree.map(lambda *x: np.stack(x), *options)
    for ratio in (None, 0.05):
        run = jax.vmap(lambda x, k: count(*x, **k, boundary_ratio=ratio))  # noqa: B023
        counts = jax.jit(run)(stacked, keyword)
        quality = panoptic_quality(counts)
        for i, image in enumerate(IMAGES):
            assert_counts(jax.tree.map(lambda x: x[i], counts), loop(*image, ratio=ratio))  # noqa: B023
            pq, sq, rq, _ = mean_quality(loop(*image, ratio=ratio), range(K))
            np.testing.assert_allclose([x[i] for x in quality[:3]], [pq, sq, rq], rtol=1e-12)


def test_pq_is_sq_times_rq():
    _, summed = total(IMAGES)
    quality = panoptic_quality(summed)
    product = quality.class_sq * quality.class_rq
    np.testing.assert_allclose(quality.class_pq, product, rtol=1e-6)


def test_quality_has_the_gradient_of_its_formula():
    counts = PanopticCounts(
        jnp.array([1.5, 0.0]), jnp.array([2, 0]), jnp.array([1, 0]), jnp.array([4, 0])
    )
    slope = jax.grad(lambda iou: panoptic_quality(counts._replace(iou=iou)).pq)(counts.iou)
    assert slope.tolist() == [np.float32(1 / 4.5), 0]


# Numbers for ids ---------------------------------------------------------------------------


def test_relabel_numbers_ids_as_numpy_does():
    for _, target, _, _ in IMAGES[:3]:
        found, inverse, areas = np.unique(target, return_inverse=True, return_counts=True)
        result = relabel(target, max_segments=20)
        np.testing.assert_array_equal(result.indices, inverse.reshape(target.shape))
        np.testing.assert_array_equal(result.ids[: len(found)], found)
        np.testing.assert_array_equal(result.areas, np.pad(areas, (0, 20 - len(found))))


def test_relabelled_maps_have_the_counts_of_packed_ones(x64):
    """Classes by `id // 1000`, as many data sets code them, all within `jit`."""

    @jax.jit
    def counts_of(predictions, targets):
        p, t = (relabel(x, max_segments=16) for x in (predictions, targets))
        labels = (jnp.where(x.ids > 0, x.ids // 1000, -1) for x in (p, t))
        return count(p.indices, t.indices, *labels)

    rng = np.random.default_rng(0)
    for _, target, _, t_info in IMAGES[:4]:
        coded = np.zeros_like(target)
        info = []
        for k, t in enumerate(t_info):
            name = 1000 * int(rng.integers(1, K)) + k
            coded[target == t["id"]] = name
            info.append({"id": name, "category_id": name // 1000})
        prediction = np.roll(coded, 1, axis=0)
        assert_counts(counts_of(prediction, coded), loop(prediction, coded, info, info))


def test_ids_beyond_the_last_segment_are_void():
    indices, ids, areas = relabel(np.array([5, 9, 9, 7, -3]), max_segments=2)
    assert indices.tolist() == [1, 2, 2, 2, 0]
    assert (ids.tolist(), areas.tolist()) == ([-3, 5], [1, 1])
    labels = np.array([0, 1])
    assert simple(indices, indices, labels, labels)[1:] == [[1, 1], [0, 0], [0, 0]]


def test_ids_of_colours_are_those_of_panopticapi():
    rng = np.random.default_rng(0)
    colors = rng.integers(0, 256, (3, 5, 3)).astype(np.uint8)
    np.testing.assert_array_equal(from_rgb(colors), colors.astype(np.int64) @ [1, 256, 65536])
    assert from_rgb(np.full(3, 255, np.uint8)) == 2**24 - 1


# Reading annotations -----------------------------------------------------------------------


def test_pack_reads_what_a_segment_says_of_itself():
    ids = np.array([[0, 26, 26], [0, 26, 9]])
    info = [
        {"id": 9, "category_id": 17, "area": 5, "iscrowd": 1, "bbox": [0, 0, 1, 1]},
        {"id": 26, "category_id": 3},
    ]
    segments = pack(ids, info, category_ids=[3, 17], max_segments=3)
    assert segments.indices.tolist() == [[-1, 1, 1], [-1, 1, 0]]
    assert segments.labels.tolist() == [1, 0, -1]
    assert segments.areas.tolist() == [5, 3, 0]
    assert segments.crowd.tolist() == [True, False, False]
    assert pack(ids, info, category_ids=[3, 17]).labels.shape == (2,)
    assert pack(ids * 0, [], category_ids=[3]).indices.tolist() == [[-1] * 3] * 2


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ([(26, 3)], r"ids has pixels of \[9\], which segments_info does not have"),
        ([(26, 3), (9, 3), (7, 3)], "segment 7 has no pixels in ids"),
        ([(26, 3), (9, 4)], "segment 9 has the unknown category_id 4"),
        ([(26, 3), (26, 3)], "the id 26 is there twice"),
        ([(26, 3), (0, 3)], "the id 0 is that of void"),
        ([(26, 3), (9, 3), (7, 3), (8, 3)], "segments_info has 4 segments, above max_segments=3"),
    ],
)
def test_pack_names_the_segment_that_is_wrong(info, message):
    ids = np.array([[0, 26, 26], [0, 26, 9]])
    info = [{"id": name, "category_id": category} for name, category in info]
    with pytest.raises(ValueError, match=message):
        pack(ids, info, category_ids=[3], max_segments=3)


# Errors ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_jaxtyping")
def test_wrong_arguments_raise_and_are_named():
    x, labels = np.zeros((3, 4), np.int32), np.zeros(2, np.int32)
    for error, message, call in [
        (ValueError, r"threshold must be in \[0.5, 1\), got 0.4",
         lambda: count(x, x, labels, labels, threshold=0.4)),
        (ValueError, r"targets must have shape \[3, 4\] .* got \[4, 3\]",
         lambda: count(x, x.T, labels, labels)),
        (TypeError, "predictions must hold integers, got dtype float32",
         lambda: count(x.astype(np.float32), x, labels, labels)),
        (TypeError, "targets must be a JAX or NumPy array, got list",
         lambda: count(x, x.tolist(), labels, labels)),
        (ValueError, r"prediction_labels must have shape \[4\] .* got \[2, 2\]",
         lambda: count(x, x, np.zeros((2, 2), np.int32), labels)),
        (TypeError, "target_labels must hold integers",
         lambda: count(x, x, labels, labels.astype(np.float32))),
        (TypeError, "crowd must be boolean", lambda: count(x, x, labels, labels, crowd=labels)),
        (ValueError, r"target_areas must have shape \[2\] .* got \[3\]",
         lambda: count(x, x, labels, labels, target_areas=np.zeros(3, np.int32))),
        (ValueError, "boundary_ratio must be .* above 0",
         lambda: count(x, x, labels, labels, boundary_ratio=0.0)),
        (ValueError, r"predictions must have shape \[\.\.\., _, _\]",
         lambda: count(x[0], x[0], labels, labels, boundary_ratio=0.1)),
        (ValueError, r"stuff must lie in 0 to 3, got 4",
         lambda: count(x, x, labels, labels, stuff=(4,))),
        (ValueError, r"classes must lie in 0 to 2, got -1",
         lambda: panoptic_quality(PanopticCounts(*jnp.zeros((4, 3))), classes=(-1,))),
        (TypeError, "num_classes must be an integer",
         lambda: panoptic_counts(x, x, labels, labels, num_classes=2.0)),
        (ValueError, "max_segments must be 1 or more", lambda: relabel(x, max_segments=0)),
        (TypeError, "colors must be uint8, got dtype int32", lambda: from_rgb(x)),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def test_relabelling_nothing_gives_nothing():
    indices, ids, areas = relabel(np.zeros((0, 3), np.int32), max_segments=2)
    assert (indices.shape, ids.tolist(), areas.tolist()) == ((0, 3), [0, 0], [0, 0])


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        ({"id": 1, "category_id": 1, "area": 3.7}, "segment 1 has area 3.7"),
        ({"id": 1, "category_id": 1, "area": -4}, "segment 1 has area -4"),
        ({"id": 1, "category_id": 1, "area": 2**33}, "segment 1 has area 8589934592"),
        ({"id": 1}, "segment 0 in the list lacks its id or category_id"),
    ],
)
def test_a_segment_that_cannot_be_is_named(segment, reason):
    with pytest.raises(ValueError, match=reason):
        pack(np.ones((2, 2), np.int32), [segment], category_ids=[1])
