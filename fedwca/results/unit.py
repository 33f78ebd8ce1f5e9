"""A unit: one method on one source model and trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fedwca.results.trial_key import TrialKey


class Unit(NamedTuple):
    """One method on one source model and trial: what a run trains and checkpoints separately."""

    source_model: int
    trial: int
    method: str

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The unit that the record of a round belongs to."""
        return cls(*TrialKey.of(record), record["method"])
