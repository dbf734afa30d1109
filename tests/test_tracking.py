"""HOTA, CLEAR and Identity: against TrackEval and py-motmetrics, and the cases where they part.

All sequences, drawn, read and written by hand, are padded to one shape, so that each score is
compiled once for each type. `tests/catalogue/tracking.py` runs them under `jax.vmap`.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tracking_reference as reference
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from scipy.optimize import linear_sum_assignment
from tracking_reference import padded, ragged

from jaxiou import boxes
from jaxiou.tracking import clear, combine, hota, identity
from jaxiou.tracking._frames import matched
from jaxiou.tracking.packing import Sequence, compare, pack

MODULES = {"clear": clear, "identity": identity, "hota": hota}
KINDS = list(MODULES)
DTYPES = [np.float64, np.float32]
TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}

one_kind = pytest.mark.parametrize("kind", KINDS)
one_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=["float64", "float32"])


# Sequences ---------------------------------------------------------------------------------------


def hand_cases():
    """Section 3 of the protocol, by number: sequence and threshold."""
    t5 = [[[1.0]]] * 9 + [[[0.49], [0.51]]]
    found = {
        "t1": ([[0]] * 3, [[0], [0], [0, 1]], [[[0.9]], [[0.1]], [[0.6, 0.9]]]),
        "t2": ([[0], [1], [0, 1]], [[0]] * 3, [[[0.9]], [[0.9]], [[0.6], [0.8]]]),
        "t2 swapped": ([[0], [1], [1, 0]], [[0]] * 3, [[[0.9]], [[0.9]], [[0.8], [0.6]]]),
        "t3": ([[0, 1]] * 2, [[0, 1]] * 2, [[[0.7, 0.7]] * 2, [[0, 0.9], [0.9, 0]]]),
        "t4": ([[0]], [[0]], [[[0.5 - 2.0**-54]]]),
        "t5": ([[0]] * 9 + [[0, 1]], [[0]] * 10, t5),
        "t7": ([[0, 1, 2]], [[0, 1, 2]], [[[0.51, 0.95, 0], [0, 0.51, 0.95], [0, 0, 0.51]]]),
        "t8": ([[], []], [[0], [0, 1]], [[], []]),
        "t9 perfect": ([[0]] * 10, [[0]] * 10, [[[1.0]]] * 10),
        "t9 targetless": ([[]] * 10, [[0]] * 10, [[]] * 10),
        "t10": ([[0]], [[0]], [[[0.9]]]),
        "t14": ([[0], [0]], [[0], [0]], [[[0.0]], [[0.0]]]),
        "t14 kept": ([[0], [0]], [[0], [0]], [[[0.3]], [[0.0]]]),
        "t15": ([[0]], [[0]], [[[0.5]]]),
        "t16": ([[0]] * 3, [[0], [1], [2, 3, 4]], [[[0.9]], [[0.9]], [[0.9, 0, 0]]]),
    }
    return {
        name: (ragged(*case), 0.0 if name.startswith("t14") else 0.5)
        for name, case in found.items()
    }


@functools.cache
def expected():
    if not reference.SHARED.exists():
        pytest.skip("shared/data/mot is not here")
    return json.loads((reference.SHARED / "expected.json").read_text())


def json_cases():
    if not reference.SHARED.exists():
        return {}
    return {
        name: (ragged(x["gt_ids"], x["tracker_ids"], x["similarity"]), x["threshold"])
        for name, x in expected()["cases"].items()
    }


def real_sequences():
    found = {
        name: reference.from_files(reference.TUD / name)
        for name in ("TUD-Campus", "TUD-Stadtmitte")
    }
    for name in ("MOTRICS-SYNTH-01", "PREPROC-01"):  # the second one as MOT15
        if reference.SHARED.exists():
            found[name] = reference.from_files(reference.SHARED / name)
    rng = np.random.default_rng(0)
    found["crowd"] = reference.random_sequence(rng, 30, 14, most=14, ids=30, field=60)
    return {name: (x, 0.5) for name, x in found.items()}


RANDOM = [reference.random_sequence(np.random.default_rng(seed)) for seed in range(240)]
DRAWN = {f"random {seed}": (x, 0.5) for seed, x in enumerate(RANDOM)}
EVERY = {**hand_cases(), **json_cases(), **real_sequences(), **DRAWN}
NAMES = list(EVERY)
SHAPE = 179, 14, 14
"""Frames, predictions and targets of the longest and the widest."""
IDS = {"num_predictions": 30, "num_targets": 14}


# Ours --------------------------------------------------------------------------------------------


def ids_of(kind, ids):
    return ids if kind != "clear" else {"num_targets": ids["num_targets"]}


@functools.cache
def counter(kind, convention):
    """One compiled function for all sequences."""
    count = functools.partial(MODULES[kind].count, **ids_of(kind, IDS))
    if kind != "hota":
        count = functools.partial(count, convention=convention)

    @functools.partial(jax.jit)
    def run(sequence, threshold, num_frames):
        options = {} if kind == "hota" else {"threshold": threshold}
        return count(sequence, **options, **({"num_frames": num_frames} if kind == "clear" else {}))

    return run


def counted(kind, cases, dtype, convention="trackeval"):
    """Counts of cases, stacked."""
    run, found = counter(kind, convention), []
    with jax.enable_x64(dtype == np.float64):
        for x, threshold in cases:
            sequence = padded(x, *SHAPE)
            sequence = sequence._replace(similarities=sequence.similarities.astype(dtype))
            found.append(run(sequence, dtype(threshold), np.int32(len(x.target_ids))))
    return jax.tree.map(lambda *leaves: np.stack(leaves), *jax.device_get(found))


@functools.cache
def counts_of_every(kind, dtype, convention="trackeval"):
    return counted(kind, EVERY.values(), dtype, convention)


def summarized(kind, counts, dtype, **options):
    with jax.enable_x64(dtype == np.float64):
        return jax.device_get(MODULES[kind].summarize(counts, **options))


@functools.cache
def scores_of_every(kind, dtype, convention="trackeval"):
    options = {} if kind == "hota" else {"convention": convention}
    return summarized(kind, counts_of_every(kind, dtype, convention), dtype, **options)


def at(scores, index):
    return type(scores)(*(x[index] for x in scores))


def of_case(kind, name, dtype=np.float64, convention="trackeval"):
    """Our scores of a case by hand."""
    return at(scores_of_every(kind, dtype, convention), NAMES.index(name))


def letters(name):
    """`hota_loc_a_0` and `HOTALocA(0)` are one name."""
    return "".join(filter(str.isalnum, name)).lower()


def assert_scores(found, wanted, dtype, said):
    """All that TrackEval says: integers equal, floats to the tolerance."""
    ours = {letters(name): x for name, x in found._asdict().items()}
    assert {letters(name) for name in wanted} - {"meanoveralpha"} == set(ours)
    for name, x in ours.items():
        y = np.asarray({letters(name): y for name, y in wanted.items()}[name])
        assert np.shape(x) == np.shape(y), (said, name)
        if np.issubdtype(x.dtype, np.integer):
            assert x.tolist() == y.tolist(), (said, name)
        else:
            assert x.dtype == dtype
            unit = TOLERANCE[dtype]
            np.testing.assert_allclose(x, y, rtol=unit, atol=unit, err_msg=f"{said}: {name}")


# Against the tools -------------------------------------------------------------------------------


@one_kind
@one_dtype
def test_every_sequence_has_trackevals_scores(kind, dtype):
    """240 drawn ones with misses, switches, empty frames, empty sides and gaps; TUD-Campus,
    TUD-Stadtmitte, MOTRICS-SYNTH-01 and PREPROC-01; and every case written by hand but T3, which
    has ties, and in float32 T4, which is about float64.
    """
    found = scores_of_every(kind, dtype)
    for index, (name, x) in enumerate(EVERY.items()):
        if name != "t3" and (name != "t4" or dtype == np.float64):
            assert_scores(at(found, index), reference.by_trackeval(kind, *x), dtype, name)


@one_dtype
def test_every_sequence_has_motmetrics_scores_by_its_convention(dtype):
    """The number of matches first, then the distance; memory for ever; NaN for nothing (T8);
    MT from 0.8 on; fragmentations inside the span alone.
    """
    found = [scores_of_every(kind, dtype, "motmetrics") for kind in ("clear", "identity")]
    for index, (name, x) in enumerate(EVERY.items()):
        if name == "t3" or (name == "t4" and dtype == np.float32):
            continue
        ours = {field: x[index] for scores in found for field, x in scores._asdict().items()}
        for field, y in motmetrics_scores()[name].items():
            unit = TOLERANCE[dtype] if ours[field].dtype == dtype else 0
            np.testing.assert_allclose(ours[field], y, unit, unit, err_msg=f"{name}: {field}")


@functools.cache
def motmetrics_scores():
    return {name: reference.by_motmetrics(*x) for name, x in EVERY.items()}


def test_random_sequences_hold_what_they_are_there_for():
    results = [reference.by_trackeval("clear", x) for x in RANDOM]
    for name in ("IDSW", "Frag", "MT", "PT", "ML", "CLR_FN", "CLR_FP"):
        assert sum(x[name] > 0 for x in results) > 30
    assert sum(x.num_ids[0] == 0 for x in RANDOM) >= 5
    assert sum(x.num_ids[1] == 0 for x in RANDOM) >= 5
    empty = [[len(g) == 0, len(p) == 0] for x in RANDOM for g, p in zip(*x[:2], strict=True)]
    assert (np.mean(empty, axis=0) > 0.05).all()
    # What is not isolated in a frame is where a matching has a choice.
    crossed = [((t >= 0.5).sum(0) > 1).any() for x in RANDOM for t in x.similarities]
    assert np.mean(crossed) > 0.05


@one_kind
def test_sequences_combine_by_adding_their_counts(kind):
    """TrackEval's combine_sequences, of all sequences and of each alone."""
    single = [reference.by_trackeval(kind, *x) for x in EVERY.values()]
    kept = np.flatnonzero(np.array(NAMES) != "t3")
    counts = counts_of_every(kind, np.float64)
    options = {"empty": "formula"} if kind == "clear" else {}
    total = type(counts)(*(x[kept].sum(axis=0, dtype=x.dtype) for x in counts))
    wanted = reference.combined_by_trackeval(kind, [single[i] for i in kept])
    assert_scores(summarized(kind, total, np.float64, **options), wanted, np.float64, "all")
    found = summarized(kind, counts, np.float64, **options)
    for index in kept[:60]:
        wanted = reference.combined_by_trackeval(kind, [single[index]])
        assert_scores(at(found, index), wanted, np.float64, NAMES[index])


@one_kind
@pytest.mark.parametrize("ignore", [False, True])
def test_classes_average_as_trackevals(kind, ignore):
    """T15, on sequences taken for classes, an empty one among them."""
    cases = [EVERY[name] for name in ("t15", "t16", "random 1", "random 2")]
    cases.append((ragged([[]], [[]], [[]]), 0.5))
    scores = summarized(kind, counted(kind, cases, np.float64), np.float64)
    wanted = [reference.by_trackeval(kind, *case) for case in cases]
    where = np.arange(len(cases)) < len(cases) - 1 if ignore else None
    with jax.enable_x64(True):
        found = jax.device_get(combine.class_averaged(scores, where=where))
    wanted = reference.averaged_by_trackeval(kind, wanted, ignore)
    assert_scores(found, wanted, np.float64, "classes")


def test_tud_has_the_published_numbers():
    """Section 5 of the protocol: full float64 of TrackEval 1.3.0, also for both together."""
    wanted = expected()["sequences"]
    pair = ["TUD-Campus", "TUD-Stadtmitte"]
    for kind, theirs in (("clear", "CLEAR"), ("identity", "Identity"), ("hota", "HOTA")):
        counts = counts_of_every(kind, np.float64)
        options = {"empty": "formula"} if kind == "clear" else {}
        chosen = [NAMES.index(name) for name in pair]
        total = type(counts)(*(x[chosen].sum(axis=0, dtype=x.dtype) for x in counts))
        for name in (*pair, "MOTRICS-SYNTH-01"):
            found = at(scores_of_every(kind, np.float64), NAMES.index(name))
            assert_scores(found, wanted[name]["trackeval"][theirs], np.float64, name)
        found = summarized(kind, total, np.float64, **options)
        assert_scores(found, wanted["COMBINED-TUD"]["trackeval"][theirs], np.float64, "both")


# The cases, with their values --------------------------------------------------------------------


def test_a_target_forgets_a_prediction_that_it_lost():
    """T1: MOT16's text; py-motmetrics remembers."""
    x = of_case("clear", "t1")
    assert (x.idsw, x.mota, x.motp) == (1, pytest.approx(-1 / 3), pytest.approx(0.9))
    x = of_case("clear", "t1", convention="motmetrics")
    assert (x.idsw, x.mota, x.motp) == (0, 0, pytest.approx(0.25))


def test_the_order_of_rows_matters_to_motmetrics_alone():
    """T2."""
    for name, distance in (("t2", 0.2), ("t2 swapped", 0.4 / 3)):
        assert of_case("clear", name).motp == pytest.approx(13 / 15)
        theirs = of_case("clear", name, convention="motmetrics")
        assert theirs.motp == pytest.approx(distance)


def test_ties_are_broken_one_way_or_the_other():
    """T3: both are optimal."""
    for convention in ("trackeval", "motmetrics"):
        assert of_case("clear", "t3", convention=convention).idsw in (0, 2)
        assert of_case("clear", "t3", convention=convention).clr_tp == 4
        assert of_case("identity", "t3", convention=convention).idf1 == 1


def test_clear_has_a_leeway_at_the_threshold_and_identity_none():
    """T4: a similarity of 0.5 - 2^-54."""
    assert of_case("clear", "t4").clr_tp == 1
    assert of_case("identity", "t4").idtp == 0
    assert of_case("clear", "t4", convention="motmetrics").clr_tp == 1
    assert of_case("identity", "t4", convention="motmetrics").idtp == 1


def test_hota_matches_once_for_all_thresholds():
    """T5: matching at each threshold would give 0.909 at 0.5."""
    x = of_case("hota", "t5")
    assert x.hota.mean() == pytest.approx(0.8639293590114071, abs=1e-12)
    assert x.det_a[9] == 0.75
    assert x.hota[9] == pytest.approx(0.7833494518006403, abs=1e-12)


def test_other_ids_of_the_same_regions_may_change_det_a():
    """T6."""
    similarities = [[[1.0]], [[1.0]], [[0.4, 0.6]]]
    for ids, true in (([[0], [0], [0, 1]], 2), ([[1], [1], [0, 1]], 3)):
        x = ragged([[0]] * 3, ids, similarities)
        found = at(counted("hota", [(x, 0.5)], np.float64), 0)
        assert found.hota_tp[9] == true
        assert reference.by_trackeval("hota", x)["HOTA_TP"][9] == true


def test_trackeval_takes_the_greatest_sum_and_motmetrics_the_most_pairs():
    """T7."""
    assert of_case("clear", "t7").clr_tp == 2
    assert of_case("clear", "t7").mota == pytest.approx(1 / 3)
    theirs = of_case("clear", "t7", convention="motmetrics")
    assert (theirs.clr_tp, theirs.mota) == (3, 1)


def test_a_sequence_without_targets_has_its_own_rule():
    """T8: MOTA 0 and MLR 1; combined alone -3 and 0; in py-motmetrics minus infinity."""
    x = of_case("clear", "t8")
    assert (x.mota, x.mlr, x.clr_fp, x.clr_frames) == (0, 1, 3, 0)
    counts = at(counts_of_every("clear", np.float64), NAMES.index("t8"))
    x = summarized("clear", counts, np.float64, empty="formula")
    assert (x.mota, x.mlr) == (-3, 0)
    x = of_case("clear", "t8", convention="motmetrics")
    assert (x.mota, np.isnan(x.motp), x.clr_frames) == (-np.inf, True, 2)


@pytest.mark.parametrize(("empty", "rate"), [("trackeval", 1.0), ("formula", 0.5)])
def test_frames_of_a_sequence_without_targets_count_by_formula_alone(empty, rate):
    """T9: 10 perfect frames, and 10 with a false positive each."""
    total = None
    for name in ("t9 perfect", "t9 targetless"):
        x = padded(EVERY[name][0], 10, 1, 1)
        x = x._replace(similarities=x.similarities.astype(np.float32))
        counts = clear.count(x, num_targets=1, empty=empty)
        total = counts if total is None else jax.tree.map(jnp.add, total, counts)
    assert clear.summarize(total, empty="formula").fp_per_frame == rate


def test_motp_is_a_similarity_and_in_motmetrics_a_distance():
    """T10."""
    assert of_case("clear", "t10").motp == 0.9
    assert of_case("clear", "t10", convention="motmetrics").motp == pytest.approx(0.1)


def test_a_sequence_without_a_match_leaves_the_motp_of_all_alone():
    """T11: a distance of 0.2, where py-motmetrics' overall row has NaN."""
    cases = [(ragged([[0]], [[0]], [[[s]]]), 0.5) for s in (0.8, 0.2)]
    counts = counted("clear", cases, np.float64, "motmetrics")
    total = type(counts)(*(x.sum(axis=0, dtype=x.dtype) for x in counts))
    scores = summarized("clear", total, np.float64, convention="motmetrics")
    assert scores.motp == pytest.approx(0.2)


def test_an_id_twice_in_a_frame_is_an_error_on_the_host():
    """T13."""
    rows = np.zeros((2, 4))
    with pytest.raises(ValueError, match=r"ids must occur once a frame, got 7 twice in frame 0"):
        pack(np.array([0, 0]), np.array([7, 7]), rows, num_frames=1)


def test_a_similarity_of_zero_at_threshold_zero():
    """T14: no match in CLEAR, unless the two were matched before; a match in Identity."""
    assert of_case("clear", "t14").clr_tp == 0
    assert of_case("clear", "t14 kept").clr_tp == 2
    assert of_case("identity", "t14").idtp == 2


def test_an_empty_class_counts_in_the_average_of_classes():
    """T15: LocA 0.868 and HOTA 0.263, without it 0.737 and 0.526."""
    cases = [EVERY["t15"], (ragged([[]], [[]], [[]]), 0.5)]
    scores = summarized("hota", counted("hota", cases, np.float32), np.float32)
    found = combine.class_averaged(scores)
    assert [round(float(x.mean()), 3) for x in (found.loc_a, found.hota)] == [0.868, 0.263]
    found = combine.class_averaged(scores, where=np.array([True, False]))
    assert [round(float(x.mean()), 3) for x in (found.loc_a, found.hota)] == [0.737, 0.526]
    assert combine.class_averaged(scores, where=np.zeros(2, bool)).loc_a.tolist() == [0] * 19


def test_mota_may_be_negative():
    """T16: more false positives and switches than matches."""
    x = of_case("clear", "t16")
    assert (x.clr_tp, x.clr_fp, x.idsw) == (3, 2, 2)
    assert x.mota == pytest.approx(-1 / 3)


def test_regions_without_area_are_no_match_by_trackevals_overlap():
    """T18: the similarity is data. TrackEval's is 0 for a box against its equal of no area; ours
    of boxes 1e-9 wide is 1.
    """
    box = np.array([[5.0, 5, 0, 0]])
    assert reference.box_ious(box, box) == 0
    assert boxes.iou(jnp.array([5.0, 5, 5, 5]), jnp.array([5.0, 5, 5, 5])) == 0
    small = np.array([[5.0, 5, 1e-9, 1e-9]])
    assert reference.box_ious(small, small) == 0


# What does not matter, and what must hold --------------------------------------------------------


def test_the_matching_of_a_frame_is_the_best():
    """Against SciPy: the greatest sum, and the greatest sum of the most pairs."""
    rng = np.random.default_rng(0)
    scores = rng.random((400, 7, 5)).astype(np.float32)
    keep = rng.random(400)[:, None, None]
    where = rng.random(scores.shape) < keep
    scores = np.where(rng.random(400)[:, None, None] < 0.3, np.round(scores, 1), scores)
    for most in (False, True):
        rows = jax.jit(jax.vmap(functools.partial(matched, most=most)))(scores, where)
        for table, allowed, row in zip(scores, where, np.asarray(rows), strict=True):
            columns = np.flatnonzero(row >= 0)
            assert len(set(row[columns])) == len(columns)
            assert allowed[row[columns], columns].all()
            lifted = np.where(allowed, table.astype(np.float64) + 10 * most, 0)
            best = lifted[linear_sum_assignment(lifted, maximize=True)].sum()
            assert lifted[row[columns], columns].sum() == pytest.approx(best, abs=1e-5)


@one_kind
def test_order_within_a_frame_and_names_of_ids_change_nothing(kind):
    rng = np.random.default_rng(0)
    names = rng.permutation(5), rng.permutation(14)
    moved = []
    for x in RANDOM[:40]:
        frames = []
        for g, p, table in zip(*x, strict=True):
            i, j = rng.permutation(len(g)), rng.permutation(len(p))
            frames.append((names[0][g[i]], names[1][p[j]], table[i][:, j]))
        moved.append((reference.Ragged(*map(list, zip(*frames, strict=True))), 0.5))
    start = NAMES.index("random 0")
    found = counted(kind, moved, np.float64)
    for x, y in zip(found, counts_of_every(kind, np.float64), strict=True):
        np.testing.assert_allclose(x, y[start : start + 40], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3, 2), (4, 0, 2), (4, 3, 0)])
def test_sequences_without_frames_or_rows_count_what_there_is(shape):
    frames, p, t = shape
    ids, other = np.zeros((frames, p), np.int32), np.zeros((frames, t), np.int32)
    other += np.arange(t, dtype=np.int32)
    ids += np.arange(p, dtype=np.int32)
    valid = np.ones((frames, p), bool), np.ones((frames, t), bool)
    x = Sequence(ids, other, *valid, np.zeros(shape, np.float32))
    found = clear.count(x, num_targets=t)
    assert (found.clr_fn, found.clr_fp, found.ml) == (frames * t, frames * p, t * (frames > 0))
    found = identity.count(x, num_predictions=p, num_targets=t)
    assert found == (0, frames * t, frames * p)
    found = hota.count(x, num_predictions=p, num_targets=t)
    assert found.hota_fn.tolist() == [frames * t] * 19
    assert found.hota_fp.tolist() == [frames * p] * 19
    scores = hota.summarize(found)
    assert scores.loc_a.tolist() == [1] * 19
    assert scores.hota.tolist() == [0] * 19


def test_any_overlap_of_regions_makes_a_sequence():
    """From rows to scores: two tracks of boxes, one of them lost in the second frame."""
    rows = np.array([[0.0, 0, 4, 4], [10, 10, 14, 14], [1, 0, 5, 4], [11, 10, 15, 14]])
    frames, ids = np.array([0, 0, 1, 1]), np.array([3, 8, 3, 8])
    targets, _ = pack(frames, ids, rows, num_frames=2)
    predictions, _ = pack(frames[:3], ids[:3], rows[:3] + np.array([0.0, 0, 0, 1]), num_frames=2)
    x = compare(predictions, targets, overlap=boxes.iou)
    counts = clear.count(x, num_targets=2)
    assert (counts.clr_tp, counts.clr_fn, counts.clr_fp) == (3, 1, 0)
    np.testing.assert_allclose(clear.summarize(counts).motp, 0.8, rtol=1e-6)
    assert identity.count(x, num_predictions=2, num_targets=2) == (3, 1, 0)


def test_the_gradient_of_the_sums_is_one_for_each_matched_pair():
    x = padded(RANDOM[3], 12, 8, 5)
    table = np.nan_to_num(x.similarities).astype(np.float32)

    def by_clear(table):
        counts = clear.count(x._replace(similarities=table), num_targets=5)
        return counts.motp_sum, counts.clr_tp

    def by_hota(table):
        counts = hota.count(x._replace(similarities=table), num_predictions=14, num_targets=5)
        return counts.loc_a_sum[9], counts.hota_tp[9]

    for f in (by_clear, by_hota):
        run = jax.jit(jax.value_and_grad(f, has_aux=True))
        (value, true), slope = jax.device_get(run(table))
        assert set(np.unique(slope)) <= {0, 1}
        assert slope.sum() == true > 0
        np.testing.assert_allclose((slope * table).sum(), value, rtol=1e-6)


def test_scores_have_the_slopes_that_are_stated():
    """By the float sums: 1 over the matches for MOTP and LocA, half of it for a class of two; and
    0, not NaN, where HOTA is 0.
    """
    numbers = clear.Counts(*map(jnp.int32, (8, 2, 1, 1, 1, 0, 0, 0, 10)), jnp.float32(6.4))
    slope = jax.grad(lambda x: clear.summarize(numbers._replace(motp_sum=x)).motp)
    assert slope(numbers.motp_sum) == 1 / 8
    true = jnp.full(19, 4, jnp.int32)
    sums = [jnp.full(19, 2.0)] * 4

    def by_hota(field, sums, true):
        counts = hota.Counts(true, true, true, *sums)
        return getattr(hota.summarize(counts), field).sum()

    assert jax.grad(by_hota, 1)("loc_a", sums, true)[3].tolist() == [0.25] * 19
    assert jax.grad(by_hota, 1)("hota", sums, 0 * true)[0].tolist() == [0] * 19

    def of_classes(x):
        ratios = [x, x, x]
        scores = identity.Scores(*ratios, *(true[:2],) * 3)
        return combine.class_averaged(scores).idf1

    assert jax.grad(of_classes)(jnp.array([0.2, 0.6])).tolist() == [0.5, 0.5]


def test_sequences_may_lie_on_several_devices():
    cases = list(DRAWN.values())[:8]
    batch = Sequence(*map(np.stack, zip(*(padded(x, 12, 8, 5) for x, _ in cases), strict=True)))
    batch = batch._replace(similarities=batch.similarities.astype(np.float32))
    mesh = jax.make_mesh((4,), ("batch",), axis_types=(AxisType.Auto,))

    def total(batch):
        counts = {
            kind: jax.vmap(functools.partial(module.count, **ids_of(kind, IDS)))(batch)
            for kind, module in MODULES.items()
        }
        return jax.lax.psum(jax.tree.map(lambda x: x.sum(0, dtype=x.dtype), counts), "batch")

    over_devices = jax.shard_map(
        total, mesh=mesh, in_specs=P("batch"), out_specs=P(), check_vma=False
    )
    found = jax.jit(over_devices)(batch)
    for kind in KINDS:
        wanted = counted(kind, cases, np.float32)
        for x, y in zip(found[kind], wanted, strict=True):
            np.testing.assert_allclose(x, y.sum(axis=0), rtol=1e-5)


@pytest.mark.usefixtures("without_jaxtyping")
def test_bad_arguments_are_errors_that_name_them():
    x = padded(RANDOM[0], 12, 8, 5)
    x = x._replace(similarities=x.similarities.astype(np.float32))

    def run(x, **options):
        return clear.count(x, num_targets=5, **options)

    for bad, error, text in [
        (x._replace(similarities=x.similarities[0]), ValueError, r"must have shape \[_, _, _\]"),
        (x._replace(target_ids=x.target_ids[:, :3]), ValueError, r"target_ids must have shape"),
        (x._replace(prediction_ids=x.prediction_ids * 1.0), TypeError, "prediction_ids must hold"),
        (x._replace(target_valid=x.target_ids), TypeError, "target_valid must be boolean"),
        (x._replace(similarities=x.similarities > 0), TypeError, "similarities must hold floats"),
    ]:
        for f in (run, lambda x: hota.count(x, **IDS), lambda x: identity.count(x, **IDS)):
            with pytest.raises(error, match=text):
                f(bad)
    with pytest.raises(ValueError, match=r"convention must be one of .* got 'lap'"):
        run(x, convention="lap")
    with pytest.raises(ValueError, match=r"empty must be one of"):
        run(x, empty="no")
    with pytest.raises(ValueError, match=r"threshold must be a number"):
        run(x, threshold=np.zeros(2))
    with pytest.raises(ValueError, match=r"num_targets must be 0 or more, got -1"):
        clear.count(x, num_targets=-1)
    with pytest.raises(ValueError, match="too many cells"):
        identity.count(x, num_predictions=10**6, num_targets=10**6)
