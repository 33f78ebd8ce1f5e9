"""Data sets of one domain: each layout that they are read from, missing files and damaged files."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedwca.data.archives import file_hash
from fedwca.data.dataset import DatasetWarning, Domain, FederatedDataset
from fedwca.data.idx_files import read_idx
from fedwca.data.image_pool import ImagePool
from fedwca.datasets import find_dataset
from fedwca.datasets.cifar100 import Cifar100
from fedwca.datasets.fashion_mnist import FashionMnist
from fedwca.download.download_dataset import plan_download
from fedwca.errors import DataError, DatasetMissing

from .examples import write_npz

REAL = Path(__file__).resolve().parents[3] / "shared/data"
RAW = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"


def idx(values: np.ndarray[Any, Any]) -> bytes:
    return bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.astype(np.uint8).tobytes()


def write_idx_tree(folder: Path, packed: bool = False, parts: tuple[str, str] = ("train", "t10k")) -> None:
    folder.mkdir(parents=True)
    for part, count in zip(parts, (12, 8), strict=True):
        for name, values in zip(RAW, (pictures(count), np.arange(count) % 10), strict=True):
            content = idx(values)
            file = folder / (name.format(part) + (".gz" if packed else ""))
            file.write_bytes(gzip.compress(content) if packed else content)


def pictures(count: int, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).integers(0, 256, (count, *(shape or (28, 28)))).astype(np.uint8)


def write_records(file: Path, labels: np.ndarray[Any, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = pictures(len(labels), 3072)
    pixels[:, 0] = np.arange(len(labels))  # red of the corner
    file.write_bytes(np.concatenate([labels.astype(np.uint8), pixels], 1).tobytes())


def read(name: str, root: Path, size: int = 28) -> Domain:
    with pytest.warns(DatasetWarning):
        dataset = find_dataset(name, root).load(size)
    (domain,) = dataset.domains.values()
    assert domain.name == dataset.name == name
    check_not_fetched(name, root)
    return domain


def check_not_fetched(name: str, root: Path) -> None:
    plan = plan_download(find_dataset(name, root))
    assert plan.parts == ()
    assert plan.folder.exists()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST/raw"), ("fashion_mnist", "FashionMNIST/raw")])
def test_as_torchvision_has_it(tmp_path: Path, name: str, folder: str, packed: bool) -> None:
    write_idx_tree(tmp_path / folder, packed)
    domain = read(name, tmp_path)
    assert domain.labels.tolist() == [*range(10), 0, 1, *range(8)]
    assert (domain.images[:12, :, :, 1] == pictures(12)).all()
    assert domain.part is not None
    assert domain.part.tolist() == [0] * 12 + [1] * 8


@pytest.mark.parametrize(("folder", "packed"), [("EMNIST/raw", False), ("emnist/gzip", True)])
def test_emnist_is_stood_upright(tmp_path: Path, folder: str, packed: bool) -> None:
    write_idx_tree(tmp_path / folder, packed, ("emnist-balanced-train", "emnist-balanced-test"))
    domain = read("emnist", tmp_path)
    assert domain.labels.tolist() == [*range(10), 0, 1, *range(8)]
    assert (domain.images[:12, :, :, 1] == pictures(12).transpose(0, 2, 1)).all()


@pytest.mark.parametrize(
    "folder", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "CIFAR10/cifar-10-batches-bin", "cifar10"]
)
def test_cifar10_in_its_binary_version(tmp_path: Path, folder: str) -> None:
    for number in range(1, 6):
        write_records(tmp_path / folder / f"data_batch_{number}.bin", np.full((4, 1), number))
    write_records(tmp_path / folder / "test_batch.bin", np.array([[9], [8], [0], [6], [7]]))
    domain = read("cifar10", tmp_path, 32)
    assert domain.labels.tolist() == [1] * 4 + [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4 + [9, 8, 0, 6, 7]
    assert domain.images[-5:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert domain.part is not None
    assert domain.part.sum() == 5
    assert domain.units is None


@pytest.mark.parametrize("folder", ["cifar-100-binary", "CIFAR100/cifar-100-binary", "cifar100"])
def test_cifar100_says_superclasses(tmp_path: Path, folder: str) -> None:
    write_records(tmp_path / folder / "train.bin", np.array([[index % 20, index] for index in range(100)]))
    write_records(tmp_path / folder / "test.bin", np.array([[3, 23]]))
    domain = read("cifar100", tmp_path, 32)
    assert domain.units is not None
    assert domain.units.tolist() == [*(index % 20 for index in range(100)), 3]
    assert domain.labels.tolist() == [*range(100), 23]


@pytest.mark.parametrize("split", [True, False])
def test_femnist_as_leaf_writes_it(tmp_path: Path, split: bool) -> None:
    folder = tmp_path / "femnist"
    data = {user: {"x": [[0.0, 0.5, 1.0, 0.2]] * 2, "y": [label, 61]} for label, user in enumerate(["zoe", "amy"])}
    for part in ("train", "test") if split else ("",):
        (folder / part).mkdir(parents=True)
        (folder / part / "all.json").write_text(json.dumps({"users": list(data), "user_data": data}))
    domain = read("femnist", tmp_path, 2)
    assert domain.units is not None
    assert domain.units.tolist() == [1, 1, 0, 0] * (1 + split)
    assert domain.labels.tolist() == [0, 61, 1, 61] * (1 + split)
    assert domain.images[0, :, :, 2].ravel().tolist() == [0, 128, 255, 51]
    assert (domain.part is None) == (not split)


def test_archives_may_be_two_parts_or_one_with_units(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    for part, count in (("train", 6), ("test", 4)):
        np.savez(tmp_path / f"cifar10/{part}.npz", images=pictures(count, 32, 32, 3), labels=np.arange(count))
    assert read("cifar10", tmp_path, 32).part is not None
    np.savez(tmp_path / "femnist.npz", images=pictures(6), labels=np.arange(6), client=np.array([4, 4, 2, 2, 2, 1]))
    units = read("femnist", tmp_path).units
    assert units is not None
    assert units.tolist() == [4, 4, 2, 2, 2, 1]


def test_files_that_are_not_all_there_are_fetched(tmp_path: Path) -> None:
    write_idx_tree(tmp_path / "FashionMNIST/raw", packed=True)
    next((tmp_path / "FashionMNIST/raw").iterdir()).unlink()
    assert len(plan_download(find_dataset("fashion_mnist", tmp_path)).parts) == 4
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "download.json").write_text("{}")  # beside an archive that was removed
    assert len(plan_download(find_dataset("femnist", tmp_path)).parts) == 1


def test_checksums_of_files_as_torchvision_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx_tree(tmp_path / "FashionMNIST/raw", packed=True)
    source = find_dataset("fashion_mnist", tmp_path)
    with pytest.raises(DataError, match=r"FashionMNIST/raw/train-images-idx3-ubyte\.gz is damaged or another edition"):
        source.verify_checksums()
    sums = {name: file_hash(tmp_path / "FashionMNIST" / name, "md5") for name in FashionMnist.checksums}
    monkeypatch.setattr(FashionMnist, "checksums", sums)
    assert source.verify_checksums() == list(sums)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("fashion_mnist", FashionMnist.published_classes),
        ("fashion_mnist", FashionMnist.classes),
        ("cifar100", Cifar100.published_classes),
    ],
)
def test_archives_may_have_the_published_names_of_classes(tmp_path: Path, name: str, names: tuple[str, ...]) -> None:
    source, order = find_dataset(name, tmp_path), np.random.default_rng(0).permutation(len(names))
    classes = np.array([names[label] for label in order])
    np.savez(tmp_path / f"{name}.npz", images=pictures(len(order)), labels=np.arange(len(order)), classes=classes)
    with pytest.warns(DatasetWarning, match=r"of [67]0000 images$"):
        dataset = source.load(28)
    read_names = [dataset.classes[label] for label in dataset.domains[name].labels]
    assert read_names == [source.classes[label] for label in order]


def test_a_class_that_is_not_published_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar100.npz", images=pictures(2), labels=np.arange(2), classes=np.array(["apple", "pie"]))
    with pytest.raises(DataError, match="cifar100 has no class pie"):
        find_dataset("cifar100", tmp_path).load()


def test_a_folder_of_the_same_name_hides_no_files(tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    np.savez(tmp_path / "mnist.npz", images=pictures(7), labels=np.arange(7))
    assert len(read("mnist", tmp_path)) == 7
    (tmp_path / "mnist").mkdir()
    for part, count in (("train", 6), ("test", 4)):
        np.savez(tmp_path / f"mnist/{part}.npz", images=pictures(count), labels=np.arange(count))
    assert len(read("mnist", tmp_path)) == 10


@pytest.mark.parametrize("key", ["groups", "units"])
def test_both_parts_or_none_say_groups_and_units(tmp_path: Path, key: str) -> None:
    numbers = np.array([4, 4, 2, 2, 0, 0, 7, 7, 2, 9])
    write_npz(tmp_path / "mnist/train.npz", 6, **{key: numbers[:6]})
    write_npz(tmp_path / "mnist/test.npz", 4, **{key: numbers[6:]})
    assert getattr(read("mnist", tmp_path), key).tolist() == numbers.tolist()
    write_npz(tmp_path / "mnist/test.npz", 4)
    with pytest.raises(DataError, match=f"mnist: one of the training and the test part alone says {key}; both or none"):
        find_dataset("mnist", tmp_path).load()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mnist", "MNIST/raw/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz]\nGet it .*fedwca data get "),
        ("fashion-mnist", "FashionMNIST/raw/.*fedwca data get "),
        ("cifar10", "cifar-10-batches-bin/.*fedwca data get cifar10"),
        ("cifar100", "key units .the superclass.*cifar-100-binary/.*fedwca data get cifar100"),
        ("femnist", "key units or client .the writer.*json.*TalwalkarLab/leaf"),
    ],
)
def test_what_is_missing_and_how_to_get_it(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(DatasetMissing) as caught:
        find_dataset(name, tmp_path).load()
    pattern = re.escape(said).replace(r"\.\*", ".*") if name == "mnist" else said
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)


def test_damage_is_said_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(idx(np.arange(6))[:-1])
    with pytest.raises(DataError, match=r"short is damaged: its header says \[6\], and 5 bytes"):
        read_idx(tmp_path / "short")
    (tmp_path / "cut").write_bytes(b"\0\0\x08\x01\0\0")
    with pytest.raises(DataError, match="cut is damaged: its header of 1 sizes is cut off"):
        read_idx(tmp_path / "cut")
    (tmp_path / "other").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="other is no idx file of unsigned bytes"):
        read_idx(tmp_path / "other")
    (tmp_path / "packed.gz").write_bytes(gzip.compress(idx(np.arange(600)))[:-20])
    with pytest.raises(DataError, match=r"packed\.gz cannot be read as an idx file"):
        read_idx(tmp_path / "packed.gz")
    write_records(tmp_path / "cifar100/train.bin", np.array([[1, 2]]))
    (tmp_path / "cifar100/test.bin").write_bytes(b"123")
    with pytest.raises(DataError, match=r"test\.bin is damaged: 3 bytes are no whole number of records of 3074"):
        find_dataset("cifar100", tmp_path).load()
    (tmp_path / "femnist").mkdir()
    for content in ("{", '{"users": ["a"]}', '{"users": ["a"], "user_data": {"a": {"x": [[0, 0, 2, 0]], "y": [1]}}}'):
        (tmp_path / "femnist/all.json").write_text(content)
        with pytest.raises(DataError, match=r"all\.json is none of LEAF's files"):
            find_dataset("femnist", tmp_path).load()


@pytest.mark.skipif(not REAL.is_dir(), reason="no real data here")
@pytest.mark.parametrize(
    ("name", "root", "images"), [("mnist", "digit_five", 12000), ("fashion_mnist", ".", 20000), ("cifar10", ".", 20000)]
)
def test_real_images(name: str, root: str, images: int) -> None:
    domain = read(name, REAL / root, 28 if name != "cifar10" else 32)
    assert len(domain) == images
    assert (domain.part is not None) == (name == "cifar10")


@pytest.mark.parametrize("labels", [[1.7, 0], ["a", "b"], [float("inf"), 0]])
def test_labels_of_leaf_are_whole_numbers(tmp_path: Path, labels: list[object]) -> None:
    data = {"zoe": {"x": [[0.0, 0.5, 1.0, 0.2]] * 2, "y": labels}}
    (tmp_path / "femnist").mkdir()
    (tmp_path / "femnist" / "all.json").write_text(json.dumps({"users": ["zoe"], "user_data": data}))
    with pytest.raises(DataError, match="user 'zoe' needs labels that are whole numbers"):
        find_dataset("femnist", tmp_path).load(2)


def test_a_pool_needs_images_of_one_size() -> None:
    domains = {
        name: Domain(name, np.zeros((2, side, side, 3), np.uint8), np.array([0, 1]))
        for name, side in (("a", 4), ("b", 8))
    }
    with pytest.raises(DataError, match=r"a pool needs images of one size, not a 4 x 4, b 8 x 8"):
        ImagePool(FederatedDataset("two", ("x", "y"), domains))
