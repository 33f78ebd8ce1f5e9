"""Locks that say at once whether somebody else holds them; the system lets go of a dead process's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(descriptor: int, shared: bool = False) -> bool | None:
    """Lock what is open until it is closed; whether nobody else holds it, None where it cannot be locked.

    Args:
        descriptor: of a file or a folder.
        shared: others may lock it so too.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


@contextmanager
def lock_folder(folder: Path) -> Iterator[bool | None]:
    """`try_lock` of a folder, while inside."""
    if os.name == "nt":  # where a folder cannot be opened
        yield None
        return
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield try_lock(held)
    finally:
        os.close(held)


@contextmanager
def hold_alone(file: Path) -> Iterator[bool]:
    """Whether nobody else is inside this for the same file; always where files cannot be locked."""
    with file.open("ab") as held:
        yield try_lock(held.fileno()) is not False
