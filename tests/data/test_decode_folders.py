from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path, PurePath

import numpy as np
import pytest
from PIL import Image

from fedwca.data import cache as cache_module
from fedwca.data import cache_dir, data_dir, decode_folders, read_image_folder, write_atomically
from fedwca.data.dataset import DatasetWarning
from fedwca.data.decode_folders import list_files_below, list_image_files
from fedwca.data.image_files import decode_image
from fedwca.errors import DataError

from .examples import SHARED, needs_shared, write_images


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # taken upside down
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    pixels = decode_image(tmp_path / "a.png", 8)
    assert pixels[:4].max() == 0
    assert pixels[4:].min() == 255


def exif_block(*tags: tuple[int, int, bytes]) -> bytes:
    """A big-endian EXIF block of tags: number, type, four bytes of value."""
    body = b"".join(struct.pack(">HHL", tag, kind, 4 if kind == 2 else 1) + value for tag, kind, value in tags)
    return b"Exif\0\0MM\0*" + struct.pack(">LH", 8, len(tags)) + body + bytes(4)


def test_an_exif_block_that_makes_no_sense_leaves_the_image_as_it_is(tmp_path: Path) -> None:
    picture = Image.fromarray(np.full((8, 8, 3), 90, np.uint8))
    picture.save(tmp_path / "a.jpg", exif=exif_block((0x0100, 2, b"abc\0"), (0x0112, 3, b"\0\6\0\0")))  # width as text
    assert abs(decode_image(tmp_path / "a.jpg", 8).astype(int) - 90).max() <= 1


def test_whatever_pillow_raises_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")

    def fail(*_: object) -> None:
        raise TypeError("'IFDRational' object cannot be interpreted as an integer")

    monkeypatch.setattr(Image.Image, "load", fail)
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", fail)
    with pytest.raises(DataError, match=r"a\.png does not decode as an image: 'IFDRational' object"):
        decode_image(tmp_path / "a.png", 4)


@pytest.mark.parametrize(("mode", "suffix"), [("L", "png"), ("P", "png"), ("CMYK", "jpg"), ("1", "png"), ("LA", "png")])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, suffix: str) -> None:
    Image.new("RGB", (9, 7), (255, 255, 255)).convert(mode).save(tmp_path / f"a.{suffix}")
    pixels = decode_image(tmp_path / f"a.{suffix}", 4)
    assert pixels.shape == (4, 4, 3)
    assert pixels.dtype == np.uint8
    assert pixels.min() >= 250


def test_sixteen_bit_grey_is_scaled_and_transparency_is_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 32768, np.uint16)).save(tmp_path / "deep.png")
    assert set(decode_image(tmp_path / "deep.png", 4).flat) <= {127, 128}
    for dark in (255, 300):  # the scale does not depend on the largest value
        for name in ("dark.png", "dark.tif", "dark.pgm"):
            Image.fromarray(np.full((4, 4), dark, np.uint16)).save(tmp_path / name)
            assert decode_image(tmp_path / name, 4).max() <= 1
    for largest in (1.0, 200.0):
        Image.fromarray(np.array([[0, largest]], np.float32)).resize((8, 4), 0).save(tmp_path / "float.tif")
        assert decode_image(tmp_path / "float.tif", 4, stretch=True).max() == (255 if largest == 1 else 200)
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert decode_image(tmp_path / "clear.png", 4).min() == 255
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30])
    palette.save(tmp_path / "palette.png")
    assert decode_image(tmp_path / "palette.png", 4)[0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.float32([0.5, np.nan]), "nan to nan"),
        (np.float32([0.5, np.inf]), r"0\.5 to inf"),
        (np.float32([0.5, 1.001]), r"0\.5 to 1\.001"),
        (np.float32([-1, 1]), "-1 to 1"),
        (np.int32([-1000, -500]), "-1000 to -500"),
        (np.int32([0, 70000]), "0 to 70000"),
    ],
)
def test_grey_values_of_unknown_range_are_refused(tmp_path: Path, values: np.ndarray, says: str) -> None:
    Image.fromarray(values[None]).save(tmp_path / "scan.tif")
    with pytest.raises(DataError, match=f"scan.tif does not decode as an image: its grey values are {says}; scale"):
        decode_image(tmp_path / "scan.tif", 4)


def test_the_centre_is_kept(tmp_path: Path) -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (decode_image(tmp_path / "wide.png", 4) == 200).all()
    stretched = decode_image(tmp_path / "wide.png", 3, stretch=True)
    # The filter is a triangle of half-width 4 around 2, 6, 10: 200 · (3/8 + 1/8) / 3.5, and 200 · 2 · (5/8 + 7/8) / 4.
    assert stretched[1, :, 0].tolist() == [29, 150, 29]


def test_cropped_and_stretched_images_are_kept_apart(tmp_path: Path) -> None:
    root = tmp_path / "photo"
    (root / "dog").mkdir(parents=True)
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    Image.fromarray(wide).save(root / "dog" / "wide.png")
    for _ in range(2):
        assert (read_image_folder(root, 4)[0] == 200).all()
        assert not (read_image_folder(root, 4, stretch=True)[0] == 200).all()


def test_what_the_cache_gives_can_be_written_to_without_changing_it(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 2}})
    read_image_folder(root, 8)
    read_image_folder(root, 8)[0][:] = 7
    assert read_image_folder(root, 8)[0][:, 0, 0, 0].tolist() == [0, 10]


def test_an_image_that_does_not_decode_is_named(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 2}})
    encoded = (root / "dog" / "1.png").read_bytes()
    for content in (b"", b"no image", encoded[: len(encoded) // 2]):
        (root / "dog" / "1.png").write_bytes(content)
        with pytest.raises(DataError, match=r"1\.png does not decode"):
            read_image_folder(root, 8)


def test_all_images_that_do_not_decode_are_counted(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 9}})
    for number in range(1, 8):
        (root / "dog" / f"{number}.png").write_bytes(b"no image")
    with pytest.raises(DataError) as error:
        read_image_folder(root, 8)
    said = str(error.value)
    assert said.startswith(f"7 images do not decode: {root}/dog/1.png does not decode as an image: it has no known ")
    assert said.endswith("5.png does not decode as an image: it has no known image format, and 2 more")


def test_folder_sorts_numbers_and_ignores_what_is_no_image(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photo", {"": {"10": 1, "9": 2, "1": 3}})
    (root / "9" / ".hidden.png").write_bytes(b"")
    (root / "9" / "notes.txt").write_text("not an image")
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    images, labels, groups, classes = read_image_folder(root, 8)
    assert images.shape == (6, 8, 8, 3)
    assert classes == ("1", "9", "10")
    assert labels.tolist() == [0, 0, 0, 1, 1, 2]
    assert groups is None
    assert images[:, 0, 0, 0].tolist() == [0, 10, 20, 0, 10, 0]


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photo", {"": {"__none__": 1, "cat": 2}})
    (root / "cat/0.png").rename(root / "cat/__0.jfif")
    assert len(read_image_folder(root, 8)[0]) == 3
    (root / "cat/inner").mkdir()
    with pytest.warns(DatasetWarning, match=r"photo: 1 file or folder is not read, such as cat/inner"):
        read_image_folder(root, 8)
    (root / "cat/picture.svg").write_text("<svg/>")
    shutil.copy(root / "cat/__0.jfif", root / "beside.jfif")
    (root / "cat/more.png").mkdir()
    (root / "cat/moved.png").symlink_to("elsewhere.png")
    with pytest.warns(DatasetWarning, match=r"5 files or folders are not read, such as cat/inner"):
        assert len(read_image_folder(root, 8)[0]) == 3


def test_long_names_have_a_cache(tmp_path: Path) -> None:
    root = write_images(tmp_path / ("図" * 80), {"": {"cat": 2, "dog": 2}})
    assert isinstance(read_image_folder(root, 8)[0], np.memmap)


def test_an_empty_folder_says_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "photo" / "dog").mkdir(parents=True)
    with pytest.raises(DataError, match=r"holds no images; its layout should be photo/<class>/<image>"):
        read_image_folder(tmp_path / "photo", 8)


def test_a_second_reading_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 3, "cat": 2}})
    first = read_image_folder(root, 8)
    decoded: list[Path] = []
    monkeypatch.setattr(
        decode_folders, "decode_image", lambda path, *options: decoded.append(path) or decode_image(path, *options)
    )
    second = read_image_folder(root, 8)
    assert not decoded
    assert (first[0] == second[0]).all()
    read_image_folder(root, 6)
    assert len(decoded) == 5
    Image.new("RGB", (10, 10), "white").save(root / "dog" / "0.png")
    os.utime(root / "dog" / "0.png", ns=(1, 1))
    changed = read_image_folder(root, 8)
    assert len(decoded) == 10
    assert (changed[0][2] == 255).all()


def test_a_damaged_or_unwritable_cache_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 3}})
    first = [read_image_folder(root, 8)[0].copy()]  # a copy: the array is mapped from the file that is damaged below
    (cached,) = (cache_dir() / "folders").iterdir()
    cached.write_bytes(cached.read_bytes()[:100])
    assert (read_image_folder(root, 8)[0] == first[0]).all()
    np.save(cached, first[0][:2])  # a whole file, of fewer images
    assert (read_image_folder(root, 8)[0] == first[0]).all()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "file" / "below"))
    assert (read_image_folder(root, 8)[0] == first[0]).all()


def test_a_cache_that_another_process_wrote_first_is_read(tmp_path: Path) -> None:
    cached, images = tmp_path / "photo.npy", np.full((3, 8, 8, 3), 7, np.uint8)

    def decode(start: int, stop: int) -> np.ndarray:
        decoded.append((start, stop))
        for scratch in tmp_path.glob(".*"):
            shutil.rmtree(scratch)
        np.save(cached, images)
        return images[start:stop]

    decoded: list[tuple[int, int]] = []
    assert (decode_folders.decode_with_cache(cached, 3, 8, decode) == 7).all()
    assert decoded == [(0, 3)]


def test_images_have_the_same_order_where_paths_ignore_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PurePath, "__lt__", lambda path, other: str(path).lower() < str(other).lower())  # as on Windows
    root = write_images(tmp_path / "photo", {"": {"dog": 1}})
    for name in ("B.png", "a.png", "C.png"):
        shutil.copy(root / "dog" / "0.png", root / "dog" / name)
    files, _ = list_image_files(root)
    assert [file.name for file, _ in files] == ["0.png", "B.png", "C.png", "a.png"]


def test_atomic_write_leaves_old_or_new_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new" / "a.txt"
    write_atomically(target, lambda path: path.write_text("one") and None)
    assert target.read_text() == "one"

    def fails(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        write_atomically(target, fails)
    assert target.read_text() == "one"
    write_atomically(target, lambda path: path.write_text("two") and None)
    assert target.read_text() == "two"
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_cache_and_data_folders_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDWCA_CACHE", "/c")
    monkeypatch.setenv("FEDWCA_DATA", "/d")
    assert (cache_dir(), data_dir()) == (Path("/c"), Path("/d"))
    monkeypatch.delenv("FEDWCA_DATA")
    assert data_dir() == Path("/c/data")
    monkeypatch.delenv("FEDWCA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_dir() == Path("/x/fedwca")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "fedwca"
    assert cache_module._platform_cache("darwin") == Path.home() / "Library" / "Caches"
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_module._platform_cache("win32") == Path("/local")


@needs_shared
def test_real_photographs() -> None:
    images, labels, _, classes = read_image_folder(SHARED / "pacs" / "photo", 32)
    assert images.shape == (1416, 32, 32, 3)
    assert len(labels) == 1416
    assert classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert 60 < images.mean() < 190


def test_images_behind_links_are_found_once(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    for name in ("real/a.png", "real/inner/b.png"):
        (tmp_path / name).touch()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "inner" / "round").symlink_to(tmp_path / "real")
    paths = [file.relative_to(tmp_path).as_posix() for file in list_files_below(tmp_path / "photos")]
    assert paths == ["photos/link/a.png", "photos/link/inner/b.png"]
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    paths = [file.relative_to(tmp_path).as_posix() for file in list_files_below(tmp_path)]
    assert paths == ["real/a.png", "real/inner/b.png"]  # as without links


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read: Permission denied"):
        list(list_files_below(tmp_path))
