"""Association and SORT: against SciPy, and against SORT in matrices of seven numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tracking_reference as reference
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from scipy.optimize import linear_sum_assignment

from jaxiou import masks
from jaxiou.tracking import _kalman, hota, packing
from jaxiou.tracking.association import byte_association, sort_association, sort_tracker

NAN, INF = float("nan"), float("inf")


def looked_up(a, b):
    """The overlap of a table's row with a row of the identity: any table, for any test."""
    return jnp.where(b > 0, a, 0).sum()


def compiled(function, **static):
    """A function of a table that compiles once for each shape: all of its options are arrays."""
    body = jax.jit(functools.partial(function, overlap=looked_up, **static))

    def run(table, *scores, **options):
        table = np.asarray(table, np.float32)
        options = {
            k: np.asarray(x, np.float32 if np.isscalar(x) else bool) for k, x in options.items()
        }
        full = {"where": np.ones(len(table), bool), "track_where": np.ones(table.shape[1], bool)}
        return body(table, *scores, np.eye(table.shape[1], dtype=np.float32), **(full | options))

    return run


SORT = {shortcut: compiled(sort_association, shortcut=shortcut) for shortcut in (True, False)}
BYTE = {fuse: compiled(byte_association, fuse_score=fuse) for fuse in (True, False)}


# Oracles -----------------------------------------------------------------------------------------


def sort_loop(table, threshold, shortcut):
    """The pairs of SORT, in the order of its code."""
    above = table > threshold
    if shortcut and above.any() and above.sum(axis=0).max() == above.sum(axis=1).max() == 1:
        pairs = np.argwhere(above)
    else:
        pairs = np.stack(linear_sum_assignment(-table), axis=1)
    return [(i, j) for i, j in pairs.tolist() if table[i, j] >= threshold]


def byte_loop(table, scores, lost, unconfirmed, track, low, new, limits, fuse):
    """The column and the stage of each detection, and which begin a track."""
    columns, stages = np.full(len(table), -1), np.zeros(len(table), int)
    first, second = scores > track, (scores > low) & (scores < track)
    fused = table * scores[:, None] if fuse else table
    steps = [(fused, first, ~unconfirmed), (table, second, ~unconfirmed & ~lost)]
    steps += [(fused, first, unconfirmed)]
    for stage, ((similarity, rows, tracks), limit) in enumerate(zip(steps, limits, strict=True), 1):
        rows = np.flatnonzero(rows & (columns < 0))
        tracks = np.array([j for j in np.flatnonzero(tracks) if j not in columns], int)
        gains = np.maximum(limit - (1 - similarity[np.ix_(rows, tracks)]), 0)
        for i, j in zip(*linear_sum_assignment(gains, maximize=True), strict=True):
            if gains[i, j] > 0:
                columns[rows[i]], stages[rows[i]] = tracks[j], stage
    return columns, stages, first & (columns < 0) & (scores >= new)


class Track:
    """A Kalman filter in seven numbers, as SORT sets it up."""

    MOVE = np.eye(7) + np.diag([1.0, 1.0, 1.0], k=4)
    SEE = np.eye(4, 7)
    PROCESS = np.diag([1, 1, 1, 1, 0.01, 0.01, 0.0001])
    MEASUREMENT = np.diag([1.0, 1.0, 10.0, 10.0])

    def __init__(self, box, number=0):
        self.mean = np.concatenate([self.measure(box), np.zeros(3)])
        self.covariance = np.diag([10.0] * 4 + [10000.0] * 3)
        self.number, self.streak, self.missed, self.stopped = number, 0, 0, 0

    @staticmethod
    def measure(box):
        width, height = box[2:] - box[:2]
        return np.array([*(box[:2] + box[2:]) / 2, width * height, width / height])

    def predict(self):
        if self.mean[2] + self.mean[6] <= 0:
            self.mean[6] = 0
            self.stopped += 1
        self.mean = self.MOVE @ self.mean
        self.covariance = self.MOVE @ self.covariance @ self.MOVE.T + self.PROCESS
        self.streak = 0 if self.missed else self.streak
        self.missed += 1

    def update(self, box):
        total = self.SEE @ self.covariance @ self.SEE.T + self.MEASUREMENT
        gain = self.covariance @ self.SEE.T @ np.linalg.inv(total)
        self.mean = self.mean + gain @ (self.measure(box) - self.SEE @ self.mean)
        rest = np.eye(7) - gain @ self.SEE
        noise = gain @ self.MEASUREMENT @ gain.T
        self.covariance = rest @ self.covariance @ rest.T + noise
        self.streak, self.missed = self.streak + 1, 0

    @property
    def box(self):
        u, v, area, ratio = self.mean[:4]
        width = np.sqrt(area * ratio)
        half = np.array([width, area / width]) / 2
        return np.array([u - half[0], v - half[1], u + half[0], v + half[1]])


def iou_table(a, b):
    a, b = np.reshape(a, (-1, 1, 4)), np.reshape(b, (1, -1, 4))
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    shared = np.maximum(sides, 0).prod(-1)
    return shared / (
        (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - shared
    )


def tracker_loop(
    detections, valid, threshold=0.3, max_age=1, min_hits=3, shortcut=True, capacity=1000
):
    """Ids, boxes, births, refusals; and how often an area would have fallen below 0."""
    ids, found = np.full(valid.shape, -1), np.zeros(detections.shape)
    births, refused, ended = 0, np.zeros(len(valid), int), []
    tracks: list[Track] = []
    for frame, there in enumerate(valid):
        rows = np.flatnonzero(there)
        seen = detections[frame, rows].astype(np.float64)
        for track in tracks:
            track.predict()
        pairs = []
        if len(seen) and tracks:
            table = iou_table(seen, [track.box for track in tracks])
            pairs = sort_loop(table, threshold, shortcut)
        owners = {i: tracks[j] for i, j in pairs}
        for i, track in owners.items():
            track.update(seen[i])
        ended += [track for track in tracks if track.missed > max_age]
        tracks = [track for track in tracks if track.missed <= max_age]
        for i in range(len(seen)):
            if i not in owners and len(tracks) < capacity:
                owners[i] = Track(seen[i], births)
                tracks.append(owners[i])
                births += 1
            elif i not in owners:
                refused[frame] += 1
        for i, track in owners.items():
            if track.streak >= min_hits or frame < min_hits:
                ids[frame, rows[i]], found[frame, rows[i]] = track.number, track.box
    return ids, found, births, refused, sum(track.stopped for track in tracks + ended)


# Scenes ------------------------------------------------------------------------------------------

FRAMES, ROWS = 40, 8


def scene(seed, objects=6):
    """Boxes that cross, some shrinking, at times missed, among false ones, in any order; rows
    without a box hold NaN, and some that count hold what is no box.
    """
    rng = np.random.default_rng(seed)
    centre, speed = rng.uniform(0, 120, (objects, 2)), rng.normal(0, 3, (objects, 2))
    size, growth = rng.uniform(20, 60, (objects, 2)), rng.choice([0.75, 0.98, 1.02], (objects, 1))
    detections, valid = np.full((FRAMES, ROWS, 4), NAN), np.zeros((FRAMES, ROWS), bool)
    where = np.zeros((FRAMES, ROWS), bool)
    for frame in range(FRAMES):
        c = centre + speed * frame + rng.normal(0, 1, centre.shape)
        half = np.maximum(size * growth ** (frame % 12), 1) / 2 + rng.uniform(0, 1, size.shape)
        false = rng.uniform(0, 120, (ROWS - objects, 2))
        false = np.concatenate([false, false + rng.uniform(10, 40, false.shape)], axis=1)
        rows = np.concatenate([np.concatenate([c - half, c + half], axis=1), false])
        kept = rng.random(ROWS) < np.repeat([0.85, 0.15], [objects, ROWS - objects])
        kept = rng.permutation(np.flatnonzero(kept)) if frame != 20 else np.zeros(0, int)
        places = np.sort(rng.permutation(ROWS)[: len(kept)])
        detections[frame, places] = rows[kept]
        valid[frame, places] = where[frame, places] = True
        if len(kept) < ROWS:  # counts, but has no area
            where[frame, np.flatnonzero(~valid[frame])[0]] = True
            bad = [[9, 9, 9, 30], [9, 9, 4, 30], [0, 0, INF, 3], [NAN] * 4][frame % 4]
            detections[frame, np.flatnonzero(~valid[frame])[0]] = bad
    return detections, where, valid


def assert_tracks(result, wanted, atol):
    ids, found, births, refused, _ = wanted
    np.testing.assert_array_equal(result.trajectories.ids, ids)
    np.testing.assert_array_equal(result.trajectories.valid, ids >= 0)
    np.testing.assert_allclose(result.trajectories.regions, found, rtol=0, atol=atol)
    assert int(result.births) == births
    np.testing.assert_array_equal(result.refused, refused)


# SORT's association ------------------------------------------------------------------------------


def test_the_shortcut_of_sort_changes_results():
    """T19."""
    table = [[0.29, 0.31], [0, 0.29]]
    assert SORT[True](table).columns.tolist() == [1, -1]
    assert SORT[False](table).columns.tolist() == [-1, -1]


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("shape", [(5, 6), (6, 4)])
@pytest.mark.parametrize("kind", ["overlaps", "any numbers"])
def test_sort_association_is_the_full_assignment_less_the_pairs_below(kind, shape, shortcut):
    rng = np.random.default_rng(0)
    shortened = 0
    for trial in range(40):
        if kind == "overlaps":
            # Near the threshold the shortcut is at times another answer.
            low, high = [(0, 1), (0.25, 0.31)][trial % 2]
            some = rng.random(shape) < [0.6, 0.3, 0.1][trial % 3]
            table = np.where(some, rng.uniform(low, high, shape), 0)
        else:
            table = rng.normal(size=shape)
        table = table.astype(np.float32)
        rows, columns = rng.random(shape[0]) < 0.8, rng.random(shape[1]) < 0.8
        options = {"where": rows, "track_where": columns, "threshold": 0.3}
        counted = np.where(rows[:, None], np.where(columns[None], table, NAN), INF)
        result = SORT[shortcut](counted, **options)

        inner = table[np.ix_(rows, columns)]
        pairs = sort_loop(inner, np.float32(0.3), shortcut)
        i, j = np.flatnonzero(rows), np.flatnonzero(columns)
        wanted = np.full(shape[0], -1)
        for a, b in pairs:
            wanted[i[a]] = j[b]
        np.testing.assert_array_equal(result.columns, wanted)
        np.testing.assert_array_equal(result.valid, wanted >= 0)
        total = sum(float(inner[pair]) for pair in pairs)
        np.testing.assert_allclose(result.total, total, rtol=1e-6, atol=1e-6)
        for column, row in enumerate(result.rows.tolist()):
            assert row == (np.flatnonzero(wanted == column).tolist() or [-1])[0]
        shortened += pairs != sort_loop(inner, np.float32(0.3), not shortcut)
    assert shortened > 0 or kind == "any numbers"


def test_a_pair_at_the_threshold_is_kept_and_does_not_count_for_the_shortcut():
    # Only the 0.75 exceeds 0.5; the solver would take both pairs of 0.5 on top of each other.
    table = [[0.5, 0.75], [0.0, 0.5]]
    assert SORT[True](table, threshold=0.5).columns.tolist() == [1, -1]
    assert SORT[False](table, threshold=0.5).columns.tolist() == [0, 1]
    assert SORT[True]([[0.5, 0.0], [0.0, 0.25]], threshold=0.5).columns.tolist() == [0, -1]


@pytest.mark.parametrize("shortcut", [True, False])
def test_overlaps_that_are_not_finite_are_never_matched(shortcut):
    """T24: they hang one of optax's solvers, and come back as pairs from the other."""
    table = [[NAN, NAN, NAN], [INF, 0.4, 0.5], [0.6, 0.7, -INF]]
    assert SORT[shortcut](table).columns.tolist() == [-1, 2, 1]
    scores = np.full(3, 0.9, np.float32)
    assert BYTE[shortcut](table, scores).matching.columns.tolist() == [-1, 2, 1]
    nothing = np.full((3, 3), NAN)
    assert SORT[shortcut](nothing).columns.tolist() == [-1, -1, -1]
    assert BYTE[shortcut](nothing, scores).stages.tolist() == [0, 0, 0]


def test_masks_are_associated_like_boxes():
    corners = np.array([[0, 0, 4, 4], [5, 1, 9, 8], [2, 6, 5, 9], [9, 9, 10, 10]])
    shifted = corners[[2, 0, 1]] + [0, 1, 0, 1]

    def drawn(box):
        y, x = np.mgrid[:10, :10]
        return (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])

    as_masks = (np.stack([drawn(box) for box in x]) for x in (corners, shifted))
    found = sort_association(*as_masks, overlap=masks.iou)
    by_boxes = sort_association(corners, shifted)
    assert found.columns.tolist() == by_boxes.columns.tolist() == [1, 2, 0, -1]
    np.testing.assert_allclose(found.total, by_boxes.total, rtol=1e-6)


def test_no_detections_or_no_tracks_are_no_pairs():
    for n, m in [(0, 3), (3, 0), (0, 0)]:
        detections, tracks = np.ones((n, 4), np.float32), np.ones((m, 4), np.float32)
        found = byte_association(detections, np.full(n, 0.9, np.float32), tracks)
        for matching in (sort_association(detections, tracks), found.matching):
            assert matching.columns.tolist() == [-1] * n
            assert matching.rows.tolist() == [-1] * m
            assert matching.total == 0
        assert found.starts.tolist() == [True] * n


# ByteTrack's stages ------------------------------------------------------------------------------


@pytest.mark.parametrize("fuse", [True, False])
def test_byte_association_is_three_assignments_with_limits(fuse):
    rng = np.random.default_rng(0)
    in_stage = np.zeros(4, int)
    numbers = {"track_threshold": 0.6, "low_threshold": 0.1, "new_threshold": 0.7}
    limits = {"match_limit": 0.8, "second_limit": 0.5, "unconfirmed_limit": 0.7}
    for trial in range(60):
        density = [0.8, 0.4][trial % 2]
        table = np.where(rng.random((7, 6)) < density, rng.random((7, 6)), 0).astype(np.float32)
        scores = np.round(rng.random(7), 1 if trial % 3 else 4).astype(np.float32)
        lost, unconfirmed = rng.random((2, 6)) < 0.3
        lost &= ~unconfirmed
        rows, columns = rng.random(7) < 0.9, rng.random(6) < 0.9
        masks_ = {"where": rows, "track_where": columns, "lost": lost, "unconfirmed": unconfirmed}
        counted = np.where(rows[:, None] & columns[None], table, NAN)
        given = np.where(rows, scores, np.float32(NAN))
        found = BYTE[fuse](counted, given, **masks_, **numbers, **limits)

        inner = table[np.ix_(rows, columns)].astype(np.float64)
        flags = lost[columns], unconfirmed[columns]
        wanted = byte_loop(
            inner, scores[rows], *flags, *map(np.float32, numbers.values()), limits.values(), fuse
        )
        there = np.append(np.flatnonzero(columns), -1)
        np.testing.assert_array_equal(found.matching.columns[rows], there[wanted[0]])
        np.testing.assert_array_equal(found.stages[rows], wanted[1])
        np.testing.assert_array_equal(found.starts[rows], wanted[2])
        assert not found.matching.valid[~rows].any()
        assert not found.starts[~rows].any()
        pairs = np.flatnonzero(wanted[0] >= 0)
        total = inner[pairs, wanted[0][pairs]].sum()
        np.testing.assert_allclose(found.matching.total, total, rtol=1e-6)
        in_stage += np.bincount(wanted[1], minlength=4)
    assert in_stage.min() > 10


def test_a_score_of_exactly_the_threshold_is_in_no_stage():
    """T20: ByteTrack compares strictly on both sides."""
    table = np.eye(4)
    scores = np.float32([0.5, 0.1, 0.11, 0.51])
    found = BYTE[False](table, scores, track_threshold=0.5, new_threshold=0.5)
    assert found.stages.tolist() == [0, 0, 2, 1]
    assert found.starts.tolist() == [False] * 4


def test_new_tracks_begin_at_their_threshold():
    found = BYTE[True](np.zeros((4, 2)), np.float32([0.7, 0.69, 0.6, 0.71]))
    assert found.starts.tolist() == [True, False, False, True]


def test_the_limit_is_within_the_problem_and_not_a_filter_after_it():
    """T21: an assignment without the limit takes 0.55 and 0.5, which are both above 0.2."""
    table = np.array([[0.9, 0.55], [0.5, 0.1]])
    assert linear_sum_assignment(table, maximize=True)[1].tolist() == [1, 0]
    found = BYTE[False](table, np.float32([0.9, 0.9]), match_limit=0.8)
    assert found.matching.columns.tolist() == [0, -1]


def test_lost_tracks_wait_for_a_high_score_and_unconfirmed_ones_for_what_is_left():
    flags = {"lost": [True, False, False], "unconfirmed": [False, True, False]}
    table = np.eye(3)
    found = BYTE[True](table, np.float32([0.3, 0.3, 0.3]), **flags)
    assert found.stages.tolist() == [0, 0, 2]
    found = BYTE[True](table, np.float32([0.9, 0.9, 0.9]), **flags)
    assert found.stages.tolist() == [1, 3, 1]
    # A confirmed track takes the detection that an unconfirmed one fits better.
    contested = np.array([[0.0, 0.9, 0.5], [0, 0, 0], [0, 0, 0]])
    found = BYTE[True](contested, np.float32([0.9, 0.9, 0.9]), **flags)
    assert found.matching.columns.tolist() == [2, -1, -1]


# The filter --------------------------------------------------------------------------------------


def test_four_filters_of_two_numbers_are_one_of_seven():
    """In float32, with frames without a detection, to a few ulps of the mean and covariance."""
    rng = np.random.default_rng(0)
    box = np.array([100.0, 50.0, 160.0, 170.0])
    drift = np.array([2, -1, 2.5, -0.5])
    by_matrix = Track(box)
    predicted, updated = jax.jit(_kalman.predicted), jax.jit(_kalman.updated)
    state = _kalman.begun(_kalman.measured(jnp.float32(box[None])))
    for frame in range(60):
        box = np.float32(rng.normal(box + drift, 1)).astype(float)
        by_matrix.predict()
        state = predicted(state)
        if frame < 3 or rng.random() < 0.7:
            by_matrix.update(box)
            state = updated(state, _kalman.measured(jnp.float32(box[None])))
        a, slope, rest = (np.asarray(x[:, 0]) for x in state[2:])
        covariance = by_matrix.covariance
        np.testing.assert_allclose(a, covariance.diagonal()[:4], rtol=1e-5)
        np.testing.assert_allclose((slope * a)[:3], covariance.diagonal(4), rtol=1e-5)
        np.testing.assert_allclose((rest + slope**2 * a)[:3], covariance.diagonal()[4:], rtol=1e-5)
        np.testing.assert_allclose(state.position[:, 0], by_matrix.mean[:4], rtol=1e-5)
        np.testing.assert_allclose(state.velocity[:3, 0], by_matrix.mean[4:], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(_kalman.boxes_of(state)[0], by_matrix.box, rtol=1e-5)


# The tracker -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shortcut", [True, False])
def test_sort_tracker_is_sort(x64, shortcut):
    run = jax.jit(functools.partial(sort_tracker, capacity=24, shortcut=shortcut))
    stopped, ids = 0, []
    settings = [(0.3, 1, 3), (0.1, 5, 1), (0.5, 0, 0), (0.3, 2, 5), (0.01, 1, 2)]
    for seed, (threshold, max_age, min_hits) in enumerate(settings * 2):
        detections, where, valid = scene(seed)
        options = {"threshold": threshold, "max_age": max_age, "min_hits": min_hits}
        wanted = tracker_loop(detections, valid, shortcut=shortcut, **options)
        assert_tracks(run(detections, where=where, **options), wanted, atol=1e-9)
        stopped += wanted[-1]
        ids.append(wanted[0].max())
    assert stopped > 0
    assert min(ids) > 5


def test_with_no_room_left_detections_begin_no_track_and_are_counted(x64):
    detections, where, valid = scene(1)
    wanted = tracker_loop(detections, valid, capacity=4)
    assert wanted[3].sum() > 10
    assert_tracks(sort_tracker(detections, capacity=4, where=where), wanted, atol=1e-9)


def test_a_batch_of_sequences_spread_over_devices_is_tracked_like_each():
    scenes = [scene(seed) for seed in range(4)]
    detections = np.stack([x[0] for x in scenes]).astype(np.float32)
    where = np.stack([x[1] for x in scenes])

    def run(detections, where):
        return sort_tracker(detections, capacity=24, where=where)

    specs = {"in_specs": P("batch"), "out_specs": P("batch")}
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))
    # optax's loops need check_vma=False.
    spread = jax.shard_map(jax.vmap(run), mesh=mesh, **specs, check_vma=False)
    batch = jax.jit(spread)(detections, where)
    for i in range(4):
        for x, y in zip(*map(jax.tree.leaves, (batch, run(detections[i], where[i]))), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-5, atol=1e-4)


def test_no_frames_and_no_detections_are_no_tracks():
    for shape in [(0, 3, 4), (2, 0, 4)]:
        found = sort_tracker(np.zeros(shape, np.float32), capacity=2)
        assert found.trajectories.ids.shape == shape[:2]
        assert int(found.births) == 0
        assert found.refused.tolist() == [0] * shape[0]


# Pedestrians -------------------------------------------------------------------------------------

TUD = {"TUD-Campus": 71, "TUD-Stadtmitte": 179}


def rows_of(name, file):
    """Frames from 0, ids and boxes."""
    rows = np.loadtxt(reference.TUD / name / file, delimiter=",")
    return rows[:, 0].astype(int) - 1, rows[:, 1].astype(int), rows[:, 2:4], rows[:, 4:6]


def detections_of(name):
    """The boxes that came with a sequence, whatever ids they had, padded to one shape."""
    frames, _, corners, sides = rows_of(name, "test.txt")
    regions = np.concatenate([corners, corners + sides], axis=1)
    side, _ = packing.pack(frames, np.arange(len(frames)), regions, num_frames=179, capacity=6)
    return side


@pytest.mark.parametrize("name", TUD)
def test_pedestrians_in_float32_have_the_ids_that_sort_gives_them(name):
    side = detections_of(name)
    regions = side.regions.astype(np.float32)
    result = sort_tracker(regions, capacity=16, where=side.valid)
    wanted = tracker_loop(regions, side.valid)
    assert_tracks(result, wanted, atol=2e-4)
    assert (wanted[0] >= 0).sum() > 200


@pytest.mark.parametrize("name", TUD)
def test_hota_of_the_tracker_is_what_trackeval_makes_of_sort(x64, name):
    side = detections_of(name)
    frames, ids, corners, sides = rows_of(name, "gt.txt")
    regions = np.concatenate([corners, corners + sides], axis=1)
    targets, known = packing.pack(frames, ids, regions, num_frames=179, capacity=10)
    found = sort_tracker(side.regions, capacity=16, where=side.valid)
    assert int(found.births) <= 16
    sequence = packing.compare(found.trajectories, targets)
    counts = hota.count(sequence, num_predictions=16, num_targets=len(known))

    own_ids, own, *_ = tracker_loop(side.regions, side.valid)
    own[..., 2:] -= own[..., :2]
    there = np.concatenate([ids[:, None], corners, sides], axis=1)
    wanted = reference.by_trackeval(
        "hota",
        reference.from_boxes(
            [there[frames == t] for t in range(TUD[name])],
            [
                np.column_stack([i[i >= 0], x[i >= 0]])
                for i, x in zip(own_ids[: TUD[name]], own, strict=False)
            ],
        ),
    )
    scores = hota.summarize(counts)
    np.testing.assert_array_equal(scores.hota_tp, wanted["HOTA_TP"])
    np.testing.assert_allclose(scores.hota, wanted["HOTA"], rtol=0, atol=1e-9)
    print(f"{name}: HOTA {float(scores.hota.mean()):.4f}")


# Errors ------------------------------------------------------------------------------------------

X, SCORES = np.ones((3, 4), np.float32), np.ones(3, np.float32)


def byte(detections, tracks, scores=SCORES, **options):
    return byte_association(detections, scores, tracks, **options)


@pytest.mark.usefixtures("without_jaxtyping")
@pytest.mark.parametrize("associate", [sort_association, byte])
def test_bad_arguments_of_an_association_are_errors_that_name_them(associate):
    with pytest.raises(TypeError, match="detections must be a JAX or NumPy array, got list"):
        associate(X.tolist(), X)
    with pytest.raises(ValueError, match=r"tracks must have shape \[_, _\] .* got \[4\]"):
        associate(X, X[0])
    with pytest.raises(TypeError, match="where must be boolean"):
        associate(X, X, where=SCORES)
    with pytest.raises(ValueError, match=r"track_where must have rank 1 .* \[3\], got \[2\]"):
        associate(X, X, track_where=SCORES[:2] > 0)


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_scores_and_flags_are_errors_that_name_them():
    with pytest.raises(ValueError, match=r"scores must have shape \[3\] .*, got \[2\]"):
        byte(X, X, SCORES[:2])
    with pytest.raises(ValueError, match=r"scores must have shape \[3\] .*, got \[3, 4\]"):
        byte(X, X, X)
    with pytest.raises(ValueError, match="lost must have rank 1"):
        byte(X, X, lost=X > 0)
    with pytest.raises(ValueError, match=r"match_limit must be a number, got shape \[3\]"):
        byte(X, X, match_limit=SCORES)


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_arguments_of_the_tracker_are_errors_that_name_them():
    frames = X[None]
    for detections, options, error, text in [
        (X, {}, ValueError, r"detections must have shape \[_, _, _\]"),
        (frames[..., :3], {}, ValueError, r"detections must have shape \[..., 4\]"),
        (frames > 0, {}, TypeError, "detections must hold floats or integers, got dtype bool"),
        (frames, {"capacity": 0}, ValueError, "capacity must be 1 or more, got 0"),
        (frames, {"capacity": 3.0}, TypeError, "capacity must be an integer, got float"),
        (frames, {"where": SCORES > 0}, ValueError, r"where must have rank 2 .* got \[3\]"),
        (frames, {"min_hits": SCORES}, ValueError, "min_hits must be a number"),
    ]:
        with pytest.raises(error, match=text):
            sort_tracker(detections, **({"capacity": 3} | options))
