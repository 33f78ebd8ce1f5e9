"""How files are written, whole or not at all, and what a folder of TOML files holds."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.resources.abc import Traversable
from pathlib import Path

from fedwca.core.file_locks import lock_folder
from fedwca.errors import FedwcaError

HEX = "[0-9a-f]" * 32
TEMPORARY = f".*-{HEX}*"
"""Names of folders in which a file is being written, and of those that a killed process left."""
SAFETENSORS = ".tmp"
"""How names of files begin that safetensors writes beside the one that it is given."""


def expand_home(path: str | Path) -> Path:
    """A path with ``~`` as the home folder; ``~name`` of nobody on this machine is a name like any other."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file so that others see the old one, the whole new one, or none; makes its folder.

    What processes left that were killed while they wrote this very file is removed.

    Args:
        path: the finished file.
        write: writes all of it to the file it is given, which is empty and has the same name in a folder of its own.

    Raises:
        OSError: the path is a folder, or the file cannot be written; names it. Neither half a file nor an empty folder
            stays behind.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    made = _make_folders(path.parent)
    remove_temporary(path.parent, f".{glob.escape(path.name)}-{HEX}")
    beside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with _temporary_folder(beside):
            temporary = beside / path.name
            temporary.touch()
            write(temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException as error:
        for folder in made:
            with suppress(OSError):  # somebody else writes there
                folder.rmdir()
        # The system says of a full disk only that it is full.
        if isinstance(error, OSError) and error.errno is not None and str(beside) in str(error.filename or beside):
            error.filename = str(path)
        raise


@contextmanager
def name_unwritable(place: str | Path) -> Iterator[None]:
    """Say where it was that a file cannot be written inside.

    Raises:
        FedwcaError: it cannot.
    """
    try:
        yield
    except OSError as error:
        raise FedwcaError(f"{place}: cannot be written ({error.strerror or error})") from None


class _Writable(Exception):
    """A file could be written."""


def check_writable(folder: Path) -> None:
    """See that files can be written into a folder, which need not be there; nothing stays behind.

    Raises:
        FedwcaError: they cannot.
    """

    def write(file: Path) -> None:
        raise _Writable

    with suppress(_Writable), name_unwritable(folder):
        write_atomically(folder / "written", write)


def mend_lines(file: Path, lock: Path) -> None:
    """Cut a file of lines at the end of its last whole one, and remove the lock beside it: a process that wrote it was
    killed. Nobody writes it now.
    """
    lock.unlink(missing_ok=True)
    if file.exists():
        written = file.read_bytes()
        whole = written.rfind(b"\n") + 1
        if whole < len(written):
            os.truncate(file, whole)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file in UTF-8, see `write_atomically`.

    Raises:
        OSError: as there.
    """

    def write(file: Path) -> None:
        file.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, see `write_atomically`.

    Raises:
        OSError: as there.
    """

    def write(file: Path) -> None:
        file.chmod(0o600)  # it is there already, still empty
        file.write_bytes(content)

    write_atomically(path, write)


def _make_folders(path: Path) -> list[Path]:
    """Make a folder and those above it; returns those that were not there, the innermost first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return made


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[None]:
    """A folder that is there while inside, and locked: the system lets go of a dead process's lock, which tells what it
    left. The folder is locked and not the file, which some libraries replace while they write it.
    """
    # It gets its name once it is locked: others remove what has such a name and no lock.
    new = folder.with_name(f"{folder.name}-new")
    new.mkdir(0o700)
    with lock_folder(new):
        try:
            new.rename(folder)
            yield
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_temporary(folder: Path, pattern: str = TEMPORARY) -> None:
    """Remove temporary folders of `write_atomically` below a folder in which nobody writes any more, and nothing else.

    Args:
        folder: where.
        pattern: of their paths.
    """
    for left in folder.glob(pattern):
        file = re.sub("-[0-9a-f]{32}(-new)?$", "", left.name[1:])
        with suppress(OSError), lock_folder(left) as alone:
            if alone and all(inside.name == file or inside.name.startswith(SAFETENSORS) for inside in left.iterdir()):
                shutil.rmtree(left)


def toml_names(folder: Traversable) -> list[str]:
    """Names of the TOML files in a folder, sorted, without what they end in."""
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
