"""Masks: counts against pycocotools and NumPy loops, boundaries against erosion, one product."""

import json
import math
import re
from pathlib import Path

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from jaxiou import masks, pairwise, suppression, testing
from jaxiou.pairing import best_match

SEG = Path(__file__).parents[2] / "shared" / "data" / "seg"
OVERLAPS = ["iou", "ioa", "dice"]
BEYOND_A_TILE = (136, 250)
"""An image of two whole tiles of pixels and a part of one."""

needs_data = pytest.mark.skipif(not SEG.exists(), reason="shared/data/seg is not there")
area = jax.jit(masks.area)


def blobs(count, shape, seed=0):
    """Ellipses that contain, cross, touch and miss each other and the border; the last is empty."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    found = np.zeros((count, *shape), bool)
    for k in range(count - 1):
        centre, radii = rng.integers(0, shape), rng.uniform(0.05, 0.6, 2) * shape
        found[k] = ((y - centre[0]) / radii[0]) ** 2 + ((x - centre[1]) / radii[1]) ** 2 < 1
    return found


def table(a, b):
    """Pixels of both, of a and of b, for all pairs, int64."""
    shared = np.array([[np.count_nonzero(p & q) for q in b] for p in a])
    areas = (np.array([np.count_nonzero(p) for p in x]) for x in (a, b))
    first, second = areas
    return shared, first[:, None], second[None]


def expected(name, a, b):
    shared, first, second = table(a, b)
    part, whole = {
        "iou": (shared, first + second - shared),
        "ioa": (shared, first + 0 * second),
        "dice": (2 * shared, first + second),
    }[name]
    return np.divide(part, whole, out=np.zeros(shared.shape), where=whole > 0)


def eroded(mask, d):
    """What is left of a mask after d erosions by a square of 3, nothing being outside."""
    for _ in range(d):
        padded = np.pad(mask, 1)
        h, w = mask.shape
        mask = np.all([padded[i : i + h, j : j + w] for i in range(3) for j in range(3)], axis=0)
    return mask


def distance(shape, ratio):
    return max(1, round(ratio * math.sqrt(shape[0] ** 2 + shape[1] ** 2)))


# Counts and overlaps -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(13, 17), BEYOND_A_TILE, (1, 1), (1, 40)])
@pytest.mark.parametrize("name", OVERLAPS)
def test_overlaps_of_all_pairs_are_those_of_a_loop(name, shape):
    a, b = blobs(5, shape), blobs(4, shape, seed=1)
    values = pairwise(getattr(masks, name))(a, b)
    assert values.dtype == jnp.float32
    np.testing.assert_allclose(values, expected(name, a, b), rtol=1e-7, atol=0)
    with jax.enable_x64(True):
        wide = pairwise(getattr(masks, name))(a.astype(float), b)
        assert wide.dtype == jnp.float64
        np.testing.assert_array_equal(wide, expected(name, a, b))


def test_counts_are_exact_integers():
    a, b = blobs(5, BEYOND_A_TILE), blobs(4, BEYOND_A_TILE, seed=1)
    shared, first, second = table(a, b)
    np.testing.assert_array_equal(area(a), first[:, 0])
    assert area(a).dtype == jnp.int32
    for name, wanted in [("intersection", shared), ("union", first + second - shared)]:
        values = pairwise(getattr(masks, name))(a, b)
        assert values.dtype == jnp.int32
        np.testing.assert_array_equal(values, wanted)


def test_overlaps_with_and_without_crowd_are_those_of_pycocotools(x64):
    coco = pytest.importorskip("pycocotools.mask")
    a, b = blobs(12, (48, 64)), blobs(9, (48, 64), seed=1)

    def encoded(x):
        return coco.encode(np.asfortranarray(np.moveaxis(x, 0, -1), np.uint8))

    crowd = np.arange(len(b)) % 2 == 1
    with_crowd = np.where(
        crowd, pairwise(masks.ioa)(a, b.astype(float)), pairwise(masks.iou)(a, b.astype(float))
    )
    np.testing.assert_array_equal(with_crowd, coco.iou(encoded(a), encoded(b), crowd.astype(int)))
    np.testing.assert_array_equal(area(a), coco.area(encoded(a)))
    boxes = np.asarray(masks.to_boxes(a))
    corner, size = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    np.testing.assert_array_equal(np.hstack([corner, size]), coco.toBbox(encoded(a)))


@needs_data
def test_overlaps_with_crowd_are_those_expected_of_a_coco_image(x64):
    gold = json.loads((SEG / "panopticapi_sample/expected.json").read_text())
    gold = gold["mask_iou_pycocotools_142238_roll_2_1"]
    targets = np.stack(coco_masks())
    detections = np.stack(coco_masks("pred_roll_2_1")).astype(float)
    values = np.where(
        np.array(gold["iscrowd"], bool),
        pairwise(masks.ioa)(detections, targets),
        pairwise(masks.iou)(detections, targets),
    )
    np.testing.assert_array_equal(values, gold["iou"])


def coco_masks(name=None):
    """The segments of COCO image 142238 in the order of its JSON, or those of a prediction."""
    image = pytest.importorskip("PIL.Image")
    folder = SEG / "panopticapi_sample"
    text = (folder / (f"{name}.json" if name else "panoptic_examples.json")).read_text()
    (entry,) = (e for e in json.loads(text)["annotations"] if int(e["image_id"]) == 142238)
    file = folder / name / "000000142238.png" if name else folder / "gt_000000142238.png"
    colors = np.asarray(image.open(file).convert("RGB")).astype(np.int64)
    ids = colors @ [1, 256, 65536]
    return [ids == segment["id"] for segment in entry["segments_info"]]


@pytest.mark.parametrize("left", [(), (3,), (2, 1), (1, 3), (0,)])
def test_leading_axes_broadcast_as_in_numpy(left):
    rng = np.random.default_rng(0)
    a, b = rng.random((*left, 5, 6)) < 0.5, rng.random((3, 5, 6)) < 0.5
    if left == (0,):
        b = b[:1]
    wanted = (a & b).sum(axis=(-2, -1))
    np.testing.assert_array_equal(masks.intersection(a, b), wanted)
    np.testing.assert_array_equal(masks.union(a, b), (a | b).sum(axis=(-2, -1)))


def test_sums_of_half_precision_masks_do_not_overflow():
    """S26."""
    assert masks.area(jnp.ones((512, 512), jnp.float16)) == 262144
    for dtype in (jnp.float16, jnp.bfloat16):
        ones = jnp.ones((700, 100), dtype)
        assert masks.area(ones) == 70000
        assert masks.dice(ones, ones) == 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_are_exact_in_the_types_of_every_platform(dtype):
    """The form for accelerators, run on CPU: 257 ones are 256 where bfloat16 is summed."""
    a, b = np.ones((2, 1, 16383), bool), np.ones((3, 16383), bool)
    b[1, :257], b[2, 257:] = False, False
    counts = masks._products_in(jnp.dtype(dtype), jnp.asarray(a), jnp.asarray(b))
    assert counts.shared.tolist() == [[16383, 16126, 257]] * 2
    assert counts.second.tolist() == [16383, 16126, 257]


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float16", "bfloat16", "float32"])
def test_what_is_not_zero_is_inside_whatever_the_type(dtype):
    a = np.array([[0, 1, 3, 0], [2, 0, 0, 1]]).astype(jnp.dtype(dtype))
    assert masks.area(a) == 4
    assert masks.iou(a, np.array([[False, True, True, False], [False] * 4])) == 0.5


def test_negative_numbers_and_fractions_are_inside():
    assert masks.area(jnp.array([[-1.0, 1e-30, 0.0, -0.0]])) == 2


@pytest.mark.parametrize("name", OVERLAPS)
def test_empty_masks_overlap_by_zero(name):
    empty, full = np.zeros((4, 5), bool), np.ones((4, 5), bool)
    overlap = getattr(masks, name)
    assert [overlap(*pair) for pair in ((empty, empty), (empty, full), (full, empty))] == [0] * 3
    assert overlap(full, full) == 1
    assert masks.boundary_iou()(empty, empty) == 0


@pytest.mark.parametrize("name", [*OVERLAPS, "boundary_iou"])
def test_nan_in_a_mask_makes_its_own_pairs_nan(name):
    overlap = masks.boundary_iou() if name == "boundary_iou" else getattr(masks, name)
    x = np.ones((3, 4, 5), np.float32)
    x[1, 2, 3] = np.nan
    nan = np.isnan(pairwise(overlap)(x, x))
    assert nan.tolist() == [[False, True, False], [True] * 3, [False, True, False]]
    assert masks.area(x).tolist() == [20] * 3
    assert np.isnan(masks.to_boxes(x)).tolist() == [[False] * 4, [True] * 4, [False] * 4]


@pytest.mark.parametrize("name", [*OVERLAPS, "to_boxes", "boundary_iou"])
def test_gradient_is_zero(name):
    a, b = (jnp.asarray(blobs(3, (6, 7), seed), jnp.float32) for seed in (0, 1))
    if name == "to_boxes":
        gradients = [jax.grad(lambda x: masks.to_boxes(x).sum())(a)]
    else:
        overlap = masks.boundary_iou() if name == "boundary_iou" else getattr(masks, name)
        gradients = jax.grad(lambda a, b: overlap(a, b).sum(), (0, 1))(a, b)
    for gradient in gradients:
        assert gradient.shape == a.shape
        assert not gradient.any()


@pytest.mark.parametrize("name", ["iou", "dice", "ioa", "boundary_iou"])
def test_overlaps_of_masks_keep_the_contract_of_overlaps(name):
    overlap = masks.boundary_iou() if name == "boundary_iou" else getattr(masks, name)
    regions = jnp.asarray(blobs(4, (6, 7))[:3], jnp.float32)
    testing.check_overlap(overlap, regions=regions, minimum=0, symmetric=name != "ioa")


pair_iou = jax.jit(lambda a, b: (masks.iou(a, b), masks.iou(b, a), masks.dice(a, b)))
pairs = st.integers(0, 2**40 - 1), st.integers(0, 2**40 - 1)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(*pairs, st.integers(0, 4), st.integers(0, 7))
def test_iou_is_symmetric_and_does_not_change_when_both_masks_are_moved(a, b, dy, dx):
    a, b = (np.array([n >> k & 1 for k in range(40)], bool).reshape(5, 8) for n in (a, b))
    value, swapped, dice = map(float, pair_iou(a, b))
    assert value == swapped
    assert dice == pytest.approx(2 * value / (1 + value), rel=1e-6)
    moved = [np.roll(x, (dy, dx), (0, 1)) for x in (a, b)]
    assert pair_iou(*moved)[0] == value


# One product -------------------------------------------------------------------------------


def test_all_pairs_are_one_matrix_product_a_tile_of_pixels_in_little_memory():
    one = jax.ShapeDtypeStruct((100, 480, 640), bool)
    program = jax.jit(pairwise(masks.iou)).lower(one, one).compile()
    text = program.as_text()
    products = re.findall(r"= (\S+?)(?:\{[\d,]*\})? dot\(", text)
    # In the loop over tiles, and for the rest of the pixels behind it.
    assert products.count("f32[100,100]") == 2
    assert set(products) <= {"f32[100,100]", "f32[100]", "f32[100,1]"}  # and the areas
    # Nothing has an axis for each set and one for the pixels.
    shapes = {tuple(map(int, s.split(","))) for s in re.findall(r"\w+\[([\d,]+)\]", text)}
    assert not [s for s in shapes if s.count(100) >= 2 and math.prod(s) > 100 * 100]
    # The masks in float32 would be 246 MB.
    assert program.memory_analysis().temp_size_in_bytes < 20e6


def test_all_pairs_lower_to_bfloat16_with_float32_sums_on_accelerators():
    one = jax.ShapeDtypeStruct((3, *BEYOND_A_TILE), bool)
    for platform in ("tpu", "cuda"):
        export = jax.export.export(jax.jit(pairwise(masks.iou)), platforms=[platform])
        text = export(one, one).mlir_module()
        products = re.findall(r"dot_general.*-> (tensor<\S+>)", text)
        assert len(products) >= 2
        assert all(product.endswith("xf32>") for product in products)
        assert re.search(r"dot_general.*xbf16>", text)


def test_masks_beyond_a_tile_agree_under_every_transformation():
    a, b = (jnp.asarray(blobs(4, BEYOND_A_TILE, seed)) for seed in (0, 1))
    wanted = np.float32(expected("iou", a, b)).diagonal()
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))
    shard = jax.shard_map(masks.iou, mesh=mesh, in_specs=P("batch"), out_specs=P("batch"))
    for run in (masks.iou, jax.vmap(masks.iou), jax.jit(shard)):
        np.testing.assert_array_equal(run(a, b), wanted)
    batched = pairwise(masks.iou)(a[:, None], b[:, None])
    np.testing.assert_array_equal(batched[:, 0, 0], wanted)
    np.testing.assert_array_equal(masks.iou(a[:, None], b), np.float32(expected("iou", a, b)))


def test_best_match_finds_the_mask_that_overlaps_most():
    a, b = blobs(6, (12, 15)), blobs(5, (12, 15), seed=1)
    found = best_match(masks.iou)(a, b)
    values = expected("iou", a, b)
    np.testing.assert_array_equal(found.indices, values.argmax(axis=1))
    np.testing.assert_allclose(found.values, values.max(axis=1), rtol=1e-6)


def test_nms_of_masks_keeps_what_a_loop_keeps():
    regions = blobs(20, (12, 15))[:19]
    scores = np.random.default_rng(0).permutation(19).astype(np.float32)
    values, kept = expected("iou", regions, regions), []
    for k in np.argsort(-scores):
        if all(values[k, i] <= 0.3 for i in kept):
            kept.append(int(k))
    assert 1 < len(kept) < 19
    found = suppression.nms(regions, scores, threshold=0.3, max_outputs=19, overlap=masks.iou)
    assert found.indices[found.valid].tolist() == kept


# Boxes -------------------------------------------------------------------------------------


def test_the_box_of_a_mask_is_half_open():
    one = np.zeros((5, 6), bool)
    one[2, 3] = True
    assert masks.to_boxes(one).tolist() == [3, 2, 4, 3]
    assert masks.to_boxes(np.ones((5, 6), bool)).tolist() == [0, 0, 6, 5]


def test_the_box_of_an_empty_mask_is_zeros():
    assert masks.to_boxes(np.zeros((2, 5, 6), bool)).tolist() == [[0] * 4] * 2


# Boundaries --------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [0.001, 0.02, 0.06, 0.15, 0.3, 2.0])
@pytest.mark.parametrize("shape", [(31, 43), (2, 9)])
def test_the_boundary_is_what_erosions_take_away(shape, ratio):
    regions = blobs(6, shape)
    regions[-1] = True
    d = distance(shape, ratio)
    wanted = [mask & ~eroded(mask, d) for mask in regions]
    np.testing.assert_array_equal(masks.boundary(regions, ratio=ratio), wanted)


def test_the_distance_of_the_boundary_rounds_half_to_even():
    full = np.ones((30, 40), bool)  # a diagonal of 50
    for ratio, d in [(0.05, 2), (0.07, 4), (0.0001, 1)]:
        assert distance(full.shape, ratio) == d
        inside = ~np.asarray(masks.boundary(full, ratio=ratio))
        assert inside.sum() == (30 - 2 * d) * (40 - 2 * d)


def test_boundary_iou_is_the_iou_of_the_boundaries():
    a, b = blobs(5, (31, 43)), blobs(4, (31, 43), seed=1)
    edges = ([mask & ~eroded(mask, 3) for mask in x] for x in (a, b))
    assert distance((31, 43), 0.06) == 3
    values = pairwise(masks.boundary_iou(ratio=0.06))(a, b)
    np.testing.assert_allclose(values, expected("iou", *edges), rtol=1e-7)


def test_boundary_iou_becomes_the_mask_iou_as_the_boundary_grows():
    a, b = blobs(5, (31, 43)), blobs(4, (31, 43), seed=1)
    values = pairwise(masks.boundary_iou(ratio=1.0))(a, b)
    np.testing.assert_array_equal(values, pairwise(masks.iou)(a, b))


def test_equal_ratios_give_the_same_function():
    assert masks.boundary_iou(ratio=0.1) is masks.boundary_iou(ratio=0.1)
    assert masks.boundary_iou(ratio=0.1) is not masks.boundary_iou()


@needs_data
@pytest.mark.parametrize("ratio", ["0.002", "0.005", "0.02", "0.1"])
def test_boundary_iou_of_the_horse_is_that_expected(ratio, x64):
    image = pytest.importorskip("PIL.Image")
    gold = json.loads((SEG / "skimage/expected.json").read_text())
    wanted = gold[f"ratio_{ratio}"]
    target = ~np.asarray(image.open(SEG / "skimage/horse_mask.png")).astype(bool)
    prediction = np.roll(target, (3, 5), (0, 1))
    a, b = (masks.boundary(x, ratio=float(ratio)) for x in (prediction, target))
    assert distance(target.shape, float(ratio)) == wanted["d"]
    assert [area(b), area(a)] == [wanted["gt"], wanted["pred"]]
    assert masks.intersection(a, b) == wanted["inter"]
    assert masks.union(a, b) == wanted["union"]
    value = masks.boundary_iou(ratio=float(ratio))(prediction.astype(float), target)
    assert value == wanted["biou"]
    assert masks.iou(prediction.astype(float), target) == gold["mask_iou"]


@needs_data
def test_boundaries_of_a_coco_image_are_those_expected(x64):
    gold = json.loads((SEG / "panopticapi_sample/expected.json").read_text())
    gold = np.array(gold["boundary_iou_142238_roll_2_1"]["per_segment"])
    targets, predictions = np.stack(coco_masks()), np.stack(coco_masks("pred_roll_2_1"))
    a, b = masks.boundary(predictions), masks.boundary(targets)
    counts = np.stack([area(b), area(a), masks.intersection(a, b)], axis=1)
    np.testing.assert_array_equal(counts, gold[:, :3])
    values = masks.boundary_iou()(predictions.astype(float), targets)
    np.testing.assert_array_equal(values, gold[:, 3])


@pytest.mark.parametrize("ratio", [0.02, 0.06, 0.2])
def test_one_pass_over_a_label_map_gives_the_boundary_of_every_label(ratio):
    labels = blobs(6, (31, 43)).argmax(axis=0) * 40
    found = np.asarray(masks.label_boundary(labels.astype(np.uint8), ratio=ratio))
    for label in np.unique(labels):
        mask = labels == label
        np.testing.assert_array_equal(found & mask, mask & ~eroded(mask, distance((31, 43), ratio)))


def test_labels_side_by_side_both_have_a_boundary():
    """S20: eroding the map itself would turn label 7 into 4."""
    labels = np.repeat([[7] * 6 + [3] * 6], 9, axis=0)
    found = np.asarray(masks.label_boundary(labels, ratio=0.01))
    wanted = np.ones((9, 12), bool)
    wanted[1:-1, 1:5] = wanted[1:-1, 7:-1] = False
    np.testing.assert_array_equal(found, wanted)


def test_labels_of_any_integer_type_and_batch_are_taken():
    labels = np.stack([blobs(4, (9, 11), seed).argmax(axis=0) for seed in range(6)])
    wanted = masks.label_boundary(labels.astype(np.int32))
    for dtype in (np.uint8, np.int8, np.uint16, np.uint32, np.int64):
        np.testing.assert_array_equal(masks.label_boundary(labels.astype(dtype)), wanted)
    batch = masks.label_boundary(labels.reshape(2, 3, 9, 11))
    np.testing.assert_array_equal(batch.reshape(6, 9, 11), wanted)


# Errors ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_jaxtyping")
def test_wrong_arguments_raise_and_are_named():
    mask, wide = np.ones((4, 5), np.float32), np.ones((4, 6))
    complex_mask = mask.astype(np.complex64)
    for error, message, call in [
        (TypeError, "b must be a JAX or NumPy array, got list", lambda: masks.iou(mask, [[1]])),
        (TypeError, "a must hold .* got dtype complex64", lambda: masks.iou(complex_mask, mask)),
        (ValueError, r"b must have shape \[\.\.\., 4, 5\].*got \[4, 6\]",
         lambda: masks.iou(mask, wide)),
        (ValueError, r"regions must have shape \[\.\.\., _, _\].*got \[5\]",
         lambda: masks.area(mask[0])),
        (ValueError, r"leading axes of a and b must broadcast, got a \[2, 4, 5\] and b \[3, 4, 5\]",
         lambda: masks.dice(jnp.ones((2, 4, 5)), jnp.ones((3, 4, 5)))),
        (ValueError, "ratio must be .* above 0, got 0.0", lambda: masks.boundary_iou(ratio=0.0)),
        (ValueError, "ratio must be .* above 0, got -1.0",
         lambda: masks.boundary(mask, ratio=-1.0)),
        (TypeError, "labels must hold integers, got dtype float32",
         lambda: masks.label_boundary(mask)),
        (ValueError, r"labels must have shape \[\.\.\., _, _\] \(a label map\), got \[5\]",
         lambda: masks.label_boundary(jnp.ones(5, jnp.int32))),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            call()


def test_masks_of_no_pixels_have_boxes_of_zeros():
    for shape in ((2, 0, 5), (2, 4, 0), (2, 0, 0)):
        np.testing.assert_array_equal(masks.to_boxes(np.zeros(shape, bool)), np.zeros((2, 4)))
