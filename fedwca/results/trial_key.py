"""Which trial of which source model a record, or a value of a table, is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class TrialKey(NamedTuple):
    """A trial of a source model: what tables count as one run of a method.

    >>> TrialKey.of({"source_model": 2, "trial": 0, "round": 5})
    TrialKey(source_model=2, trial=0)
    """

    source_model: int = 0
    trial: int = 0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Of a record of a round."""
        return cls(record["source_model"], record["trial"])

    @classmethod
    def all_of(cls, source_models: int, trials: int) -> list[Self]:
        """Those of a run with so many source models, and trials of each, in the order in which it comes to them.

        >>> TrialKey.all_of(1, 2)
        [TrialKey(source_model=0, trial=0), TrialKey(source_model=0, trial=1)]
        """
        return [cls(index, trial) for index in range(source_models) for trial in range(trials)]
