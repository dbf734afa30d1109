"""Readers of tracks and the command `jaxiou mot`: values of TrackEval, and every bad file."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as rle

from jaxiou import cli
from jaxiou.readers import FileError, kitti_tracking, mot, mots

SHARED = Path(__file__).parents[2] / "shared" / "data" / "mot"
needs_data = pytest.mark.skipif(not SHARED.exists(), reason="no shared data here")


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def counts(loaded):
    """Targets and predictions that are left."""
    return int(loaded.sequence.target_valid.sum()), int(loaded.sequence.prediction_valid.sum())


# MOTChallenge.


@needs_data
@pytest.mark.parametrize(("benchmark", "kept"), [("MOT15", 311), ("MOT17", 222), ("MOT20", 208)])
def test_each_benchmark_leaves_out_what_its_distractors_took(benchmark, kept):
    """T22: by class, not by confidence; MOT20 has one class more."""
    folder = SHARED / "PREPROC-01"
    loaded = mot.load(folder / "gt.txt", folder / "test.txt", benchmark=benchmark)
    assert counts(loaded) == (187, kept)


def test_a_prediction_on_a_distractor_goes_and_one_on_an_unmarked_pedestrian_stays(tmp_path):
    truths = write(
        tmp_path / "gt.txt",
        "1,1,0,0,10,10,1,1,1",  # a pedestrian
        "1,2,100,0,10,10,1,7,1",  # a static person
        "1,3,200,0,10,10,0,1,1",  # a pedestrian that is not marked
        "1,4,300,0,10,10,1,3,1",  # a car
    )
    found = write(
        tmp_path / "found.txt", *(f"1,{i},{100 * i},0,10,10,0.9,-1,-1,-1" for i in range(4))
    )
    loaded = mot.load(truths, found, benchmark="MOT17")
    assert loaded.prediction_ids.tolist() == [0, 2, 3]
    assert loaded.target_ids.tolist() == [1]
    assert mot.load(truths, found).target_ids.tolist() == [1, 2, 4]  # MOT15: by the mark alone


def test_frames_are_counted_and_may_be_missing_or_in_any_order(tmp_path):
    truths = write(tmp_path / "a.txt", "7 3 0 0 2 2", "2, 3, 0, 0, 2, 2", "", "2 9 5 5 2 2")
    loaded = mot.load(truths, truths)
    assert loaded.sequence.target_valid.sum(axis=1).tolist() == [0, 2, 0, 0, 0, 0, 1]
    assert mot.load(truths, truths, num_frames=9).sequence.similarities.shape == (9, 2, 2)


def test_the_length_is_that_of_the_file_beside_the_truths(tmp_path):
    truths = write(tmp_path / "S" / "gt" / "gt.txt", "1,1,0,0,2,2,1,1,1")
    write(tmp_path / "S" / "seqinfo.ini", "[Sequence]", "seqLength=5")
    found = write(tmp_path / "S.txt", "2,1,0,0,2,2,1")
    assert len(mot.load(truths, found).sequence.similarities) == 5
    write(tmp_path / "S" / "seqinfo.ini", "[Sequence]")
    with pytest.raises(FileError, match=r"seqinfo\.ini: has no seqLength"):
        mot.load(truths, found)


def test_no_rows_at_all_are_a_sequence(tmp_path):
    truths, found = write(tmp_path / "a.txt", "1,1,0,0,2,2"), write(tmp_path / "b.txt")
    for benchmark in ("MOT15", "MOT17"):
        assert counts(mot.load(found, found, benchmark=benchmark)) == (0, 0)
        assert counts(mot.load(found, truths, benchmark=benchmark)) == (0, 1)
    assert counts(mot.load(truths, found)) == (1, 0)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["1,1,0,0,2"], "line 1: has 5 of 6 numbers or more"),
        (["1,1,0,0,2,2", "1,x,0,0,2,2"], "line 2: could not convert string to float: 'x'"),
        (["1,1,0,0,2,nan"], "line 1: has a number that is not finite"),
        (["1.5,1,0,0,2,2"], r"line 1: 1.5 is no integer of 32 bits"),
        (["1,1e300,0,0,2,2"], r"line 1: 1e300 is no integer of 32 bits"),
        (["1000000000,1,0,0,2,2"], r"line 1: frame 1000000000 is above 1000000"),
        (["1,7,,20,5,8,1"], "line 1: could not convert string to float: ''"),
        (["0,1,0,0,2,2"], "line 1: frame 0 is below 1"),
        (["1,1,0,0,2,2", "", "1,-1,0,0,2,2"], "line 3: id -1 is negative"),
        (["1,4,0,0,2,2", "2,4,0,0,2,2", "1,4,9,9,2,2"], "line 3: id 4 is in this frame already"),
        (["1,1,0,0,-2,2"], "line 1: the box has a negative size"),
    ],
)
def test_a_bad_line_is_named_with_the_reason(tmp_path, lines, reason):
    """T13: duplicate ids never reach a count."""
    path = write(tmp_path / "bad.txt", *lines)
    with pytest.raises(FileError, match=rf"bad\.txt: {reason}"):
        mot.read(path)


def test_what_a_benchmark_does_not_allow_is_named(tmp_path):
    truths = write(tmp_path / "gt.txt", "1,1,0,0,2,2,1,1,1")
    found = write(tmp_path / "found.txt", "3,1,0,0,2,2,1,2,-1")
    with pytest.raises(FileError, match=r"found\.txt: line 1: class 2 is not 1"):
        mot.load(truths, found, benchmark="MOT17")
    for line in ("1,1,0,0,2,2", "1,1,0,0,2,2,1,14,1"):
        bare = write(tmp_path / "bare.txt", line)
        with pytest.raises(FileError, match=r"bare\.txt: line 1: class (-1|14) is not one of 1 to"):
            mot.load(bare, truths, benchmark="MOT17")
    half = write(tmp_path / "half.txt", "1,1,0,0,2,2,0.5,1,1")
    with pytest.raises(FileError, match=r"half\.txt: line 1: mark 0.5 is no integer"):
        mot.load(half, truths)
    with pytest.raises(FileError, match=r"found\.txt: line 1: is after the last frame, 2"):
        mot.load(truths, found, num_frames=2)
    with pytest.raises(FileError, match=r"nowhere\.txt: does not exist"):
        mot.load(truths, tmp_path / "nowhere.txt")


# KITTI.


def kitti(frame, number, kind, box, truncated=0, occluded=0):
    box = " ".join(map(str, box))
    return f"{frame} {number} {kind} {truncated} {occluded} 0 {box} 1 1 1 0 0 0 0"


BOXES = {name: (100 * i, 0, 100 * i + 60, 60) for i, name in enumerate("abcdefg")}


def test_kitti_leaves_out_what_is_hidden_small_or_in_a_region_to_ignore(tmp_path):
    truths = write(
        tmp_path / "gt.txt",
        kitti(0, 1, "Car", BOXES["a"]),
        kitti(0, 2, "Van", BOXES["b"]),
        kitti(0, 3, "Car", BOXES["c"], occluded=3),
        kitti(0, 4, "Car", BOXES["d"], truncated=1),
        kitti(0, 5, "Pedestrian", BOXES["e"]),
        kitti(0, -1, "DontCare", (500, 0, 600, 100)),
        kitti(0, -1, "DontCare", (900, 0, 950, 100)),
    )
    found = write(
        tmp_path / "found.txt",
        *(kitti(0, i, "Car", BOXES[name]) for i, name in enumerate("abcdefg")),
        kitti(0, 7, "Car", (800, 0, 860, 25)),  # small, and nothing took it
        kitti(0, 8, "Car", (800, 50, 860, 76)),
        kitti(0, 9, "Pedestrian", BOXES["e"]),
    )
    loaded = kitti_tracking.load(truths, found)
    assert loaded.target_ids.tolist() == [1]
    assert loaded.prediction_ids.tolist() == [0, 4, 6, 8]
    walkers = kitti_tracking.load(truths, found, kind="pedestrian")
    assert (walkers.target_ids.tolist(), walkers.prediction_ids.tolist()) == ([5], [9])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("0 1 Car 0 0", "line 1: has 5 of 10 fields"),
        (kitti(-1, 1, "Car", BOXES["a"]), "line 1: frame -1 is negative"),
        (kitti(0, -1, "Car", BOXES["a"]), "line 1: id -1 is negative"),
        (kitti(0, 1, "Car", "abcd"), "line 1: could not convert"),
        (kitti(0.7, 1, "Car", BOXES["a"]), "line 1: 0.7 is no integer"),
        (kitti(0, 1, "Car", (30, 60, 10, 20)), "line 1: the box .* is inverted"),
    ],
)
def test_a_bad_line_of_kitti_is_named(tmp_path, line, reason):
    with pytest.raises(FileError, match=rf"bad\.txt: {reason}"):
        kitti_tracking.read(write(tmp_path / "bad.txt", line))


# Masks.


def mots_line(frame, number, kind, rows, columns):
    mask = np.zeros((8, 8), np.uint8, order="F")
    mask[rows, columns] = 1
    code = rle.encode(mask)["counts"].decode()
    return f"{frame} {number} {kind} 8 8 {code}"


def test_masks_are_compared_by_pixels(tmp_path):
    truths = write(
        tmp_path / "gt.txt",
        mots_line(1, 2001, 2, slice(0, 2), slice(0, 4)),
        mots_line(2, 2001, 2, slice(0, 2), slice(0, 4)),
        mots_line(2, 10000, 10, slice(4, 8), slice(0, 8)),
    )
    found = write(
        tmp_path / "found.txt",
        mots_line(1, 5, 2, slice(0, 2), slice(0, 3)),
        mots_line(2, 5, 2, slice(0, 2), slice(0, 4)),
        mots_line(2, 6, 2, slice(3, 6), slice(0, 4)),  # two thirds in the region to ignore
        mots_line(2, 7, 2, slice(2, 5), slice(5, 8)),  # one third
    )
    loaded = mots.load(truths, found)
    assert loaded.prediction_ids.tolist() == [5, 7]
    np.testing.assert_array_equal(loaded.sequence.similarities[:, 0, 0], [0.75, 1])


def test_regions_to_ignore_count_together_and_may_overlap(tmp_path):
    truths = write(
        tmp_path / "gt.txt",
        mots_line(1, 10000, 10, slice(0, 8), slice(0, 3)),
        mots_line(1, 10000, 10, slice(0, 8), slice(2, 6)),
    )
    found = write(tmp_path / "found.txt", mots_line(1, 1, 2, slice(0, 8), slice(0, 8)))
    assert mots.load(truths, found).prediction_ids.tolist() == []


def test_masks_of_two_sizes_are_an_error(tmp_path):
    truths = write(tmp_path / "gt.txt", mots_line(1, 1, 2, 0, 0))
    code = rle.encode(np.ones((6, 6), np.uint8, order="F"))["counts"].decode()
    found = write(tmp_path / "found.txt", f"1 1 2 6 6 {code}")
    with pytest.raises(FileError, match=r"found\.txt: line 1: the mask is \[6, 6\], not \[8, 8\]"):
        mots.load(truths, found)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["1 1 2 8 8"], "line 1: has 5 fields, not 6"),
        ([mots_line(1.9, 1, 2, 0, 0)], "line 1: 1.9 is no integer"),
        ([mots_line(0, 1, 2, 0, 0)], "line 1: frame 0 is below 1"),
        ([mots_line(1, 1, 2, 0, slice(0, 3)), mots_line(1, 2, 2, 0, slice(2, 5))], "overlap"),
        ([mots_line(1, 1, 2, 0, 0), mots_line(1, 1, 2, 1, 1)], "line 2: id 1 is in this frame"),
    ],
)
def test_a_bad_line_of_masks_is_named(tmp_path, lines, reason):
    with pytest.raises(FileError, match=rf"bad\.txt: .*{reason}"):
        mots.read(write(tmp_path / "bad.txt", *lines))


# The command.


def tud():
    """The two sequences in the wheel of motmetrics, each as (name, truths, predictions)."""
    spec = importlib.util.find_spec("motmetrics")
    if spec is None:
        pytest.skip("motmetrics is not installed")
    data = Path(spec.origin).parent / "data"
    return [(name, *(data / name / f"{x}.txt" for x in ("gt", "test"))) for name in TUD]


TUD = ("TUD-Campus", "TUD-Stadtmitte")


@needs_data
def test_a_folder_has_the_table_of_trackeval_with_a_combined_row(tmp_path, capsys):
    for name, truths, found in tud():
        write(tmp_path / "gt" / name / "gt" / "gt.txt", truths.read_text())
        write(tmp_path / "found" / f"{name}.txt", found.read_text())
    files = [tmp_path / "scores.json", tmp_path / "hota.png"]
    options = ["--json", str(files[0]), "--plot", str(files[1])]
    assert cli.main(["mot", str(tmp_path / "gt"), str(tmp_path / "found"), *options]) == 0
    report = json.loads(files[0].read_text())["sequences"]
    assert list(report) == [*TUD, "COMBINED"]
    expected = json.loads((SHARED / "expected.json").read_text())["sequences"]
    for name in TUD:
        wanted = {}
        for metric in expected[name]["trackeval"].values():
            wanted |= metric
        for field, value in report[name].items():
            if field in wanted:
                np.testing.assert_allclose(value, np.mean(wanted[field]), rtol=0, atol=1e-12)
        assert len(report[name].keys() & wanted.keys()) > 30
    shown = capsys.readouterr().out
    combined = [line for line in shown.splitlines() if "COMBINED" in line]
    # HOTA 0.3999570912884786, MOTA 0.5551155115511551, IDF1 0.6242960579243765 by TrackEval.
    for line, score in zip(combined, ("40.00", "55.51", "62.43"), strict=False):
        assert line.split()[1] == score
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_a_sequence_may_not_be_named_as_all_together_are(tmp_path, capsys):
    for name in ("COMBINED", "[bold]b"):
        for side in ("gt", "found"):
            write(tmp_path / side / f"{name}.txt", "1,1,0,0,2,2")
    assert cli.main(["mot", str(tmp_path / "gt"), str(tmp_path / "found")]) == 2
    assert "a sequence is named COMBINED" in capsys.readouterr().err
    for side in ("gt", "found"):
        (tmp_path / side / "COMBINED.txt").rename(tmp_path / side / "a.txt")
    assert cli.main(["mot", str(tmp_path / "gt"), str(tmp_path / "found")]) == 0
    assert "[bold]b" in capsys.readouterr().out


def test_two_files_are_a_sequence(tmp_path, capsys):
    path = write(tmp_path / "S-1" / "gt" / "gt.txt", "1,1,0,0,2,2", "2,1,0,0,2,2")
    assert cli.main(["mot", str(path), str(path)]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if "S-1" in x][:1]
    assert set(line.split()[1:]) == {"100.00"}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: write(folder / "gt" / "A.txt"), "found: does not exist"),
        (lambda folder: write(folder / "found" / "A.txt"), "gt: does not exist"),
        (
            lambda folder: [write(folder / x) for x in ("gt/A.txt", "found/B.txt")],
            "A.txt: does not exist, but the sequence A has truths",
        ),
        (
            lambda folder: [write(folder / x, "1,1") for x in ("gt/A.txt", "found/A.txt")],
            "A.txt: line 1: has 2 of 6 numbers or more",
        ),
    ],
)
def test_a_bad_folder_is_explained_with_exit_code_2(tmp_path, capsys, make, reason):
    make(tmp_path)
    assert cli.main(["mot", str(tmp_path / "gt"), str(tmp_path / "found")]) == 2
    assert reason in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("without_jaxtyping")
def test_a_benchmark_that_is_not_known_is_an_error(tmp_path):
    path = write(tmp_path / "gt.txt")
    with pytest.raises(ValueError, match=r"benchmark must be one of .*, got 'MOT18'"):
        mot.load(path, path, benchmark="MOT18")


def test_a_threshold_out_of_range_is_explained(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["mot", "a", "b", "--threshold", "1.5"])
    assert "must be above 0 and at most 1" in capsys.readouterr().err
