"""A checkpoint of a run as it was saved: its metadata and its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedwca.core.tensor_files import open_tensors


class SelectedRound(BaseModel):
    """The best round so far by validation accuracy, which tables show; see `fedwca.results.shown_records`."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)

    round: int = Field(ge=0)
    validation: float
    """Mean validation accuracy of the clients that train, in percent."""


class Facts(BaseModel):
    """Metadata of a checkpoint: everything except its tensors."""

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


@dataclass(frozen=True)
class SavedCheckpoint:
    """An intact checkpoint file; its tensors are read on demand."""

    path: Path
    round: int
    """The round after which it was saved; -1: before round 0."""
    facts: Mapping[str, Any]

    @property
    def selected(self) -> SelectedRound | None:
        """The best round so far by validation accuracy; None without validation images."""
        return Facts.model_validate(self.facts).selected

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, on the CPU."""
        return open_tensors(self.path).tensors()

    def load(self) -> LoadedCheckpoint:
        """The checkpoint with its tensors, which no longer needs its file.

        Raises:
            CheckpointError: the file cannot be read any more.
        """
        return LoadedCheckpoint(self.path, self.round, self.facts, self.tensors())


@dataclass(frozen=True)
class LoadedCheckpoint(SavedCheckpoint):
    """A checkpoint whose tensors are in memory."""

    values: Mapping[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, on the CPU."""
        return dict(self.values)
