"""Open Images' average precision: against a loop written from the rules of TensorFlow's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import boxes
from jaxiou.detection import open_images
from jaxiou.detection.packing import Detections, GroundTruth, Images, Table

IMAGES, FOUND, TRUTHS, CLASSES = 5, 12, 6, 3


# Oracle: one class and one image after the other ---------------------------------------------


def shared_of(box, others):
    width = np.minimum(others[:, 2], box[2]) - np.maximum(others[:, 0], box[0])
    height = np.minimum(others[:, 3], box[3]) - np.maximum(others[:, 1], box[1])
    return np.maximum(0.0, height) * np.maximum(0.0, width)


def area_of(x):
    return (x[..., 3] - x[..., 1]) * (x[..., 2] - x[..., 0])


def iou_of(box, others):
    shared = shared_of(box, others)
    return shared / (area_of(box) + area_of(others) - shared)


def ioa_of(box, others):
    return shared_of(box, others) / area_of(box)


def of_image(found, scores, truths, difficult, group, threshold, weight):
    """Scores of what stays in the list, and whether each is right, by falling score."""
    order = np.argsort(-scores, kind="stable")
    found, scores = found[order], scores[order]
    plain, groups = truths[~group], truths[group]
    right, excused, within = (np.zeros(len(found), bool) for _ in range(3))
    taken = np.zeros(len(plain), bool)
    for d, box in enumerate(found):
        if len(plain):
            overlaps = iou_of(box, plain)
            best = overlaps.argmax()
            if overlaps[best] >= threshold:
                if difficult[~group][best]:
                    excused[d] = True
                elif not taken[best]:
                    right[d] = taken[best] = True
    highest = np.full(len(groups), -np.inf)
    for d, box in enumerate(found):
        if len(groups) and not right[d] and not excused[d]:
            overlaps = ioa_of(box, groups)
            best = overlaps.argmax()
            if overlaps[best] >= threshold:
                within[d] = True
                highest[best] = max(highest[best], scores[d])
    stays = ~excused & ~within
    hit = highest[highest > -np.inf] if weight else np.zeros(0)
    return np.append(scores[stays], hit), np.append(right[stays], np.ones(len(hit), bool))


def by_loop(batch, label, threshold, weight):
    """The average precision of a class; NaN if there is nothing to find."""
    found, truths = batch.detections, batch.truths
    scores, right, total = [], [], 0
    for i in range(found.scores.shape[0]):
        own = found.valid[i] & (found.labels[i] == label)
        there = truths.valid[i] & (truths.labels[i] == label)
        difficult, group = truths.ignored[i, there], truths.crowd[i, there]
        total += (~difficult & ~group).sum() + weight * (~difficult & group).sum()
        some = of_image(
            *(found.regions[i, own], found.scores[i, own], truths.regions[i, there]),
            *(difficult, group, threshold, weight),
        )
        scores.append(some[0])
        right.append(some[1])
    if total == 0:
        return np.nan
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right = np.concatenate(right)[order]
    true, false = np.cumsum(right.astype(float)), np.cumsum((~right).astype(float))
    recall = np.concatenate([[0], true / total, [1]])
    precision = np.concatenate([[0], true / (true + false), [0]])
    for i in range(len(precision) - 2, -1, -1):
        precision[i] = np.maximum(precision[i], precision[i + 1])
    steps = np.where(recall[1:] != recall[:-1])[0] + 1
    return np.sum((recall[steps] - recall[steps - 1]) * precision[steps])


# Data ----------------------------------------------------------------------------------------


def random_batch(seed):
    """Equal overlaps and overlaps of exactly a half; scores that all differ, since TensorFlow's
    sort keeps no order of equal ones, and since a group's is appended to its image.
    """
    rng = np.random.default_rng(seed)

    def regions(count, size):
        corner = rng.integers(0, 6, (IMAGES, count, 2))
        side = rng.integers(1, size, corner.shape)
        grid = np.concatenate([corner, corner + side], axis=-1)
        return grid / 7 + (seed % 2) * rng.uniform(0, 0.01, grid.shape)

    def labels(count):
        return rng.integers(0, rng.integers(1, CLASSES + 1), (IMAGES, count)).astype(np.int32)

    found = Detections(
        regions(FOUND, 6),
        rng.permutation(IMAGES * FOUND).reshape(IMAGES, FOUND) / 64 + 0.01,
        labels(FOUND),
        rng.random((IMAGES, FOUND)) < 0.9,
    )
    group = rng.random((IMAGES, TRUTHS)) < 0.4
    truths = GroundTruth(
        np.where(group[..., None], regions(TRUTHS, 12), regions(TRUTHS, 6)),
        labels(TRUTHS),
        rng.random((IMAGES, TRUTHS)) < rng.choice([0.2, 0.9]),
        crowd=group,
        ignored=~group & (rng.random((IMAGES, TRUTHS)) < 0.2),
    )
    return Images(found, truths, np.arange(IMAGES, dtype=np.int32))


def one_image(found, truths, groups=(), difficult=()):
    """An image of class 0; a detection is `(score, *box)`, the others are boxes."""
    rows = [*truths, *groups, *difficult]
    regions, scores, others = np.zeros((1, 4, 4)), np.zeros((1, 4)), np.zeros((1, 3, 4))
    regions[0, : len(found)] = np.array([row[1:] for row in found]).reshape(-1, 4)
    scores[0, : len(found)] = [row[0] for row in found]
    others[0, : len(rows)] = np.array(rows).reshape(-1, 4)
    place, other = np.arange(4)[None], np.arange(3)[None]
    difficult_from = len(truths) + len(groups)
    return Images(
        Detections(regions, scores, np.zeros((1, 4), np.int32), place < len(found)),
        GroundTruth(
            others,
            np.zeros((1, 3), np.int32),
            other < len(rows),
            crowd=(other >= len(truths)) & (other < difficult_from),
            ignored=(other >= difficult_from) & (other < len(rows)),
        ),
        np.zeros(1, np.int32),
    )


def average(batch, **settings):
    return open_images.average_precision([batch], num_classes=1, **settings).by_class[0, 0]


SQUARE, FAR, GROUP = (0, 0, 2, 2), (50, 50, 52, 52), (10, 0, 30, 20)
INSIDE, ALSO_INSIDE = (12, 2, 14, 4), (20, 2, 24, 4)


# Against the reference -----------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0, 1])
def test_random_sets_equal_the_loop_to_the_last_bit(weight):
    thresholds = (0.5, 0.25)
    for seed in range(80):
        batch = random_batch(seed)
        result = open_images.average_precision(
            [batch], num_classes=CLASSES, thresholds=thresholds, group_weight=weight
        )
        for t, threshold in enumerate(thresholds):
            wanted = [by_loop(batch, label, threshold, weight) for label in range(CLASSES)]
            np.testing.assert_array_equal(result.by_class[t], wanted)
            mean = np.nan if np.isnan(wanted).all() else np.nanmean(wanted)
            np.testing.assert_array_equal(result.mean[t], mean)


def test_float32_inside_jit_is_within_a_millionth():
    run = jax.jit(
        lambda found, truths: open_images.summarize(
            open_images.accumulate(
                open_images.evaluate(found, truths, group_weight=1), num_classes=CLASSES
            )
        )
    )
    for seed in range(1, 80, 2):  # the others are full of overlaps of 1/2, in float64 alone
        batch = random_batch(seed)
        wanted = open_images.average_precision([batch], num_classes=CLASSES, group_weight=1)
        result = run(batch.detections, batch.truths)
        np.testing.assert_allclose(result.by_class, wanted.by_class, rtol=0, atol=1e-6)
        np.testing.assert_allclose(result.mean, wanted.mean, rtol=0, atol=1e-6)


# The rule ------------------------------------------------------------------------------------


def test_overlap_of_exactly_a_half_is_enough():
    assert average(one_image([(0.9, 0, 0, 2, 1)], [SQUARE])) == 1
    assert average(one_image([(0.9, 9, 0, 11, 2)], [], [GROUP]), group_weight=1) == 1


def test_group_takes_detections_away_and_is_not_missed_in_the_plain_metric():
    found = [(0.9, *INSIDE), (0.8, *ALSO_INSIDE), (0.7, *SQUARE)]
    assert average(one_image(found, [SQUARE], [GROUP])) == 1
    assert average(one_image(found, [SQUARE])) == pytest.approx(1 / 3, abs=1e-15)
    assert average(one_image(found[2:], [SQUARE], [GROUP])) == 1


def test_group_that_is_hit_is_one_true_positive_in_the_challenge():
    """At rank 1, by its best detection; the second detection in it leaves the list."""
    found = [(0.9, *INSIDE), (0.8, *ALSO_INSIDE), (0.75, *FAR), (0.7, *SQUARE)]
    result = average(one_image(found, [SQUARE], [GROUP]), group_weight=1)
    assert result == pytest.approx(0.5 * 1 + 0.5 * 2 / 3, abs=1e-15)


def test_group_without_a_hit_is_missed_in_the_challenge_alone():
    batch = one_image([(0.9, *SQUARE)], [SQUARE], [GROUP])
    assert average(batch) == 1
    assert average(batch, group_weight=1) == 0.5


def test_only_groups_leave_nothing_to_find_in_the_plain_metric():
    batch = one_image([(0.9, *INSIDE)], [], [GROUP])
    assert np.isnan(average(batch))
    assert average(batch, group_weight=1) == 1


def test_plain_truth_comes_before_a_group_around_it():
    found = [(0.9, *INSIDE)]
    assert average(one_image(found, [INSIDE], [GROUP])) == 1
    assert average(one_image(found, [INSIDE], [GROUP]), group_weight=1) == 0.5


def test_second_detection_of_a_truth_is_wrong_unless_a_group_takes_it():
    found = [(0.9, *INSIDE), (0.8, *INSIDE), (0.7, *SQUARE)]
    wrong = average(one_image(found, [INSIDE, SQUARE]))
    assert wrong == pytest.approx(0.5 * 1 + 0.5 * 2 / 3, abs=1e-15)
    assert average(one_image(found, [INSIDE, SQUARE], [GROUP])) == 1


def test_share_in_a_group_is_of_the_detection_not_of_the_union():
    """The IoU with the group is 0.01, the share 1; that of a detection around a group is small."""
    assert boxes.iou(np.array(INSIDE), np.array(GROUP)) < 0.02
    assert average(one_image([(0.9, *INSIDE)], [], [GROUP]), group_weight=1) == 1
    around = [(0.9, 0, 0, 60, 60)]
    assert average(one_image(around, [], [GROUP]), group_weight=1) == 0


def test_each_detection_goes_to_the_group_that_holds_most_of_it():
    groups = [(0, 0, 10, 10), (8, 0, 20, 10)]
    found = [(0.9, 7, 0, 11, 4), (0.8, 12, 0, 14, 4)]  # shares of 3/4 and 3/4: the first group
    assert average(one_image(found, [], groups), group_weight=1) == 1
    found = [(0.9, 7, 0, 12, 4), (0.8, 12, 0, 14, 4)]  # shares of 3/5 and 4/5: the second
    assert average(one_image(found, [], groups), group_weight=1) == 0.5


def test_difficult_truth_excuses_every_detection_of_it():
    found = [(0.9, *FAR), (0.8, *FAR), (0.7, *SQUARE)]
    assert average(one_image(found, [SQUARE], difficult=[FAR])) == 1


def test_difficult_group_takes_detections_away_and_is_not_to_be_found():
    batch = one_image([(0.9, *INSIDE), (0.8, *SQUARE)], [SQUARE], [GROUP])
    truths = batch.truths._replace(ignored=batch.truths.crowd)
    assert average(batch._replace(truths=truths), group_weight=1) == 1


def test_scores_of_zero_and_below_find_groups_too():
    batch = one_image([(-0.5, *INSIDE), (0.0, *INSIDE)], [], [GROUP])
    assert average(batch, group_weight=1) == 1


def test_table_of_overlaps_has_shares_in_the_columns_of_groups():
    batch = random_batch(4)
    table = np.where(
        batch.truths.crowd[:, None],
        *(
            np.stack([[f(box, b) for box in a] for a, b in zip(*pair, strict=True)])
            for f in (ioa_of, iou_of)
            for pair in [(batch.detections.regions, batch.truths.regions)]
        ),
    )
    bare = Images(
        batch.detections._replace(regions=None),
        batch.truths._replace(regions=None),
        batch.indices,
        table,
    )
    results = [open_images.average_precision([x], num_classes=CLASSES) for x in (batch, bare)]
    jax.tree.map(np.testing.assert_array_equal, *results)


# Classes -------------------------------------------------------------------------------------


def test_detections_of_classes_that_nobody_verified_are_left_out():
    batch = random_batch(8)
    verified = np.random.default_rng(0).random((IMAGES, CLASSES)) < 0.4
    result = open_images.average_precision([batch], num_classes=CLASSES, verified=verified)
    found, truths = batch.detections, batch.truths
    keep = found.valid.copy()
    for i in range(IMAGES):
        known = {*np.flatnonzero(verified[i]), *truths.labels[i, truths.valid[i]]}
        keep[i] &= [label in known for label in found.labels[i]]
    assert (keep != found.valid).any()
    kept = open_images.keep_verified(found, truths, verified=verified)
    np.testing.assert_array_equal(kept.valid, keep)
    by_hand = batch._replace(detections=found._replace(valid=keep))
    wanted = open_images.average_precision([by_hand], num_classes=CLASSES)
    jax.tree.map(np.testing.assert_array_equal, result, wanted)


def test_plain_metric_keeps_detections_of_classes_that_nobody_verified():
    batch = one_image([(0.9, *SQUARE)], [])
    found = batch.detections
    nothing = np.zeros((1, 1), bool)
    assert average(one_image([(0.9, *SQUARE), (0.8, *FAR)], [FAR])) == 0.5
    assert not open_images.keep_verified(found, batch.truths, verified=nothing).valid.any()


# 0 animal, 1 cat, 2 pet, 3 lion: a cat is an animal and a pet, a lion a cat and what that is.
ABOVE = np.zeros((5, 5), bool)
ABOVE[1, [0, 2]] = ABOVE[2, 0] = ABOVE[3, [0, 1, 2]] = True


def table_of(found, truths):
    """Rows of `(image, label)`, regions that tell them apart."""

    def side(rows):
        labels = np.array([row[1] for row in rows], np.int32)
        regions = np.arange(4.0 * len(rows)).reshape(-1, 4)
        return regions, labels, np.ones(len(rows), bool)

    regions, labels, valid = side(found)
    return Table(
        Detections(regions, np.arange(len(found)) / 8, labels, valid),
        np.array([row[0] for row in found], np.int32),
        GroundTruth(*side(truths), crowd=np.arange(len(truths)) % 2 == 1),
        np.array([row[0] for row in truths], np.int32),
        num_images=3,
    )


def test_truths_are_copied_to_all_classes_above_theirs():
    table = table_of([(0, 3)], [(2, 3), (0, 4), (0, 2)])
    result = open_images.expand_hierarchy(table, ancestors=ABOVE)
    np.testing.assert_array_equal(result.truths.labels, [3, 0, 1, 2, 4, 2, 0])
    np.testing.assert_array_equal(result.truth_images, [2, 2, 2, 2, 0, 0, 0])
    np.testing.assert_array_equal(result.truths.regions[:, 0], [0, 0, 0, 0, 4, 8, 8])
    np.testing.assert_array_equal(result.truths.crowd, [0, 0, 0, 0, 1, 0, 0])
    assert result.truths.ignored is None
    np.testing.assert_array_equal(result.detections.labels, [3])


def test_detections_are_copied_only_if_asked_for():
    table = table_of([(0, 2), (1, 4)], [])
    result = open_images.expand_hierarchy(table, ancestors=ABOVE, also_detections=True)
    np.testing.assert_array_equal(result.detections.labels, [2, 0, 4])
    np.testing.assert_array_equal(result.detection_images, [0, 0, 1])
    np.testing.assert_array_equal(result.detections.scores, [0, 0, 1 / 8])


def test_what_is_seen_holds_for_classes_above_and_what_is_not_for_classes_below():
    positive, negative = np.zeros((2, 2, 5), bool)
    positive[0, 1], negative[1, 2] = True, True
    result = open_images.verified_classes(positive, negative, ancestors=ABOVE)
    np.testing.assert_array_equal(result, [[1, 1, 1, 0, 0], [0, 1, 1, 1, 0]])
    bare = open_images.verified_classes(positive, negative)
    np.testing.assert_array_equal(bare, positive | negative)


# Errors --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_jaxtyping")
def test_errors_name_the_argument():
    batch = random_batch(0)
    evaluate = functools.partial(open_images.evaluate, batch.detections, batch.truths)
    with pytest.raises(ValueError, match=r"^group_weight must be one of \[0, 1\], got 2"):
        evaluate(group_weight=2)
    with pytest.raises(ValueError, match=r"^thresholds must lie in 0 to 1, got -1"):
        evaluate(thresholds=(-1,))
    with pytest.raises(TypeError, match=r"^batches is traced"):
        jax.jit(lambda b: open_images.average_precision([b], num_classes=2))(batch)
    with pytest.raises(ValueError, match=r"^ancestors must have shape \[K, K\], got \[5, 4\]"):
        open_images.expand_hierarchy(table_of([], []), ancestors=ABOVE[:, :4])
    for shape in ((IMAGES, CLASSES - 1), (IMAGES - 1, CLASSES), (CLASSES,)):
        with pytest.raises(ValueError, match=r"^verified must "):
            open_images.average_precision(
                [batch], num_classes=CLASSES, verified=np.ones(shape, bool)
            )
    with pytest.raises(TypeError, match=r"^verified must be boolean"):
        open_images.average_precision([batch], num_classes=CLASSES, verified=np.ones((5, 3)))
    with pytest.raises(TypeError, match=r"^verified must be boolean"):
        open_images.keep_verified(
            batch.detections, batch.truths, verified=jnp.zeros((IMAGES, CLASSES))
        )
    with pytest.raises(ValueError, match=r"^negative must have rank 2 and broadcast to \[2, 5\]"):
        open_images.verified_classes(np.zeros((2, 5), bool), np.zeros((2, 4), bool))
