"""`fedwca data get`: what it prints first, what it downloads, and how it continues an earlier download."""

from __future__ import annotations

import errno
import gzip
import json
import os
import sys
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from torchvision import datasets as torchvision_datasets

from fedwca.core.remote_files import HubCopy, ManualDownload, RemoteFile, TorchvisionFiles
from fedwca.datasets import datasets
from fedwca.datasets.digit_five import DigitFive
from fedwca.datasets.mnist import Mnist
from fedwca.datasets.office_home import OfficeHome
from fedwca.datasets.pacs import Pacs
from fedwca.download import download_dataset as module
from fedwca.download.download_dataset import digest_files, plan_download
from fedwca.download.torchvision_files import torchvision_files

from ..cli.conftest import call
from .conftest import LocalServer, chunks, md5
from .test_unpack_archive import zipped


def idx(array: np.ndarray) -> bytes:  # type: ignore[type-arg]
    """A gzipped array in the format of MNIST's files."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes())


@pytest.fixture
def mnist(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> LocalServer:
    """A tiny MNIST at the addresses of torchvision's class; beside it Digit-Five has one domain without an address."""
    resources = []
    for part, count in (("train", 30), ("t10k", 20)):
        labels = np.arange(count) % 10
        images = np.zeros((count, 28, 28)) + labels[:, None, None] * 20
        for kind, content in (("images-idx3", idx(images)), ("labels-idx1", idx(labels))):
            name = f"{part}-{kind}-ubyte.gz"
            server.add(f"/mnist/{name}", content)
            resources.append((name, md5(content)))
    monkeypatch.setattr(torchvision_datasets.MNIST, "mirrors", [f"{server.address}/gone/", f"{server.address}/mnist/"])
    monkeypatch.setattr(torchvision_datasets.MNIST, "resources", resources)
    monkeypatch.setattr(
        DigitFive, "downloads", (TorchvisionFiles("MNIST", "MNIST/raw"), ManualDownload("synth", "https://example.org"))
    )
    return server


def test_get_says_what_it_does_and_the_reader_knows_the_files(mnist: LocalServer, tmp_path: Path) -> None:
    run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 0, run
    first, *_ = run.err.splitlines()
    assert first.startswith("Digit-Five (research use; SVHN non-commercial): about 430 MB to ")
    assert "not fetched: synth; no lasting address is known, people get it from https://example.org" in run.err
    assert "Please cite: Peng et al." in run.err
    assert "train-images-idx3-ubyte.gz: 0.0 MB" in run.err
    assert run.out.splitlines()[-1] == f"Check it: fedwca data check digit_five --data {tmp_path}"
    folder = tmp_path / "digit_five"
    np.savez(folder / "usps.npz", images=np.zeros((20, 28, 28), np.uint8), labels=np.arange(20, dtype=np.int64) % 10)
    with pytest.warns(UserWarning, match="mnist has 50 of 34000 images"):
        assert len(DigitFive(root=tmp_path).load().domain("mnist")) == 50
    record = json.loads((folder / "download.json").read_text())
    assert record["from"][0]["md5"] == torchvision_datasets.MNIST.resources[0][1]
    assert len(record["digest"]) == 64
    requests = sum(len(served.asked) for served in mnist.files.values())
    again = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert again.code == 0
    assert "Digit-Five: all that can be fetched is in " in again.err
    assert sum(len(served.asked) for served in mnist.files.values()) == requests


def test_dry_run_fetches_nothing(mnist: LocalServer, tmp_path: Path) -> None:
    run = call("data", "get", "digit-five", "--data", str(tmp_path), "--dry-run")
    assert run.code == 0
    assert "/gone/train-images-idx3-ubyte.gz (MD5 checked)" in run.err
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_left_alone(mnist: LocalServer, tmp_path: Path) -> None:
    raw = tmp_path / "Digit-Five/MNIST/raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(b"mine")
    run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 0
    assert "less than 430 MB" in run.err
    assert (raw / "train-images-idx3-ubyte").read_bytes() == b"mine"
    assert (raw / "t10k-labels-idx1-ubyte").is_file()


def test_a_wrong_file_ends_in_a_sentence(mnist: LocalServer, tmp_path: Path) -> None:
    mnist.files["/mnist/train-labels-idx1-ubyte.gz"].content = b"an error page"
    run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 1
    assert run.err.splitlines()[-1].startswith("Error: train-labels-idx1-ubyte.gz could not be fetched: ")
    assert "what was fetched is removed" in run.err
    assert (tmp_path / "digit_five/MNIST/raw/train-images-idx3-ubyte").is_file()


def test_a_small_disk_is_said_before_a_byte(
    mnist: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = 10**8

    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Usage)
    run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 1
    assert "digit_five takes about 1.0 GB more in" in run.err
    assert not any(served.asked for served in mnist.files.values())


def test_what_is_there_needs_no_room(mnist: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 2000 * 2

    monkeypatch.setattr(DigitFive, "download_size", 2000)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Usage)
    assert call("data", "get", "digit-five", "--data", str(tmp_path)).code == 1
    raw = tmp_path / "digit_five/MNIST/raw"
    raw.mkdir(parents=True)
    (raw / "train-images-idx3-ubyte").write_bytes(bytes(500))
    (raw / "t10k-images-idx3-ubyte.gz.part").write_bytes(bytes(100))
    assert call("data", "get", "digit-five", "--data", str(tmp_path)).code == 0


def test_a_file_of_unknown_length_fills_no_disk(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.add("/photo.zip", bytes(1000), chunks)
    monkeypatch.setattr(Pacs, "downloads", (RemoteFile((url,), "photo.zip", unpack="zip", unpacked_path="photo"),))
    monkeypatch.setattr(Pacs, "download_size", 400)
    run = call("data", "get", "pacs", "--data", str(tmp_path))
    assert run.code == 1
    assert "gives more than 800 bytes; what was fetched is removed" in run.err
    assert not (tmp_path / "pacs/photo.zip.part").exists()


def test_a_failed_download_leaves_no_empty_folder(
    server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RemoteFile((f"{server.add('/other.zip', b'')}.none",), "raw/photo.zip", unpack="zip", unpacked_path="photo")
    monkeypatch.setattr(Pacs, "downloads", (file,))
    assert call("data", "get", "pacs", "--data", str(tmp_path / "new" / "sets")).code == 1
    assert list(tmp_path.iterdir()) == []
    mine = tmp_path / "pacs" / "mine"
    mine.mkdir(parents=True)
    assert call("data", "get", "pacs", "--data", str(tmp_path)).code == 1
    assert mine.is_dir()


def test_two_downloads_at_once_are_refused(mnist: LocalServer, tmp_path: Path) -> None:
    folder = tmp_path / "digit_five"
    folder.mkdir()
    with FileLock(folder / ".download.lock"):
        run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 1
    assert run.err.splitlines()[-1] == f"Error: {folder}: another `fedwca data get` is at work on it"


@pytest.mark.skipif(os.name == "nt", reason="files are locked by fcntl")
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_takes_a_download(
    mnist: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse_all(descriptor: int, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    (tmp_path / "digit_five").mkdir()
    (tmp_path / "digit_five/.download.lock").touch()  # which a killed process left
    monkeypatch.setattr("fcntl.flock", refuse_all)
    run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 0, run.err
    assert (tmp_path / "digit_five/MNIST/raw/train-images-idx3-ubyte").is_file()


@pytest.mark.parametrize(("name", "why"), [("digits-mini", "comes with fedwca"), ("folder", "yours, with --data PATH")])
def test_what_is_not_fetched(name: str, why: str) -> None:
    run = call("data", "get", name)
    assert run.code == 2
    assert run.err.startswith(f"Error: {name.replace('-', '_')} is not fetched: {why}. Those that are: cifar10, ")


def test_an_archive_of_folders(server: LocalServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = zipped(tmp_path / "x.zip", **{"photo/dog/1.png": b"1"}).read_bytes()
    url = server.add("/photo.zip", content)
    files = (RemoteFile((url,), "photo.zip", md5=md5(content), unpack="zip", unpacked_path="photo"),)
    monkeypatch.setattr(Pacs, "downloads", files)
    assert call("data", "get", "pacs", "--data", str(tmp_path)).code == 0
    assert (tmp_path / "pacs/photo/dog/1.png").read_bytes() == b"1"
    assert not (tmp_path / "pacs/photo.zip").exists()


def test_an_archive_of_the_whole_set_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"mine")
    run = call("data", "get", "mnist", "--data", str(tmp_path))
    assert run.code == 0
    assert f"MNIST: all that can be fetched is in {tmp_path / 'mnist.npz'}" in run.err


def test_domains_are_known_as_they_are_published(tmp_path: Path) -> None:
    for name in ("Art", "Clipart", "Product", "Real World"):
        (tmp_path / "office-home" / name / "Chair").mkdir(parents=True)
    plan = plan_download(OfficeHome(root=tmp_path))
    assert (plan.folder, plan.parts) == (tmp_path / "office-home", ())


def test_domains_in_another_form_are_not_fetched_beside_it(tmp_path: Path) -> None:
    """Downloaded files would be read in place of M3SDA's, and hold other images in another order."""
    folder = tmp_path / "digit_five"
    folder.mkdir()
    for name in ("mnist_data", "svhn_train_32x32", "svhn_test_32x32", "syn_number"):
        (folder / f"{name}.mat").write_bytes(b"mine")
    (folder / "mnistm.npz").write_bytes(b"mine")
    plan = plan_download(DigitFive(root=tmp_path))
    assert [part.path for part in plan.parts if isinstance(part, RemoteFile)] == ["usps.bz2", "usps.t.bz2"]
    assert (len(plan.parts), plan.present_parts, plan.manual_parts) == (2, 4, ())
    (folder / "mnistm.npz").unlink()
    (folder / "mnistm" / "0").mkdir(parents=True)
    assert [
        part.only_domain for part in plan_download(DigitFive(root=tmp_path)).parts if isinstance(part, HubCopy)
    ] == ["mnistm"], "a folder of its images would not be read"


def test_an_empty_folder_is_no_data_set_of_one_domain(tmp_path: Path) -> None:
    (tmp_path / "mnist" / "MNIST" / "raw").mkdir(parents=True)
    assert len(plan_download(Mnist(root=tmp_path)).parts) == 4


def test_a_missing_set_names_the_command(tmp_path: Path) -> None:
    run = call("bench", "--dataset", "pacs", "--data", str(tmp_path), "--source", "photo")
    assert run.code == 1
    assert f"Get it with `fedwca data get pacs --data {tmp_path}`, or from https://" in run.err


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "EMNIST", "USPS", "SVHN"])
def test_addresses_are_torchvision_s(name: str) -> None:
    files = list(torchvision_files(TorchvisionFiles(name)))  # type: ignore[arg-type]
    assert len(files) == {"EMNIST": 1, "USPS": 2, "SVHN": 2}.get(name, 4)
    assert all(file.md5 and file.urls[0].startswith("http") for file in files)


def test_checksums_of_the_catalogue_are_torchvision_s() -> None:
    count = 0
    for name in datasets.names():
        parts = [part for part in datasets.get(name).downloads if isinstance(part, TorchvisionFiles)]
        files = [file for part in parts for file in torchvision_files(part)]
        # Archives of many files are removed after unpacking.
        checksums = {file.path: file.md5 for file in files if file.unpack != "zip"}
        assert not checksums or checksums == datasets.get(name).checksums, name
        count += len(checksums)
    assert count == 8 + 4 + 4


def test_what_is_catalogued_says_how_large_it_is() -> None:
    for name in datasets.names():
        cls = datasets.get(name)
        assert bool(cls.downloads) == bool(cls.download_size), name


def test_a_digest_is_of_names_and_contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "B").write_bytes(b"2")
    (tmp_path / ".lock").write_bytes(b"")
    digest = digest_files(tmp_path)
    (tmp_path / ".lock").unlink()
    assert digest_files(tmp_path) == digest
    monkeypatch.setattr(PurePath, "__lt__", lambda path, other: str(path).lower() < str(other).lower())  # as on Windows
    assert digest_files(tmp_path) == digest
    (tmp_path / "a").rename(tmp_path / "b")
    assert digest_files(tmp_path) != digest


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_digest_is_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    digest = digest_files(tmp_path)
    (tmp_path / os.fsdecode(b"\xff.png")).write_bytes(b"2")
    assert digest_files(tmp_path) != digest


@pytest.mark.usefixtures("mnist")
def test_what_came_before_an_interruption_is_on_record(tmp_path: Path) -> None:
    fetched, fetch = list[str](), module.fetch_file

    def fetch_two(part: Any, *rest: Any) -> Path:
        if len(fetched) == 2:
            raise KeyboardInterrupt
        fetched.append(part.path)
        return fetch(part, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "fetch_file", fetch_two)
        assert call("data", "get", "digit-five", "--data", str(tmp_path)).code == 130
    file = tmp_path / "digit_five" / "download.json"
    record = json.loads(file.read_text())
    assert (len(record["from"]), record["digest"]) == (2, None)
    assert call("data", "get", "digit-five", "--data", str(tmp_path)).code == 0
    whole = json.loads(file.read_text())
    assert record["from"] == whole["from"][:2]
    assert (len(whole["from"]), len(whole["digest"])) == (4, 64)


@pytest.mark.parametrize("content", ["{", "[]", "null", '{"from": null}', '{"from": [], "images": []}', "[" * 100_000])
def test_a_damaged_record_costs_no_download(mnist: LocalServer, tmp_path: Path, content: str) -> None:
    folder = tmp_path / "digit_five"
    folder.mkdir()
    (folder / "download.json").write_text(content)
    run = call("data", "get", "digit-five", "--data", str(tmp_path))
    assert run.code == 0, run.err
    assert json.loads((folder / "download.json").read_text())["from"][0]["md5"]
