"""Write a run folder: the resolved configuration, one JSON line per round, the summary."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from fedwca.core.deployment_files import is_deployment
from fedwca.core.files import TEMPORARY, name_unwritable, remove_temporary, write_text_atomically
from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError, UsageError
from fedwca.results import lock
from fedwca.results.read_run_files import is_set_up, may_be_of_run, read_configuration, read_lines, read_records
from fedwca.results.run_schemas import SCHEMA

NEEDED = 64 * 2**20
"""Bytes of disk space that must be free before a run starts."""


class RunFolder:
    """The folder that one run writes to, locked meanwhile; fails at once if the run could not be written later.

    Args:
        path: the run folder.
        again: True: continue the run in the folder; False: the folder must hold neither a run nor a deployment.

    Raises:
        UsageError: the folder already holds another run or a deployment, or another process is working in it.
        FedwcaError: the folder cannot be written to, or the disk is full.
    """

    def __init__(self, path: Path, again: bool = False) -> None:
        self.path = path
        self._made: list[Path] = []
        self._there: set[str] = set()
        self._lock = lock.hold_lock(path) if again else self._claim()
        self.remove_leftovers()
        free = shutil.disk_usage(path).free
        if free < NEEDED:
            if not again:
                self.discard()
            self.close()
            raise FedwcaError(f"{path}: only {free / 2**20:.0f} MiB are free there; a run needs {NEEDED >> 20} MiB")

    def _claim(self) -> FileLock:
        try:
            str(self.path).encode()
        except UnicodeEncodeError:  # safetensors could write checkpoints there and never read one
            raise UsageError(f"--out {self.path}: is no name in UTF-8; choose another folder") from None
        try:
            self._check_is_free()
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._there = {file.name for file in self.path.iterdir()}
            run_lock = lock.hold_lock(self.path)
            # Another process may have started a run before the lock was held; files without a lock are of a killed one.
            self._check_is_free()
            (self.path / "rounds.jsonl").touch()
            return run_lock
        except OSError as error:
            reason = "a file is in the way" if isinstance(error, FileExistsError) else error.strerror or error
            raise FedwcaError(f"{self.path}: cannot be written ({reason}); choose a place with --out") from None

    def _check_is_free(self) -> None:
        rounds = self.path / "rounds.jsonl"
        if is_deployment(self.path):  # removing the run would remove its keys, too
            raise UsageError(f"--out {self.path}: holds a deployment; name another folder")
        if (self.path / "config.json").exists():
            if not may_be_of_run(self.path):
                raise UsageError(f"--out {self.path}: holds a config.json that is no run's; name another folder")
            raise UsageError(
                f"--out {self.path}: holds a run already; name another folder, remove it, or continue it with --resume"
            )
        if rounds.exists() and rounds.stat().st_size:
            raise UsageError(
                f"--out {self.path}: holds rounds of a run whose config.json is gone; remove it or name another folder"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock, so that other processes can write to the folder."""
        self._lock.release()

    def discard(self, set_up: bool = False) -> None:
        """Remove what this process created, unless a run was set up in the folder.

        Args:
            set_up: remove it even then, unless rounds are on record.
        """
        rounds, config = self.path / "rounds.jsonl", self.path / "config.json"
        with contextlib.suppress(OSError, FedwcaError):
            if not rounds.exists() or rounds.stat().st_size == 0:
                self._remove(rounds.name)
                if set_up:
                    self._remove("environment.json", config.name)
            if config.exists() and not is_set_up(read_configuration(self.path)):
                self._remove(config.name)
            if not config.exists():
                self._remove("notes.json", lock.NOTES)
                if not rounds.exists():
                    self._remove(lock.NAME)
            for folder in self._made:
                folder.rmdir()

    def _remove(self, *names: str) -> None:
        for name in names:
            if name not in self._there:
                (self.path / name).unlink(missing_ok=True)

    def remove_leftovers(self) -> None:
        """Remove temporary files left by a killed process; those in a read-only folder stay."""
        remove_temporary(self.path)

    def rewrite(self, keep: Callable[[dict[str, Any]], bool], sort_key: Callable[[dict[str, Any]], Any]) -> None:
        """Keep only some records, sorted, and remove a truncated last line; kept lines are not changed.

        Args:
            keep: whether a record is kept.
            sort_key: sort key of a record.

        Raises:
            Unwritable: the disk is full, or the like.
        """
        keyed_lines = [(sort_key(record), line) for line, record in read_lines(self.path) if keep(record)]
        text = "".join(line + "\n" for _, line in sorted(keyed_lines, key=lambda pair: pair[0]))
        rounds = self.path / "rounds.jsonl"
        if not rounds.exists() or text != rounds.read_text(errors="replace"):
            self._write_text(rounds, text)

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file atomically.

        Raises:
            Unwritable: the disk is full, or the like.
        """
        self._write_text(self.path / name, json.dumps(to_plain(value), indent=2) + "\n")

    def _write_text(self, file: Path, text: str) -> None:
        with name_unwritable(file):
            write_text_atomically(file, text)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one line to ``rounds.jsonl`` and flush it to the disk.

        Raises:
            Unwritable: the disk is full, or the like.
        """
        line = memoryview((json.dumps(to_plain({"schema": SCHEMA, **record})) + "\n").encode())
        rounds = self.path / "rounds.jsonl"
        with name_unwritable(rounds), rounds.open("ab", buffering=0) as file:
            size = file.seek(0, io.SEEK_END)
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(size)  # else another rank's record would be glued to half a line
                raise

    def records(self) -> list[dict[str, Any]]:
        """All records so far; a truncated last line is left out."""
        return read_records(self.path)


def is_empty_folder(path: Path) -> bool:
    """Whether a run can start in a folder: it does not exist, is empty, or holds only leftovers of a killed start."""
    if not path.is_dir():
        return not path.exists()
    leftovers = set(path.glob(TEMPORARY))
    files = {file for file in path.iterdir() if file.name not in (lock.NAME, lock.NOTES)} - leftovers
    return all(file.name == "rounds.jsonl" and file.stat().st_size == 0 for file in files)
