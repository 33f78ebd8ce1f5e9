"""A run's folder as it is written: the resolved configuration, one JSON line per round, the summary, pictures."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from filelock import FileLock

from fedwca.core.files import TEMPORARY, remove_temporary, write_text_atomically
from fedwca.core.plain_values import to_plain
from fedwca.errors import FedwcaError, UsageError
from fedwca.results import lock
from fedwca.results.read_run_files import is_set_up, read_configuration, read_lines, read_records
from fedwca.results.run_schemas import SCHEMA

NEEDED = 64 * 2**20
"""Bytes that must be free before a run begins."""


class RunFolder:
    """Where one run writes, locked while it does; refuses at once what could not be written later.

    Args:
        path: the folder.
        again: True: it holds a run that is to be continued; False: it must not hold one.

    Raises:
        UsageError: the folder holds another run already, or another process is at work on it.
        FedwcaError: it cannot be written, or the disk is full.
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
        taken = f"--out {self.path}: holds a run already; name another folder, remove it, or continue it with --resume"
        try:
            self._check_holds_no_run(taken)
            self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
            self.path.mkdir(parents=True, exist_ok=True)
            self._there = {file.name for file in self.path.iterdir()}
            held = lock.hold_lock(self.path)
            # Another process may have begun one since; what is left without its lock was killed.
            self._check_holds_no_run(taken)
            (self.path / "rounds.jsonl").touch()
            return held
        except FileExistsError:
            raise FedwcaError(
                f"{self.path}: cannot be written (a file is in the way); choose a place with --out"
            ) from None
        except OSError as error:
            raise FedwcaError(
                f"{self.path}: cannot be written ({error.strerror or error}); choose a place with --out"
            ) from None

    def _check_holds_no_run(self, why: str) -> None:
        rounds = self.path / "rounds.jsonl"
        if (self.path / "config.json").exists():
            raise UsageError(why)
        if rounds.exists() and rounds.stat().st_size:
            raise UsageError(
                f"--out {self.path}: holds rounds of a run whose config.json is gone; remove it or name another folder"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write here."""
        self._lock.release()

    def discard(self, set_up: bool = False) -> None:
        """Remove what this process made, unless a run was set up in it.

        Args:
            set_up: remove that too; rounds stay.
        """
        rounds, config = self.path / "rounds.jsonl", self.path / "config.json"
        with contextlib.suppress(OSError, FedwcaError):
            if rounds.stat().st_size == 0:
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
        """Remove temporary files that a killed process left; those of a folder that is only read stay."""
        remove_temporary(self.path)

    def rewrite(self, wanted: Callable[[dict[str, Any]], bool], order: Callable[[dict[str, Any]], Any]) -> None:
        """Leave only some rounds, sorted; a last line that was cut off goes. Other lines stay to the letter.

        Args:
            wanted: whether a record stays.
            order: what records are sorted by.
        """
        kept = [(order(record), line) for line, record in read_lines(self.path) if wanted(record)]
        text = "".join(line + "\n" for _, line in sorted(kept, key=lambda pair: pair[0]))
        rounds = self.path / "rounds.jsonl"
        if not rounds.exists() or text != rounds.read_text(errors="replace"):
            write_text_atomically(rounds, text)

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file under a temporary name, then rename it."""
        text = json.dumps(to_plain(value), indent=2) + "\n"
        write_text_atomically(self.path / name, text)

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one line to ``rounds.jsonl`` and see it to the disk."""
        line = json.dumps(to_plain({"schema": SCHEMA, **record})) + "\n"
        with (self.path / "rounds.jsonl").open("a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def records(self) -> list[dict[str, Any]]:
        """All rounds so far; a last line that was cut off is left out."""
        return read_records(self.path)


def is_empty_folder(path: Path) -> bool:
    """Whether a run can begin in a folder that holds none: it is not there, or was made for a run that was killed."""
    if not path.is_dir():
        return not path.exists()
    leftovers = set(path.glob(TEMPORARY))
    others = {file for file in path.iterdir() if file.name not in (lock.NAME, lock.NOTES)} - leftovers
    return all(file.name == "rounds.jsonl" and file.stat().st_size == 0 for file in others)
