"""`polygons` against shapely in float64, and where edges coincide."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import polygons

shapely = pytest.importorskip("shapely")
spatial = pytest.importorskip("scipy.spatial")

COUNT = 100
SIDES = 6
"""All polygons are padded to one number of vertices: one compilation for all sets."""


def random_polygons(rng, vertices, centre=2.0, radius=3.0):
    turns = (np.arange(vertices) + rng.uniform(-0.3, 0.3, (COUNT, vertices))) / vertices
    turns = 2 * np.pi * (turns + rng.random((COUNT, 1)))
    rim = np.stack([np.cos(turns), np.sin(turns)], axis=-1)
    points = rim * rng.uniform(1, radius, (COUNT, 1, 1))
    points = points + rng.uniform(-centre, centre, (COUNT, 1, 2))
    return np.concatenate([points, np.repeat(points[:, -1:], SIDES - vertices, axis=1)], axis=1)


def rectangles(rng):
    low, side = rng.integers(0, 6, (COUNT, 2)), rng.integers(1, 6, (COUNT, 2))
    unit = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 1], [0, 1]])
    return (low[:, None] + side[:, None] * unit).astype(float)


@functools.cache
def sets():
    rng = np.random.default_rng(0)
    five = random_polygons(rng, 5)
    square = rectangles(rng)
    width = square[..., :1].max(axis=1, keepdims=True) - square[..., :1].min(axis=1, keepdims=True)
    found = {
        "3 x 3": (random_polygons(rng, 3), random_polygons(rng, 3)),
        "4 x 4": (random_polygons(rng, 4), random_polygons(rng, 4)),
        "6 x 5": (random_polygons(rng, 6), five),
        "shared edges": (square, rectangles(rng)),
        "identical": (five, five),
        "identical, backwards": (five, five[:, ::-1]),
        "contained": (five, 0.3 * five + 0.7 * five.mean(axis=1, keepdims=True)),
        "touching": (square, square + width * np.array([1, 0])),
        "far away": (five + 1000, random_polygons(rng, 4) + 1000),
        "on a line": (five, square * np.array([1, 0])),
    }
    return {k: tuple(x.astype(np.float32) for x in pair) for k, pair in found.items()}


def joined(place):
    return np.concatenate([pair[place] for pair in sets().values()])


def both(a, b):
    return (polygons.iou(a, b),)


values = jax.jit(both)
gradients = jax.jit(
    lambda a, b: [jax.grad(lambda a, b, f=f: f(a, b).sum(), (0, 1))(a, b) for f in (polygons.iou,)]
)


@functools.cache
def results():
    a, b = joined(0), joined(1)
    return np.asarray(values(a, b)), np.asarray(values(b, a)), np.asarray(gradients(a, b))


def of(name, array, axis):
    return np.split(array, len(sets()), axis=axis)[list(sets()).index(name)]


@pytest.mark.parametrize("name", sets())
def test_iou_is_that_of_shapely_in_float64(name):
    a, b = (shapely.polygons(x.astype(np.float64)) for x in sets()[name])
    shared = shapely.area(shapely.intersection(a, b))
    rest = shapely.area(shapely.difference(a, b))
    assert np.abs(shared + rest - shapely.area(a)).max() < 1e-9
    covered = shapely.area(a) + shapely.area(b) - shared
    (iou,), (swapped,), _ = (of(name, x, -1 if i < 2 else 2) for i, x in enumerate(results()))
    assert np.abs(iou - shared / covered).max() < 1e-6
    np.testing.assert_array_equal(iou, swapped)
    assert iou.max() <= 1
    if name == "identical":
        assert (iou == 1).all()
    if name in ("touching", "on a line"):
        assert np.abs(iou).max() == 0


@pytest.mark.parametrize("name", sets())
def test_gradients_are_finite_and_bounded_by_the_length_of_edges(name):
    # No edge is longer than 12, no area that counts is below 1: a slope is at most their ratio.
    found = of(name, results()[2], 2)
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 20


def test_gradients_are_central_differences_in_float64(x64):
    a, b = (x[:20, :5].astype(np.float64) for x in sets()["6 x 5"])
    found = np.asarray(jax.jit(jax.grad(lambda a, b: polygons.iou(a, b).sum(), (0, 1)))(a, b))
    steps = 1e-6 * np.concatenate([np.eye(20), -np.eye(20)]).reshape(40, 1, 2, 5, 2)
    ends = np.asarray(polygons.iou(a + steps[:, :, 0], b + steps[:, :, 1])).reshape(2, 20, 20)
    slope = ((ends[0] - ends[1]) / 2e-6).reshape(2, 5, 2, 20)
    np.testing.assert_allclose(found, np.moveaxis(slope, -1, 1), rtol=0, atol=1e-8)


def test_quads_that_share_an_edge_to_the_last_digit_share_no_area(x64):
    a = [
        (-295.25030351249666, 4.236074061427525),
        (-295.08711234218333, -2.301948231163383),
        (-314.64218025800653, -2.7900491087570383),
        (-314.80537142831986, 3.7479731838338695),
    ]
    b = [
        (-275.69523559667346, 4.7241749390211805),
        (-275.53204442636013, -1.8138473535697273),
        (-295.08711234218333, -2.3019482311633825),
        (-295.25030351249666, 4.236074061427525),
    ]
    assert abs(polygons.intersection(jnp.array(a), jnp.array(b))) < 1e-11


def test_nan_stays_with_its_own_pair():
    a, b = (x[:3].copy() for x in sets()["6 x 5"])
    a[1, 2, 0] = np.nan
    np.testing.assert_array_equal(np.isnan(polygons.iou(a, b)), [False, True, False])


def test_pad_repeats_the_last_vertex_and_pack_makes_one_array():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]], np.float32)
    padded = polygons.pad(np.stack([square, square]), np.array([3, 4]))
    np.testing.assert_array_equal(padded, [[*square[:3], square[2]], square])
    packed = polygons.pack([square[:3], square])
    np.testing.assert_array_equal(packed, padded)
    np.testing.assert_array_equal(polygons.area(packed), [2, 4])
    assert polygons.pack([], max_vertices=3).shape == (0, 3, 2)


def test_wrong_shapes_and_polygons_are_named():
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2]], np.float32)
    polygons.check_values(np.stack([square, square[::-1]]))
    for bad, reason in (
        (square[[0, 2, 1, 3]], "not convex"),
        (square * [1, 0], "no area"),
        (square * np.nan, "not finite"),
    ):
        with pytest.raises(ValueError, match=rf"regions\[1\] .*{reason}.*1 of 2"):
            polygons.check_values(np.stack([square, bad]))
    with pytest.raises(ValueError, match="max_vertices"):
        polygons.pack([square], max_vertices=3)
    with pytest.raises(ValueError, match=r"regions\[0\]"):
        polygons.pack([np.zeros((0, 2))])
