"""`rotated` against shapely in float64, at its kinks, and in the cases that others got wrong."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiling import AS_USERS

from jaxiou import boxes, losses, pairing, rotated, suppression, testing

shapely = pytest.importorskip("shapely")

COUNT = 500
"""Boxes in each set: one shape, and so one compilation, for all of them."""


def random_boxes(rng, low=0.5, high=6.0):
    return np.concatenate(
        [
            rng.uniform(0, 10, (COUNT, 2)),
            rng.uniform(low, high, (COUNT, 2)),
            rng.uniform(-4, 4, (COUNT, 1)),
        ],
        axis=1,
    )


def grid_boxes(rng):
    """Of whole sides and corners, so that many share edges."""
    ends = np.sort(rng.integers(0, 8, (COUNT, 2, 2)), axis=2) + np.array([0, 1])
    centre, size = ends.mean(axis=2), ends[..., 1] - ends[..., 0]
    return np.concatenate([centre, size, np.zeros((COUNT, 1))], axis=1)


def turned(regions, angle):
    """All boxes turned together about the origin."""
    x, y = regions[:, 0], regions[:, 1]
    c, s = np.cos(angle), np.sin(angle)
    rest = regions[:, 2:4], regions[:, 4:] + np.reshape(angle, (-1, 1))
    return np.concatenate([np.stack([c * x - s * y, s * x + c * y], 1), *rest], axis=1)


def skinny(rng):
    regions = random_boxes(rng)
    regions[:, 2], regions[:, 3] = rng.uniform(500, 1500, COUNT), rng.uniform(0.5, 1.5, COUNT)
    return regions


def moved(regions, *, angle=0.0, shift=0.0, scale=1.0):
    return (regions + np.array([1, 1, 0, 0, 0]) * shift + np.array([0, 0, 0, 0, 1]) * angle) * (
        np.array([scale] * 4 + [1])
    )


def swapped(regions):
    return moved(regions, angle=np.pi / 2)[:, [0, 1, 3, 2, 4]]


@functools.cache
def sets():
    """The sets of the protocol note's table, float32."""
    rng = np.random.default_rng(0)
    a, b, thin = random_boxes(rng), random_boxes(rng), skinny(rng)
    inner = a * np.array([1, 1, 0.2, 0.2, 1])
    grid, other = grid_boxes(rng), grid_boxes(rng)
    angle = rng.uniform(-4, 4, COUNT)
    left, right = (np.tile(x, (COUNT, 1)) for x in ([1.0, 0.5, 2, 1, 0], [3.5, 0.5, 3, 1, 0]))
    turns = 2 * np.pi * rng.integers(-1000, 1000, (2, COUNT, 1)) * np.array([0, 0, 0, 0, 1])
    big = [10 ** rng.uniform(0, 3, (COUNT, 2)) for _ in "ab"]
    found = {
        "random": (a, b),
        "contained": (a, inner),
        "identical": (a, a),
        "identical far away": (moved(a, shift=1e5),) * 2,
        "half a turn": (a, moved(a, angle=np.pi)),
        "sides swapped": (a, swapped(a)),
        "sides swapped, skinny": (thin, swapped(thin)),
        "shared edges": (grid, other),
        "shared edges, turned": (turned(grid, angle), turned(other, angle)),
        "touching": (left, right),
        "touching, turned": (turned(left, angle), turned(right, angle)),
        "nearly equal": (a, a + rng.uniform(-1e-6, 1e-6, a.shape)),
        "skinny": (thin, skinny(rng)),
        "skinny and nearly parallel": (thin, thin + rng.normal(0, 1, a.shape) * 1e-3),
        "zero width": (a, b * np.array([1, 1, 0, 1, 1])),
        "small": (moved(a, scale=1e-4), moved(b, scale=1e-4)),
        "sides of 1 to 1000": tuple(
            np.concatenate([30 * x[:, :2], s, x[:, 4:]], 1)
            for x, s in zip((a, b), big, strict=True)
        ),
        "1000 turns": (a + turns[0], b + turns[1]),
    }
    found |= {f"angle {e:g}": (a, moved(a, angle=e)) for e in 10.0 ** np.arange(-7, -1)}
    found |= {f"at {s:g}": (moved(a, shift=s), moved(b, shift=s)) for s in (1e3, 1e4, 1e5, 1e6)}
    return {k: tuple(x.astype(np.float32) for x in pair) for k, pair in found.items()}


def shapes(regions):
    x, y, w, h, angle = regions.T[..., None]
    along, across = w / 2 * np.array([-1, 1, 1, -1]), h / 2 * np.array([-1, -1, 1, 1])
    c, s = np.cos(angle), np.sin(angle)
    return shapely.polygons(np.stack([x + c * along - s * across, y + s * along + c * across], -1))


def exact(a, b):
    """Shared area, area of both, and of the convex hull, with the area identity checked."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    origin = np.concatenate([b[:, :2], np.zeros((len(b), 3))], axis=1)
    p, q = shapes(a - origin), shapes(b - origin)
    areas = [x[:, 2] * x[:, 3] for x in (a, b)]
    shared = shapely.area(shapely.intersection(p, q))
    rest = shapely.area(shapely.difference(p, q))
    assert np.abs(shared + rest - areas[0]).max() <= 1e-9 * areas[0].max()
    hull = shapely.area(shapely.convex_hull(shapely.multipolygons(np.stack([p, q], 1))))
    return shared, sum(areas) - shared, hull


values = jax.jit(rotated.iou, compiler_options=AS_USERS)
gradients = jax.jit(jax.grad(lambda a, b: rotated.iou(a, b).sum(), (0, 1)))


def everywhere(function, *orders):
    """What a function of two batches gives for each set, computed for all at once."""
    a, b = (np.concatenate([pair[i] for pair in sets().values()]) for i in (0, 1))
    found = function(b, a) if orders else function(a, b)
    table = np.concatenate([np.asarray(x) for x in found], 1) if isinstance(found, tuple) else found
    return dict(zip(sets(), np.split(np.asarray(table), len(sets())), strict=True))


@functools.cache
def overlaps():
    """IoU and GIoU of each set, in both orders."""
    both = jax.jit(
        lambda a, b: tuple(x[:, None] for x in (rotated.iou(a, b), rotated.giou(a, b))),
        compiler_options=AS_USERS,
    )
    return everywhere(both), everywhere(both, "swapped")


@functools.cache
def slopes():
    """Gradients of each set in float32 and in float64."""
    wide = functools.partial(everywhere, lambda a, b: gradients(*(np.float64(x) for x in (a, b))))
    with jax.enable_x64(True):
        wanted = wide()
    return everywhere(gradients), wanted


@pytest.mark.parametrize("name", sets())
def test_iou_and_giou_are_those_of_shapely_in_float64(name):
    shared, both, hull = exact(*sets()[name])
    (iou, giou), (turned_iou, turned_giou) = (table[name].T for table in overlaps())
    assert np.abs(iou - shared / both).max() < 1e-6
    assert iou.min() >= 0
    assert iou.max() <= 1
    np.testing.assert_array_equal(iou, turned_iou)
    if name.startswith("identical"):
        assert (iou == 1).all()
    assert np.abs(giou - (shared / both - (hull - both) / hull)).max() < 1e-6
    assert (giou <= iou).all()
    assert giou.min() > -1
    np.testing.assert_allclose(giou, turned_giou, rtol=0, atol=3e-7)


@pytest.mark.parametrize("name", sets())
def test_gradients_are_those_of_float64_or_bounded_at_kinks(name):
    found, wanted = (table[name] for table in slopes())
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= 1.5 * np.abs(wanted).max() + 1e-6
    if name.startswith("identical"):
        assert np.abs(found).max() < 1e-6
    smooth = ("random", "contained", "angle 0", "angle 1e-0", "1000 turns", "skinny", "sides of 1")
    if name.startswith(smooth) and name not in ("angle 1e-07", "skinny and nearly parallel"):
        limit = 5e-6 if name.startswith(("skinny", "sides of 1")) else 2e-6
        assert (np.abs(found - wanted) / (1 + np.abs(wanted))).max() < limit


def test_gradients_in_float64_are_central_differences(x64):
    a, b = (x.astype(np.float64) for x in sets()["random"])
    steps = 1e-6 * np.concatenate([np.eye(10), -np.eye(10)])[:, None]
    moved_a, moved_b = a + steps[..., :5], b + steps[..., 5:]
    ends = np.asarray(values(moved_a.reshape(-1, 5), moved_b.reshape(-1, 5))).reshape(2, 10, -1)
    found = slopes()[1]["random"]
    np.testing.assert_allclose(found.T, (ends[0] - ends[1]) / 2e-6, rtol=0, atol=1e-8)


def test_second_derivatives_are_finite():
    pairs = [np.stack([a[:20], b[:20]], 1) for a, b in sets().values()]
    pairs.append(np.zeros((1, 2, 5), np.float32))
    hessian = jax.jit(jax.vmap(jax.hessian(lambda ab: rotated.iou(ab[0], ab[1]))))
    assert np.isfinite(hessian(np.concatenate(pairs))).all()


# Cases that others got wrong: note, section 9 ----------------------------------------------


def degrees(*numbers):
    return rotated.from_degrees_ccw(jnp.array(numbers))


def box(*numbers):
    return jnp.array(numbers, jnp.float32)


CASES = {
    "1 nearly equal": (
        degrees(2563.744629, 1436.790161, 2174.703369, 214.095001, 115.118347),
        degrees(2563.744629, 1436.790283, 2174.702881, 214.094955, 115.118355),
        0.999999,
    ),
    "2 nearly equal": (
        degrees(296.66202, 458.73883, 23.51573, 47.677002, 0.0879517),
        degrees(296.66201, 458.73882, 23.51573, 47.67702, 0.087951),
        0.999999,
    ),
    "4 sign of degrees": (
        degrees(1010.5, 860.00012207, 12.20655537, 48.82622528, 55.00798035),
        degrees(1022, 870.49993896, 10.81665134, 43.26660919, 56.30992889),
        0.368759,
    ),
    "5 itself": (*(box(0, 0, 180.6422271729, 136.3633728027, 0.9559648633),) * 2, 1),
    "6 no width": (
        box(135.07, 406.72, 7.9445e-7, 1971.1, 1.7708),
        box(151.008, 436.2173, 302.0159, 313.7347, 3.1184),
        0,
    ),
    "9 sides swapped": (
        box(46.83, 44.03, 3.9, 1.63, 0),
        box(46.83, 44.03, 1.63, 3.9, 1.45),
        0.854834,
    ),
    "10 touching": (box(0, 0, 2, 2, 0), box(0, 2, 2, 2, 0), 0),
    "11 shared corner": (box(4, 5, 8, 10, 0), box(3, 4, 6, 8, 0), 0.6),
    "12 itself": (*(box(0, 0, 2, 2, np.pi / 4),) * 2, 1),
    "13 itself": (*(box(1, 1, 1, 1, 0.3),) * 2, 1),
    "15 itself": (*(box(11.897, -2.118, 0.306, 0.382, 0),) * 2, 1),
    "18 bird's-eye view": (
        box(854.88, 586.24, 32.159951, 78.239968, 0.141),
        box(856.66345, 586.52275, 32.282466, 78.827767, 0.162342),
        0.887689,
    ),
    "23 no size": (box(2, 2, 0, 0, 0), box(50, 50, 4, 4, 0), 0),
    "a square and itself at 45 degrees": (box(0, 0, 2, 2, 0), box(0, 0, 2, 2, np.pi / 4), 0.5**0.5),
}


def test_cases_that_others_got_wrong_are_right_in_both_orders():
    a, b = (jnp.stack([case[i] for case in CASES.values()]) for i in (0, 1))
    wanted = np.array([case[2] for case in CASES.values()])
    found = np.asarray(rotated.iou(a, b))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1.5e-6)
    np.testing.assert_array_equal(found, rotated.iou(b, a))
    itself = [i for i, name in enumerate(CASES) if "itself" in name and "45" not in name]
    assert (found[itself] == 1).all()


def test_a_collinear_edge_does_not_halve_the_area():
    a = box(824.6421183672817, 280.28737007069833, 565, 140, np.deg2rad(-177.80506896972656))
    b = box(567.3310438828003, 270.42527355719545, 275, 50, np.deg2rad(92.19493103027344))
    assert abs(rotated.intersection(a, b) - 7000) < 0.5


def test_a_negative_side_is_none():
    a, b = box(0, 0, -2, 3, 0.5), box(0, 0, 4, 4, 0)
    assert rotated.iou(a, b) == rotated.intersection(a, b) == rotated.area(a) == 0
    gradient = jax.grad(rotated.giou)(a, b)
    assert np.isfinite(gradient).all()
    assert gradient[2] == 0


@pytest.mark.parametrize(
    ("place", "value"),
    # Not a side of minus infinity, which is a negative one and counts as 0.
    [
        (n, x)
        for n in range(5)
        for x in (np.nan, np.inf, -np.inf)
        if n not in (2, 3) or x != -np.inf
    ],
)
def test_a_box_that_is_not_finite_is_nan_for_its_own_pairs_only(place, value):
    good = box(0, 0, 2, 2, 0.3)
    table = np.isnan(
        pairing.pairwise(rotated.iou)(*(jnp.stack([good, good.at[place].set(value)]),) * 2)
    )
    np.testing.assert_array_equal(table, [[False, True], [True, True]])


# What a rectangle is called, and what encloses two -----------------------------------------


def test_converters_keep_the_rectangle():
    a = sets()["random"][0][:, :]
    for same in (
        rotated.from_corners(rotated.corners(a)),
        rotated.from_degrees_ccw(rotated.to_degrees_ccw(a)),
        rotated.to_long_edge(a),
    ):
        np.testing.assert_allclose(values(a, same), 1, atol=5e-6)
    long = np.asarray(
        rotated.to_long_edge(np.concatenate([a, a + np.array([0, 0, 0, 0, 99.0], np.float32)]))
    )
    assert (long[:, 2] >= long[:, 3]).all()
    assert (np.abs(long[:, 4]) <= np.float32(np.pi / 2)).all()


def test_corners_are_those_of_the_definition_and_turn_x_towards_y():
    a = sets()["random"][0]
    wanted = shapely.get_coordinates(shapes(a.astype(np.float64))).reshape(-1, 5, 2)[:, :4]
    np.testing.assert_allclose(rotated.corners(a), wanted, atol=5e-6)
    assert rotated.corners(box(0, 0, 2, 0, np.pi / 4))[1].min() > 0.7


def test_boxes_of_angle_0_are_those_of_boxes():
    rng = np.random.default_rng(1)
    # On a grid, so that centres are exact.
    corner, side = rng.integers(0, 40, (2, 50, 2)) / 8, rng.integers(1, 40, (2, 50, 2)) / 8
    a, b = np.concatenate([corner, corner + side], axis=2)
    p, q = rotated.from_boxes(a), rotated.from_boxes(b)
    np.testing.assert_allclose(rotated.to_boxes(p), a, atol=2e-6)
    for ours, theirs in (
        (rotated.iou, boxes.iou),
        (rotated.ioa, boxes.ioa),
        (rotated.generalized_iou(enclosing="box"), boxes.giou),
        (rotated.distance_iou(enclosing="box"), boxes.diou),
        (rotated.complete_iou(enclosing="box"), boxes.ciou),
    ):
        np.testing.assert_allclose(ours(p, q), theirs(a, b), atol=2e-6)


def test_other_enclosures_are_those_of_shapely():
    a, b = sets()["random"]
    shared, both, _ = exact(a, b)
    pairs = np.stack([shapes(x.astype(np.float64)) for x in (a, b)], 1)
    around = shapely.multipolygons(pairs)
    rectangle = shapely.minimum_rotated_rectangle(around)
    area = shapely.area(rectangle)
    found = rotated.generalized_iou(enclosing="rectangle")(a, b)
    np.testing.assert_allclose(found, shared / both - (area - both) / area, atol=1e-6)
    points = shapely.get_coordinates(pairs.ravel()).reshape(COUNT, -1, 2)
    square = ((points[:, :, None] - points[:, None]) ** 2).sum(-1).max(axis=(1, 2))
    offset = ((a[:, :2].astype(np.float64) - b[:, :2]) ** 2).sum(1)
    np.testing.assert_allclose(rotated.diou(a, b), shared / both - offset / square, atol=1e-6)


@pytest.mark.usefixtures("without_jaxtyping")
def test_an_unknown_enclosure_raises_and_equal_settings_are_one_overlap():
    with pytest.raises(ValueError, match="enclosing must be one of"):
        rotated.generalized_iou(enclosing="circle")
    assert rotated.generalized_iou() is rotated.generalized_iou(enclosing="hull")


# They plug in ------------------------------------------------------------------------------


def test_rotated_iou_keeps_the_contract_of_overlaps():
    testing.check_overlap(rotated.iou, regions=jnp.asarray(sets()["random"][0][:3]), minimum=0)


def test_overlaps_with_an_enclosure_are_finite_for_padding_and_1_for_equal_boxes():
    """In one program, as `check_overlap` compiles a dozen for each."""
    a = np.concatenate([sets()["random"][0][:3], np.zeros((1, 5), np.float32)])
    a, b = np.repeat(a, 4, axis=0), np.tile(a, (4, 1))
    names = (rotated.giou, rotated.diou, rotated.ciou)

    @jax.jit
    def run(a, b):
        slope = [jax.grad(lambda a, b, f=f: f(a, b).sum(), (0, 1))(a, b) for f in names]
        return [f(a, b) for f in names], slope

    results, slope = run(a, b)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((results, slope)))
    for value in np.reshape(results, (3, 4, 4)):
        np.testing.assert_array_equal(np.diagonal(value), [1, 1, 1, 0])
        np.testing.assert_allclose(value, value.T, atol=3e-7)


def test_suppression_and_matching_take_rotated_overlaps():
    a, b = (x[:40] for x in sets()["random"])
    table = np.asarray(pairing.pairwise(rotated.iou)(a, b))
    match = pairing.best_match(rotated.iou)(a, b)
    np.testing.assert_allclose(match.values, table.max(axis=1), atol=1e-6)
    scores = np.random.default_rng(0).random(40).astype(np.float32)
    own = np.asarray(pairing.pairwise(rotated.iou)(a, a))
    kept: list[int] = []
    for i in np.argsort(-scores):
        if all(own[i, j] <= 0.3 for j in kept):
            kept.append(int(i))
    found = suppression.nms(a, scores, threshold=0.3, max_outputs=40, overlap=rotated.iou)
    np.testing.assert_array_equal(np.asarray(found.indices)[np.asarray(found.valid)], kept)


def test_descent_on_rotated_giou_turns_a_box_onto_its_target():
    target = box(6, 5, 4, 2, 0.6)
    loss = losses.overlap_loss(rotated.giou)

    @jax.jit
    def descend(x):
        def step(i, x):
            # The loss is flat far away and steep at the end: steps of a fixed, shrinking length.
            slope = jax.grad(loss)(x, target)
            return x - 0.1 * (1 - i / 2000) * slope / jnp.linalg.norm(slope)

        return jax.lax.fori_loop(0, 2000, step, x)

    start = box(0, 0, 3, 3, 0.1)
    assert rotated.iou(start, target) == 0
    assert rotated.iou(descend(start), target) > 0.9


def test_check_values_names_the_first_bad_box():
    rotated.check_values(box(0, 0, 1, 1, 0))
    for bad, reason in ((box(0, 0, 0, 1, 0), "above 0"), (box(0, np.nan, 1, 1, 0), "finite")):
        with pytest.raises(ValueError, match=rf"regions\[1\] is .*{reason}.*1 of 2"):
            rotated.check_values(jnp.stack([box(0, 0, 1, 1, 0), bad]))
