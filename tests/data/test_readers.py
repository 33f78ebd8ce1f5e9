from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedwca.data import Domain, FederatedDataset, cache_dir, data_dir, read_domains, read_image_folder, read_npz
from fedwca.data import cache as cache_module
from fedwca.data import folders, write_atomically
from fedwca.data.folders import decode
from fedwca.errors import DataError, DatasetMissing, UsageError

from .examples import SHARED, dataset, domain, needs_shared, write_images, write_npz

# archives


def test_grey_becomes_three_equal_channels(tmp_path: Path) -> None:
    grey = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
    read = read_npz(write_npz(tmp_path / "a.npz", images=grey, labels=np.array([0, 1])))
    assert read.images.shape == (2, 3, 5, 3)
    assert all((read.images[..., channel] == grey).all() for channel in range(3))


def test_colour_groups_and_classes_are_kept_and_other_keys_ignored(tmp_path: Path) -> None:
    colour = np.random.default_rng(0).integers(0, 255, (4, 6, 6, 3)).astype(np.uint8)
    path = write_npz(
        tmp_path / "a.npz",
        images=colour,
        labels=np.arange(4),
        groups=np.array([5, 5, 6, 6]),
        classes=np.array(list("wxyz")),
        client=np.arange(9.0),
    )
    read = read_npz(path)
    assert (read.images == colour).all()
    assert read.groups is not None
    assert read.groups.tolist() == [5, 5, 6, 6]
    assert read.classes == ("w", "x", "y", "z")


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mnist.npz", 300, labels=np.zeros(300, np.int64))
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"mnist\.npz cannot be read"):
            read_npz(path)


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mnist.npz", 300, labels=np.zeros(300, np.int64))
    damaged = bytearray(path.read_bytes())
    damaged[5000] ^= 255
    path.write_bytes(bytes(damaged))
    with pytest.raises(DataError, match=r"mnist\.npz cannot be read"):
        read_npz(path)


def test_pickled_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, images=np.array([{"code": 1}], dtype=object), labels=np.zeros(1, np.int64))
    with pytest.raises(DataError, match="without pickled objects"):
        read_npz(path)


def test_a_single_array_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match="single array"):
        read_npz(path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": None}, "lacks labels; it needs the keys images and labels"),
        ({"images": np.zeros((6, 8, 8), np.float32)}, r"images must be uint8 .* not float32 \[6, 8, 8\]"),
        ({"images": np.zeros((6, 8, 8, 4), np.uint8)}, r"images must be uint8"),
        ({"images": np.zeros((6, 64), np.uint8)}, r"images must be uint8"),
        ({"labels": np.zeros(6, np.uint8)}, r"labels must be int64 \[6\], one for each image, not uint8 \[6\]"),
        ({"labels": np.zeros(5, np.int64)}, r"labels must be int64 \[6\]"),
        ({"groups": np.zeros(5, np.int64)}, r"groups must be int64 \[6\]"),
        ({"classes": np.zeros(3)}, r"classes must be names"),
    ],
)
def test_wrong_keys_types_and_shapes_name_the_file(tmp_path: Path, changes: dict[str, np.ndarray], says: str) -> None:
    path = write_npz(tmp_path / "svhn.npz", **changes)
    with pytest.raises(DataError, match=rf"svhn\.npz.* {says}|svhn\.npz: {says}"):
        read_npz(path)


# image files


def test_exif_orientation_is_honoured(tmp_path: Path) -> None:
    picture = np.zeros((8, 8, 3), np.uint8)
    picture[:4] = 255
    exif = Image.Exif()
    exif[0x0112] = 3  # taken upside down
    Image.fromarray(picture).save(tmp_path / "a.png", exif=exif)
    read = decode(tmp_path / "a.png", 8)
    assert read[:4].max() == 0
    assert read[4:].min() == 255


@pytest.mark.parametrize(("mode", "suffix"), [("L", "png"), ("P", "png"), ("CMYK", "jpg"), ("1", "png"), ("LA", "png")])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, suffix: str) -> None:
    Image.new("RGB", (9, 7), (255, 255, 255)).convert(mode).save(tmp_path / f"a.{suffix}")
    read = decode(tmp_path / f"a.{suffix}", 4)
    assert read.shape == (4, 4, 3)
    assert read.dtype == np.uint8
    assert read.min() >= 250


def test_sixteen_bit_grey_is_scaled_and_transparency_is_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 32768, np.uint16)).save(tmp_path / "deep.png")
    assert set(decode(tmp_path / "deep.png", 4).flat) <= {127, 128}
    Image.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert decode(tmp_path / "clear.png", 4).min() == 255
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([10, 20, 30])
    palette.save(tmp_path / "palette.png")
    assert decode(tmp_path / "palette.png", 4)[0, 0].tolist() == [10, 20, 30]


def test_the_centre_is_kept(tmp_path: Path) -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200
    Image.fromarray(wide).save(tmp_path / "wide.png")
    assert (decode(tmp_path / "wide.png", 4) == 200).all()


def test_an_image_that_does_not_decode_is_named(tmp_path: Path) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 2}})
    whole = (root / "dog" / "1.png").read_bytes()
    for content in (b"", b"no image", whole[: len(whole) // 2]):
        (root / "dog" / "1.png").write_bytes(content)
        with pytest.raises(DataError, match=r"1\.png does not decode"):
            read_image_folder(root, 8)


# image folders


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


def test_an_empty_folder_says_what_is_right(tmp_path: Path) -> None:
    (tmp_path / "photo" / "dog").mkdir(parents=True)
    with pytest.raises(DataError, match=r"holds no images; its layout should be photo/<class>/<image>"):
        read_image_folder(tmp_path / "photo", 8)


def test_a_second_reading_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "photo", {"": {"dog": 3, "cat": 2}})
    first = read_image_folder(root, 8)
    decoded: list[Path] = []
    monkeypatch.setattr(folders, "decode", lambda path, size: decoded.append(path) or decode(path, size))
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
    first = read_image_folder(root, 8)
    (cached,) = (cache_dir() / "folders").iterdir()
    cached.write_bytes(cached.read_bytes()[:100])
    assert (read_image_folder(root, 8)[0] == first[0]).all()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "file" / "below"))
    assert (read_image_folder(root, 8)[0] == first[0]).all()


# cache folders and atomic writes


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


# data sets


def test_archives_and_folders_share_one_list_of_classes(tmp_path: Path) -> None:
    write_images(tmp_path / "Things", {"Real World": {"cat": 2, "dog": 1}})
    write_npz(tmp_path / "Things" / "drawn.npz", 3, labels=np.array([1, 0, 1]))
    write_npz(tmp_path / "Things" / "named.npz", 2, labels=np.array([0, 1]), classes=np.array(["dog", "cat"]))
    read = read_domains(tmp_path, "things", size=8)
    assert list(read.domains) == ["drawn", "named", "real_world"]
    assert read.classes == ("cat", "dog")
    assert read.domains["named"].labels.tolist() == [1, 0]
    assert read.domain("Real-World").labels.tolist() == [0, 0, 1]


def test_root_alone_holds_the_domains(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", 11)
    write_npz(tmp_path / "b.npz", 3)
    read = read_domains(tmp_path, size=6)
    assert read.classes == tuple(str(label) for label in range(11))
    assert read.domains["b"].images.shape == (3, 6, 6, 3)


def test_classes_that_differ_are_listed(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "cow": 1}})
    with pytest.raises(DataError, match="a lacks cow; b lacks dog"):
        read_domains(tmp_path, size=8)
    (tmp_path / "a" / "cow").mkdir()
    (tmp_path / "b" / "dog").mkdir()
    assert read_domains(tmp_path, size=8).classes == ("cat", "cow", "dog")


def test_missing_folders_and_domains_name_the_layout(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match=r"no domains in .*nothing; the layout is <root>/<name>/<domain>\.npz"):
        read_domains(tmp_path, "nothing")
    write_npz(tmp_path / "a.npz")
    with pytest.raises(DatasetMissing, match="no domain b, c in"):
        read_domains(tmp_path, domains=("a", "b", "c"))
    with pytest.raises(UsageError, match="0 pixels"):
        read_domains(tmp_path, size=0)


def test_labels_out_of_range_name_data_set_and_domain(tmp_path: Path) -> None:
    write_npz(tmp_path / "toy" / "a.npz", 2, labels=np.array([0, -1]))
    with pytest.raises(DataError, match="data set 'toy', domain 'a': labels must be 0 to"):
        read_domains(tmp_path, "toy")
    with pytest.raises(DataError, match=r"'toy', domain 'b': labels must be 0 to 2, not 0 to 3"):
        dataset(domain("a", 3, classes=3), domain("b", 8, classes=4), classes=3)


@pytest.mark.parametrize(
    ("images", "labels", "says"),
    [
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64), r"uint8 \[N, H, W, 3\], not uint8 \[2, 4, 4\]"),
        (np.zeros((2, 4, 4, 3)), np.zeros(2, np.int64), "not float64"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int32), r"labels of domain 'x' must be int64 \[N\]"),
        (np.zeros((2, 4, 4, 3), np.uint8), np.zeros(3, np.int64), "has 2 images but 3 labels"),
        (np.zeros((0, 4, 4, 3), np.uint8), np.zeros(0, np.int64), "is empty"),
    ],
)
def test_a_domain_is_checked_when_made(images: np.ndarray, labels: np.ndarray, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Domain("x", images, labels)


def test_a_data_set_is_checked_when_made() -> None:
    one = domain("a", 3)
    for classes, domains in ((("0",), {}), ((), {"a": one}), (("0", "0"), {"a": one}), (("0", "1", "2"), {"b": one})):
        with pytest.raises(DataError, match="data set 'x'"):
            FederatedDataset("x", classes, domains)


def test_digest_depends_on_content_alone() -> None:
    first, again = dataset(domain("a", 9)), dataset(domain("a", 9))
    assert first.digest() == again.digest()
    assert len(first.digest()) == 64
    others = [dataset(domain("b", 9)), dataset(domain("a", 8)), dataset(domain("a", 9), classes=11)]
    others.append(dataset(domain("a", 9, classes=3)))
    assert len({first.digest(), *(other.digest() for other in others)}) == 5


def test_resizing_keeps_flat_images_flat_and_labels_as_they_are() -> None:
    flat = Domain("a", np.full((3, 8, 6, 3), 77, np.uint8), np.arange(3), np.arange(3))
    resized = dataset(flat).resized(5)
    assert resized.domains["a"].images.shape == (3, 5, 5, 3)
    assert (resized.domains["a"].images == 77).all()
    assert resized.domains["a"].groups is not None
    assert resized.resized(5) is resized


@needs_shared
def test_real_digits() -> None:
    read = read_npz(SHARED / "digit_five" / "usps.npz")
    assert read.images.shape == (7291, 16, 16, 3)
    assert np.bincount(read.labels).tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]


@needs_shared
def test_real_photographs() -> None:
    images, labels, _, classes = read_image_folder(SHARED / "pacs" / "photo", 32)
    assert images.shape == (1416, 32, 32, 3)
    assert len(labels) == 1416
    assert classes == ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    assert 60 < images.mean() < 190
