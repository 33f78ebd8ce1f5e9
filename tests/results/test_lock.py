"""Whether a process is at work on a run folder, also for users who may only read the folder."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from fedwca.core.file_locks import hold_alone, is_held, try_lock
from fedwca.errors import UsageError
from fedwca.results.lock import NAME, hold_lock, is_locked


def refuse(lock: object) -> None:
    """Raise the system's error for another user's file; a real file would not do where tests run as root."""
    raise PermissionError(13, "Permission denied")


def test_a_reader_sees_who_is_at_work(tmp_path: Path) -> None:
    lock = hold_lock(tmp_path)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("filelock.FileLock._acquire", refuse)
        assert is_locked(tmp_path)
        lock.release()
        (tmp_path / NAME).touch()
        assert not is_locked(tmp_path)


def test_who_only_looks_is_not_at_work(tmp_path: Path) -> None:
    (tmp_path / NAME).touch()
    with (tmp_path / NAME).open("rb") as looked_at:
        assert try_lock(looked_at.fileno(), shared=True)
        assert not is_locked(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="files are locked by fcntl")
def test_a_process_that_asks_who_holds_a_file_is_not_taken_for_one_that_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, problem = tmp_path / "alone", UsageError("held")
    asking = file.open("ab+")
    assert try_lock(asking.fileno(), shared=True)
    assert not is_held(file)
    monkeypatch.setattr(time, "sleep", lambda seconds: asking.close())
    with hold_alone(file, problem):
        assert is_held(file)
    assert not is_held(file)


def test_another_users_lock_in_a_folder_of_all_lets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).touch()
    monkeypatch.setattr("filelock.FileLock._acquire", refuse)
    with pytest.raises(UsageError, match="is another user's, so it cannot be seen who is at work here"):
        hold_lock(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    hold_lock(tmp_path)  # a folder that nobody may write to needs no lock


@pytest.mark.skipif(os.name == "nt", reason="files are locked by fcntl")
def test_locks_that_ask_how_a_file_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    lock_file = fcntl.flock

    def lock_as_nfs_4(descriptor: int, operation: int) -> None:
        right = os.O_RDONLY if operation & fcntl.LOCK_SH else os.O_WRONLY
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE not in (right, os.O_RDWR):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock_file(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", lock_as_nfs_4)
    lock = hold_lock(tmp_path)
    assert is_locked(tmp_path)
    with pytest.raises(UsageError, match="another process is at work here"):
        hold_lock(tmp_path, wait=0)
    lock.release()
    alone, problem = tmp_path / "alone", UsageError("held")
    with hold_alone(alone, problem), pytest.raises(UsageError, match="held"), hold_alone(alone, problem):
        pass


@pytest.mark.skipif(os.name == "nt", reason="Windows has locks everywhere")
@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_that_is_left_locks_nothing_where_there_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse_all(descriptor: int, operation: int) -> None:
        raise OSError(error, os.strerror(error))

    (tmp_path / NAME).touch()
    monkeypatch.setattr("fcntl.flock", refuse_all)
    hold_lock(tmp_path).release()
    assert not is_locked(tmp_path)
