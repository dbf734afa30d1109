"""Losses of segmentation: against float64 loops, scikit-learn and real label maps."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import f1_score, jaccard_score

from jaxiou import segmentation_losses
from jaxiou.segmentation_losses import (
    dice_loss,
    focal_tversky_loss,
    generalized_dice_loss,
    lovasz_hinge_loss,
    lovasz_softmax_loss,
    soft_jaccard_loss,
    tversky_loss,
)

DATA = Path(__file__).parents[2] / "shared" / "data" / "seg"
NAN, INF = float("nan"), float("inf")

SOFT = [soft_jaccard_loss, dice_loss, generalized_dice_loss, tversky_loss, focal_tversky_loss]
OF_LABELS = [*SOFT, lovasz_softmax_loss]

needs_data = pytest.mark.skipif(not DATA.exists(), reason="the shared data is not here")


def by_name(losses):
    return pytest.mark.parametrize("loss", losses, ids=lambda loss: loss.__name__)


# Oracles -----------------------------------------------------------------------------------


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def lovasz_loop(errors, inside):
    """The extension and its slopes, one pixel after the other, by the definition."""
    foreground, found, wrong, before, value = inside.sum(), 0, 0, 0.0, 0.0
    slopes = np.zeros(len(errors))
    for i in sorted(range(len(errors)), key=lambda i: (-errors[i], not inside[i])):
        found, wrong = found + inside[i], wrong + (not inside[i])
        after = 1 - (foreground - found) / (foreground + wrong)
        value, slopes[i], before = value + (after - before) * errors[i], after - before, after
    return value, slopes


def tversky_loop(p, r, alpha, beta, smooth):
    right = sum(min(a, b) for a, b in zip(p, r, strict=True))
    over = sum(max(a - b, 0) for a, b in zip(p, r, strict=True))
    under = sum(max(b - a, 0) for a, b in zip(p, r, strict=True))
    index = right + alpha * over + beta * under + smooth
    return 1 - (right + smooth) / index if index > 0 else 0.0


OF_ONE_CLASS = {
    soft_jaccard_loss: lambda p, r, smooth=0: tversky_loop(p, r, 1, 1, smooth),
    dice_loss: lambda p, r, smooth=0: tversky_loop(p, r, 0.5, 0.5, smooth / 2),
    tversky_loss: lambda p, r, alpha=0.3, beta=0.7, smooth=0: tversky_loop(
        p, r, alpha, beta, smooth
    ),
    focal_tversky_loss: lambda p, r, gamma=0.75, alpha=0.3, beta=0.7, smooth=0: (
        tversky_loop(p, r, alpha, beta, smooth) ** gamma
    ),
    lovasz_softmax_loss: lambda p, r: lovasz_loop(np.abs(p - r), r == 1)[0],
}


def generalized_dice_loop(p, r, chosen):
    """All classes of one image: `[N, K]`."""
    areas = {c: r[:, c].sum() for c in chosen}
    finite = [1 / area**2 for area in areas.values() if area > 0]
    wrong = both = 0.0
    for c, area in areas.items():
        weight = 1 / area**2 if area > 0 else max(finite, default=1.0)
        wrong += weight * np.abs(r[:, c] - p[:, c]).sum()
        both += weight * (r[:, c] + p[:, c]).sum()
    return wrong / both if both else 0.0


def one_image(loss, p, targets, *, ignore=(), classes=None, where=None, **options):
    """The loss of one image, `[H, W, K]`, of probabilities in float64."""
    k = p.shape[-1]
    classes = classes or ("all" if loss is generalized_dice_loss else "present")
    where = np.ones(p.shape[:-1], bool) if where is None else where
    if targets.ndim == p.ndim:
        kept, r = where, targets.astype(np.float64)
    else:
        labels = targets.astype(np.int64)
        kept = where & (labels >= 0) & (labels < k) & ~np.isin(labels, ignore)
        r = (labels[..., None] == np.arange(k)).astype(np.float64)
    p, r = p[kept].astype(np.float64), r[kept]
    chosen = range(k) if isinstance(classes, str) else classes
    chosen = [c for c in chosen if c not in np.atleast_1d(ignore)]
    if classes == "present":
        chosen = [c for c in chosen if r[:, c].sum() > 0]
    if loss is generalized_dice_loss:
        return generalized_dice_loop(p, r, chosen)
    losses = [OF_ONE_CLASS[loss](p[:, c], r[:, c], **options) for c in chosen]
    return np.mean(losses) if losses else 0.0


def images(seed=0, items=4, k=5, shape=(6, 7)):
    """Logits, labels with some that are no class, and a mask."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (items, *shape, k)).astype(np.float32)
    labels = rng.choice([*range(k - 1), 255], (items, *shape)).astype(np.uint8)
    return logits, labels, rng.random((items, *shape)) < 0.8


def one_hot(labels, k):
    return (labels[..., None] == np.arange(k)).astype(np.float32)


def value_and_gradient(loss, predictions, *args, **options):
    def total(predictions):
        value = loss(predictions, *args, **options)
        return value.sum(), value

    run = jax.jit(jax.value_and_grad(total, has_aux=True))
    (_, value), slopes = run(jnp.asarray(predictions))
    return value, slopes


def gradient(*args, **options):
    return value_and_gradient(*args, **options)[1]


# Values ------------------------------------------------------------------------------------


@by_name(OF_LABELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ignore": (1, 255, -1)},
        {"classes": "all", "ignore": 0},
        {"classes": (4, 1), "axis": (1, 2)},
        {"where": True},
    ],
    ids=str,
)
def test_logits_against_labels_equal_the_float64_loop(loss, options):
    logits, labels, where = images()
    if "where" in options:
        options = {"where": where}
    got = loss(logits, labels, **options)
    assert got.shape == (4,)
    assert got.dtype == np.float32
    oracle = {name: x for name, x in options.items() if name not in ("axis", "where")}
    p = softmax(logits.astype(np.float64))
    for i in range(4):
        if "where" in options:
            oracle["where"] = where[i]
        wanted = one_image(loss, p[i], labels[i], **oracle)
        np.testing.assert_allclose(got[i], wanted, rtol=2e-6, atol=1e-7)


@by_name(SOFT)
def test_soft_labels_equal_the_float64_loop(loss):
    logits, _, where = images()
    soft = np.random.default_rng(1).random(logits.shape).astype(np.float32)
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    got = loss(logits, soft, activation="sigmoid", where=where)
    wanted = [one_image(loss, p[i], soft[i], where=where[i]) for i in range(4)]
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


@by_name(OF_LABELS)
def test_float64_is_kept_to_the_last_digits(loss, x64):
    logits, labels, _ = images(seed=2)
    logits = logits.astype(np.float64)
    got = loss(logits, labels.astype(np.int64))
    assert got.dtype == np.float64
    wanted = [one_image(loss, softmax(logits[i]), labels[i]) for i in range(4)]
    np.testing.assert_allclose(got, wanted, rtol=1e-13)
    # 64-bit labels alone make nothing wide.
    assert loss(logits.astype(np.float32), labels.astype(np.int64)).dtype == np.float32


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (soft_jaccard_loss, {"smooth": 1.5}),
        (dice_loss, {"smooth": 1}),
        (tversky_loss, {"alpha": 0.9, "beta": 0.2, "smooth": 2.0}),
        (focal_tversky_loss, {"gamma": 2, "alpha": 0.9, "beta": 0.2, "smooth": 0.5}),
    ],
)
def test_settings_equal_the_float64_loop(loss, options):
    logits, labels, _ = images(seed=3)
    got = loss(logits, labels, classes="all", **options)
    p = softmax(logits.astype(np.float64))
    wanted = [one_image(loss, p[i], labels[i], classes="all", **options) for i in range(4)]
    np.testing.assert_allclose(got, wanted, rtol=2e-6)


def test_hard_predictions_cost_one_minus_what_scikit_learn_says():
    rng = np.random.default_rng(4)
    for _ in range(5):
        labels, found = rng.integers(0, 6, (2, 8, 9))
        labels[labels == 5] = 0  # predicted, never there
        options = {"labels": np.unique(labels), "average": "macro"}
        iou = jaccard_score(labels.ravel(), found.ravel(), **options)
        f1 = f1_score(labels.ravel(), found.ravel(), **options)
        for loss, wanted in [
            (soft_jaccard_loss, 1 - iou),
            (lovasz_softmax_loss, 1 - iou),
            (dice_loss, 1 - f1),
        ]:
            got = loss(one_hot(found, 6), labels, activation="none")
            np.testing.assert_allclose(got, wanted, rtol=1e-6)
        # Logits this large are hard predictions too.
        got = lovasz_softmax_loss(1e4 * one_hot(found, 6), labels)
        np.testing.assert_allclose(got, 1 - iou, rtol=1e-6)


@needs_data
def test_real_label_maps_cost_one_minus_their_mean_iou():
    """ADE20K's annotations against themselves, moved by (4, 6); 0 is no label there."""
    folder = DATA / "ade_sample"
    wanted = json.loads((folder / "expected.json").read_text())["roll_4_6"]
    maps = [np.asarray(Image.open(path)) for path in sorted(folder.glob("*val*.png"))]
    names = [0, *wanted["present"]]
    assert sorted(set(np.concatenate([np.unique(x) for x in maps])) | {0}) == names
    targets = np.searchsorted(names, np.concatenate([x.ravel() for x in maps]))
    moved = [np.roll(x, (4, 6), (0, 1)).ravel() for x in maps]
    found = one_hot(np.searchsorted(names, np.concatenate(moved)), len(names))
    for loss in (soft_jaccard_loss, lovasz_softmax_loss):
        got = loss(found, targets.astype(np.int32), activation="none", axis=-2, ignore=0)
        np.testing.assert_allclose(got, 1 - wanted["nanmean_iou"], rtol=1e-6)


@needs_data
def test_a_real_mask_costs_one_minus_its_iou():
    folder = DATA / "skimage"
    horse = np.asarray(Image.open(folder / "horse_mask.png")) == 0  # a dark horse
    moved = np.roll(horse, (3, 5), (0, 1))
    iou = (horse & moved).sum() / (horse | moved).sum()
    assert abs(iou - 0.8140108225560454) < 1e-12  # protocol note, section 7
    mask = horse[..., None]
    got = soft_jaccard_loss(moved[..., None].astype(np.float32), mask, activation="none")
    np.testing.assert_allclose(got, 1 - iou, rtol=1e-6)
    # The errors of a hinge are 0 and 2 for logits of one.
    got = lovasz_hinge_loss(np.where(moved, 1, -1).astype(np.float32), horse)
    np.testing.assert_allclose(got, 2 * (1 - iou), rtol=1e-6)


def test_a_soft_label_is_matched_best_by_itself():
    """Protocol note, section 2: the sum of r p would give 1/3 at p = r and 1/2 at p = 1."""
    half = jnp.full((1, 2, 1), 0.5)
    options = {"activation": "none"}
    assert soft_jaccard_loss(half, half, **options) == 0
    assert soft_jaccard_loss(jnp.ones((1, 2, 1)), half, **options) == 0.5
    for loss in SOFT:
        assert loss(half, half, **options) == 0
        assert (gradient(loss, half, half, **options) == 0).all()


def test_one_loss_becomes_another_by_its_settings():
    logits, labels, _ = images(seed=5)
    one = functools.partial(tversky_loss, logits, labels)
    np.testing.assert_array_equal(one(alpha=1, beta=1), soft_jaccard_loss(logits, labels))
    np.testing.assert_array_equal(one(alpha=0.5, beta=0.5), dice_loss(logits, labels))
    np.testing.assert_array_equal(one(), focal_tversky_loss(logits, labels, gamma=1))


# Lovasz ------------------------------------------------------------------------------------


def test_lovasz_example_of_the_protocol_note():
    """Section 2: 8/15 with gradient [-1/3, -1/2, 1/6, 0]."""
    p = jnp.array([[0.9, 0.2, 0.6, 0.1]])
    two = jnp.stack([1 - p, p], axis=-1)
    options = {"activation": "none", "classes": (1,)}
    labels = jnp.array([[1, 1, 0, 0]])
    np.testing.assert_allclose(lovasz_softmax_loss(two, labels, **options), 8 / 15, rtol=1e-6)
    slopes = gradient(lovasz_softmax_loss, two, labels, **options)
    np.testing.assert_allclose(slopes[0, :, 1], [-1 / 3, -1 / 2, 1 / 6, 0], rtol=1e-6)
    assert (slopes[0, :, 0] == 0).all()


def test_lovasz_hinge_equals_the_float64_loop():
    rng = np.random.default_rng(6)
    logits = rng.normal(0, 2, (4, 6, 7)).astype(np.float32)
    labels = rng.choice([0, 1, 255], (4, 6, 7)).astype(np.uint8)
    labels[3] = 0  # an empty mask: the largest error alone
    got, slopes = map(np.asarray, value_and_gradient(lovasz_hinge_loss, logits, labels))
    for i in range(4):
        kept = labels[i] < 2
        inside = labels[i][kept] == 1
        signs = np.where(inside, 1.0, -1.0)
        errors = np.maximum(1 - logits[i][kept] * signs, 0)
        value, weights = lovasz_loop(errors, inside)
        np.testing.assert_allclose(got[i], value, rtol=1e-6)
        np.testing.assert_allclose(slopes[i][kept], -signs * weights * (errors > 0), rtol=1e-5)
        assert (slopes[i][~kept] == 0).all()
    np.testing.assert_allclose(got[3], 1 + logits[3][labels[3] == 0].max(), rtol=1e-6)


def test_ties_change_no_value_and_pixels_that_are_alike_have_one_slope():
    rng = np.random.default_rng(7)
    logits = rng.integers(-2, 3, (1, 200)).astype(np.float32) / 2
    labels = rng.integers(0, 2, (1, 200))
    order = rng.permutation(200)
    value, slopes = map(np.asarray, value_and_gradient(lovasz_hinge_loss, logits, labels))
    wanted, _ = lovasz_loop(np.maximum(1 - logits * (2 * labels - 1), 0)[0], labels[0] == 1)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    again = lovasz_hinge_loss(logits[:, order], labels[:, order])
    np.testing.assert_allclose(again, value, rtol=1e-6)
    for logit in np.unique(logits):
        for label in (0, 1):
            alike = slopes[(logits == logit) & (labels == label)]
            assert (alike == alike[0]).all()

    # Where all errors are equal, the weights of all pixels still sum to the loss of all wrong.
    blank = np.zeros((1, 200), np.float32)
    np.testing.assert_allclose(
        np.abs(gradient(lovasz_hinge_loss, blank, labels)).sum(), 1, rtol=1e-6
    )


def test_slopes_keep_their_digits_in_a_large_image():
    """Differences of 1 - IoU near 1, in float32, would have about two digits left."""
    rng = np.random.default_rng(8)
    logits = rng.normal(0, 0.2, (1, 1 << 16)).astype(np.float32)
    labels = (rng.random((1, 1 << 16)) < 0.1).astype(np.uint8)
    signs = 2.0 * labels[0] - 1
    errors = np.float32(1) - logits[0] * signs.astype(np.float32)
    _, weights = lovasz_loop(errors, labels[0] == 1)
    _, once, counts = np.unique(errors, return_index=True, return_counts=True)
    alone = once[counts == 1]  # of equal errors the loop tells the first from the others
    slopes = np.asarray(gradient(lovasz_hinge_loss, logits, labels))[0]
    assert len(alone) > 1000
    np.testing.assert_allclose(slopes[alone], (-signs * weights)[alone], rtol=1e-6)


def test_no_loop_over_classes_is_traced():
    def equations(loss, k):
        arguments = np.zeros((4, 5, k), np.float32), np.zeros((4, 5), np.uint8)
        program = jax.make_jaxpr(jax.grad(lambda p, t: loss(p, t).sum()))(*arguments)
        return str(program).count(" = ")

    for loss in OF_LABELS:
        assert equations(loss, 3) == equations(loss, 30)


# What counts -------------------------------------------------------------------------------


@by_name(OF_LABELS)
def test_pixels_that_do_not_count_change_nothing_whatever_they_hold(loss):
    logits, labels, where = images(seed=9)
    run = jax.jit(jax.value_and_grad(lambda p, t, where: loss(p, t, where=where, ignore=1).sum()))
    out = ~where | np.isin(labels, [1, 255])
    value, slopes = run(logits, labels, where)
    assert np.isfinite(slopes).all()
    assert (slopes[out] == 0).all()
    for junk in (NAN, INF, -INF, 1e30):
        spoiled = np.where(out[..., None], np.float32(junk), logits)
        again = run(spoiled, labels, where)
        assert again[0] == value
        np.testing.assert_array_equal(again[1], slopes)
    # Neither does the label of a pixel that `where` leaves out.
    assert run(logits, np.where(where, labels, 3).astype(np.uint8), where)[0] == value
    # NaN where it counts is not hidden, and stays in its own image.
    spoiled = logits.copy()
    spoiled[2, 0, 0] = NAN
    got = loss(spoiled, np.zeros_like(labels))
    np.testing.assert_array_equal(np.isnan(got), [False, False, True, False])


@by_name(OF_LABELS)
def test_an_image_in_which_nothing_counts_has_loss_0_and_no_gradient(loss):
    """S32: every pixel void."""
    logits, labels, _ = images(seed=10)
    labels[1], labels[2] = 255, 1
    for classes in ("present", (0, 2)):
        options = {"ignore": (255, 1), "classes": classes}
        got, slopes = map(np.asarray, value_and_gradient(loss, logits, labels, **options))
        assert (got == 0).tolist() == [False, True, True, False]
        assert np.isfinite(slopes).all()
        assert (slopes[1:3] == 0).all()
        assert (slopes[0] != 0).any()
    assert loss(logits[1], labels[1]).shape == ()
    assert lovasz_hinge_loss(logits[1, ..., 0], labels[1]) == 0


@by_name(OF_LABELS)
def test_an_ignored_class_leaves_the_mean_and_255_is_no_error(loss):
    """S10 and S27: in range or not, ignored labels do not cost a perfect prediction."""
    labels, found = np.array([[2, 1, 0, 0]], np.uint8), np.array([[2, 1, 0, 1]])
    options = {"activation": "none", "classes": "all"}
    assert loss(one_hot(found, 3), labels, ignore=0, **options) == 0
    assert loss(one_hot(found, 3), labels, **options) > 0
    labels[labels == 0] = 255
    for ignore in ((), 255, (255, 0), (-1, 300)):
        assert loss(one_hot(found, 3), labels, ignore=ignore, activation="none") == 0


def test_ignoring_the_background_removes_its_false_positives():
    """S17: the IoU of class 1 is 1 with background ignored, and 1/2 with it."""
    labels, found = np.array([[0, 0, 1, 1]]), np.array([[1, 1, 1, 1]])
    for loss in (soft_jaccard_loss, lovasz_softmax_loss):
        one = functools.partial(loss, one_hot(found, 2), labels, activation="none", classes=(1,))
        assert one(ignore=0) == 0
        assert one() == 0.5


def test_labels_of_a_narrow_type_do_not_wrap():
    """S1, S2: uint8 labels with more classes than uint8 holds; int8 has negative ones."""
    rng = np.random.default_rng(11)
    labels = rng.integers(0, 256, (4, 5))
    logits = rng.normal(size=(4, 5, 300)).astype(np.float32)
    for loss in (dice_loss, lovasz_softmax_loss):
        narrow = loss(logits, labels.astype(np.uint8), ignore=(-1, 7))
        assert narrow == loss(logits, labels.astype(np.int32), ignore=(-1, 7))
    logits, labels = logits[..., :3], np.array([[-1, 0, -128, 1, 2]] * 4, np.int8)
    kept = (labels >= 0)[0]
    one, other = (
        lovasz_softmax_loss(logits, labels),
        lovasz_softmax_loss(logits[:, kept], labels[:, kept]),
    )
    np.testing.assert_allclose(one, other, rtol=1e-6)


@by_name(OF_LABELS)
def test_a_class_that_is_absent_costs_1_where_it_counts_and_is_predicted(loss):
    """S24, S9: false positives of an absent class are punished, its absence is not."""
    options = {"activation": "none", "classes": (2,)}
    labels = np.array([[0, 0, 1, 1]])
    assert loss(one_hot(np.array([[0, 0, 1, 2]]), 3), labels, **options) == 1
    assert loss(one_hot(labels, 3), labels, **options) == 0
    if loss is not generalized_dice_loss:
        options["classes"] = "present"
        assert loss(one_hot(labels, 3), labels, **options) == 0


@by_name(OF_LABELS)
def test_empty_classes_and_huge_logits_have_finite_gradients(loss):
    logits, labels, _ = images(seed=12)
    labels = np.where(labels == 3, 0, labels)
    for activation, classes in [("softmax", "present"), ("sigmoid", "all")]:
        one = functools.partial(loss, activation=activation, classes=classes)
        run = jax.jit(jax.value_and_grad(lambda p, one=one: one(p, labels).sum()))
        for scale in (0, 1e-30, 1e4, 1e30):
            value, slopes = run(np.float32(scale) * np.sign(logits))
            assert np.isfinite(value)
            assert np.isfinite(slopes).all()
    # A logit of -infinity forbids a class.
    forbidden = logits.copy()
    forbidden[..., 4] = -INF
    value, slopes = value_and_gradient(loss, forbidden, labels)
    assert np.isfinite(value).all()
    assert np.isfinite(slopes).all()
    assert (slopes[..., 4] == 0).all()


@by_name(OF_LABELS)
def test_a_perfect_prediction_has_loss_0_and_no_gradient(loss):
    """Also the power below 1 of the focal loss, whose slope is infinite at 0."""
    _, labels, _ = images(seed=13)
    perfect = one_hot(labels, 5)
    np.testing.assert_array_equal(loss(perfect, labels, activation="none"), np.zeros(4))
    assert (gradient(loss, perfect, labels, activation="none") == 0).all()


# Images and batches ------------------------------------------------------------------------


@by_name(OF_LABELS)
def test_the_loss_of_an_image_does_not_depend_on_its_batch(loss):
    """S23, S27: neither on other images, nor on how many there are, nor on a second call."""
    logits, labels, where = images(seed=14)
    labels[0, labels[0] == 2] = 0  # a class that only other images have
    together = loss(logits, labels, where=where)
    np.testing.assert_array_equal(together, loss(logits, labels, where=where))
    for i in range(4):
        alone = loss(logits[i : i + 1], labels[i : i + 1], where=where[i : i + 1])
        np.testing.assert_allclose(alone, together[i : i + 1], rtol=1e-6)
        single = loss(logits[i], labels[i], where=where[i])
        np.testing.assert_allclose(single, together[i], rtol=1e-6)


@by_name([soft_jaccard_loss, generalized_dice_loss, lovasz_softmax_loss])
def test_a_batch_pooled_is_one_large_image(loss):
    logits, labels, where = images(seed=15)
    wide = (4 * 6, 7)
    wanted = loss(logits.reshape(*wide, 5), labels.reshape(wide), where=where.reshape(wide))
    for axis in [(0, 1, 2), (-2, 0, -3)]:
        got = loss(logits, labels, where=where, axis=axis)
        assert got.shape == ()
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
    # Points have one axis, volumes three; axes that are not pooled stay in their order.
    points = loss(logits.reshape(4, 42, 5), labels.reshape(4, 42), axis=-2)
    np.testing.assert_allclose(points, loss(logits, labels), rtol=1e-6)
    volumes = logits.reshape(4, 3, 2, 7, 5), labels.reshape(4, 3, 2, 7)
    np.testing.assert_allclose(loss(*volumes, axis=(1, 2, 3)), points, rtol=1e-6)
    rows = loss(logits, labels, axis=(0, 2))
    turned = loss(logits.transpose(1, 0, 2, 3), labels.transpose(1, 0, 2))
    np.testing.assert_allclose(rows, turned, rtol=1e-6)


@by_name(OF_LABELS)
def test_padding_changes_nothing(loss):
    """S28: the last batch padded with copies, which `where` leaves out."""
    logits, labels, _ = images(seed=16)
    padded = [np.concatenate([x[:3], x[:1]]) for x in (logits, labels)]
    where = (np.arange(4) < 3).reshape(4, 1, 1)
    got = loss(*padded, where=where, axis=(0, 1, 2))
    np.testing.assert_allclose(got, loss(logits[:3], labels[:3], axis=(0, 1, 2)), rtol=1e-6)
    each = loss(*padded, where=where)
    assert each[3] == 0
    assert (np.asarray(each[:3]) > 0).all()


@by_name(OF_LABELS)
@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 3), (2, 3, 0)])
def test_no_pixels_and_no_images_are_no_error(loss, shape):
    logits, labels = np.zeros((*shape, 3), np.float32), np.zeros(shape, np.int32)
    np.testing.assert_array_equal(loss(logits, labels), np.zeros(shape[:1]))
    assert gradient(loss, logits, labels).shape == logits.shape
    np.testing.assert_array_equal(lovasz_hinge_loss(logits[..., 0], labels), np.zeros(shape[:1]))


@by_name(SOFT)
def test_probabilities_and_binary_masks_work_under_jit(loss):
    """S33: one class on the last axis, a mask of bools, integers or floats."""
    rng = np.random.default_rng(17)
    p, mask = rng.random((2, 4, 5, 1)).astype(np.float32), rng.random((2, 4, 5, 1)) < 0.4
    run = jax.jit(functools.partial(loss, activation="none"))
    wanted = [one_image(loss, p[i], mask[i]) for i in range(2)]
    for targets in (mask, mask.astype(np.uint8), mask.astype(np.float32)):
        np.testing.assert_allclose(run(p, targets), wanted, rtol=1e-6)


def test_an_empty_target_that_is_predicted_has_generalized_dice_loss_1():
    """S23: a score of 0, not 1, for an empty target and a full prediction."""
    empty, full = jnp.zeros((2, 3, 1)), jnp.ones((2, 3, 1))
    assert generalized_dice_loss(full, empty, activation="none") == 1
    assert generalized_dice_loss(empty, empty, activation="none") == 0


def test_an_absent_class_has_the_largest_weight_of_its_own_image():
    """Areas 1 and 8, so weights 1 and 1/64, and 1 for the class that is not there."""
    labels = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 0]])
    found = np.array([[1, 0, 0, 0, 0, 0, 0, 0, 2]])
    got = generalized_dice_loss(one_hot(found, 3), labels, activation="none")
    # Wrong: 1/64 for class 0, 1 for class 2. Both areas: 15/64, 2 and 1.
    np.testing.assert_allclose(got, (1 / 64 + 1) / (15 / 64 + 2 + 1), rtol=1e-6)


# Types and sizes ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_summed_in_float32(dtype):
    """S26: 512 x 512 pixels of 1 are more than float16 holds; bfloat16 counts to 256."""
    ones = jnp.ones((512, 512, 1), dtype)
    half = ones.at[:256].set(0)
    options = {"activation": "none"}
    assert dice_loss(ones, ones, **options) == 0
    np.testing.assert_allclose(dice_loss(ones, half, **options), 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(soft_jaccard_loss(ones, half, **options), 1 / 2, rtol=1e-6)
    # Half of the pixels are wrong, by 2 each.
    got = lovasz_hinge_loss(jnp.ones((64, 64), dtype), half[::8, ::8, 0] > 0)
    np.testing.assert_allclose(got, 1.0, rtol=1e-6)
    assert gradient(dice_loss, half, ones, **options).dtype == dtype


def test_large_sums_keep_six_digits():
    rng = np.random.default_rng(18)
    p, labels = rng.random((1024, 1024, 2), np.float32), rng.integers(0, 2, (1024, 1024))
    wide, r = p.astype(np.float64), one_hot(labels, 2).astype(np.float64)
    intersection, both = (wide * r).sum((0, 1)), (wide + r).sum((0, 1))
    wanted = (1 - intersection / (both - intersection)).mean()
    got = soft_jaccard_loss(p, labels.astype(np.uint8), activation="none")
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


@by_name([*OF_LABELS, lovasz_hinge_loss])
def test_gradient_descent_finds_the_target(loss):
    labels = np.arange(12).reshape(3, 4) % 2
    shape = labels.shape if loss is lovasz_hinge_loss else (*labels.shape, 3)
    logits = jnp.asarray(np.random.default_rng(19).normal(0, 0.1, shape), jnp.float32)
    step = jax.jit(lambda x: x - 20 * jax.grad(lambda x: loss(x, labels))(x))
    for _ in range(100):
        logits = step(logits)
    found = logits > 0 if loss is lovasz_hinge_loss else logits.argmax(-1)
    np.testing.assert_array_equal(found, labels)
    assert loss(logits, labels) < 0.1


# Errors ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_jaxtyping")
@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        ({"predictions": [[0.0]]}, TypeError, "predictions must be a JAX or NumPy array, got list"),
        ({"predictions": np.zeros((2, 3, 4), complex)}, TypeError, "predictions must hold floats"),
        ({"predictions": np.zeros(3, np.float32)}, ValueError, r"predictions must have shape"),
        ({"targets": [[0]]}, TypeError, "targets must be a JAX or NumPy array, got list"),
        ({"targets": np.zeros((2, 5), int)}, ValueError, r"targets .* \[2, 3\] .*got \[2, 5\]"),
        ({"targets": np.zeros((2, 3, 5))}, ValueError, r"targets .* \[2, 3, 4\].*got \[2, 3, 5\]"),
        ({"targets": np.zeros((2, 3), "float32")}, TypeError, "targets must hold integers, got"),
        ({"where": np.ones((2, 3, 4), bool)}, ValueError, "where must have rank 2"),
        ({"activation": "tanh"}, ValueError, "activation must be one of .*got 'tanh'"),
        ({"axis": -1}, ValueError, r"axis must name axes of pixels of predictions \[2, 3, 4\]"),
        ({"axis": (0, -3)}, ValueError, "axis must name .* each once"),
        ({"axis": ()}, ValueError, "axis must name "),
        ({"axis": 1.0}, TypeError, "axis must be an integer or a tuple of integers, got 1.0"),
        ({"ignore": "0"}, TypeError, "ignore must be an integer or a tuple of integers, got '0'"),
        ({"classes": "some"}, ValueError, "classes must be one of"),
        ({"classes": (1, 4)}, ValueError, "classes must lie in 0 to 3, got 4"),
        ({"classes": ()}, ValueError, "classes must name a class, got"),
        ({"smooth": -1.0}, ValueError, "smooth must be a finite number of 0 or more, got -1.0"),
        (
            {"targets": np.zeros((2, 3, 4), "float32"), "ignore": 0},
            ValueError,
            "ignore needs targets that are a label map",
        ),
    ],
    ids=str,
)
def test_an_error_names_the_argument(change, error, reason):
    arguments = {
        "predictions": np.zeros((2, 3, 4), np.float32),
        "targets": np.zeros((2, 3), np.int32),
    }
    with pytest.raises(error, match=reason):
        soft_jaccard_loss(**arguments | change)


@pytest.mark.usefixtures("without_jaxtyping")
def test_labels_of_one_class_are_an_error_that_says_what_to_do():
    """S31: labels 0 and 1 with a single class."""
    one, labels = np.zeros((2, 3, 1), np.float32), np.zeros((2, 3), np.int32)
    for loss in OF_LABELS:
        with pytest.raises(ValueError, match="for labels 0 and 1 there are two classes"):
            loss(one, labels, activation="sigmoid")
    with pytest.raises(ValueError, match="of one class need"):
        dice_loss(one, one)


@pytest.mark.usefixtures("without_jaxtyping")
@pytest.mark.parametrize("name", ["alpha", "beta", "gamma"])
def test_prices_and_powers_are_above_0(name):
    labels = np.zeros((2, 3), np.int32)
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0, got 0"):
        focal_tversky_loss(np.zeros((2, 3, 2), np.float32), labels, **{name: 0})


def test_the_module_lists_what_is_tested_here():
    tested = {loss.__name__ for loss in [*OF_LABELS, lovasz_hinge_loss]}
    assert set(segmentation_losses.__all__) == tested
