"""CrowdHuman's scores: against a loop written from the rules of its toolkit."""

import functools

import jax
import numpy as np
import pytest

from jaxiou.detection import crowd_human
from jaxiou.detection.packing import Detections, GroundTruth, Images

IMAGES, FOUND, TRUTHS = 6, 10, 6


def overlaps_of(box, other):
    width = max(0, min(box[2], other[2]) - max(box[0], other[0]))
    height = max(0, min(box[3], other[3]) - max(box[1], other[1]))
    own, its = ((x[2] - x[0]) * (x[3] - x[1]) for x in (box, other))
    return width * height / (own + its - width * height), width * height / own


def scores_by_loop(batch, threshold):
    """Average precision, miss rate and recall."""
    found, truths = batch.detections, batch.truths
    listed, total = [], 0
    for i in range(len(batch.indices)):
        counts = [g for g in np.flatnonzero(truths.valid[i]) if not truths.ignored[i, g]]
        others = [g for g in np.flatnonzero(truths.valid[i]) if truths.ignored[i, g]]
        total += len(counts)
        free = set(counts)
        for d in sorted(np.flatnonzero(found.valid[i]), key=lambda d, i=i: -found.scores[i, d]):
            box, best, place = found.regions[i, d], threshold, None
            for g in counts:
                overlap = overlaps_of(box, truths.regions[i, g])[0]
                if g in free and overlap > best:
                    best, place = overlap, g
            if place is not None:
                free.remove(place)
                listed.append((found.scores[i, d], True))
            elif not any(overlaps_of(box, truths.regions[i, g])[1] > threshold for g in others):
                listed.append((found.scores[i, d], False))
    if not total:
        return np.nan, np.nan, np.nan
    listed.sort(key=lambda row: -row[0])
    if not listed:
        return 0, 1, 0
    tp = fp = area = 0
    recalls, precisions, per_image = [], [], []
    for _, right in listed:
        tp, fp = tp + right, fp + (not right)
        recalls.append(tp / total)
        precisions.append(tp / (tp + fp))
        per_image.append(fp / len(batch.indices))
    for k in range(1, len(recalls)):
        area += (recalls[k] - recalls[k - 1]) * ((precisions[k - 1] + precisions[k]) / 2)
    missed = []
    for reference in (0.0100, 0.0178, 0.0316, 0.0562, 0.1000, 0.1778, 0.3162, 0.5623, 1.000):
        reached = [k for k, x in enumerate(per_image) if x >= reference]
        missed.append(1.0 - recalls[reached[0] if reached else -1])
    with np.errstate(divide="ignore"):
        return area, np.exp(np.log(missed).mean()), recalls[-1]


def random_batch(seed):
    """Equal scores and overlaps, overlaps of exactly a half, ignored regions."""
    rng = np.random.default_rng(seed)

    def regions(count):
        corner = rng.integers(0, 5, (IMAGES, count, 2))
        return np.concatenate([corner, corner + rng.integers(1, 5, corner.shape)], -1).astype(float)

    return Images(
        Detections(
            regions(FOUND),
            rng.integers(0, 16, (IMAGES, FOUND)) / 16,
            np.zeros((IMAGES, FOUND), np.int32),
            rng.random((IMAGES, FOUND)) < rng.choice([0.05, 0.5, 0.9]),
        ),
        GroundTruth(
            regions(TRUTHS),
            np.zeros((IMAGES, TRUTHS), np.int32),
            rng.random((IMAGES, TRUTHS)) < 0.8,
            ignored=rng.random((IMAGES, TRUTHS)) < 0.3,
        ),
        np.arange(IMAGES, dtype=np.int32),
    )


def test_random_sets_equal_the_loop_to_the_last_bit_and_float32_is_near():
    @jax.jit
    def run(found, truths):
        matches = crowd_human.evaluate(found, truths, thresholds=(0.5, 0.25))
        curves = crowd_human.accumulate(matches, num_classes=1, num_thresholds=2)
        return crowd_human.summarize(curves, num_images=IMAGES)

    for seed in range(80):
        batch = random_batch(seed)
        result = crowd_human.average_precision([batch], thresholds=(0.5, 0.25))
        near = run(batch.detections, batch.truths)
        for t, threshold in enumerate((0.5, 0.25)):
            wanted = scores_by_loop(batch, threshold)
            np.testing.assert_array_equal([x[t, 0] for x in result], wanted)
            np.testing.assert_allclose([x[t, 0] for x in near], wanted, rtol=0, atol=1e-6)


def image(found, truths, ignored=()):
    """A detection is `(score, *box)`, the others are boxes."""
    rows = [*truths, *ignored]
    scores, regions, others = np.zeros((1, 4)), np.zeros((1, 4, 4)), np.zeros((1, 3, 4))
    scores[0, : len(found)] = [row[0] for row in found]
    regions[0, : len(found)] = np.array([row[1:] for row in found]).reshape(-1, 4)
    others[0, : len(rows)] = np.array(rows).reshape(-1, 4)
    place, other = np.arange(4)[None], np.arange(3)[None]
    zeros = np.zeros((1, 4), np.int32)
    return Images(
        Detections(regions, scores, zeros, place < len(found)),
        GroundTruth(others, zeros[:, :3], other < len(rows), ignored=other >= len(truths)),
        np.zeros(1, np.int32),
    )


def scores(*args):
    return [x[0, 0] for x in crowd_human.average_precision([image(*args)])]


SQUARE, FAR = (0, 0, 4, 4), (50, 50, 54, 54)


def test_second_best_truth_is_taken_where_the_best_is():
    """Both detections overlap both truths by more than a half."""
    found = [(0.9, *SQUARE), (0.8, *SQUARE)]
    assert scores(found, [SQUARE, (1, 0, 5, 4)])[2] == 1


def test_overlap_of_exactly_the_threshold_is_none():
    assert scores([(0.9, 0, 0, 4, 2)], [SQUARE])[2] == 0


def test_first_of_equal_overlaps_is_taken():
    """The second detection fits the first truth alone, which is taken."""
    truths = [(0, 0, 8, 4), (2, 0, 10, 4)]
    assert scores([(0.9, 1, 0, 9, 4), (0.8, 0, 0, 6, 4)], truths)[2] == 0.5
    assert scores([(0.9, 1, 0, 9, 4), (0.8, 4, 0, 10, 4)], truths)[2] == 1


def test_ignored_region_takes_any_number_of_detections_that_have_no_truth():
    found = [(0.9, *FAR), (0.8, *FAR), (0.7, *SQUARE)]
    assert scores(found, [SQUARE], [(40, 40, 60, 60)])[1:] == [0, 1]


def test_part_before_the_first_point_is_left_out():
    """One truth found at the first rank has no area; the second adds a strip of a half."""
    assert scores([(0.9, *SQUARE)], [SQUARE])[0] == 0
    assert scores([(0.9, *SQUARE), (0.8, *FAR)], [SQUARE, FAR])[0] == 0.5
    # An ignored detection before the first point is no point.
    found = [(0.95, 90, 90, 91, 91), (0.9, *SQUARE), (0.8, *FAR)]
    assert scores(found, [SQUARE, FAR], [(80, 80, 95, 95)])[0] == 0.5


def test_references_are_reached_as_float64_decides():
    for count in (1, 7, 100, 4370, 10_000, 123_457):
        limits = crowd_human._limits(count)
        for reference, limit in zip(crowd_human.REFERENCES, limits.tolist(), strict=True):
            assert limit / count >= reference > (limit - 1) / count


def test_nothing_to_find_is_nan_and_nothing_found_is_missed():
    assert np.isnan(scores([(0.9, *SQUARE)], [])).all()
    assert scores([], [SQUARE]) == [0, 1, 0]


@pytest.mark.usefixtures("without_jaxtyping")
def test_errors_name_the_argument():
    batch = random_batch(0)
    evaluate = functools.partial(crowd_human.evaluate, batch.detections, batch.truths)
    with pytest.raises(ValueError, match=r"^thresholds must be below 1"):
        evaluate(thresholds=(0.5, 1.0))
    with pytest.raises(TypeError, match=r"^batches is traced"):
        jax.jit(lambda b: crowd_human.average_precision([b]))(batch)
