"""`tracking.packing`: ragged rows into padded arrays, and what is no sequence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxiou import boxes, masks
from jaxiou.tracking import packing


def rows(seed, count=40, frames=12, ids=9):
    """Rows in any order; no id twice in a frame."""
    rng = np.random.default_rng(seed)
    cells = rng.permutation(frames * ids)[:count]
    corner = rng.uniform(0, 50, (count, 2))
    regions = np.concatenate([corner, corner + rng.uniform(1, 30, (count, 2))], axis=1)
    return cells // ids, 3 * (cells % ids) + 5, regions


def test_every_row_is_in_its_frame_once():
    frames, ids, regions = rows(0)
    side, known = packing.pack(frames, ids, regions, num_frames=14)
    assert side.valid.shape == (14, np.bincount(frames).max())
    for frame in range(14):
        own = side.valid[frame]
        here = frames == frame
        np.testing.assert_array_equal(known[side.ids[frame][own]], ids[here])
        np.testing.assert_array_equal(side.regions[frame][own], regions[here])
    assert side.ids[side.valid].max() + 1 == len(known)


def test_more_room_changes_nothing_but_the_shape():
    side, _ = packing.pack(*rows(1), num_frames=12)
    wide, _ = packing.pack(*rows(1), num_frames=12, capacity=20)
    for x, y in zip(side, wide, strict=True):
        np.testing.assert_array_equal(y[:, : x.shape[1]], x)
        assert not y[:, x.shape[1] :].any()


def test_no_rows_are_frames_without_regions():
    nothing = np.zeros(0, int), np.zeros(0, int), np.zeros((0, 4))
    side, known = packing.pack(*nothing, num_frames=3)
    assert (side.regions.shape, len(known)) == ((3, 0, 4), 0)
    one, _ = packing.pack(*rows(2), num_frames=12)
    assert packing.compare(one, packing.pack(*nothing, num_frames=12)[0]).similarities.size == 0
    assert packing.pack(*nothing, num_frames=0)[0].valid.shape == (0, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda f, i: f.__setitem__(3, 12), r"frames must be below 12, got 12 in row 3"),
        (lambda f, i: f.__setitem__(3, -1), r"frames must be below 12, got -1 in row 3"),
        (lambda f, i: i.__setitem__(5, -2), r"ids must be 0 or more, got -2 in row 5"),
        (
            lambda f, i: (f.__setitem__(7, f[0]), i.__setitem__(7, i[0])),
            r"ids must occur once a frame, got \d+ twice in frame \d+",
        ),
    ],
)
def test_what_is_no_sequence_is_an_error(change, reason):
    frames, ids, regions = rows(3)
    change(frames, ids)
    with pytest.raises(ValueError, match=reason):
        packing.pack(frames, ids, regions, num_frames=12)


@pytest.mark.usefixtures("without_jaxtyping")
def test_arrays_of_the_wrong_kind_are_an_error():
    frames, ids, regions = rows(4)
    with pytest.raises(TypeError, match="ids must hold integers, got dtype float64"):
        packing.pack(frames, ids * 1.0, regions, num_frames=12)
    with pytest.raises(ValueError, match=r"frames must have shape \[40\].*got \[39\]"):
        packing.pack(frames[1:], ids, regions, num_frames=12)
    with pytest.raises(ValueError, match=r"capacity must be \d or more, got 1: frame \d+ has"):
        packing.pack(frames, ids, regions, num_frames=12, capacity=1)


def test_similarities_are_those_of_the_overlap_and_nothing_of_padding():
    (p, _), (t, _) = (packing.pack(*rows(seed), num_frames=12) for seed in (5, 6))
    p = p._replace(regions=np.where(p.valid[..., None], p.regions, np.nan))
    sequence = packing.compare(p, t)
    both = p.valid[:, :, None] & t.valid[:, None, :]
    for f, i, j in np.ndindex(both.shape):
        wanted = boxes.iou(p.regions[f, i], t.regions[f, j]) if both[f, i, j] else 0
        np.testing.assert_allclose(sequence.similarities[f, i, j], wanted, rtol=1e-6)


def test_masks_are_regions_too():
    rng = np.random.default_rng(0)
    regions = rng.random((3, 6, 7)) < 0.5
    side, _ = packing.pack(np.array([0, 1, 1]), np.array([0, 0, 1]), regions, num_frames=2)
    got = packing.compare(side, side, overlap=masks.iou).similarities
    np.testing.assert_array_equal(np.diagonal(got, axis1=1, axis2=2), [[1, 0], [1, 1]])


def test_boxes_without_an_area_to_speak_of_have_no_overlap():
    """T18."""
    point, dust = jnp.array([5.0, 5.0, 5.0, 5.0]), jnp.array([0.0, 0.0, 1e-9, 1e-9])
    assert packing.box_iou(point, point) == 0
    assert packing.box_iou(dust, dust) == 0
    assert boxes.iou(dust, dust) == 1
    assert jax.grad(packing.box_iou)(dust, dust).tolist() == [0, 0, 0, 0]
