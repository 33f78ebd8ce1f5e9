"""Checkpoints of a run: a safetensors file for each round that is kept, there whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedwca.core.files import TEMPORARY, remove_temporary
from fedwca.core.tensor_files import checksum, open_tensors, write_tensors
from fedwca.errors import CheckpointError, InvalidConfig, first_line
from fedwca.results.trial_key import TrialKey

SCHEMA = 1
"""Version of a checkpoint's contents; another one is refused."""


class Unit(NamedTuple):
    """One method on one federation: what a run repeats."""

    source_model: int
    trial: int
    method: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Of a record of a round."""
        return cls(*TrialKey.of(record), record["method"])


class SelectedRound(BaseModel):
    """The round that tables show if no later one is better, see `fedwca.results.table_rows.shown_records`."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    round: int = Field(ge=0)
    validation: float
    """Mean over the clients that train, in percent of their validation images."""

    def better(self, round: int, validation: float) -> SelectedRound:
        """Itself, or a later one that is at least as good."""
        return SelectedRound(round=round, validation=validation) if validation >= self.validation else self


class Facts(BaseModel):
    """What a checkpoint's metadata say besides its tensors."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    version: int = Field(alias="schema")
    identity: str
    unit: list[int | str]
    round: int = Field(ge=-1)
    source_digest: str = ""
    source_weights: str | None = None
    told: list[str] = []
    devices: dict[str, str] = {}
    selected: SelectedRound | None = None


class Truncated(CheckpointError):
    """A checkpoint file is cut off or damaged."""


class NoWholeCheckpoint(CheckpointError):
    """All checkpoints of a method are cut off or damaged; says where they are."""

    def __init__(self, why: str, folder: Path) -> None:
        super().__init__(why)
        self.folder = folder


@dataclass(frozen=True)
class SavedCheckpoint:
    """A whole checkpoint file; its tensors are read when asked for."""

    path: Path
    round: int
    """The round it was made after; -1 before round 0."""
    facts: Mapping[str, Any]

    @property
    def selected(self) -> SelectedRound | None:
        """The best round until then, by validation images; None where there are none."""
        return Facts.model_validate(self.facts).selected

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, on the CPU."""
        return open_tensors(self.path).tensors()


@dataclass(frozen=True)
class RetentionPolicy:
    """How many checkpoints of a unit stay; None: all."""

    running: int | None
    """While it runs; never less than two, so that a damaged one has a predecessor."""
    ended: int | None
    """After its last round."""
    selected: bool = False
    """Whether that of the round that tables show stays beside them, see `SelectedRound`."""

    @classmethod
    def parse(cls, text: str) -> RetentionPolicy:
        """``last``, ``selected``, ``all``, ``none`` or a number.

        >>> RetentionPolicy.parse("selected")
        RetentionPolicy(running=2, ended=1, selected=True)

        Raises:
            InvalidConfig: it is something else.
        """
        named = {"last": cls(2, 1), "selected": cls(2, 1, True), "all": cls(None, None), "none": cls(2, 0)}
        if text in named:
            return named[text]
        if not (text.isascii() and text.isdigit() and int(text)):
            raise InvalidConfig(f"--keep {text}: takes last, selected, all, none or a number of at least 1")
        return cls(max(2, int(text)), int(text))


class Checkpoints:
    """The checkpoints in a run's folder.

    Args:
        run: the run folder.
        identity: hash of the run's configuration; a checkpoint of another one is refused.
        keep: how many stay.
    """

    def __init__(self, run: Path, identity: str, keep: RetentionPolicy = RetentionPolicy(None, None)) -> None:
        self.path, self.identity, self.keep = run / "checkpoints", identity, keep

    def files(self, unit: Unit) -> list[Path]:
        """The unit's checkpoints, the newest first."""
        folder = self._folder(unit)
        found = folder.glob("*.safetensors") if folder.is_dir() else ()
        return sorted((file for file in found if file.stem.isdigit()), reverse=True)

    def save(self, unit: Unit, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], last: bool) -> None:
        """Write what a round left, then remove what need not stay.

        Args:
            unit: whose.
            round: the round that has ended; -1 before round 0.
            tensors: by name.
            facts: everything else, as JSON values; ``selected`` is the best round so far, see `SelectedRound`.
            last: nothing comes after it.

        Raises:
            OSError: it could not be written; the checkpoints before it are as they were.
        """
        most = self.keep.ended if last else self.keep.running
        if most != 0:
            about = {"schema": SCHEMA, "identity": self.identity, "unit": [*unit], "round": round, **facts}
            values = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
            about["checksum"] = checksum(values)
            write_tensors(self.path_of(unit, round), values, {"fedwca": json.dumps(about)})
        self._prune(unit, most, facts.get("selected"))

    def end(self, unit: Unit) -> None:
        """Remove what need not stay after the last round, where that was saved as if another came after it."""
        try:
            saved = self.latest(unit)[0] if self.keep.selected else None
        except NoWholeCheckpoint:  # there is nothing to choose from
            return
        self._prune(unit, self.keep.ended, saved.facts.get("selected") if saved else None)

    def _prune(self, unit: Unit, most: int | None, selected: Mapping[str, Any] | None) -> None:
        stays = self.path_of(unit, selected["round"]) if selected and self.keep.selected else None
        if most is not None:
            for file in self.files(unit)[most:]:
                if file != stays:
                    file.unlink()
        if most == 0:
            with suppress(OSError):
                self._folder(unit).rmdir()
                self.path.rmdir()

    def latest(self, unit: Unit, most: int | None = None) -> tuple[SavedCheckpoint | None, list[str]]:
        """The newest checkpoint that is whole, and a sentence for each newer one that is not.

        Args:
            unit: whose.
            most: newest round that counts; None: any.

        Raises:
            NoWholeCheckpoint: there are some, and none is whole.
            CheckpointError: it belongs to another run or version.
        """
        damaged: list[str] = []
        for path in self.files(unit):
            if most is not None and int(path.stem) - 1 > most:
                continue
            try:
                return self.read(path, unit), damaged
            except Truncated as error:
                damaged.append(str(error))
        if damaged:
            raise NoWholeCheckpoint(f"{damaged[-1]}, and there is no other", self._folder(unit))
        return None, []

    def at(self, unit: Unit, round: int) -> SavedCheckpoint | None:
        """The checkpoint that was made after a round; None where there is none, or it is damaged."""
        path = self.path_of(unit, round)
        try:
            return self.read(path, unit) if path.exists() else None
        except Truncated:
            return None

    def read(self, path: Path, unit: Unit) -> SavedCheckpoint:
        """One checkpoint file.

        Raises:
            Truncated: it is cut off or damaged.
            CheckpointError: it belongs to another run or version.
        """
        try:
            # Opening compares the file's size with what its header says; the checksum covers what is inside.
            file = open_tensors(path)
            about, found = json.loads(file.metadata["fedwca"]), file.checksum()
            Facts.model_validate(about)
        except (CheckpointError, ValueError, KeyError) as error:
            why = first_line(error.__cause__ or error)
            raise Truncated(f"{path}: cut off, damaged or no checkpoint of fedwca ({why})") from error
        if about["schema"] != SCHEMA:
            raise CheckpointError(f"{path}: has schema {about['schema']}; this fedwca reads schema {SCHEMA}")
        if about["identity"] != self.identity or about["unit"] != [*unit]:
            raise CheckpointError(f"{path}: belongs to another run, whose configuration differs from this one's")
        if about.get("checksum", found) != found:
            raise Truncated(f"{path}: damaged; its contents are not those that were written")
        return SavedCheckpoint(path, about["round"], about)

    def rewind(self, unit: Unit, to: int | None) -> None:
        """Remove a unit's checkpoints that are newer than a round; None: all of them."""
        for file in self.files(unit):
            if to is None or int(file.stem) - 1 > to:
                file.unlink()

    def remove_leftovers(self) -> None:
        """Remove temporary files that a killed process left."""
        remove_temporary(self.path, f"*/{TEMPORARY}")

    def path_of(self, unit: Unit, round: int) -> Path:
        """Where a unit's checkpoint after a round is, or would be."""
        return self._folder(unit) / f"{round + 1:06d}.safetensors"

    def _folder(self, unit: Unit) -> Path:
        return self.path / f"{unit.source_model}-{unit.trial}-{quote(unit.method, safe='')}"
