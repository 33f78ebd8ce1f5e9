"""Files that are not what their name says are named in one sentence, before anything is unpacked or waited for."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedwca.data import DatasetWarning, read_domains, read_npz
from fedwca.data.read_domains import MOST_LABELS
from fedwca.errors import DataError

from ..cli.conftest import call
from ..shades import write_shades

IMAGES = np.zeros((4, 8, 8, 3), np.uint8)


def header(shape: str, descr: str = "|u1") -> bytes:
    """The beginning of a .npy file that declares a shape."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def archive(path: Path, images: bytes, labels: np.ndarray | None = None) -> Path:
    stream = io.BytesIO()
    np.save(stream, np.arange(4, dtype=np.int64) if labels is None else labels)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("images.npy", images)
        file.writestr("labels.npy", stream.getvalue())
    return path


@pytest.mark.parametrize(
    ("images", "why"),
    [
        (header("(1000000000, 32, 32, 3)") + bytes(100), "images declares 3,072,000,000,000 bytes .* 100 are there"),
        (header("(4, 8, 8, 3)") + bytes(10), "images declares 768 bytes .* and 10 are there"),
        (header("(-1, 8, 8, 3)"), "images declares"),
        (header("(1,)", "|O") + b"\x80\x04N.", "pickled objects"),
        (b"no array at all", "images is no array"),
        (header("(4, 8, 8, 3").replace(b"}", b"("), "images is no array"),
        (header("(4, 8, 8, 3), []: 1"), "images is no array"),
    ],
)
def test_declared_sizes_are_those_that_are_there(tmp_path: Path, images: bytes, why: str) -> None:
    path = archive(tmp_path / "one.npz", images)
    with pytest.raises(DataError, match=rf"one\.npz.*{why}"):
        read_npz(path)


@pytest.mark.parametrize("shape", ["(1024, 32, 32, 3)", "(1024, 32, 32)"])
def test_what_does_not_fit_into_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """Colours take 3 MiB, and so do greys, of which 1 MiB is in the file."""
    path = archive(tmp_path / "one.npz", header(shape) + bytes(1024 * (3072 if shape.endswith(", 3)") else 1024)))
    monkeypatch.setattr("fedwca.data.archives.free_memory", lambda: 2 << 20)
    monkeypatch.setattr("numpy.load", lambda *_, **__: pytest.fail("it is unpacked"))
    with pytest.raises(DataError, match=r"one\.npz takes 0\.0 GiB unpacked, and 0\.0 GiB of memory are free"):
        read_npz(path)


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = archive(tmp_path / "one.npz", header("(4, 8, 8, 3)") + bytes(768))
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = -1
        while (position := content.find(mark, position + 1)) >= 0:
            content[position + offset] |= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"one\.npz cannot be read .*encrypted"):
        read_npz(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.timeout(60)
def test_a_pipe_or_a_device_is_waited_for_by_nobody(tmp_path: Path) -> None:
    shades = write_shades(tmp_path / "shades")
    pipe = shades / "amber.npz"
    pipe.unlink()
    os.mkfifo(pipe)
    for words in (
        ["data", "check", "shades", "--data", str(tmp_path)],
        ["bench", "--data", str(shades)],
        ["bench", "--config", str(pipe)],
        ["bench", "--config", "/dev/zero"],
        ["bench", "--checkpoint", str(pipe), "--data", str(tmp_path)],
        ["predict", str(pipe), str(shades)],
        ["runs", "show", str(pipe)],
    ):
        run = call(*words)
        assert run.code in (1, 2), words
        assert "unexpected" not in run.err, (words, run.err)
    assert "amber.npz cannot be read" in call("bench", "--data", str(shades)).err
    assert "is a pipe, not a file" in call("bench", "--config", str(pipe)).err
    assert "is a device, not a file" in call("bench", "--config", "/dev/zero").err


def domains_of(folder: Path, label: int) -> Path:
    for name in ("one", "two"):
        labels = np.array([0, 1, 2, label], np.int64)
        np.savez(folder / f"{name}.npz", images=IMAGES, labels=labels)
    return folder


@pytest.mark.timeout(60)
def test_label_numbers_have_a_bound(tmp_path: Path) -> None:
    for label in (MOST_LABELS, 60_000, 10**12):
        with pytest.raises(DataError, match=f"'one': has the label {label}; .* 0 to {MOST_LABELS - 1} at most, .* key"):
            read_domains(domains_of(tmp_path, label), size=8)
    with pytest.warns(DatasetWarning, match="9,996 of 10,000 classes have no image in any domain"):
        assert len(read_domains(domains_of(tmp_path, MOST_LABELS - 1), size=8).classes) == MOST_LABELS
    result = call("data", "check", tmp_path.name, "--data", str(tmp_path.parent))
    assert result.code == 0
    assert "9,996 more" in result.out
    assert len(result.out.splitlines()) < 20


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos" / "one" / "cat").mkdir(parents=True)
    original = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:  # as for any user but root, who may read everything
        if folder.name == "cat":
            raise PermissionError(13, "Permission denied", str(folder))
        return original(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    run = call("data", "check", "photos", "--data", str(tmp_path))
    assert run.code == 1
    assert "cat cannot be read: Permission denied" in run.err
