"""How files are written, whole or not at all, and what a folder of TOML files holds."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from importlib.resources.abc import Traversable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file so that others see the old one, the whole new one, or none; makes its folder.

    Args:
        path: the finished file.
        write: writes all of it to the temporary file it is given, in the same folder and with the same suffix.

    Raises:
        OSError: the path is a folder, or its folder cannot be written to. The temporary file never stays behind.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{uuid.uuid4().hex}{path.suffix}")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def toml_names(folder: Traversable) -> list[str]:
    """Names of the TOML files in a folder, sorted, without what they end in."""
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
