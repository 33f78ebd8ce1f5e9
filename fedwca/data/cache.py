"""Where files are kept between runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fedwca.core.files import name_unwritable
from fedwca.errors import UsageError


def cache_dir() -> Path:
    """The folder of files that can be made again; it need not exist yet.

    ``FEDWCA_CACHE`` where set, else the platform's own: ``fedwca`` in ``%LOCALAPPDATA%`` on Windows, in
    ``~/Library/Caches`` on a Mac, and in ``$XDG_CACHE_HOME`` or ``~/.cache`` elsewhere.

    Raises:
        UsageError: the variable names a file.
    """
    if chosen := os.environ.get("FEDWCA_CACHE"):
        folder = _expanded("FEDWCA_CACHE", chosen)
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"FEDWCA_CACHE: {folder} is a file; name a folder, which need not exist yet")
        return folder
    return _platform_cache(sys.platform) / "fedwca"


def _expanded(variable: str, chosen: str) -> Path:
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{variable}: {chosen}: {error}") from None


def _platform_cache(platform: str) -> Path:
    if platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def data_dir() -> Path:
    """The folder data sets are looked for in: ``FEDWCA_DATA`` where set, else ``data`` in `cache_dir`."""
    chosen = os.environ.get("FEDWCA_DATA")
    return _expanded("FEDWCA_DATA", chosen) if chosen else cache_dir() / "data"


def make_folder(path: Path) -> None:
    """Make a folder and those above it, where they are not there.

    Raises:
        FedwcaError: it cannot be made.
    """
    with name_unwritable(path):
        path.mkdir(parents=True, exist_ok=True)
