from __future__ import annotations

import bz2
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from torchvision.datasets import MNIST, SVHN, USPS

from fedwca.config.resolve_config import resolve_plan
from fedwca.data import DatasetWarning
from fedwca.datasets import datasets
from fedwca.datasets._digit_five_raw import read_raw_domain
from fedwca.errors import DataError, DatasetMissing, UsageError
from fedwca.runs.load_data import load

from .examples import SHARED, needs_shared, write_npz


def write_raw(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write two training images and one test image per domain in the published formats; switch off checksums."""
    random = np.random.default_rng(0)
    (root / "MNIST" / "raw").mkdir(parents=True)
    for part, count, digits in (("train", 2, [3, 1]), ("t10k", 1, [4])):
        images = struct.pack(">4i", 2051, count, 28, 28) + random.bytes(count * 784)
        (root / "MNIST" / "raw" / f"{part}-images-idx3-ubyte").write_bytes(images)
        labels = struct.pack(">2i", 2049, count) + bytes(digits)
        (root / "MNIST" / "raw" / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    one_hot = np.eye(10, dtype=np.uint8)
    bright = {"train": np.full((2, 28, 28, 3), 9, np.uint8), "test": np.full((1, 28, 28, 3), 8, np.uint8)}
    savemat(root / "mnistm_with_label.mat", {**bright, "label_train": one_hot[[3, 1]], "label_test": one_hot[[4]]})
    for prefix in ("", "synth_"):
        for part, digits in (("train", [[3], [10]]), ("test", [[4]])):
            cube = np.arange(32 * 32 * 3 * len(digits)).reshape(32, 32, 3, len(digits)).astype(np.uint8)
            savemat(root / f"{prefix}{part}_32x32.mat", {"X": cube, "y": np.array(digits, np.uint8)})
    row = " ".join(f"{pixel}:{value}" for pixel, value in enumerate([-1.0, 1.0] * 128, 1))
    for name, digits in (("usps.bz2", [4, 2]), ("usps.t.bz2", [5])):
        (root / name).write_bytes(bz2.compress("".join(f"{digit} {row}\n" for digit in digits).encode()))
    monkeypatch.setattr(SVHN, "_check_integrity", lambda _: True)
    monkeypatch.setattr("torchvision.datasets.utils.check_integrity", lambda *_: True)
    return root


def write_m3sda(root: Path) -> Path:
    """Write as many images in the files of M3SDA's Digit-Five; its MNIST-M file is that of `write_raw`."""
    root.mkdir(parents=True, exist_ok=True)
    one_hot = np.eye(10, dtype=np.uint8)
    greys = {"train": np.full((2, 28, 28, 1), 9, np.uint8), "test": np.full((1, 28, 28, 1), 8, np.uint8)}
    mnist = {f"{part}_28": images for part, images in greys.items()}
    savemat(root / "mnist_data.mat", {**mnist, "label_train": one_hot[[3, 1]], "label_test": one_hot[[4]]})
    for part, digits in (("train", [[3], [10]]), ("test", [[4]])):
        cube = np.zeros((32, 32, 3, len(digits)), np.uint8)
        savemat(root / f"svhn_{part}_32x32.mat", {"X": cube, "y": np.array(digits, np.uint8)})
    savemat(
        root / "syn_number.mat",
        {
            "train_data": np.full((2, 32, 32, 3), 5, np.uint8),
            "train_label": np.array([[3], [10]]),
            "test_data": np.full((1, 32, 32, 3), 6, np.uint8),
            "test_label": np.array([[4]]),
        },
    )
    parts = np.empty((2, 2), object)
    for row, (count, digits) in enumerate(((2, [[3], [10]]), (1, [[4]]))):
        parts[row, 0], parts[row, 1] = np.full((count, 1, 28, 28), 0.6), np.array(digits)
    savemat(root / "usps_28x28.mat", {"dataset": parts})
    return root


@pytest.mark.parametrize("name", ["mnist", "mnistm", "svhn", "synth", "usps"])
def test_published_files_are_pooled(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = read_raw_domain(write_raw(tmp_path, monkeypatch), name)
    assert archive is not None
    assert archive.part is not None
    assert archive.part.tolist() == [0, 0, 1]
    assert archive.images.dtype == np.uint8
    assert archive.images.shape[::3] == (3, 3)
    assert archive.labels.tolist() == ([3, 0, 4] if name in ("svhn", "synth") else [3, 1, 4])
    assert read_raw_domain(tmp_path / "elsewhere", name) is None


@pytest.mark.parametrize(("name", "value"), [("mnist", 9), ("svhn", 0), ("synth", 5), ("usps", 153)])
def test_files_of_m3sda_are_read(name: str, value: int, tmp_path: Path) -> None:
    archive = read_raw_domain(write_m3sda(tmp_path), name)
    assert archive is not None
    assert archive.images.dtype == np.uint8
    assert archive.images.shape[::3] == (3, 3)
    assert (archive.images[0] == value).all()
    assert archive.labels.tolist() == ([3, 1, 4] if name == "mnist" else [3, 0, 4])  # 10 stands for 0
    assert archive.part is not None
    assert archive.part.tolist() == [0, 0, 1]


def test_what_does_not_fit_into_memory_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The images take 3 * 28 * 28 bytes and their labels 3 * 10."""
    write_m3sda(tmp_path)
    free = [2382]
    monkeypatch.setattr("fedwca.data.archives.free_memory", lambda: free[0])
    assert read_raw_domain(tmp_path, "mnist") is not None
    free[0] -= 1
    monkeypatch.setattr("scipy.io.loadmat", lambda *_, **__: pytest.fail("it is unpacked"))
    with pytest.raises(
        DataError, match=r"^\S*mnist_data\.mat takes 0\.0 GiB unpacked, and 0\.0 GiB of memory are free"
    ):
        read_raw_domain(tmp_path, "mnist")


def test_a_damaged_file_of_m3sda_is_named(tmp_path: Path) -> None:
    (write_m3sda(tmp_path) / "usps_28x28.mat").write_bytes(b"")
    with pytest.raises(DataError, match=r"usps_28x28\.mat cannot be read as usps"):
        read_raw_domain(tmp_path, "usps")
    savemat(tmp_path / "syn_number.mat", {"train_data": np.zeros(3)})
    with pytest.raises(DataError, match=r"syn_number\.mat cannot be read as synth"):
        read_raw_domain(tmp_path, "synth")


def test_published_parts_are_drawn_each_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw(tmp_path / "digit_five", monkeypatch)
    part = np.array([0] * 8 + [1] * 4, np.int64)
    write_npz(tmp_path / "digit_five" / "mnist.npz", 12, labels=np.arange(12, dtype=np.int64) % 10, part=part)
    source = datasets.build({"name": "digit_five", "root": tmp_path, "train_images": 5, "test_images": 3})
    with pytest.warns(DatasetWarning):
        loaded = source.load_published()
    mnist, usps = loaded.domains["mnist"], loaded.domains["usps"]
    assert mnist.part is not None
    assert mnist.part.tolist() == [0] * 5 + [1] * 3
    assert len(set(mnist.labels[:5].tolist())) == 5
    assert usps.part is not None
    assert usps.part.tolist() == [0, 0, 1]


def test_a_domain_without_published_parts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw(tmp_path / "digit_five", monkeypatch)
    write_npz(tmp_path / "digit_five" / "mnist.npz", 6)
    source = datasets.build({"name": "digit_five", "root": tmp_path})
    with (
        pytest.warns(DatasetWarning),
        pytest.raises(UsageError, match="published: mnist of digit_five has no"),
    ):
        source.load_published()


def test_the_first_domain_that_is_read_is_the_default(tmp_path: Path) -> None:
    folder = tmp_path / "digit_five"
    source = datasets.build({"name": "digit_five", "root": tmp_path})
    (folder / "mnistm" / "0").mkdir(parents=True)  # not read: these digits come as arrays
    assert source.find_default_domain() == "mnist", "nothing is there, so all that is missing is said"
    for name in ("svhn_train_32x32.mat", "svhn_test_32x32.mat", "usps_28x28.mat"):
        (folder / name).write_bytes(b"mine")
    assert source.find_default_domain() == "svhn"
    (folder / "mnist_data.mat").write_bytes(b"mine")
    assert source.find_default_domain() == "mnist"


def test_a_domain_whose_images_are_all_for_training_has_no_published_parts(tmp_path: Path) -> None:
    for name in ("mnist", "usps"):
        write_npz(tmp_path / "digit_five" / f"{name}.npz", 6, part=np.zeros(6, np.int64))
    source = datasets.build({"name": "digit_five", "root": tmp_path})
    with pytest.warns(DatasetWarning), pytest.raises(UsageError, match="published: mnist, usps of digit_five has no"):
        source.load_published()


def test_svhn_axes_and_usps_greys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_raw(tmp_path, monkeypatch)
    svhn, usps = read_raw_domain(root, "svhn"), read_raw_domain(root, "usps")
    assert svhn is not None
    assert usps is not None
    cube = np.arange(32 * 32 * 3 * 2).reshape(32, 32, 3, 2).astype(np.uint8)
    assert (svhn.images[1] == cube[..., 1]).all()
    assert usps.images[0, 0, :4, 0].tolist() == [0, 255, 0, 255]


def test_a_damaged_published_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_raw(tmp_path, monkeypatch)
    (root / "synth_test_32x32.mat").write_bytes(b"not a matlab file")
    with pytest.raises(DataError, match=r"synth_test_32x32\.mat cannot be read as synth"):
        read_raw_domain(root, "synth")
    monkeypatch.undo()
    with pytest.raises(DataError, match="md5 of usps"):
        read_raw_domain(root, "usps")
    assert USPS.split_list["train"][2]


def test_digit_five_mixes_formats_and_draws_by_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_raw(tmp_path / "Digit-Five", monkeypatch)
    write_npz(
        root / "mnist.npz", 10, images=np.arange(10, dtype=np.uint8)[:, None, None] + np.zeros((1, 9, 9), np.uint8)
    )

    def load(**fields: Any) -> list[int]:
        source = datasets.build({"name": "digit_five", "root": tmp_path, "images": 5, **fields})
        with pytest.warns(DatasetWarning, match="mnist has 5 of 34000"):
            loaded = source.load()
        assert loaded.classes == tuple("0123456789")
        assert loaded.domains["usps"].images.shape == (3, 32, 32, 3)
        mnist = loaded.domains["mnist"]
        assert mnist.images[:, 0, 0, 0].tolist() == mnist.labels.tolist()
        return mnist.labels.tolist()

    assert load() == load(seed=0)
    assert load() != load(seed=1)
    assert len(set(load())) == 5


def test_a_missing_part_comes_with_a_command(tmp_path: Path) -> None:
    write_npz(tmp_path / "digit_five" / "mnist.npz")
    with pytest.raises(DatasetMissing, match=r"there is no mnistm(.|\n)*fedwca data get digit_five"):
        datasets.build({"name": "digit_five", "root": tmp_path}).load()


def test_published_files_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = datasets.build({"name": "digit_five", "root": tmp_path})
    assert source.verify_checksums() == []
    (tmp_path / "Digit-Five").mkdir()
    (tmp_path / "Digit-Five" / "usps.bz2").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"usps\.bz2 is damaged or another edition: its MD5 is \w{32}, not ec16c51d"):
        source.verify_checksums()
    # The MD5 of an empty file (RFC 1321).
    monkeypatch.setattr(type(source), "checksums", {"usps.bz2": "d41d8cd98f00b204e9800998ecf8427e", "none": ""})
    (tmp_path / "Digit-Five" / "usps.bz2").write_bytes(b"")
    assert source.verify_checksums() == ["usps.bz2"]


def test_checksums_are_those_of_torchvision() -> None:
    published = {f"MNIST/raw/{name}": md5 for name, md5 in MNIST.resources}
    published |= {name: md5 for part, (_, name, md5) in SVHN.split_list.items() if part != "extra"}
    published |= {name: md5 for _, name, md5 in USPS.split_list.values()}
    assert datasets.get("digit_five").checksums == published


@needs_shared
def test_real_digit_five_is_a_subset() -> None:
    with pytest.warns(DatasetWarning, match="svhn has 740 of 34000"):
        loaded = datasets.build({"name": "digit_five", "root": SHARED}).load()
    assert [len(domain) for domain in loaded.domains.values()] == [12000, 12000, 740, 12000, 7291]


def test_what_a_broken_download_left_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = datasets.build({"name": "digit_five", "root": tmp_path})
    folder = tmp_path / "digit_five"
    (folder / "MNIST" / "raw").mkdir(parents=True)
    (folder / "MNIST" / "raw" / "train-images-idx3-ubyte.gz").write_bytes(b"")
    assert not source.has_domain("mnist", folder)
    write_npz(folder / "mnist.npz", 2, labels=np.array([0, 1]))
    assert source.has_domain("mnist", folder)


@pytest.mark.parametrize("target", ["none", "mnist"])
def test_labelled_domains_keep_their_published_parts(tmp_path: Path, target: str) -> None:
    part = np.array([0] * 8 + [1] * 4, np.int64)
    for name in datasets.get("digit_five").domains:
        labels = np.arange(12, dtype=np.int64) % 10
        write_npz(tmp_path / "digit_five" / f"{name}.npz", 12, labels=labels, part=part)
    layer = {"dataset": "digit_five", "data": tmp_path, "target": target, "split": "published"}
    pairs = [("dataset.train_images", "5"), ("dataset.test_images", "3")]
    with pytest.warns(DatasetWarning):
        loaded, _ = load(resolve_plan(layer, pairs).config)
    assert [domain.part.tolist() for domain in loaded.domains.values()] == [[0] * 5 + [1] * 3] * 5
