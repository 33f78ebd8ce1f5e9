"""Folders in which files are kept between runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fedwca.core.files import name_unwritable
from fedwca.errors import UsageError


def cache_dir() -> Path:
    """The cache folder, whose files can be recreated; it need not exist yet.

    It is the variable ``FEDWCA_CACHE`` if set, else the platform's cache folder: ``fedwca`` in ``%LOCALAPPDATA%`` on
    Windows, in ``~/Library/Caches`` on a Mac, and in ``$XDG_CACHE_HOME`` or ``~/.cache`` elsewhere.

    Raises:
        UsageError: the variable names a file, or there is no home folder for the platform's.
    """
    if value := os.environ.get("FEDWCA_CACHE"):
        folder = _expanded("FEDWCA_CACHE", value)
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"FEDWCA_CACHE: {folder} is a file; name a folder, which need not exist yet")
        return folder
    try:
        return _platform_cache(sys.platform) / "fedwca"
    except RuntimeError:  # as of a container's user who is in no list of users
        raise UsageError("there is no home folder; set FEDWCA_CACHE to a folder for files that are kept") from None


def _expanded(variable: str, value: str) -> Path:
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{variable}: {value}: {error}") from None


def _platform_cache(platform: str) -> Path:
    if platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def data_dir() -> Path:
    """The folder in which data sets are looked for: ``FEDWCA_DATA`` if set, else ``data`` in `cache_dir`."""
    value = os.environ.get("FEDWCA_DATA")
    return _expanded("FEDWCA_DATA", value) if value else cache_dir() / "data"


def make_folder(path: Path) -> None:
    """Create a folder and its parents, where they do not exist.

    Raises:
        FedwcaError: a folder cannot be created.
    """
    with name_unwritable(path):
        path.mkdir(parents=True, exist_ok=True)
