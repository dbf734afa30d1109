"""Readers of detections: what pycocotools takes from a file, and every bad file."""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as rle
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from scipy.ndimage import binary_erosion

from jaxiou.detection.packing import pack
from jaxiou.readers import FileError, coco, kitti, lvis, open_images, voc

SHARED = Path(__file__).parents[2] / "shared" / "data" / "ap"
needs_data = pytest.mark.skipif(not SHARED.exists(), reason="no shared data here")

COCO_FILES = SHARED / "coco_val2014_100"
TRUTHS = COCO_FILES / "instances_val2014_100.json"
RESULTS = {
    kind: COCO_FILES / f"instances_val2014_fake{kind}100_results.json" for kind in ("bbox", "segm")
}


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def reference(targets, predictions, kind):
    """pycocotools' two objects and its evaluation, ready to compute overlaps."""
    truths = COCO()
    truths.dataset = copy.deepcopy(targets)
    truths.createIndex()
    found = truths.loadRes(copy.deepcopy(predictions))
    evaluation = COCOeval(truths, found, kind)
    evaluation._prepare()
    evaluation.params.maxDets = [10**6]
    return truths, found, evaluation


def tables_of(evaluation, compute):
    """Its overlaps by image and class; its rows are sorted by score, ours are in file order."""
    for image, image_id in enumerate(evaluation.params.imgIds):
        for label, category_id in enumerate(evaluation.params.catIds):
            table = compute(image_id, category_id)
            scores = [-x["score"] for x in evaluation._dts[image_id, category_id]]
            if len(table):
                order = np.argsort(scores, kind="stable")
                yield image, label, np.asarray(table)[np.argsort(order)]


def block(loaded, image, label):
    """Our table of one image and class."""
    table = loaded.table
    found = table.detections.labels[table.detection_images == image] == label
    truths = table.truths.labels[table.truth_images == image] == label
    return loaded.overlaps[image][np.ix_(found, truths)]


# COCO: what pycocotools has.


@needs_data
@pytest.mark.parametrize(
    ("results", "kind"), [("bbox", "bbox"), ("segm", "bbox"), ("segm", "segm")]
)
def test_rows_and_areas_are_those_of_pycocotools(results, kind):
    """Results with masks alone have the box around the mask, and the mask's area."""
    truths, found, _ = reference(*map(parsed, (TRUTHS, RESULTS[results])), kind)
    loaded = coco.load(TRUTHS, RESULTS[results], kind=kind)
    assert loaded.image_ids == sorted(truths.getImgIds())
    assert loaded.category_ids == sorted(truths.getCatIds())
    assert loaded.category_names[0] == "person"
    table = loaded.table
    for mine, theirs, images in (
        (table.detections, found.dataset["annotations"], table.detection_images),
        (table.truths, truths.dataset["annotations"], table.truth_images),
    ):
        assert mine.areas.tolist() == [x["area"] for x in theirs]
        assert [loaded.image_ids[i] for i in images] == [x["image_id"] for x in theirs]
        assert [loaded.category_ids[i] for i in mine.labels] == [x["category_id"] for x in theirs]
        if kind == "bbox":
            np.testing.assert_array_equal(mine.regions, [x["bbox"] for x in theirs])
        else:
            assert mine.regions is None
    assert table.detections.scores.tolist() == [x["score"] for x in found.dataset["annotations"]]
    assert table.truths.crowd.tolist() == [
        bool(x["iscrowd"]) for x in truths.dataset["annotations"]
    ]
    assert (loaded.overlaps is None) == (kind == "bbox")
    pack(table, overlaps=loaded.overlaps)


def parsed(path):
    return json.loads(path.read_text())


@needs_data
def test_mask_overlaps_are_those_of_pycocotools_and_of_one_class():
    contents = parsed(TRUTHS), parsed(RESULTS["segm"])
    _, _, evaluation = reference(*contents, "segm")
    loaded = coco.load(TRUTHS, RESULTS["segm"], kind="segm")
    seen, crowds = 0, 0
    for image, label, table in tables_of(evaluation, evaluation.computeIoU):
        np.testing.assert_array_equal(block(loaded, image, label), table)
        seen += table.size
        of_class = evaluation._gts[loaded.image_ids[image], loaded.category_ids[label]]
        crowds += sum(x["iscrowd"] for x in of_class)
    assert seen == sum((table >= 0).sum() for table in loaded.overlaps) > 1000
    assert crowds > 5
    everything = coco.load(TRUTHS, RESULTS["segm"], kind="segm", across_classes=True)
    for some, full in zip(loaded.overlaps, everything.overlaps, strict=True):
        np.testing.assert_array_equal(some, np.where(some < 0, -1, full))
        assert (full >= 0).all()


SIZE = {"height": 40, "width": 60}


def random_masks(rng, count):
    for _ in range(count):
        mask = np.zeros((SIZE["height"], SIZE["width"]), np.uint8)
        y, x = rng.integers(-10, [40, 60])
        height, width = rng.integers(1, 40, 2)
        mask[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)] = 1
        yield mask * (rng.random(mask.shape) < rng.choice([0.95, 1]))


def coded(mask):
    code = rle.encode(np.asfortranarray(mask))
    return {"size": code["size"], "counts": code["counts"].decode()}


def data_set(annotations, results, images=1, classes=2, **image):
    return {
        "images": [{"id": i, **SIZE, **image} for i in range(images)],
        "categories": [{"id": k, "name": f"class {k}"} for k in range(classes)],
        "annotations": annotations,
    }, results


def masks_set(masks, crowd=0):
    annotations = [
        {"image_id": 0, "category_id": 0, "segmentation": coded(x), "area": 1, "iscrowd": crowd}
        for x in masks
    ]
    return data_set(annotations, [{**x, "score": 0.5} for x in annotations])


def test_boundary_overlap_is_the_smaller_one_and_that_of_masks_for_crowds():
    masks = list(random_masks(np.random.default_rng(1), 30))
    mine = coco.from_dicts(*masks_set(masks), kind="boundary").overlaps[0]
    area = coco.from_dicts(*masks_set(masks), kind="segm").overlaps[0]
    erosions = max(1, round(0.02 * float(np.hypot(40, 60))))
    bands = [
        x.astype(bool) & ~binary_erosion(x, np.ones((3, 3)), iterations=erosions) for x in masks
    ]
    for i, a in enumerate(bands):
        for j, b in enumerate(bands):
            union = (a | b).sum()
            iou = (a & b).sum() / union if union else 0.0
            assert mine[i, j] == min(area[i, j], iou)
    assert (mine < area).sum() > 100
    crowd = coco.from_dicts(*masks_set(masks, 1), kind="boundary").overlaps[0]
    np.testing.assert_array_equal(
        crowd, coco.from_dicts(*masks_set(masks, 1), kind="segm").overlaps[0]
    )


def test_all_forms_of_masks_are_read_as_pycocotools_reads_them():
    rng = np.random.default_rng(2)
    polygons = [(rng.random((rng.integers(1, 4), 8)) * 70 - 5).tolist() for _ in range(30)]
    polygons.append([[1, 2, 30, 4, 5, 20.5], [40, 30, 50, 35]])  # the second one has two points
    runs = [{"size": [40, 60], "counts": [5, 7, 2388]}, {"size": [40, 60], "counts": [0, 2400]}]
    text = coded(next(random_masks(rng, 1)))
    forms = [*polygons, *runs, text, {**text, "counts": text["counts"].encode()}]
    annotations = [
        {"id": i, "image_id": 0, "category_id": 0, "segmentation": x, "area": 1, "iscrowd": 0}
        for i, x in enumerate(forms)
    ]
    targets, results = data_set(annotations, [{**x, "score": 0.5} for x in annotations])
    loaded = coco.from_dicts(targets, results, kind="segm")
    api = COCO()
    api.dataset = copy.deepcopy(targets)
    api.createIndex()
    codes = [api.annToRLE(x) for x in api.dataset["annotations"]]
    assert loaded.table.detections.areas.tolist() == [rle.area(code) for code in codes]
    np.testing.assert_array_equal(loaded.overlaps[0], rle.iou(codes, codes, [0] * len(codes)))


def test_more_masks_than_pycocotools_can_take_the_areas_of_at_once():
    masks = [coded(x) for x in random_masks(np.random.default_rng(3), 300)]
    results = [{"image_id": 0, "category_id": 0, "segmentation": x, "score": 0.5} for x in masks]
    loaded = coco.from_dicts(*data_set([], results), kind="segm")
    assert loaded.table.detections.areas.tolist() == [rle.area(x) for x in masks]


def people(rng, count, points=17):
    keypoints = np.concatenate(
        [rng.integers(0, 60, (count, points, 2)), rng.integers(0, 3, (count, points, 1))], axis=2
    )
    keypoints[::4, :, 2] = 0
    keypoints[1::5, 3:, 2] = 0  # few: NumPy adds up fewer than eight numbers in another way
    return [
        {
            "id": i + 1,
            "image_id": int(rng.integers(3)),
            "category_id": int(rng.integers(2)),
            "keypoints": x.reshape(-1).tolist(),
            "num_keypoints": int((x[:, 2] > 0).sum()),
            "bbox": rng.integers(1, 40, 4).tolist(),
            "area": float(rng.random() * 2000),
            "iscrowd": int(i % 7 == 0),
        }
        for i, x in enumerate(keypoints)
    ]


def test_keypoint_overlaps_and_areas_are_those_of_pycocotools():
    rng = np.random.default_rng(4)
    keys = ("image_id", "category_id", "keypoints")
    results = [
        {**{key: x[key] for key in keys}, "score": float(rng.random())} for x in people(rng, 40)
    ]
    for result in results:
        result["keypoints"] = (np.array(result["keypoints"]) + rng.random(51) * 9).tolist()
    targets, results = data_set(people(rng, 40), results, images=3)
    truths, found, evaluation = reference(targets, results, "keypoints")
    loaded = coco.from_dicts(targets, results, kind="keypoints")
    table = loaded.table
    assert table.detections.areas.tolist() == [x["area"] for x in found.dataset["annotations"]]
    assert table.truths.ignored.tolist() == [
        x["num_keypoints"] == 0 for x in truths.dataset["annotations"]
    ]
    seen = 0
    for image, label, wanted in tables_of(evaluation, evaluation.computeOks):
        np.testing.assert_allclose(block(loaded, image, label), wanted, rtol=1e-15, atol=1e-300)
        seen += wanted.size
    assert seen > 200
    own = coco.from_dicts(targets, results, kind="keypoints", sigmas=np.array(coco.SIGMAS) * 2)
    assert all((a >= b).all() for a, b in zip(own.overlaps, loaded.overlaps, strict=True))


# COCO: traps.

BOX = {"image_id": 0, "category_id": 0, "bbox": [0, 0, 100, 100]}
TRUTH = {**BOX, "area": 10}
RESULT = {**BOX, "score": 0.5}
SQUARE = {"size": [40, 60], "counts": [0, 400, 2000]}


def test_ids_of_any_kind_are_places_in_order():
    """Trap 1: id 0 is an id. Rows and results need none of their own."""
    ids = ["b", 0, -5, "a", 7]
    targets = {
        "images": [{"id": x} for x in ids],
        "categories": [{"id": x} for x in ids],
        "annotations": [{**TRUTH, "image_id": x, "category_id": x} for x in ids],
    }
    loaded = coco.from_dicts(targets, [{**RESULT, "image_id": "a", "category_id": -5}])
    assert loaded.image_ids == loaded.category_ids == [-5, 0, 7, "a", "b"]
    assert loaded.category_names == ["-5", "0", "7", "a", "b"]
    assert loaded.num_classes == 5
    assert loaded.table.truth_images.tolist() == loaded.table.truths.labels.tolist()
    assert loaded.table.truth_images.tolist() == [4, 1, 0, 3, 2]
    assert loaded.table.detection_images.tolist() == [3]
    assert loaded.table.detections.labels.tolist() == [0]


def test_images_without_rows_count_and_no_rows_at_all_are_a_data_set():
    """Trap 20: results in an image without truths are there."""
    for kind in ("bbox", "segm", "boundary", "keypoints"):
        loaded = coco.from_dicts(*data_set([], [], images=3), kind=kind)
        assert loaded.table.num_images == 3
        assert len(loaded.table.detections.scores) == len(loaded.table.truths.labels) == 0
        assert pack(loaded.table, overlaps=loaded.overlaps)
        empty = coco.from_dicts(*data_set([], [], images=0, classes=0), kind=kind)
        assert pack(empty.table, overlaps=empty.overlaps) == []
    loaded = coco.from_dicts(*data_set([], [{**RESULT, "image_id": 2}], images=3))
    assert loaded.table.detection_images.tolist() == [2]


def test_a_truth_is_ignored_by_its_field_in_lvis_and_not_in_coco(tmp_path):
    """Trap 3; and a crowd of COCO is a plain truth in LVIS."""
    annotations = [{**TRUTH, "ignore": 1}, {**TRUTH, "iscrowd": 1}, TRUTH]
    loaded = coco.from_dicts(*data_set(annotations, []))
    assert loaded.table.truths.ignored is None
    assert loaded.table.truths.crowd.tolist() == [False, True, False]
    loaded = lvis.load(*lvis_files(tmp_path, annotations))
    assert loaded.table.truths.ignored.tolist() == [True, False, False]
    assert loaded.table.truths.crowd is None


def test_the_area_of_a_detection_is_that_of_the_first_result_or_as_asked():
    """Trap 12: masks that come with boxes are measured by their boxes."""
    points = {"keypoints": [1, 2, 0, 4, 9, 2]}
    given = {"area": 77}
    both = {**RESULT, "segmentation": SQUARE, **points, **given}
    mask = {key: value for key, value in both.items() if key != "bbox"}
    plain = {key: both[key] for key in ("image_id", "category_id", "score", "keypoints")}

    def areas(results, **options):
        targets, results = data_set([], results)
        return coco.from_dicts(targets, results, **options).table.detections.areas.tolist()

    assert areas([both, both], kind="segm") == [10000, 10000]
    assert areas([mask, both], kind="segm") == [400, 400]
    assert areas([{**both, "bbox": []}], kind="segm") == [400]
    assert areas([plain, plain], kind="keypoints", sigmas=[1, 1]) == [21, 21]
    for choice, area in (("bbox", 10000), ("mask", 400), ("keypoints", 21), ("given", 77)):
        assert areas([both], areas=choice) == [area]
    with pytest.raises(ValueError, match=r"results\[1\]: has no 'bbox'"):
        areas([both, mask], kind="segm")


def test_pycocotools_own_results_can_be_read_again():
    """`loadRes` adds boxes to masks; the areas that it has left are those to take."""
    results = [
        {"image_id": 0, "category_id": 0, "segmentation": coded(x), "score": 0.5}
        for x in random_masks(np.random.default_rng(5), 9)
    ]
    targets, results = data_set([], results)
    _, found, _ = reference(targets, results, "segm")
    again = found.dataset["annotations"]
    loaded = coco.from_dicts(targets, again, kind="segm", areas="given")
    assert loaded.table.detections.areas.tolist() == [x["area"] for x in again]
    assert np.array_equal(
        coco.from_dicts(targets, again).table.detections.regions, [x["bbox"] for x in again]
    )


def test_nothing_that_is_given_is_changed():
    content = masks_set(list(random_masks(np.random.default_rng(6), 3)))
    before = copy.deepcopy(content)
    coco.from_dicts(*content, kind="boundary")
    assert content == before


# COCO: bad files.

BAD = {
    "results[0]: image_id 9 is not in images of": {"image_id": 9},
    "results[0]: image_id '0' is not in images of": {"image_id": "0"},
    "results[0]: image_id [0] is not in images of": {"image_id": [0]},
    "results[0]: category_id None is not in categories of": {"category_id": None},
    "results[0]: bbox is [1, 2, 3], not 4 numbers": {"bbox": [1, 2, 3]},
    "results[0]: bbox is 5, not 4 numbers": {"bbox": 5},
    "results[0]: bbox is [1, 2, '3', 4], not 4 numbers": {"bbox": [1, 2, "3", 4]},
    "results[0]: bbox is [1, 2, None, 4], not 4 numbers": {"bbox": [1, 2, None, 4]},
    "results[0]: bbox is [1, 2, inf, 4], which is not finite": {"bbox": [1, 2, float("inf"), 4]},
    "results[0]: score is '0.5', no number": {"score": "0.5"},
    "results[0]: score is nan, which is not finite": {"score": float("nan")},
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_result_is_named_with_the_reason(tmp_path, reason):
    results = [RESULT, {**RESULT, **BAD[reason]}]
    reason = reason.replace("[0]", "[1]", 1)
    targets, results = data_set([TRUTH], results)
    with pytest.raises(ValueError, match=r"^predictions: ") as error:
        coco.from_dicts(targets, results)
    assert reason in str(error.value)
    files = write(tmp_path / "truths.json", targets), write(tmp_path / "found.json", results)
    with pytest.raises(FileError) as error:
        coco.load(*files)
    assert str(error.value).startswith(f"{files[1]}: {reason}")


@pytest.mark.parametrize("key", ["image_id", "category_id", "bbox", "score"])
def test_a_key_that_is_missing_is_named(key):
    bad = {name: value for name, value in RESULT.items() if name != key}
    with pytest.raises(ValueError, match=rf"predictions: results\[1\]: has no '{key}'"):
        coco.from_dicts(*data_set([TRUTH], [RESULT, bad]))
    bad = {name: value for name, value in {**TRUTH, "score": 0}.items() if name != key}
    if key != "score":
        with pytest.raises(ValueError, match=rf"targets: annotations\[1\]: has no '{key}'"):
            coco.from_dicts(*data_set([TRUTH, bad], [RESULT]))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", r"truths\.json: is not JSON: .*line 1 column 2"),
        ("[]", r"truths\.json: must be an object with lists, not \[\]"),
        ("{}", r"truths\.json: has no list 'images'"),
        (data_set(None, [])[0], r"truths\.json: has no list 'annotations'"),
        (data_set([3], [])[0], r"truths\.json: annotations\[0\]: is no object but 3"),
        ({**data_set([], [])[0], "images": [{}]}, r"images\[0\]: has no 'id'"),
        ({**data_set([], [])[0], "images": [{"id": [1]}]}, r"images\[0\]: id is \[1\], neither"),
        (data_set([{**TRUTH, "image_id": 9}], [])[0], r"annotations\[0\]: image_id 9 is not in im"),
        (data_set([BOX], [])[0], r"annotations\[0\]: has no 'area'"),
        (data_set([{**TRUTH, "area": "1"}], [])[0], r"annotations\[0\]: area is '1', no number"),
    ],
)
def test_a_bad_file_of_truths_is_named_with_the_reason(tmp_path, content, reason):
    found = write(tmp_path / "found.json", [])
    with pytest.raises(FileError, match=reason):
        coco.load(write(tmp_path / "truths.json", content), found)


def test_other_bad_files_and_options_are_named(tmp_path):
    truths = write(tmp_path / "truths.json", data_set([], [])[0])
    with pytest.raises(FileError, match=r"nowhere\.json: does not exist"):
        coco.load(truths, tmp_path / "nowhere.json")
    with pytest.raises(FileError, match="cannot be read"):
        coco.load(truths, tmp_path)
    (tmp_path / "found.json").write_bytes(b'"\xff\xfe"')
    with pytest.raises(FileError, match="is not JSON"):
        coco.load(truths, tmp_path / "found.json")
    with pytest.raises(FileError, match=r"must be a list of results, not \{\}"):
        coco.load(truths, write(tmp_path / "found.json", {}))


@pytest.mark.usefixtures("without_jaxtyping")
def test_a_kind_that_is_not_known_is_an_error(tmp_path):
    for options in ({"kind": "box"}, {"areas": "segm"}):
        with pytest.raises(ValueError, match=rf"{next(iter(options))} must be one of .*, got"):
            coco.from_dicts(*data_set([], []), **options)
    with pytest.raises(ValueError, match=r"kind must be one of .*, got 'keypoints'"):
        lvis.load(*lvis_files(tmp_path), kind="keypoints")


MASK = {"image_id": 0, "category_id": 0, "score": 0.5}


@pytest.mark.parametrize(
    ("segmentation", "reason"),
    [
        ({"size": [4, 6], "counts": [24]}, r"the mask is \[4, 6\] in size, not \[40, 60\]"),
        ({"size": [40, 60], "counts": [24]}, "has 24 pixels in its runs, not 2400"),
        ({"size": [40, 60], "counts": [-1, 2401]}, "the counts of the mask are no run lengths"),
        ({"size": [40, 60]}, "has 0 pixels in its runs, not 2400"),
        *(
            ({"size": size, "counts": "a"}, r"the size of the mask is not \[height, width\]")
            for size in (
                None,
                [40],
                [40, 0],
                [40.5, 60],
                ["40", 60],
                [40, float("inf")],
                [40, 10**9],
            )
        ),
        ({"size": [40, 60], "counts": ""}, "are no compressed run lengths"),
        ({"size": [40, 60], "counts": "é"}, "are no compressed run lengths"),
        ({"size": [40, 60], "counts": " 1"}, "are no compressed run lengths"),
        ({"size": [40, 60], "counts": "oooooooooo1"}, "are no compressed run lengths"),
        ({"size": [40, 60], "counts": "1"}, "has 1 pixels in its runs, not 2400"),
        ([], "segmentation has no polygon"),
        ([[1, 2, 3, 4]], "has not x and y of three points or more"),
        ([[1, 2, 3, 4, 5, 6, 7]], "has not x and y of three points or more"),
        ([[1, 2, 3, 4, 5, None]], "has something that is no finite number"),
        ([[1, 2, 3, 4, 5, float("nan")]], "has something that is no finite number"),
        ([[1, 2, 3, 4, 5, 10**400]], "has something that is no finite number"),
        ([[[1, 2], [3, 4], [5, 6], [7, 8], [9, 9], [0, 0]]], "something that is no finite number"),
        ([[1, 2, 3, 4, 5, 241]], r"the coordinate 241, more than 240 pixels away from an image of"),
        ([[-1e12, 2, 3, 4, 5, 6]], r"the coordinate -1e\+12, more than 240 pixels away"),
        ({"size": [40, 60], "counts": [True, 2399]}, "the counts of the mask are no run lengths"),
        (5, "segmentation is neither polygons nor run lengths"),
    ],
)
def test_a_mask_that_cannot_be_read_is_named(segmentation, reason):
    """Trap 25: pycocotools gives -1, a box or garbage for them, or does not come back."""
    good = {**MASK, "segmentation": SQUARE}
    results = [good, {**MASK, "segmentation": segmentation}]
    with pytest.raises(ValueError, match=rf"results\[1\]: .*{reason}"):
        coco.from_dicts(*data_set([], results), kind="segm")


def test_run_lengths_that_are_cut_short_are_found():
    rng = np.random.default_rng(7)
    texts = [coded(x)["counts"] for x in random_masks(rng, 60)]
    for text in texts:
        cut = text[: rng.integers(0, len(text))]
        bad = [{**MASK, "segmentation": {"size": [40, 60], "counts": x}} for x in (text, cut)]
        with pytest.raises(ValueError, match=r"results\[1\]: the (counts of the )?mask"):
            coco.from_dicts(*data_set([], bad), kind="segm")


def test_masks_need_a_size_and_polygons_that_of_their_image():
    triangle = [[1, 2, 3, 4, 5, 9]]
    results = [{**MASK, "segmentation": triangle}]
    targets, results = data_set([], results)
    targets["images"] = [{"id": 0}]
    with pytest.raises(ValueError, match=r"results\[0\]: has polygons, but its image has no heigh"):
        coco.from_dicts(targets, results, kind="segm")
    results = [
        {**MASK, "segmentation": {"size": size, "counts": [100]}} for size in ([10, 10], [5, 20])
    ]
    with pytest.raises(ValueError, match=r"results\[1\]: the mask is \[5, 20\] in size, not \[10,"):
        coco.from_dicts(targets, results, kind="segm")
    targets["images"] = [{"id": 0, "height": "40", "width": 60}]
    with pytest.raises(ValueError, match=r"images\[0\]: height and width are \['40', 60\]"):
        coco.from_dicts(targets, results, kind="segm")


def test_polygons_may_reach_beyond_their_image_but_not_beyond_what_is_counted():
    """pycocotools takes memory for each pixel of the outline, and far out it crashes."""
    far = [{**MASK, "segmentation": [[-240, -240, 240, -240, 240, 240, -240, 240]]}]
    targets, results = data_set([], far)
    assert coco.from_dicts(targets, results, kind="segm").table.detections.areas == [40 * 60]
    targets["images"] = [{"id": 0, "height": 2**30, "width": 1}]
    results = [{**MASK, "segmentation": [[0, 0, 1, 0, 1, 2**29]]}]
    with pytest.raises(ValueError, match=r"results\[0\]: .*more than 1048576 pixels away"):
        coco.from_dicts(targets, results, kind="segm")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"score": 10**400}, "score is 1000.*, which is not finite"),
        ({"score": 10**5000}, "score is of type int, which is not finite"),
        ({"bbox": [1, 2, 10**400, 4]}, "bbox is .*, which is not finite"),
        ({"score": True}, "score is True, no number"),
        ({"bbox": [1, 2, 3, True]}, "bbox is .*, not 4 numbers"),
    ],
)
def test_integers_that_no_float_holds_and_flags_are_no_numbers(changes, reason):
    results = [{**RESULT, "score": 0.5}, {**RESULT, **changes}]
    with pytest.raises(ValueError, match=rf"results\[1\]: {reason}"):
        coco.from_dicts(*data_set([TRUTH], results))
    results = [{**RESULT, "score": 2**70, "bbox": [0, 0, 2**70, 1]}]
    table = coco.from_dicts(*data_set([TRUTH], results)).table
    assert table.detections.scores.tolist() == [2.0**70]
    assert table.detections.areas.tolist() == [2.0**70]


def test_what_names_no_record_elsewhere_names_it_here(tmp_path):
    truths = write(tmp_path / "truths.json", data_set([TRUTH], [])[0])
    digits = write(tmp_path / "digits.json", f"[{'1' * 5000}]")
    with pytest.raises(FileError, match=r"digits\.json: is not JSON: .*digits"):
        coco.load(truths, digits)
    with pytest.raises(FileError, match="cannot be read"):
        coco.load("\0", digits)
    crowd = {**TRUTH, "iscrowd": "no"}
    with pytest.raises(ValueError, match=r"annotations\[0\]: iscrowd is 'no', neither 0 nor 1"):
        coco.from_dicts(*data_set([crowd], []))
    points = {"image_id": 0, "category_id": 0, "score": 0.5, "keypoints": [1, 2, 2, 4, 5]}
    with pytest.raises(ValueError, match=r"results\[0\]: keypoints has 5 numbers, not three for e"):
        coco.from_dicts(*data_set([], [points]), kind="keypoints")
    targets, _ = data_set([], [])
    targets["images"] = [{"id": float("nan")}]
    with pytest.raises(ValueError, match=r"images\[0\]: id is nan, which is not finite"):
        coco.from_dicts(targets, [])


def test_keypoints_must_be_as_many_as_sigmas():
    result = {**MASK, "keypoints": [1, 2, 2]}
    truth = {**TRUTH, "keypoints": [1, 2, 2], "num_keypoints": 1}
    with pytest.raises(ValueError, match=r"results\[0\]: keypoints is \[1, 2, 2\], not 51 numbers"):
        coco.from_dicts(*data_set([truth], [result]), kind="keypoints")
    loaded = coco.from_dicts(*data_set([truth], [result]), kind="keypoints", sigmas=[0.1])
    assert loaded.overlaps[0].tolist() == [[1]]
    del truth["num_keypoints"]
    with pytest.raises(ValueError, match=r"annotations\[0\]: has no 'num_keypoints'"):
        coco.from_dicts(*data_set([truth], [result]), kind="keypoints", sigmas=[0.1])


def test_without_pycocotools_boxes_are_read_and_masks_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    assert len(coco.from_dicts(*data_set([TRUTH], [RESULT])).table.truths.labels) == 1
    with pytest.raises(ImportError, match=r"pip install 'jaxiou\[io\]'"):
        coco.from_dicts(*data_set([], [{**MASK, "segmentation": SQUARE}]), kind="segm")


# LVIS.


def lvis_files(folder, annotations=(), results=(), **changes):
    targets, _ = data_set(list(annotations), [])
    for image in targets["images"]:
        image |= {"neg_category_ids": [1], "not_exhaustive_category_ids": [0]}
        image |= changes.get("image", {})
    for category in targets["categories"]:
        category |= {"frequency": "rcf"[category["id"]]} | changes.get("category", {})
    return write(folder / "truths.json", targets), write(folder / "found.json", list(results))


def test_lvis_says_what_is_known_of_an_image(tmp_path):
    loaded = lvis.load(*lvis_files(tmp_path, [TRUTH], [RESULT]))
    assert loaded.frequencies == ["r", "c"]
    assert loaded.negative.tolist() == [[False, True]]
    assert loaded.not_exhaustive.tolist() == [[True, False]]
    assert loaded.positive is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"image": {"neg_category_ids": [5]}},
            r"images\[0\]: neg_category_ids has 5, which is not",
        ),
        (
            {"image": {"not_exhaustive_category_ids": 5}},
            "not_exhaustive_category_ids is 5, no list",
        ),
        ({"category": {"frequency": "x"}}, r"categories\[0\]: frequency is 'x', not 'r', 'c' or "),
    ],
)
def test_bad_lvis_files_are_named(tmp_path, changes, reason):
    with pytest.raises(FileError, match=rf"truths\.json: .*{reason}"):
        lvis.load(*lvis_files(tmp_path, **changes))


def test_a_coco_file_is_no_lvis_file(tmp_path):
    truths = write(tmp_path / "truths.json", data_set([], [])[0])
    with pytest.raises(FileError, match=r"categories\[0\]: has no 'frequency'"):
        lvis.load(truths, write(tmp_path / "found.json", []))


@needs_data
def test_lvis_files_are_read_as_they_are(tmp_path):
    files = [
        SHARED / "lvis_val_100" / x for x in ("lvis_val_100.json", "synthetic_jitter_dets.json")
    ]
    loaded, content = lvis.load(*files), parsed(files[0])
    known = {(x["id"], k) for x in content["images"] for k in x["neg_category_ids"]}
    found = np.argwhere(loaded.negative).tolist()
    assert known == {(loaded.image_ids[i], loaded.category_ids[k]) for i, k in found}
    frequencies = {x["id"]: x["frequency"] for x in content["categories"]}
    assert loaded.frequencies == [frequencies[x] for x in loaded.category_ids]
    assert len(loaded.table.detections.scores) == len(parsed(files[1]))
    results = [{**x, "score": 0.5} for x in content["annotations"][:50]]
    masks = lvis.load(files[0], write(tmp_path / "found.json", results), kind="segm")
    best = [table.max(axis=1) for table in masks.overlaps if len(table)]
    assert np.concatenate(best).tolist() == [1] * 50


# PASCAL VOC.


def voc_object(name="cat", box=(1, 2, 30.5, 40), extra=""):
    corners = "".join(
        f"<{k}>{x}</{k}>" for k, x in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"<object><name>{name}</name>{extra}<bndbox>{corners}</bndbox></object>"


def voc_folder(tmp_path, **files):
    for name, objects in files.items():
        write(tmp_path / f"{name}.xml", f"<annotation>{objects}</annotation>")
    return tmp_path


@needs_data
def test_voc_files_by_image_and_by_class_are_the_same(tmp_path):
    folder = SHARED / "voc2012_100"
    loaded = voc.load(folder / "Annotations", folder / "dets_abs_xyx2y2")
    expected = parsed(folder / "expected.json")["per_class"]
    table = loaded.table
    assert loaded.category_names == (folder / "voc.names").read_text().split()
    for label, name in enumerate(loaded.category_names):
        rows = np.flatnonzero(table.detections.labels == label)
        if name in expected:
            hard = table.truths.ignored[table.truths.labels == label]
            counts = {"n_gt": (~hard).sum(), "n_difficult": hard.sum(), "n_det": len(rows)}
            assert counts.items() <= expected[name].items()
        numbers = np.column_stack([table.detections.scores, table.detections.regions])[rows]
        images = [loaded.image_ids[image] for image in table.detection_images[rows]]
        lines = [
            f"{image} {' '.join(map(repr, row))}\n"
            for image, row in zip(images, numbers.tolist(), strict=True)
        ]
        write(tmp_path / f"comp4_det_test_{name}.txt", "".join(lines))
    other = voc.load(folder / "Annotations", tmp_path, classes=folder / "voc.names").table
    rows = [
        np.lexsort((x.detections.scores, x.detections.labels, x.detection_images))
        for x in (table, other)
    ]
    for a, b in zip(table.detections[:3], other.detections[:3], strict=True):
        np.testing.assert_array_equal(a[rows[0]], b[rows[1]])
    assert len(table.detections.scores) == len(other.detections.scores) == 452


def test_voc_truths_are_inclusive_corners_and_difficult_ones_are_ignored(tmp_path):
    part = "<part><name>head</name><bndbox><xmin>9</xmin></bndbox></part>"
    objects = voc_object(extra=part) + voc_object("dog", extra="<difficult>1</difficult>")
    folder = voc_folder(tmp_path, b=objects, a="")
    loaded = voc.load(folder, [])
    assert loaded.image_ids == ["a", "b"]
    assert loaded.table.truths.regions.tolist() == [[1, 2, 30.5, 40]] * 2
    assert loaded.table.truths.ignored.tolist() == [False, True]
    assert [loaded.category_names[x] for x in loaded.table.truths.labels] == ["cat", "dog"]
    assert loaded.table.truth_images.tolist() == [1, 1]
    assert loaded.table.detections.areas is None
    chosen = voc.load(folder, [], images=write(tmp_path / "val.txt", "b -1\n\na 1\n"))
    assert chosen.image_ids == ["b", "a"]
    assert voc.load(folder, [], images=["a"]).table.num_images == 1


def test_voc_results_name_classes_or_give_their_places(tmp_path):
    folder = voc_folder(tmp_path, img_1="", img_2="")
    files = [
        write(tmp_path / "img_1.txt", "red car 0.5 1 2 3 4".replace(" car", "_car")),
        write(tmp_path / "img_2.txt", "1 0.25 1 2 3 4\n\n0 1 5 6 7 8\n"),
        write(tmp_path / "comp4_det_test_red_car.txt", "img_2 0.125 0 0 1 1\n"),
        write(tmp_path / "truck.txt", ""),
    ]
    loaded = voc.load(folder, files, classes=["truck", "red_car"])
    table = loaded.table
    assert table.detections.labels.tolist() == [1, 1, 0, 1]
    assert table.detections.scores.tolist() == [0.5, 0.25, 1, 0.125]
    assert table.detection_images.tolist() == [0, 1, 1, 1]
    assert voc.load(folder, files[0], classes=["red_car"]).table.detections.labels.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.txt", "cat 0.5 1 2 3", "line 1: has 5 fields, not 6"),
        ("a.txt", "cat 0.5 1 2 3 4\n\ncow2 0.5 1 2 3 4", "line 3: class 'cow2' is not known"),
        ("a.txt", "20 0.5 1 2 3 4", "line 1: class '20' is not known"),
        ("a.txt", "cat x 1 2 3 4", "line 1: score is 'x', no finite number"),
        ("a.txt", "cat 0.5 1 2 3 4\ncat 0.5 1 inf 3 4", "line 2: y1 is 'inf', no finite number"),
        ("det_cat.txt", "b 0.5 1 2 3 4", "line 1: image 'b' is not known"),
        ("b.txt", "", "its name is neither an image nor a class, nor ends in one"),
    ],
)
def test_bad_voc_results_are_named(tmp_path, name, text, reason):
    folder = voc_folder(tmp_path, a="")
    write(tmp_path / name, text)
    with pytest.raises(FileError, match=rf"{name}: {reason}"):
        voc.load(folder, folder)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ("<", r"a\.xml: is no XML: .*line 1"),
        (voc_object("unicorn"), r"a\.xml: object 1: class 'unicorn' is not among the classes"),
        (voc_object() + "<object/>", r"a\.xml: object 2: class '' is not among"),
        (
            voc_object(box=(1, 2, "x", 4)),
            r"a\.xml: object 1: bndbox is .*, not four finite numbers",
        ),
        (voc_object(box=(1, "", 3, 4)), r"a\.xml: object 1: bndbox is .*, not four finite numbers"),
        (voc_object(extra="<difficult>2</difficult>"), "difficult is '2', neither 0 nor 1"),
        (voc_object(box=(5, 2, 4, 4)), r"a\.xml: object 1: bndbox is .*, which is inverted"),
    ],
)
def test_bad_voc_truths_are_named(tmp_path, objects, reason):
    with pytest.raises(FileError, match=reason):
        voc.load(voc_folder(tmp_path, a=objects), [])


@pytest.mark.parametrize("encoding", ["foo", "shift_jis"])
def test_an_encoding_that_cannot_be_read_is_named(tmp_path, encoding):
    write(tmp_path / "a.xml", f'<?xml version="1.0" encoding="{encoding}"?><annotation/>')
    with pytest.raises(FileError, match=r"a\.xml: is no XML: .*encoding"):
        voc.load(tmp_path, [])


def test_voc_results_of_images_that_do_not_count_are_left_out(tmp_path):
    folder = voc_folder(tmp_path, a=voc_object(), b="", c_cat="")
    files = [
        write(tmp_path / "a.txt", "cat 0.5 1 2 3 4"),
        write(tmp_path / "b.txt", "whatever"),
        write(tmp_path / "c_cat.txt", "whatever"),
        write(tmp_path / "det_cat.txt", "b 0.25 1 2 3 4\na 0.75 1 2 3 4\n"),
    ]
    table = voc.load(folder, files, images=["a"]).table
    assert table.detections.scores.tolist() == [0.5, 0.75]
    paths = write(tmp_path / "paths.txt", f"../{tmp_path.name}/a\n")
    with pytest.raises(FileError, match=r"paths\.txt: '.*/a' is a path, no name of an image"):
        voc.load(folder, files, images=paths)
    with pytest.raises(FileError, match=r"line 1: image 'z' is not known"):
        voc.load(folder, [write(tmp_path / "cat.txt", "z 0.25 1 2 3 4")], images=["a"])


def test_names_that_are_too_long_are_named(tmp_path):
    long = tmp_path / ("x" * 300)
    for files in ((long, tmp_path), (voc_folder(tmp_path, a=""), long)):
        with pytest.raises(FileError, match="xxx: "):
            voc.load(*files)
    with pytest.raises(FileError, match="xxx: "):
        kitti.find(long, tmp_path)


def test_folders_and_files_of_voc_must_be_there(tmp_path):
    with pytest.raises(FileError, match=r"has no \.xml file"):
        voc.load(tmp_path, [])
    folder = voc_folder(tmp_path, a="")
    with pytest.raises(FileError, match=r"has no \.txt file"):
        voc.load(folder, folder)
    with pytest.raises(FileError, match="does not exist"):
        voc.load(folder / "nowhere", [])
    with pytest.raises(FileError, match="is no folder"):
        voc.load(folder / "a.xml", [])
    with pytest.raises(FileError, match="nowhere: does not exist"):
        voc.load(folder, folder / "nowhere")
    with pytest.raises(FileError, match=r"b\.xml: does not exist"):
        voc.load(folder, [], images=["b"])
    with pytest.raises(FileError, match="has no line that is not empty"):
        voc.load(folder, [], images=write(tmp_path / "none.txt", "\n"))


# Open Images.

TRUTH_HEADER = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsGroupOf"
RESULT_HEADER = "ImageID,LabelName,Score,XMin,XMax,YMin,YMax"
TREE = {
    "LabelName": "/m/root",
    "Subcategory": [
        {"LabelName": "/m/animal", "Subcategory": [{"LabelName": "/m/cat"}]},
        {"LabelName": "/m/pet", "Subcategory": [{"LabelName": "/m/cat"}], "Part": [{}]},
    ],
}


def csv_file(path, header, *rows):
    return write(path, "\n".join([header, *rows]) + "\n")


def open_images_files(folder):
    return (
        csv_file(
            folder / "truths.csv",
            TRUTH_HEADER,
            "b,x,/m/cat,1,0.1,0.5,0.2,0.6,0,1",
            "a,x,/m/animal,1,0,1,0,1,-1,0",
        ),
        csv_file(folder / "found.csv", RESULT_HEADER, "b,/m/cat,0.75,0.1,0.5,0.2,0.7"),
    )


def test_open_images_tables_are_read_by_their_headers(tmp_path):
    loaded = open_images.load(*open_images_files(tmp_path))
    table = loaded.table
    assert loaded.image_ids == ["a", "b"]
    assert loaded.category_ids == ["/m/animal", "/m/cat"]
    assert table.truths.regions.tolist() == [[0.1, 0.2, 0.5, 0.6], [0, 0, 1, 1]]
    assert table.truths.crowd.tolist() == [True, False]
    assert table.truths.ignored.tolist() == [False, False]
    assert table.truth_images.tolist() == [1, 0]
    assert table.truths.labels.tolist() == [1, 0]
    assert table.detections.regions.tolist() == [[0.1, 0.2, 0.5, 0.7]]
    assert table.detections.scores.tolist() == [0.75]
    assert loaded.positive is loaded.negative is loaded.ancestors is None


def test_open_images_verified_labels_and_hierarchy(tmp_path):
    labels = csv_file(
        tmp_path / "labels.csv",
        "ImageID,Source,LabelName,Confidence",
        "c,verification,/m/cat,0",
        "b,verification,/m/cat,1",
        "b,verification,/m/unheard,1",
    )
    classes = csv_file(
        tmp_path / "classes.csv", "LabelName,DisplayName", '/m/cat,"Cat, tame"', "/m/animal,Animal"
    )
    loaded = open_images.load(
        *open_images_files(tmp_path),
        labels=labels,
        classes=classes,
        hierarchy=write(tmp_path / "tree.json", TREE),
    )
    assert loaded.image_ids == ["a", "b", "c"]
    assert loaded.category_ids == ["/m/cat", "/m/animal"]
    assert loaded.category_names == ["Cat, tame", "Animal"]
    assert np.argwhere(loaded.positive).tolist() == [[1, 0]]
    assert np.argwhere(loaded.negative).tolist() == [[2, 0]]
    assert loaded.ancestors.tolist() == [[False, True], [False, False]]
    whole = open_images.load(*open_images_files(tmp_path), hierarchy=tmp_path / "tree.json")
    assert whole.category_ids == ["/m/animal", "/m/cat", "/m/pet"]
    assert np.argwhere(whole.ancestors).tolist() == [[1, 0], [1, 2]]
    images = csv_file(tmp_path / "images.csv", "ImageID,Subset", "d,test", "b,test", "a,test")
    chosen = open_images.load(
        *open_images_files(tmp_path), images=images, classes=whole.category_ids
    )
    assert chosen.image_ids == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("b,/m/cat,0.75,0.1,0.5,0.2", "line 2: has 6 of 7 fields"),
        ("b,/m/cat,x,0.1,0.5,0.2,0.7", "line 2: Score is 'x', no finite number"),
        ("b,/m/cat,0.5,0.1,nan,0.2,0.7", "line 2: XMax is 'nan', no finite number"),
        ("b,/m/cat,0.5,0.6,0.5,0.2,0.7", "line 2: the box .* is inverted"),
        ("z,/m/cat,0.5,0.1,0.5,0.2,0.7", "line 2: ImageID 'z' is not among the images"),
        ("b,/m/dog,0.5,0.1,0.5,0.2,0.7", "line 2: LabelName '/m/dog' is not among the classes"),
    ],
)
def test_bad_open_images_results_are_named(tmp_path, row, reason):
    truths, _ = open_images_files(tmp_path)
    found = csv_file(tmp_path / "found.csv", RESULT_HEADER, row)
    with pytest.raises(FileError, match=rf"found\.csv: {reason}"):
        open_images.load(truths, found, classes=["/m/animal", "/m/cat"])


def test_other_bad_open_images_files_are_named(tmp_path):
    truths, found = open_images_files(tmp_path)
    with pytest.raises(FileError, match=r"found\.csv: has no column 'Score'"):
        open_images.load(truths, csv_file(tmp_path / "found.csv", RESULT_HEADER.replace("Sc", "")))
    with pytest.raises(FileError, match=r"empty\.csv: has no column 'ImageID'"):
        open_images.load(truths, write(tmp_path / "empty.csv", ""))
    with pytest.raises(FileError, match=r"nowhere\.csv: does not exist"):
        open_images.load(truths, tmp_path / "nowhere.csv")
    bad = csv_file(tmp_path / "bad.csv", TRUTH_HEADER, "b,x,/m/cat,1,0.1,0.5,0.2,0.6,0,-1")
    truths, found = open_images_files(tmp_path)
    with pytest.raises(FileError, match=r"bad\.csv: line 2: IsGroupOf is '-1', neither 0 nor 1"):
        open_images.load(bad, found)
    labels = csv_file(tmp_path / "labels.csv", "ImageID,LabelName,Confidence", "b,/m/cat,0.7")
    with pytest.raises(FileError, match=r"labels\.csv: line 2: Confidence is 0\.7, neither 0 nor "):
        open_images.load(truths, found, labels=labels)
    twice = csv_file(tmp_path / "twice.csv", f"{TRUTH_HEADER},XMin")
    with pytest.raises(FileError, match=r"twice\.csv: has the column 'XMin' twice"):
        open_images.load(twice, found)
    long = write(tmp_path / "long.csv", "x" * 2**18)
    for option in ("classes", "images"):
        with pytest.raises(FileError, match=r"long\.csv: is no CSV: field larger than"):
            open_images.load(truths, found, **{option: long})
    names = ('{"LabelName": 5}', '{"LabelName": "a", "Subcategory": [{"LabelName": ["b"]}]}')
    for tree in ("{}", "[]", '{"LabelName": "a", "Subcategory": 3}', *names):
        with pytest.raises(FileError, match=r"tree\.json: is no tree of LabelName and Subcategory"):
            open_images.load(truths, found, hierarchy=write(tmp_path / "tree.json", tree))


def test_no_open_images_rows_are_a_data_set(tmp_path):
    truths = csv_file(tmp_path / "truths.csv", TRUTH_HEADER)
    found = csv_file(tmp_path / "found.csv", RESULT_HEADER)
    loaded = open_images.load(truths, found, images=["a"], classes=["/m/cat"])
    assert loaded.table.num_images == 1
    assert loaded.table.detections.regions.shape == loaded.table.truths.regions.shape == (0, 4)
    assert pack(loaded.table)
