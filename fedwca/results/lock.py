"""One process at a time writes into a run folder; the system lets go of a dead one's lock."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from fedwca.core.file_locks import try_lock
from fedwca.errors import UsageError

NAME = ".lock"
"""File in the run folder; it may stay, for it means nothing by itself."""
NOTES = ".notes.lock"
"""Another, held while notes are read and written, which they may be while a run trains."""


def hold_lock(run: Path, wait: float = 1.0, name: str = NAME) -> FileLock:
    """Lock a run folder until the lock is released or this process ends.

    Raises:
        UsageError: another process holds it.
    """
    lock = FileLock(run / name, timeout=wait)
    try:
        lock.acquire()
    except Timeout:
        raise UsageError(f"{run}: another process is at work here; wait for it or stop it") from None
    except NotImplementedError:
        pass  # a file system without locks: there is nothing to wait for
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        # Somebody else's folder that is open to all.
        if error.errno != errno.EROFS and (run / name).exists() and os.access(run, os.W_OK):
            raise UsageError(f"{run / name}: is another user's, so it cannot be seen who is at work here") from None
    return lock  # nobody writes what is only read


def is_locked(run: Path) -> bool:
    """Whether a process is at work on a run folder; makes no file."""
    if not (run / NAME).exists():
        return False
    lock = FileLock(run / NAME, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    except PermissionError:
        return _is_held_by_its_owner(run / NAME)
    except (NotImplementedError, OSError):
        return False
    lock.release()
    return False


def _is_held_by_its_owner(file: Path) -> bool:
    """Whether a lock is held that may be read alone; where the system has no such question, no."""
    with suppress(OSError), file.open("rb") as opened:
        return try_lock(opened.fileno(), shared=True) is False
    return False
