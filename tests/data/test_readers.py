from __future__ import annotations

import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from fedwca.data import DatasetWarning, read_domains, read_npz
from fedwca.data.archives import Archive
from fedwca.data.find_domains import find_domains
from fedwca.errors import DataError, DatasetMissing, UsageError

from .examples import SHARED, dataset, domain, needs_shared, write_images, write_npz


def test_grey_becomes_three_equal_channels(tmp_path: Path) -> None:
    grey = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
    archive = read_npz(write_npz(tmp_path / "a.npz", images=grey, labels=np.array([0, 1])))
    assert archive.images.shape == (2, 3, 5, 3)
    assert all((archive.images[..., channel] == grey).all() for channel in range(3))


def test_colour_groups_and_classes_are_kept_and_other_keys_ignored(tmp_path: Path) -> None:
    colour = np.random.default_rng(0).integers(0, 255, (4, 6, 6, 3)).astype(np.uint8)
    path = write_npz(
        tmp_path / "a.npz",
        images=colour,
        labels=np.arange(4),
        groups=np.array([5, 5, 6, 6]),
        classes=np.array(list("wxyz")),
        part=np.array([0, 0, 0, 1]),
        client=np.arange(9.0),
    )
    archive = read_npz(path)
    assert (archive.images == colour).all()
    assert archive.groups is not None
    assert archive.groups.tolist() == [5, 5, 6, 6]
    assert archive.part is not None
    assert archive.part.tolist() == [0, 0, 0, 1]
    assert archive.classes == ("w", "x", "y", "z")


def test_a_subset_keeps_what_is_said_of_each_image() -> None:
    images, labels = np.arange(9, dtype=np.uint8).reshape(3, 1, 1, 3), np.array([0, 1, 2])
    archive = Archive(images, labels, labels + 5, ("a", "b", "c"), np.array([0, 1, 1]), labels + 7)
    subset = archive.subset(np.array([2, 0]))
    assert subset.images[:, 0, 0, 0].tolist() == [6, 0]
    assert (subset.labels.tolist(), subset.groups.tolist(), subset.classes) == ([2, 0], [7, 5], ("a", "b", "c"))
    assert (subset.part.tolist(), subset.units.tolist()) == ([1, 0], [9, 7])


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    path = write_npz(tmp_path / "mnist.npz", 300, labels=np.zeros(300, np.int64))
    content = path.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 30):
        path.write_bytes(content[:length])
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
        ({"images": np.zeros((6, 8, 3), np.uint8)}, r"images \[6, 8, 3\] is a single colour image; several are \[N, H"),
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


def test_archives_and_folders_share_one_list_of_classes(tmp_path: Path) -> None:
    write_images(tmp_path / "Things", {"Real World": {"cat": 2, "dog": 1}})
    write_npz(tmp_path / "Things" / "drawn.npz", 3, labels=np.array([1, 0, 1]))
    data = read_domains(tmp_path, "things", size=8)
    assert list(data.domains) == ["drawn", "real_world"]
    assert data.classes == ("cat", "dog")
    assert data.domains["drawn"].labels.tolist() == [1, 0, 1]
    assert data.domain("Real-World").labels.tolist() == [0, 0, 1]


def test_archives_without_names_are_numbered_as_the_others(tmp_path: Path) -> None:
    names = np.array(["dog", "cat", "ant"])
    write_npz(tmp_path / "day.npz", 3, labels=np.array([0, 1, 2]), classes=names)
    write_npz(tmp_path / "night.npz", 3, labels=np.array([0, 1, 2])).rename(tmp_path / "night.NPZ")
    data = read_domains(tmp_path)
    assert data.classes == ("ant", "cat", "dog")
    assert data.domains["night"].labels.tolist() == data.domains["day"].labels.tolist() == [2, 1, 0]
    write_npz(tmp_path / "fog.npz", 3, labels=np.array([0, 1, 2]), classes=names[::-1])
    with pytest.raises(DataError, match="'night': names no classes, and the others number theirs differently; give it"):
        read_domains(tmp_path)


def test_half_of_the_classes_without_an_image_are_nothing_to_warn_of(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog", "elk"])
    write_npz(tmp_path / "day.npz", 2, labels=np.array([0, 1]), classes=names[:4])
    assert len(read_domains(tmp_path).classes) == 4
    write_npz(tmp_path / "day.npz", 2, labels=np.array([0, 1]), classes=names)
    with pytest.warns(DatasetWarning, match="3 of 5 classes have no image in any domain"):
        read_domains(tmp_path)


def test_root_alone_holds_the_domains(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", 11)
    write_npz(tmp_path / "b.npz", 3)
    data = read_domains(tmp_path, size=6)
    assert data.classes == tuple(str(label) for label in range(11))
    assert data.domains["b"].images.shape == (3, 6, 6, 3)


def test_an_empty_folder_hides_no_data_set_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "My-Photos").mkdir()
    write_npz(tmp_path / "my_photos.npz", 3)
    assert list(read_domains(tmp_path, "my-photos").domains) == ["my_photos"]
    write_npz(tmp_path / "my photos" / "a.npz", 3)
    assert list(read_domains(tmp_path, "my-photos").domains) == ["a"]


def test_a_folder_of_hidden_folders_is_no_domain(tmp_path: Path) -> None:
    root = write_images(tmp_path, {"day": {"cat": 1, "dog": 1}, "night": {"cat": 1, "dog": 1}})
    (root / "notes" / ".ipynb_checkpoints").mkdir(parents=True)
    assert sorted(read_domains(root, size=8).domains) == ["day", "night"]


@pytest.mark.parametrize("run", ["mine", "runs/one", "runs/compare/fog", "runs/sweep/runs/one"])
def test_folders_of_runs_are_no_domains_and_not_missed(tmp_path: Path, run: str) -> None:
    root = write_images(tmp_path, {"day": {"cat": 1, "dog": 1}, "night": {"cat": 1, "dog": 1}})
    (root / run / "checkpoints").mkdir(parents=True)
    assert len(find_domains(root)) == 3
    (root / run / "rounds.jsonl").touch()
    shutil.copy(root / "day" / "cat" / "0.png", root / run / "overview.png")
    shutil.copy(root / "day" / "cat" / "0.png", root / run.partition("/")[0] / "overview.png")
    with warnings.catch_warnings(action="error"):
        assert list(read_domains(root, size=8).domains) == ["day", "night"]


@pytest.mark.parametrize("folder", [".", "..", "day/..", "../My Photos"])
def test_a_data_set_has_the_name_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    root = write_images(tmp_path / "My Photos", {"day": {"cat": 1, "dog": 1}, "night": {"cat": 1, "dog": 1}})
    monkeypatch.chdir(root / "day" if folder == ".." else root)
    assert read_domains(Path(folder), size=8).name == "my_photos"


def test_two_archives_of_one_domain_are_refused(tmp_path: Path) -> None:
    for name in ("my-photos.npz", "My_Photos.npz"):
        write_npz(tmp_path / name, labels=np.arange(4) % 2)
    with pytest.raises(DataError, match=r"My_Photos.npz and my-photos.npz are both the domain 'my_photos'; rename or"):
        read_domains(tmp_path)
    write_images(tmp_path / "folders", {"a": {"x": 1}, "A": {"x": 1}})
    with pytest.raises(DataError, match="are both the domain 'a'"):
        read_domains(tmp_path / "folders")


def test_a_class_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    write_npz(tmp_path / "toy" / "a.npz", 3, classes=np.array(["cat", "dog", "cat"]))
    with pytest.raises(DataError, match="'toy', domain 'a': the class 'cat' is there twice"):
        read_domains(tmp_path, "toy")


def test_classes_that_differ_are_listed(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "cow": 1}})
    with pytest.raises(
        DataError, match="a lacks 'cow'; b lacks 'dog'; where a class has no images, an empty folder or"
    ):
        read_domains(tmp_path, size=8)
    (tmp_path / "a" / "cow").mkdir()
    (tmp_path / "b" / "dog").mkdir()
    assert read_domains(tmp_path, size=8).classes == ("cat", "cow", "dog")


@pytest.mark.skipif(sys.platform == "darwin", reason="its file system takes both forms for one name")
def test_letters_that_macos_writes_in_two_characters_are_the_same_letters(tmp_path: Path) -> None:
    composed, split = "gef\u00e4\u00df", "gefa\u0308\u00df"
    root = write_images(tmp_path, {"k\u00f6ln": {composed: 1, "z": 1}, "bo\u0308rde": {split: 1, "z": 1}})
    (root / "bo\u0308rde" / "units.csv").write_text(
        "".join(f"{line}\n" for line in ("image,unit", f"{composed}/0.png,a", "z/0.png,b")), encoding="utf-8"
    )
    data = read_domains(root, size=8)
    assert data.classes == (composed, "z")
    assert list(data.domains) == ["b\u00f6rde", "k\u00f6ln"]
    assert data.domain("ko\u0308ln").labels.tolist() == [0, 1]


def test_missing_folders_and_domains_name_the_layout(tmp_path: Path) -> None:
    with pytest.raises(DatasetMissing, match=r"are no domains in .*nothing; the layout is <root>/<name>/<domain>\.npz"):
        read_domains(tmp_path, "nothing")
    write_npz(tmp_path / "a.npz")
    with pytest.raises(DatasetMissing, match="no domain b, c in"):
        read_domains(tmp_path, domains=("a", "b", "c"))
    with pytest.raises(UsageError, match="0 pixels"):
        read_domains(tmp_path, size=0)


def test_the_folder_of_one_domain_names_that_of_the_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_images(tmp_path / "my set", {"fog": {"cat": 1, "dog": 1}})
    sentence = rf"the layout is <data>/.*; if {root}/fog is one domain, .* take --data '{root}'"
    with pytest.raises(DatasetMissing, match=sentence):
        read_domains(root / "fog")
    with pytest.raises(DatasetMissing, match=rf"take --data '{root}'"):
        read_domains(root, "fog")
    monkeypatch.chdir(root / "fog")
    with pytest.raises(DatasetMissing, match=rf"take --data '{root}'"):
        read_domains(Path())


def test_an_archive_without_images_is_called_empty(tmp_path: Path) -> None:
    write_npz(tmp_path / "toy" / "a.npz", 2)
    write_npz(tmp_path / "toy" / "b.npz", 0)
    with pytest.raises(DataError, match="data set 'toy', domain 'b': is empty; it needs at least one image"):
        read_domains(tmp_path, "toy")


def test_labels_out_of_range_name_data_set_and_domain(tmp_path: Path) -> None:
    write_npz(tmp_path / "toy" / "a.npz", 2, labels=np.array([0, -1]))
    with pytest.raises(DataError, match="data set 'toy', domain 'a': labels must be 0 to"):
        read_domains(tmp_path, "toy")
    with pytest.raises(DataError, match=r"'toy', domain 'b': labels must be 0 to 2, not 0 to 3"):
        dataset(domain("a", 3, classes=3), domain("b", 8, classes=4), classes=3)


@needs_shared
def test_real_digits() -> None:
    archive = read_npz(SHARED / "digit_five" / "usps.npz")
    assert archive.images.shape == (7291, 16, 16, 3)
    assert np.bincount(archive.labels).tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]


def test_images_outside_of_domains_are_counted(tmp_path: Path) -> None:
    root = write_images(tmp_path / "set", {"fog": {"dog": 2}})
    shutil.copy(root / "fog" / "dog" / "0.png", root / "sheet.png")
    (root / "snow").mkdir()
    shutil.copy(root / "fog" / "dog" / "0.png", root / "snow")
    with pytest.warns(DatasetWarning, match="set: 2 files or folders with images are not read, such as sheet.png; wh"):
        assert list(read_domains(root, size=8).domains) == ["fog"]
    assert list(read_domains(root, domains=("fog",), size=8).domains) == ["fog"]  # what is asked for is there


def test_a_folder_beside_an_archive_of_the_same_domain_is_said(tmp_path: Path) -> None:
    root = write_images(tmp_path / "set", {"fog": {"dog": 2}})
    np.savez(root / "fog.npz", images=np.zeros((3, 8, 8), np.uint8), labels=np.zeros(3, np.int64))
    (root / "notes").mkdir()
    with pytest.warns(DatasetWarning, match="set: 1 file or folder with images is not read, such as fog;"):
        assert len(read_domains(root, size=8).domains["fog"]) == 3


def test_a_misspelt_folder_suggests_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "shades").mkdir()
    with pytest.raises(DatasetMissing, match=f"{tmp_path}/shads does not exist; did you mean {tmp_path}/shades"):
        read_domains(tmp_path / "shads", size=8)
