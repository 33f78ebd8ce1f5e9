"""File locks that are taken at once or not at all; the system releases those of a dead process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedwca.errors import FedwcaError

IN_FOLDER = ".lock"
"""Name of the file by which `lock_folder` locks the folder that it is in."""


def try_lock(descriptor: int, shared: bool = False) -> bool | None:
    """Lock an open file until it is closed, and return at once.

    Args:
        descriptor: of an open file.
        shared: whether others may hold a shared lock at the same time.

    Returns:
        Whether the lock was taken; None where nothing can be locked.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter on some network file systems
        return False
    except OSError:  # a file system without locks
        return None
    return True


def can_lock(file: Path) -> bool:
    """Whether a file, which is made if there is none, can be locked; a network file system may have no locks."""
    if os.name == "nt":
        return True
    with file.open("ab+") as opened:  # NFS 4 locks only what is open for reading as shared
        return try_lock(opened.fileno(), shared=True) is not None


@contextmanager
def lock_folder(folder: Path) -> Iterator[bool | None]:
    """Hold `try_lock` of a file in a folder inside the block; gives its result. The file stays there.

    The folder itself is not locked: on network file systems no other machine would see that.
    """
    if os.name == "nt":  # where a folder with an open file has to keep its name
        yield None
        return
    with (folder / IN_FOLDER).open("ab") as opened:
        yield try_lock(opened.fileno())


def is_held(file: Path) -> bool:
    """Whether another process holds a file by `hold_alone`; False where nothing can be locked."""
    if os.name != "nt":
        with file.open("ab+") as opened:  # shared, so that two that ask at once do not meet each other
            return try_lock(opened.fileno(), shared=True) is False
    try:
        with hold_alone(file, FedwcaError("held")):
            return False
    except FedwcaError:
        return True


@contextmanager
def hold_alone(file: Path, problem: FedwcaError) -> Iterator[None]:
    """Lock a file inside the block, where files can be locked; raises ``problem`` if another process holds it."""
    if os.name == "nt":  # where `try_lock` cannot
        from filelock import FileLock, Timeout

        lock = FileLock(file, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise problem from None
        with lock:
            lock.release()  # `with` holds it a second time
            yield
        return
    with file.open("ab") as opened:
        if try_lock(opened.fileno()) is False:
            time.sleep(0.1)  # `is_held` takes the lock for a moment
            if try_lock(opened.fileno()) is False:
                raise problem
        yield
