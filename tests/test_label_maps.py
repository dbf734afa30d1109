"""`readers.label_maps`: images into labels, and every way in which a file can be bad."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxiou.readers import FileError, label_maps
from jaxiou.readers.label_maps import Pair

SHARED = Path(__file__).parents[2] / "shared" / "data" / "seg"


def png(labels, bits, *, palette=False):
    """A PNG written by hand, as Pillow writes no grey image of 2 or 4 bits."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    height, width = np.shape(labels)
    rows = b""
    for row in labels:
        text = "".join(f"{label:0{bits}b}" for label in row)
        text += "0" * (-len(text) % 8)
        rows += b"\0" + bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))
    kind = 3 if palette else 0
    head = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    colours = chunk(b"PLTE", bytes(3 * 2**bits))
    parts = [chunk(b"IHDR", head), colours if palette else b"", chunk(b"IDAT", zlib.compress(rows))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + chunk(b"IEND", b"")


def save(path, labels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(labels, np.uint8)).save(path)
    return path


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 16])
def test_grey_images_of_any_depth_hold_their_numbers(bits):
    labels = [[0, 1, 2**bits - 1], [1, 0, 0]]
    got = label_maps.read(io.BytesIO(png(labels, bits)))
    np.testing.assert_array_equal(got, labels)
    assert got.dtype.isnative


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_palette_images_give_their_indices_not_their_colours(bits):
    labels = [[0, 1, 2**bits - 1], [1, 0, 0]]
    got = label_maps.read(io.BytesIO(png(labels, bits, palette=True)))
    np.testing.assert_array_equal(got, labels)


def test_sixteen_bits_keep_ids_of_cityscapes_instances(tmp_path):
    labels = np.array([[26001, 7], [33042, 65535]], np.uint16)
    Image.fromarray(labels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(label_maps.read(tmp_path / "a.png"), labels)


def test_real_label_maps_are_those_of_pillow():
    folder = SHARED / "ade_sample"
    if not folder.exists():
        pytest.skip("no shared data here")
    for path in folder.glob("*.png"):
        np.testing.assert_array_equal(label_maps.read(path), np.asarray(Image.open(path)))


def truncated(path):
    save(path, np.random.default_rng(0).integers(0, 200, (50, 50)))
    path.write_bytes(path.read_bytes()[:-1500])


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("missing.png", lambda path: None, "does not exist"),
        ("text.png", lambda path: path.write_text("no image"), "not an image"),
        ("empty.png", lambda path: path.write_bytes(b""), "not an image"),
        ("short.png", truncated, "cannot be read: .*truncated"),
        ("folder.png", lambda path: path.mkdir(), "cannot be read"),
        ("rgb.png", lambda path: Image.new("RGB", (2, 2)).save(path), "mode RGB;.*not colours"),
        ("la.png", lambda path: Image.new("LA", (2, 2)).save(path), "mode LA"),
        ("grey.jpg", lambda path: Image.new("L", (2, 2)).save(path), "is a JPEG"),
        ("grey.tif", lambda path: Image.new("L", (2, 2)).save(path), "is a TIFF"),
        ("grey.pgm", lambda path: path.write_bytes(b"P5\n1 1\n3\n\1"), "is a PPM"),
    ],
)
def test_a_file_that_holds_no_labels_is_named_with_the_reason(tmp_path, name, make, reason):
    path = tmp_path / name
    make(path)
    with pytest.raises(FileError, match=f"{name}: .*{reason}") as error:
        label_maps.read(path)
    assert error.value.path == path


# Pairs of files.


def test_files_belong_together_by_name_without_their_suffixes(tmp_path):
    for name in ("b", "a"):
        save(tmp_path / "truth" / "city" / f"{name}_labelIds.png", [[0]])
        save(tmp_path / "truth" / "city" / f"{name}_color.png", [[0]])
        save(tmp_path / "found" / f"{name}.png", [[0]])
    pairs = label_maps.find_pairs(
        tmp_path / "truth", tmp_path / "found", target_suffix="_labelIds.png"
    )
    assert [pair.name for pair in pairs] == ["a", "b"]
    assert pairs[0].target.name == "a_labelIds.png"
    assert pairs[0].prediction == tmp_path / "found" / "a.png"


def test_names_that_occur_twice_belong_together_by_their_paths(tmp_path):
    for side in ("truth", "found"):
        for video in ("one", "two"):
            save(tmp_path / side / video / "000.png", [[0]])
    pairs = label_maps.find_pairs(tmp_path / "truth", tmp_path / "found")
    assert [pair.name for pair in pairs] == ["one/000", "two/000"]
    assert all(pair.target.parent.name == pair.prediction.parent.name for pair in pairs)


def test_dots_in_names_are_kept(tmp_path):
    for name in ("v1.0", "v1.1"):
        save(tmp_path / "truth" / f"{name}.png", [[0]])
        save(tmp_path / "found" / f"{name}.png", [[0]])
    pairs = label_maps.find_pairs(tmp_path / "truth", tmp_path / "found")
    assert [pair.name for pair in pairs] == ["v1.0", "v1.1"]


def test_a_file_without_a_partner_is_named(tmp_path):
    for name in ("a", "b", "c"):
        save(tmp_path / "truth" / f"{name}.png", [[0]])
    save(tmp_path / "found" / "a.png", [[0]])
    with pytest.raises(FileError, match=r"b\.png: has no prediction 'b' in .*found; .* 1 more"):
        label_maps.find_pairs(tmp_path / "truth", tmp_path / "found")
    with pytest.raises(FileError, match=r"b\.png: has no target 'b' in .*found; .* 1 more"):
        label_maps.find_pairs(tmp_path / "found", tmp_path / "truth")


def test_a_folder_that_is_missing_or_empty_is_named(tmp_path):
    save(tmp_path / "truth" / "a.png", [[0]])
    (tmp_path / "empty").mkdir()
    for folder, reason in [("nowhere", "does not exist"), ("empty", r"no file .*'\.png'")]:
        with pytest.raises(FileError, match=f"{folder}: .*{reason}"):
            label_maps.find_pairs(tmp_path / "truth", tmp_path / folder)
    with pytest.raises(FileError, match=r"a\.png: is not a folder"):
        label_maps.find_pairs(tmp_path / "truth" / "a.png", tmp_path / "truth")


def test_links_are_followed_and_one_to_nowhere_is_named(tmp_path):
    for side in ("truth", "found"):
        save(tmp_path / "elsewhere" / side / "b.png", [[0]])
        save(tmp_path / side / "a.png", [[0]])
        (tmp_path / side / "city").symlink_to(tmp_path / "elsewhere" / side)
    pairs = label_maps.find_pairs(tmp_path / "truth", tmp_path / "found")
    assert [pair.name for pair in pairs] == ["a", "b"]
    for side in ("truth", "found"):
        (tmp_path / side / "c.png").symlink_to(tmp_path / "nowhere.png")
    pairs = label_maps.find_pairs(tmp_path / "truth", tmp_path / "found")
    with pytest.raises(FileError, match=r"truth.c\.png: does not exist"):
        label_maps.read_pair(pairs[2])


def test_a_folder_below_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    save(tmp_path / "a.png", [[0]])

    def walk(folder, onerror, followlinks):
        onerror(PermissionError(13, "Permission denied", str(tmp_path / "city")))
        return iter(())

    monkeypatch.setattr("os.walk", walk)
    with pytest.raises(FileError, match=r"city: cannot be read: Permission denied"):
        label_maps.find_pairs(tmp_path, tmp_path)


def test_sizes_that_differ_are_told_with_both_files(tmp_path):
    target = save(tmp_path / "t.png", np.zeros((2, 3)))
    prediction = save(tmp_path / "p.png", np.zeros((3, 2)))
    with pytest.raises(FileError, match=r"p\.png: is 2 x 3 pixels, but its target .*t\.png is 3 x"):
        label_maps.read_pair(Pair("x", target, prediction))


# Tables.


def test_a_table_works_at_once_not_in_sequence():
    """S18: also on a view, without changing the input, and with labels that uint8 lacks."""
    labels = np.array([[0, 1], [2, 255]], np.uint8)
    before = labels.copy()
    np.testing.assert_array_equal(label_maps.remap(labels, {0: 1, 1: 0}), [[1, 0], [2, 255]])
    np.testing.assert_array_equal(label_maps.remap(labels, {255: -1}), [[0, 1], [2, -1]])
    np.testing.assert_array_equal(label_maps.remap(labels.T, {2: 300}), [[0, 300], [1, 255]])
    np.testing.assert_array_equal(label_maps.remap(labels, {}), labels)
    np.testing.assert_array_equal(labels, before)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int64"])
def test_a_table_gives_what_a_dictionary_gives(dtype):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 100, (4, 5)).astype(dtype)
    table = {int(k): int(v) for k, v in rng.integers(-5, 99, (20, 2))}
    wanted = [[table.get(int(label), int(label)) for label in row] for row in labels]
    np.testing.assert_array_equal(label_maps.remap(labels, table), wanted)


@pytest.mark.usefixtures("without_jaxtyping")
def test_labels_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match=r"4294967296, which does not fit in 32 bits"):
        label_maps.remap(np.zeros(1, np.int32), {0: 2**32})
    for function in (label_maps.reduce_zero_label, lambda x: label_maps.remap(x, {0: 1})):
        with pytest.raises(ValueError, match=r"labels hold integers .* do not fit in 32 bits"):
            function(np.array([0, 2**32]))
    with pytest.raises(TypeError, match="labels must hold integers"):
        label_maps.reduce_zero_label(np.zeros(1, np.float32))


def test_zero_label_goes_the_way_of_mmseg():
    labels = np.arange(256, dtype=np.uint8)
    wanted = labels.copy()  # mmseg's three steps, in uint8
    wanted[wanted == 0] = 255
    wanted = wanted - 1
    wanted[wanted == 254] = 255
    np.testing.assert_array_equal(label_maps.reduce_zero_label(labels), wanted)
