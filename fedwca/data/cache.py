"""Where files are kept between runs, and how they get there whole or not at all."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

from fedwca.errors import FedwcaError


def cache_dir() -> Path:
    """The folder of files that can be made again; it need not exist yet.

    ``FEDWCA_CACHE`` where set, else the platform's own: ``fedwca`` in ``%LOCALAPPDATA%`` on Windows, in
    ``~/Library/Caches`` on a Mac, and in ``$XDG_CACHE_HOME`` or ``~/.cache`` elsewhere.
    """
    if chosen := os.environ.get("FEDWCA_CACHE"):
        return Path(chosen).expanduser()
    return _platform_cache(sys.platform) / "fedwca"


def _platform_cache(platform: str) -> Path:
    if platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def data_dir() -> Path:
    """The folder data sets are looked for in: ``FEDWCA_DATA`` where set, else ``data`` in `cache_dir`."""
    chosen = os.environ.get("FEDWCA_DATA")
    return Path(chosen).expanduser() if chosen else cache_dir() / "data"


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there.

    Raises:
        FedwcaError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedwcaError(f"{path}: cannot be written ({error.strerror or error})") from None


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file so that others see the old one, the whole new one, or none; makes its folder.

    Args:
        path: the finished file.
        write: writes all of it to the temporary file it is given, in the same folder and with the same suffix.

    Raises:
        OSError: the folder cannot be written to. The temporary file never stays behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
