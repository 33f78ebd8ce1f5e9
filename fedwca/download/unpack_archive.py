"""Unpack untrusted archives: write nothing outside of the folder, and show nothing that is incomplete."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from fedwca.core.files import write_atomically
from fedwca.core.remote_files import RemoteFile
from fedwca.errors import DataError, FedwcaError

DAMAGED = (
    *(EOFError, RuntimeError, NotImplementedError, UnicodeError, zipfile.BadZipFile, tarfile.TarError, zlib.error),
    *(gzip.BadGzipFile, lzma.LZMAError),
)
"""What Python's readers of archives raise for damaged ones."""


def unpack_archive(file: RemoteFile, archive: Path, folder: Path) -> None:
    """Unpack ``archive`` into ``folder`` and remove it; ``folder / file.unpacked_path`` is then there and complete.

    Raises:
        DataError: the archive is damaged, would write outside of the folder, holds anything but files and
            folders, or lacks ``file.unpacked_path``.
        FedwcaError: the disk is too small for the sizes that the archive declares, or cannot be written.
    """
    if not archive.stat().st_size:
        raise DataError(f"{archive} cannot be unpacked: it is empty")
    target = folder / file.unpacked_path
    unpacked_folder = folder / f".{archive.name}-unpacked"
    try:
        if file.unpack == "gzip":
            write_atomically(target, lambda path: _gunzip(archive, path))
        else:
            shutil.rmtree(unpacked_folder, ignore_errors=True)
            (_unzip if file.unpack == "zip" else _untar)(archive, unpacked_folder)
            unpacked = unpacked_folder / file.unpacked_path
            if not unpacked.exists():
                raise DataError(f"{archive} holds no {file.unpacked_path}")
            target.parent.mkdir(parents=True, exist_ok=True)
            unpacked.rename(target)
    except DAMAGED as error:
        raise DataError(f"{archive} cannot be unpacked: {error}") from None
    except OSError as error:
        raise FedwcaError(f"{error.filename or target}: cannot be written ({error.strerror or error})") from None
    finally:
        shutil.rmtree(unpacked_folder, ignore_errors=True)
    archive.unlink()


def _gunzip(archive: Path, path: Path) -> None:
    with gzip.open(archive) as packed, path.open("wb") as file:
        shutil.copyfileobj(packed, file)


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        for member in members:
            _check_inside(archive, member.filename)
        _check_room(archive, folder, sum(member.file_size for member in members))
        packed.extractall(folder)


def _untar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        for member in members:
            _check_inside(archive, member.name)
            if not (member.isfile() or member.isdir()):
                kind = "a link" if member.issym() or member.islnk() else "neither a file nor a folder"
                raise DataError(f"{archive} cannot be unpacked: {member.name!r} in it is {kind}")
        _check_room(archive, folder, sum(member.size for member in members))
        # Not by extractall: safe modes and owners are its filter's matter, which Python 3.11 has from 3.11.4 on.
        for member in members:
            path = folder / member.name
            content = packed.extractfile(member)
            (path.parent if content else path).mkdir(parents=True, exist_ok=True)
            if content:
                with content, path.open("wb") as file:
                    shutil.copyfileobj(content, file)


def _check_inside(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in (path.parts or ("",))[0]:
        raise DataError(f"{archive} would write to {name!r}, outside of its folder")


def _check_room(archive: Path, folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder.parent).free
    if size > free:
        raise FedwcaError(f"{archive} takes {size / 1e6:,.0f} MB unpacked, and {free / 1e6:,.0f} MB are free")
