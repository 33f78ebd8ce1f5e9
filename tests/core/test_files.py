"""Files are written completely or not at all, and leftovers of killed writers are removed."""

from __future__ import annotations

import ntpath
import os
import shutil
import signal
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedwca.core.file_locks import lock_folder
from fedwca.core.files import TEMPORARY, check_writable, relative_path, remove_temporary, write_atomically, write_secret
from fedwca.core.tensor_files import open_tensors, save_tensors, write_tensors


def slow(file: Path) -> None:
    file.write_text("half")
    file.parent.with_name("begun").touch()
    time.sleep(60)


def begin_to_write(path: Path) -> int:
    """Start a process that writes a file until it is killed; returns its id."""
    if (pid := os.fork()) == 0:
        write_atomically(path, slow)
        os._exit(0)
    while not path.with_name("begun").exists():
        time.sleep(0.01)
    return pid


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
@pytest.mark.filterwarnings("ignore:.*use of fork")
def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    path, other = tmp_path / "a[b].txt", tmp_path / "other.txt"
    pid = begin_to_write(path)
    write_atomically(other, lambda file: None)
    write_atomically(path, lambda file: None)
    assert len(list(tmp_path.glob(TEMPORARY))) == 1  # its writer is still alive
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    write_atomically(other, lambda file: None)
    remove_temporary(tmp_path, ".other*")
    assert len(list(tmp_path.glob(TEMPORARY))) == 1
    write_atomically(path, lambda file: Path.touch(file))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a[b].txt", "begun", "other.txt"]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    replace = Path.replace
    monkeypatch.setattr("os.fsync", lambda descriptor: events.append("written out"))
    monkeypatch.setattr(Path, "replace", lambda *paths: events.append("named") or replace(*paths))
    write_atomically(tmp_path / "file", lambda file: file.touch())
    assert events == ["written out", "named"]


def test_a_sweep_takes_nothing_else(tmp_path: Path) -> None:
    digits = "0" * 32
    for name in (f".notes-{digits}/thesis.txt", f".token-{digits}.json/token.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("mine")
    (tmp_path / f".file-{digits}").write_text("mine")
    (tmp_path / f".new-{digits}-new").mkdir()
    (tmp_path / f".left-{digits}").mkdir()
    for name in ("left", ".tmpAb3dEf"):  # our temporary file, and one of safetensors itself
        (tmp_path / f".left-{digits}" / name).write_text("half")
    remove_temporary(tmp_path)
    remaining = {f".notes-{digits}", f".token-{digits}.json", f".file-{digits}"}
    assert {file.name for file in tmp_path.iterdir()} == remaining


@pytest.mark.skipif(not hasattr(os, "fork"), reason="files are locked")
def test_a_file_that_a_library_replaces_is_not_taken_for_abandoned(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"

    def write(file: Path) -> None:
        save_tensors(file, {"a": torch.ones(3)})
        write_tensors(path, {"a": torch.zeros(3)})  # as another process may do at the same time

    write_atomically(path, write)
    assert open_tensors(path).tensors()["a"].tolist() == [1, 1, 1]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="files are locked")
def test_other_machines_of_a_network_file_system_see_who_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, folders are locked on one machine alone, and a folder with an open file cannot be removed."""
    import fcntl

    lock_file, remove = fcntl.flock, shutil.rmtree

    def lock_files_alone(descriptor: int, operation: int) -> None:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            lock_file(descriptor, operation)

    def remove_unlocked(path: Path, ignore_errors: bool = False) -> None:
        if path.exists():
            with lock_folder(path) as locked:
                assert locked
            removed.append(path.name)
        remove(path, ignore_errors=ignore_errors)

    def write(file: Path) -> None:
        remove_temporary(tmp_path)
        file.write_text("whole")

    removed: list[str] = []
    monkeypatch.setattr(fcntl, "flock", lock_files_alone)
    monkeypatch.setattr(shutil, "rmtree", remove_unlocked)
    write_atomically(tmp_path / "one", write)
    assert (tmp_path / "one").read_text() == "whole"
    (tmp_path / f".left-{'0' * 32}").mkdir()
    remove_temporary(tmp_path)
    assert len(removed) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("old")

    def fail(file: Path) -> None:
        file.write_text("new")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("open to all")
    write_secret(path, b"hidden")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"hidden", 0o600)


def test_on_windows_only_a_secret_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    make = Path.mkdir

    def mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        modes.append(mode)
        make(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr("fedwca.core.files.os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    write_atomically(tmp_path / "result", lambda path: None)
    write_secret(tmp_path / "secret", b"hidden")
    write_tensors(tmp_path / "model", {"x": torch.zeros(1)}, private=True)
    assert [mode for mode in modes if mode != 0o777] == [0o700, 0o700]


def test_a_path_from_a_folder_has_slashes_and_there_may_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert relative_path(tmp_path / "a/b", tmp_path / "c") == "../a/b"
    monkeypatch.setattr("os.path.relpath", ntpath.relpath)
    assert relative_path(Path("D:/a"), Path("C:/b")) is None


def test_a_folder_is_writable_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / "written").mkdir()
    check_writable(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["written"]
