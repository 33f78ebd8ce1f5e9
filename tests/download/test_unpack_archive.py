"""Archives from the network write only into their own folder, and a partly unpacked archive never looks complete."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

import pytest

from fedwca.core.remote_files import RemoteFile
from fedwca.download import unpack_archive as module
from fedwca.download.unpack_archive import unpack_archive
from fedwca.errors import DataError, FedwcaError


def zipped(path: Path, **files: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, **files: bytes) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def remote(path: Path, unpack: Literal["gzip", "zip", "tar"], gives: str) -> RemoteFile:
    return RemoteFile((), path.name, unpack=unpack, unpacked_path=gives)


def test_each_form_of_archive_is_unpacked(tmp_path: Path) -> None:
    plain = tmp_path / "raw/a.gz"
    plain.parent.mkdir()
    plain.write_bytes(gzip.compress(b"hello"))
    unpack_archive(remote(plain, "gzip", "raw/a"), plain, tmp_path)
    files = {"photo/dog/1.png": b"1", "photo/cat/2.png": b"2", "readme": b"not wanted"}
    unpack_archive(remote(tmp_path / "p.zip", "zip", "photo"), zipped(tmp_path / "p.zip", **files), tmp_path)
    unpack_archive(
        remote(tmp_path / "q.tar.gz", "tar", "bin"), tarred(tmp_path / "q.tar.gz", **{"bin/x": b"3"}), tmp_path
    )
    unpacked = {
        path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert unpacked == {"raw/a": b"hello", "photo/dog/1.png": b"1", "photo/cat/2.png": b"2", "bin/x": b"3"}


@pytest.mark.parametrize("name", ["../evil", "/evil", "photo/../../evil", "..\\evil", "C:/evil"])
@pytest.mark.parametrize("form", ["zip", "tar"])
def test_nothing_is_written_outside(tmp_path: Path, form: Literal["zip", "tar"], name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    archive = folder / f"p.{form}"
    (zipped if form == "zip" else tarred)(archive, **{"photo/a": b"", name: b"x"})
    with pytest.raises(DataError, match="outside of its folder"):
        unpack_archive(remote(archive, form, "photo"), archive, folder)
    assert [path.name for path in tmp_path.rglob("*")] == ["in", archive.name]


@pytest.mark.parametrize("to", ["/etc", "photo/a"])
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_in_a_tar(tmp_path: Path, kind: bytes, to: str) -> None:
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("photo/a"))
        member = tarfile.TarInfo("photo/b")
        member.type, member.linkname = kind, to
        archive.addfile(member)
    with pytest.raises(DataError, match="cannot be unpacked: 'photo/b' in it is a link"):
        unpack_archive(remote(tmp_path / "p.tar", "tar", "photo"), tmp_path / "p.tar", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p.tar"]


def test_modes_and_special_files_of_a_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tarfile, "data_filter", raising=False)  # Python 3.11.0 to 3.11.3 has none
    member = tarfile.TarInfo("photo/a")
    member.mode, member.uid = 0o6777, 12345
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        archive.addfile(member)
    file = tmp_path / "photo" / "a"
    unpack_archive(remote(tmp_path / "p.tar", "tar", "photo"), tmp_path / "p.tar", tmp_path)
    assert file.stat().st_uid != 12345
    assert not file.stat().st_mode & 0o6111
    with tarfile.open(tmp_path / "p.tar", "w") as archive:
        member.type = tarfile.FIFOTYPE
        archive.addfile(member)
    with pytest.raises(DataError, match="'photo/a' in it is neither a file nor a folder"):
        unpack_archive(remote(tmp_path / "p.tar", "tar", "photo"), tmp_path / "p.tar", tmp_path)


@pytest.mark.parametrize("form", ["gzip", "zip", "tar"])
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_damage_is_a_sentence_and_leaves_nothing(tmp_path: Path, form: Literal["gzip", "zip", "tar"], cut: int) -> None:
    archive = tmp_path / "p.bin"
    if form == "gzip":
        archive.write_bytes(gzip.compress(bytes(range(256)) * 100))
    else:
        (zipped if form == "zip" else tarred)(archive, **{"photo": bytes(range(256)) * 100})
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) * cut // 4])
    with pytest.raises(DataError, match=r"p\.bin (cannot be unpacked|holds no photo)"):
        unpack_archive(remote(archive, form, "photo"), archive, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p.bin"]


def test_a_damaged_xz_is_a_sentence(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "p.tar", photo=b"1")
    content = lzma.compress(archive.read_bytes())
    archive.write_bytes(content[:40] + bytes(20) + content[60:])
    with pytest.raises(DataError, match=r"p\.tar cannot be unpacked"):
        unpack_archive(remote(archive, "tar", "photo"), archive, tmp_path)


def test_an_archive_without_its_content_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "p.zip", other=b"")
    with pytest.raises(DataError, match="holds no photo"):
        unpack_archive(remote(archive, "zip", "photo"), archive, tmp_path)


def test_a_small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 10

    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: Usage)
    archive = zipped(tmp_path / "p.zip", photo=b"x" * 10_000_000)
    with pytest.raises(FedwcaError, match="takes 10 MB unpacked, and 0 MB are free"):
        unpack_archive(remote(archive, "zip", "photo"), archive, tmp_path)
