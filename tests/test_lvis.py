"""LVIS's average precision beside its published tool's numbers, and a plain loop of its rules."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou.detection import coco, lvis
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table
from jaxiou.readers import lvis as files

DATA = Path(__file__).parents[2] / "shared" / "data" / "ap" / "lvis_val_100"
NEEDS_DATA = pytest.mark.skipif(not DATA.is_dir(), reason="shared/data is not here")

pytestmark = pytest.mark.usefixtures("compiled_as_users_have_it")
"""Bits, which fused multiply-adds would change."""

IMAGES, ROWS, TRUTHS, CLASSES = 5, 24, 12, 6
FREQUENCIES = ("r", "c", "f", "c", "f", "f")
LIMIT = 12


@NEEDS_DATA
@pytest.mark.parametrize("limit", [300, 10])
def test_real_images_have_every_bit_of_lvis_api(limit):
    expected = json.loads((DATA / "expected.json").read_text())[f"bbox|max_dets={limit}"]
    loaded = files.load(DATA / "lvis_val_100.json", DATA / "synthetic_jitter_dets.json")
    batches = lvis.pack(
        loaded.table,
        negative=loaded.negative,
        not_exhaustive=loaded.not_exhaustive,
        max_detections=limit,
        batch_size=100,
    )
    result = lvis.average_precision(
        batches, num_classes=loaded.num_classes, frequencies=loaded.frequencies
    )
    wanted = [x for name, x in expected.items() if name[:2] in ("AP", "AR")]
    assert len(wanted) == len(result.summary)
    np.testing.assert_array_equal(np.array(result.summary), wanted)


# A plain loop.


def iou(a, b):
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    return width * height / (a[2] * a[3] + b[2] * b[3] - width * height)


def loop_precision(table, negative, not_exhaustive, limit):
    """Precision `[T, R, K, A]` and recall `[T, K, A]`, detection by detection."""
    thresholds, recalls = np.linspace(0.5, 0.95, 10), np.linspace(0, 1, 101)
    precision = -np.ones((10, 101, CLASSES, 4))
    recall = -np.ones((10, CLASSES, 4))
    d, t = table.detections, table.truths
    kept = []
    for image in range(IMAGES):
        rows = np.flatnonzero(table.detection_images == image)
        kept += rows[np.argsort(-d.scores[rows], kind="stable")][:limit].tolist()
    for k in range(CLASSES):
        for a, (low, high) in enumerate(coco.AREA_RANGES):
            marks, npig = [], 0
            for image in range(IMAGES):
                truths = np.flatnonzero(
                    (table.truth_images == image) & (t.labels == k) & (t.areas > 0)
                )
                ignored = {g: t.ignored[g] or not low <= t.areas[g] <= high for g in truths}
                npig += sum(not x for x in ignored.values())
                rows = [r for r in kept if table.detection_images[r] == image and d.labels[r] == k]
                rows = [r for r in rows if d.regions[r][2] * d.regions[r][3] > 0]
                if not len(truths) and not negative[image, k]:
                    continue
                taken = [set() for _ in thresholds]
                order = sorted(truths, key=lambda g: ignored[g])
                for r in rows:
                    area = d.regions[r][2] * d.regions[r][3]
                    excused = not low <= area <= high or not_exhaustive[image, k]
                    flags = []
                    for n, threshold in enumerate(thresholds):
                        best, mine = min(threshold, 1 - 1e-10), None
                        for g in order:
                            if g in taken[n]:
                                continue
                            if mine is not None and not ignored[mine] and ignored[g]:
                                break
                            if iou(d.regions[r], t.regions[g]) >= best:
                                best, mine = iou(d.regions[r], t.regions[g]), g
                        if mine is not None:
                            taken[n].add(mine)
                        flags.append(
                            (mine is not None, ignored[mine] if mine is not None else excused)
                        )
                    marks.append((d.scores[r], flags))
            if not npig:
                continue
            ranked = [marks[n] for n in np.argsort([-score for score, _ in marks], kind="stable")]
            for n in range(10):
                right = np.array([f[n][0] and not f[n][1] for _, f in ranked], bool)
                wrong = np.array([not f[n][0] and not f[n][1] for _, f in ranked], bool)
                c, m = np.cumsum(right, dtype=float), np.cumsum(wrong, dtype=float)
                recall[n, k, a] = c[-1] / npig if len(c) else 0
                p = np.maximum.accumulate((c / (c + m + np.spacing(1)))[::-1])[::-1]
                at = np.searchsorted(c / npig, recalls, side="left")
                precision[n, :, k, a] = [p[x] if x < len(p) else 0 for x in at]
    return precision, recall


def random_set(seed):
    rng = np.random.default_rng(seed)
    count = rng.integers(0, TRUTHS, IMAGES)
    truth_images = np.repeat(np.arange(IMAGES, dtype=np.int32), count)
    total = len(truth_images)
    boxes = np.concatenate(
        [rng.integers(0, 4, (total, 2)) * 8.0, rng.choice([8.0, 16.0, 32.0, 96.0], (total, 2))],
        axis=1,
    )
    truths = GroundTruth(
        boxes,
        rng.integers(0, CLASSES, total).astype(np.int32),
        np.ones(total, bool),
        rng.choice([0.0, 512.0, 1024.0, 9216.0, 20000.0], total),
        ignored=rng.random(total) < 0.15,
    )
    images = np.sort(rng.integers(0, IMAGES, 60)).astype(np.int32)
    keep = np.concatenate([np.flatnonzero(images == n)[:ROWS] for n in range(IMAGES)])
    images = images[keep]
    like = rng.integers(0, max(total, 1), len(images))
    found = boxes[like] if total else np.ones((len(images), 4))
    labels = truths.labels[like] if total else np.zeros(len(images), np.int32)
    other = rng.random(len(images)) < 0.2
    labels = np.where(other, rng.integers(0, CLASSES, len(images)), labels).astype(np.int32)
    if total:
        images = np.where(other, images, truth_images[like]).astype(np.int32)
        order = np.argsort(images, kind="stable")
        images, labels, found = images[order], labels[order], found[order]
    found = found + rng.integers(-1, 2, found.shape) * rng.choice([2.0, 8.0])
    detections = Detections(
        found.clip(0), rng.integers(0, 9, len(images)) / 8, labels, np.ones(len(images), bool)
    )
    negative = rng.random((IMAGES, CLASSES)) < 0.3
    not_exhaustive = rng.random((IMAGES, CLASSES)) < 0.2
    return Table(detections, images, truths, truth_images, IMAGES), negative, not_exhaustive


@pytest.fixture(scope="module")
def fixed_batches():
    """Of one shape for all sets: one program."""

    def make(table, negative, not_exhaustive, limit):
        padded = lvis.pack(
            table,
            negative=negative,
            not_exhaustive=not_exhaustive,
            max_detections=limit,
            batch_size=IMAGES,
        )
        (batch,) = padded

        def grown(x, size):
            return np.pad(x, [(0, 0), (0, size - x.shape[1])] + [(0, 0)] * (x.ndim - 2))

        return [
            Images(
                jax.tree.map(lambda x: grown(x, 64), batch.detections),
                jax.tree.map(lambda x: grown(x, 16), batch.truths),
                batch.indices,
            )
        ]

    return make


@pytest.mark.parametrize("seed", range(12))
def test_random_sets_have_every_bit_of_a_plain_loop(seed, fixed_batches):
    table, negative, not_exhaustive = random_set(seed)
    precision, recall = loop_precision(table, negative, not_exhaustive, LIMIT)
    result = lvis.average_precision(
        fixed_batches(table, negative, not_exhaustive, LIMIT),
        num_classes=CLASSES,
        frequencies=FREQUENCIES,
    )
    np.testing.assert_array_equal(result.curves.precision[..., 0], precision)
    np.testing.assert_array_equal(result.curves.recall[..., 0], recall)
    rare = precision[:, :, :1, 0]
    wanted = rare[rare > -1].mean() if (rare > -1).any() else -1
    assert result.summary.ap_rare == wanted


B = np.array([0.0, 0.0, 100.0, 100.0])


def one_image(found, truth_labels, scores=None, **truth):
    """Detections of classes at `B`, and truths there."""
    count = len(found)
    detections = Detections(
        np.tile(B, (count, 1)),
        np.arange(count, 0, -1) / 10 if scores is None else np.array(scores),
        np.array(found, np.int32),
        np.ones(count, bool),
    )
    g = len(truth_labels)
    truths = GroundTruth(
        np.tile(B, (g, 1)),
        np.array(truth_labels, np.int32),
        np.ones(g, bool),
        np.full(g, 1e4),
        **truth,
    )
    return detections, truths


def classes(*some):
    return np.isin(np.arange(CLASSES), some)


def test_a_class_of_which_nothing_is_known_in_an_image_takes_no_part():
    found, truths = one_image([0, 1, 2], [0])
    kept = lvis.federate(found, truths, negative=classes(2), not_exhaustive=classes())
    assert kept.valid.tolist() == [True, False, True]


def test_what_is_not_exhaustively_annotated_has_no_false_positives():
    found, truths = one_image([0, 0], [0])
    for known, ignored in ((classes(), 0), (classes(0), 2**10 - 1)):
        kept = lvis.federate(found, truths, negative=classes(), not_exhaustive=known)
        matches = lvis.evaluate(kept, truths)
        assert matches.matched[:, 0].tolist() == [2**10 - 1, 0]
        assert matches.ignored[:, 0].tolist() == [0, ignored]


def test_the_limit_is_of_an_image_and_comes_before_all_else():
    found, truths = one_image([1, 0], [0], scores=[0.9, 0.5])
    kept = lvis.federate(
        found, truths, negative=classes(), not_exhaustive=classes(), max_detections=1
    )
    assert kept.valid.tolist() == [False, False]
    all_kept = lvis.federate(
        found, truths, negative=classes(), not_exhaustive=classes(), max_detections=None
    )
    assert all_kept.valid.tolist() == [False, True]


def test_the_field_ignored_is_honoured_and_a_crowd_is_a_truth_like_others():
    found, truths = one_image([0, 0], [0], ignored=np.array([True]))
    matches = lvis.evaluate(found, truths)
    assert matches.ignored[:, 0].tolist() == [2**10 - 1, 0]
    assert not matches.truth_counts.any()
    found, truths = one_image([0, 0], [0], crowd=np.array([True]))
    matches = lvis.evaluate(found, truths)
    assert matches.matched[:, 0].tolist() == [2**10 - 1, 0]
    assert matches.truth_counts[0, 0]


def test_what_has_no_area_is_not_loaded_but_takes_a_place_among_the_best():
    found, truths = one_image([0, 0], [0], scores=[0.9, 0.5])
    flat = found._replace(regions=found.regions * np.array([[1, 1, 0, 1], [1, 1, 1, 1]]))
    matches = lvis.evaluate(flat, truths)
    assert matches.valid.tolist() == [False, True]
    known = {"negative": classes(), "not_exhaustive": classes()}
    kept = lvis.federate(flat, truths, **known, max_detections=1)
    assert lvis.evaluate(kept, truths).valid.tolist() == [False, False]
    empty = truths._replace(areas=np.zeros(1))
    assert not lvis.evaluate(found, empty).truth_counts.any()
    assert not lvis.federate(found, empty, **known).valid.any()


def test_the_best_of_an_image_are_told_apart_in_all_digits():
    scores = np.array([0.99999999, 0.99999998, 0.99999997, 1 - 1e-9])
    found, truths = one_image([0] * 4, [0], scores=scores)
    place = np.zeros(4, np.int32)
    table = Table(found, place, truths, place[:1], 1)
    unknown = np.zeros((1, CLASSES), bool)
    (batch,) = lvis.pack(table, negative=unknown, not_exhaustive=unknown, max_detections=2)
    assert batch.detections.valid[0, :4].tolist() == [True, False, False, True]


def test_inside_jit_the_numbers_are_those_of_the_exact_mode(fixed_batches):
    table, negative, not_exhaustive = random_set(3)
    (batch,) = fixed_batches(table, negative, not_exhaustive, LIMIT)
    order = np.argsort(batch.indices)
    in_order = jax.tree.map(lambda x: jnp.asarray(x[order]), batch)

    @jax.jit
    def numbers(batch):
        matches = lvis.evaluate(batch.detections, batch.truths)
        return lvis.summarize(
            lvis.accumulate(matches, num_classes=CLASSES), frequencies=FREQUENCIES
        )

    exact = lvis.average_precision([batch], num_classes=CLASSES, frequencies=FREQUENCIES)
    np.testing.assert_allclose(np.array(numbers(in_order)), np.array(exact.summary), atol=2e-6)


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_tables_and_frequencies_are_named():
    table, negative, not_exhaustive = random_set(0)
    with pytest.raises(ValueError, match=r"negative must have shape \[5, classes\], got \[4, 6\]"):
        lvis.pack(table, negative=negative[:4], not_exhaustive=not_exhaustive)
    with pytest.raises(ValueError, match="must have a column for every label"):
        lvis.pack(table, negative=negative[:, :1], not_exhaustive=not_exhaustive[:, :1])
    with pytest.raises(ValueError, match="frequencies must be one of"):
        lvis.average_precision([], num_classes=1, frequencies=("x",))
    with pytest.raises(ValueError, match="as many classes as frequencies, got"):
        lvis.average_precision([], num_classes=2, frequencies=("r",))


def test_no_images_give_minus_one():
    summary = lvis.average_precision([], num_classes=1, frequencies=("r",)).summary
    assert set(map(float, summary)) == {-1.0}
