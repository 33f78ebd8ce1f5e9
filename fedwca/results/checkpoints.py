"""Checkpoints of a run: one safetensors file for each kept round, written atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torch import Tensor

from fedwca.core.files import TEMPORARY, name_unwritable, remove_temporary
from fedwca.core.tensor_files import checksum, open_tensors, write_tensors
from fedwca.errors import CheckpointError, first_line
from fedwca.results.retention_policy import KEEP_ALL, RetentionPolicy
from fedwca.results.saved_checkpoint import Facts, SavedCheckpoint
from fedwca.results.unit import Unit

SCHEMA = 1
"""Version of the checkpoint format; other versions are refused."""


class Truncated(CheckpointError):
    """A checkpoint file is truncated or damaged."""


class NoWholeCheckpoint(CheckpointError):
    """All checkpoints of a unit are truncated or damaged; ``folder`` holds them."""

    def __init__(self, message: str, folder: Path) -> None:
        super().__init__(message)
        self.folder = folder


class Checkpoints:
    """The checkpoints in a run folder.

    Args:
        run: the run folder.
        identity: hash of the run's configuration; checkpoints of another configuration are refused.
        keep: how many are kept.
    """

    def __init__(self, run: Path, identity: str, keep: RetentionPolicy = KEEP_ALL) -> None:
        self.path, self.identity, self.keep = run / "checkpoints", identity, keep

    def files(self, unit: Unit) -> list[Path]:
        """The unit's checkpoint files, newest first."""
        folder = self._folder(unit)
        paths = folder.glob("*.safetensors") if folder.is_dir() else ()
        return sorted((file for file in paths if file.stem.isdigit()), reverse=True)

    def save(self, unit: Unit, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], last: bool) -> None:
        """Save a checkpoint after a round, then remove those that the retention policy does not keep.

        Args:
            unit: the unit that is saved.
            round: the round that has ended; -1: before round 0.
            tensors: tensors by name.
            facts: all other values, as JSON; ``selected`` is the best round so far, see `SelectedRound`.
            last: whether this is the unit's last round.

        Raises:
            Unwritable: the file could not be written; earlier checkpoints are unchanged.
        """
        limit = self.keep.ended if last else self.keep.running
        if limit != 0:
            metadata = {"schema": SCHEMA, "identity": self.identity, "unit": [*unit], "round": round, **facts}
            values = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
            metadata["checksum"] = checksum(values)
            path = self.path_of(unit, round)
            with name_unwritable(path):
                write_tensors(path, values, {"fedwca": json.dumps(metadata)})
        self._prune(unit, limit, facts.get("selected"))

    def end(self, unit: Unit) -> None:
        """Apply the retention policy of an ended unit, for one whose last round was saved with ``last=False``."""
        try:
            saved = self.latest(unit)[0] if self.keep.selected else None
        except NoWholeCheckpoint:  # there is nothing to choose from
            return
        self._prune(unit, self.keep.ended, saved.facts.get("selected") if saved else None)

    def _prune(self, unit: Unit, limit: int | None, selected: Mapping[str, Any] | None) -> None:
        selected_file = self.path_of(unit, selected["round"]) if selected and self.keep.selected else None
        if limit is not None:
            for file in self.files(unit)[limit:]:
                if file != selected_file:
                    file.unlink()
        if limit == 0:
            with suppress(OSError):
                self._folder(unit).rmdir()
                self.path.rmdir()

    def latest(self, unit: Unit, max_round: int | None = None) -> tuple[SavedCheckpoint | None, list[str]]:
        """The newest intact checkpoint, and a sentence for each newer one that is damaged.

        Args:
            unit: the unit whose checkpoints are read.
            max_round: newest round to consider; None: any.

        Raises:
            NoWholeCheckpoint: there are checkpoints, but all are damaged.
            CheckpointError: a checkpoint belongs to another run or version.
        """
        damaged: list[str] = []
        for path in self.files(unit):
            if max_round is not None and self.round_of(path) > max_round:
                continue
            try:
                return self.read(path, unit), damaged
            except Truncated as error:
                damaged.append(str(error))
        if damaged:
            raise NoWholeCheckpoint(f"{damaged[-1]}, and there is no other", self._folder(unit))
        return None, []

    def at(self, unit: Unit, round: int) -> SavedCheckpoint | None:
        """The checkpoint saved after a round; None if there is none or it is damaged."""
        path = self.path_of(unit, round)
        try:
            return self.read(path, unit) if path.exists() else None
        except Truncated:
            return None

    def read(self, path: Path, unit: Unit) -> SavedCheckpoint:
        """Read and verify one checkpoint file.

        Raises:
            Truncated: the file is truncated or damaged.
            CheckpointError: the checkpoint belongs to another run or version.
        """
        try:
            # Opening compares the file's size with its header; the checksum covers the values.
            file = open_tensors(path)
            metadata, actual_checksum = json.loads(file.metadata["fedwca"]), file.checksum()
            other_schema = isinstance(metadata, dict) and metadata.get("schema", SCHEMA) != SCHEMA
            if not other_schema:  # another version may hold other facts
                Facts.model_validate(metadata)
        except (CheckpointError, ValueError, KeyError) as error:
            reason = first_line(error.__cause__ or error)
            raise Truncated(f"{path}: cut off, damaged or no checkpoint of fedwca ({reason})") from error
        if other_schema:
            raise CheckpointError(f"{path}: has schema {metadata['schema']}; this fedwca reads schema {SCHEMA}")
        if metadata["identity"] != self.identity or metadata["unit"] != [*unit]:
            raise CheckpointError(f"{path}: belongs to another run, whose configuration differs from this one's")
        if metadata.get("checksum", actual_checksum) != actual_checksum:
            raise Truncated(f"{path}: damaged; its contents are not those that were written")
        return SavedCheckpoint(path, metadata["round"], metadata)

    def rewind(self, unit: Unit, to: int | None) -> None:
        """Remove a unit's checkpoints newer than round ``to``; None: all of them."""
        for file in self.files(unit):
            if to is None or self.round_of(file) > to:
                file.unlink()

    def remove_leftovers(self) -> None:
        """Remove temporary files left by a killed process."""
        remove_temporary(self.path, f"*/{TEMPORARY}")

    def path_of(self, unit: Unit, round: int) -> Path:
        """The path of a unit's checkpoint after a round, whether or not it exists."""
        return self._folder(unit) / f"{round + 1:06d}.safetensors"

    @staticmethod
    def round_of(file: Path) -> int:
        """The round after which one of `files` was saved."""
        return int(file.stem) - 1

    def _folder(self, unit: Unit) -> Path:
        return self.path / f"{unit.source_model}-{unit.trial}-{quote(unit.method, safe='')}"
