"""Lock of a run folder, so that one process at a time writes to it; the system releases the lock of a dead process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from filelock import FileLock, Timeout

from fedwca.core.file_locks import can_lock, try_lock
from fedwca.errors import UsageError

NAME = ".lock"
"""Lock file in the run folder; it may remain there, since only a held lock has a meaning."""
NOTES = ".notes.lock"
"""Lock file that is held while notes are read and written, which is allowed while the run trains."""


def hold_lock(run: Path, wait: float = 1.0, name: str = NAME) -> FileLock:
    """Lock a run folder until the lock is released or this process ends.

    Raises:
        UsageError: another process holds the lock, or the lock file is another user's and cannot be opened.
    """
    lock = FileLock(run / name, timeout=wait)
    try:
        # Without locks there is nothing to wait for; filelock would take a dead process's file there for one.
        if can_lock(run / name):
            lock.acquire()
    except Timeout:
        raise UsageError(f"{run}: another process is at work here; wait for it or stop it") from None
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        # The folder can be written to, but the lock file belongs to another user.
        if error.errno != errno.EROFS and (run / name).exists() and os.access(run, os.W_OK):
            raise UsageError(f"{run / name}: is another user's, so it cannot be seen who is at work here") from None
    return lock  # a read-only folder needs no lock


def is_locked(run: Path) -> bool:
    """Whether a process is working in a run folder; False if the system cannot tell. Creates no file.

    It looks with a shared lock where there are such, so that processes that only look do not see one another.
    """
    try:
        with (run / NAME).open("rb") as lock_file:
            is_free = try_lock(lock_file.fileno(), shared=True)
        if os.name != "nt":
            return is_free is False
        with FileLock(run / NAME, timeout=0):
            return False
    except Timeout:
        return True
    except (NotImplementedError, OSError):
        return False
