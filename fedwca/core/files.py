"""Files that are written whole or not at all, and the names of TOML files in a folder."""

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

from fedwca.core.file_locks import IN_FOLDER, lock_folder
from fedwca.errors import Unwritable

HEX = "[0-9a-f]" * 32
TEMPORARY = f".*-{HEX}*"
"""Pattern of the folders in which a file is being written, or that a killed process left behind."""
SAFETENSORS = ".tmp"
"""Prefix of the temporary files that safetensors writes beside the file it is given."""


def expand_home(path: str | Path) -> Path:
    """Expand ``~`` in a path; ``~name`` of an unknown user is left as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def relative_path(path: Path, folder: Path) -> str | None:
    """A path from a folder, with ``/`` on all systems; None where there is none (other drives of Windows)."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return None


def write_atomically(path: Path, write: Callable[[Path], None], private: bool = False) -> None:
    """Write a file so that others see the old file, the whole new one, or none; makes its folder.

    Temporary files left by processes that were killed while they wrote the same file are removed.

    Args:
        path: the finished file.
        write: writes the whole content to the file it is given, which is empty and has the same name as ``path``, in a
            temporary folder.
        private: whether only its owner may read the file; ``write`` sees to it where files have modes.

    Raises:
        OSError: the path is a folder, or the file cannot be written; names the path. Neither half a file nor an empty
            folder stays behind.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder; name a file in it", str(path))
    new_folders = _make_folders(path.parent)
    remove_temporary(path.parent, f".{glob.escape(path.name)}-{HEX}")
    scratch = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        with _temporary_folder(scratch, private):
            temporary_file = scratch / path.name
            temporary_file.touch()
            write(temporary_file)
            with temporary_file.open("rb+") as file:
                os.fsync(file.fileno())
            temporary_file.replace(path)
    except BaseException as error:
        for folder in new_folders:
            with suppress(OSError):  # another process writes there
                folder.rmdir()
        # The error of a full disk names no file, and others name the temporary one.
        if isinstance(error, OSError) and error.errno is not None and str(scratch) in str(error.filename or scratch):
            error.filename = str(path)
        raise


@contextmanager
def name_unwritable(place: str | Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into a message that names the place that cannot be written.

    Raises:
        Unwritable: in place of the `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{place}: cannot be written ({error.strerror or error})") from None


class _Writable(Exception):
    """Raised once a file could be written, to end `write_atomically` without leaving one."""


def check_writable(folder: Path) -> None:
    """Check that files can be written into a folder, which need not exist; nothing stays behind.

    Raises:
        Unwritable: they cannot.
    """

    def write(file: Path) -> None:
        raise _Writable

    with suppress(_Writable), name_unwritable(folder):
        write_atomically(folder / f".writable-{os.getpid()}", write)


def mend_lines(file: Path, lock: Path) -> None:
    """Truncate a file of lines after its last complete line and remove its lock, after its writer was killed.

    No other process may be writing it.
    """
    lock.unlink(missing_ok=True)
    if file.exists():
        content = file.read_bytes()
        end = content.rfind(b"\n") + 1
        if end < len(content):
            os.truncate(file, end)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file in UTF-8, see `write_atomically`.

    Raises:
        OSError: as there.
    """

    def write(file: Path) -> None:
        file.write_text(text, encoding="utf-8")

    write_atomically(path, write)


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, see `write_atomically`.

    Raises:
        OSError: as there.
    """

    def write(file: Path) -> None:
        file.chmod(0o600)  # the file exists and is still empty
        file.write_bytes(content)

    write_atomically(path, write, private=True)


def _make_folders(path: Path) -> list[Path]:
    """Make a folder and its missing parents; returns those that were missing, the innermost first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return missing


@contextmanager
def _temporary_folder(folder: Path, private: bool) -> Iterator[None]:
    """A folder that exists and is locked inside the block.

    The system releases the lock of a dead process, so an unlocked folder is a leftover. The file that is written is not
    locked itself, because some libraries replace it while they write it.
    """
    # It is renamed only once it is locked: others remove an unlocked folder of that name.
    new = folder.with_name(f"{folder.name}-new")
    # On Windows the file would inherit this mode, and keep it where it is moved.
    new.mkdir(0o700 if private or os.name != "nt" else 0o777)
    try:
        with lock_folder(new):
            new.rename(folder)
            yield
    finally:  # once the lock's file is closed: NFS keeps what is open, and with it the folder
        for path in (new, folder):
            shutil.rmtree(path, ignore_errors=True)


def remove_temporary(folder: Path, pattern: str = TEMPORARY) -> None:
    """Remove the temporary folders of `write_atomically` below a folder that nobody writes any more, and nothing else.

    Args:
        folder: the folder to search.
        pattern: glob pattern of the temporary folders' paths.
    """
    for leftover in folder.glob(pattern):
        name = re.sub("-[0-9a-f]{32}(-new)?$", "", leftover.name[1:])
        with suppress(OSError):
            entries = [entry.name for entry in leftover.iterdir()]
            if not all(entry in (name, IN_FOLDER) or entry.startswith(SAFETENSORS) for entry in entries):
                continue
            with lock_folder(leftover) as locked:
                pass
            if locked:
                shutil.rmtree(leftover)


def toml_names(folder: Traversable) -> list[str]:
    """Names of the TOML files in a folder, sorted, without the suffix."""
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir() if file.name.endswith(".toml"))
