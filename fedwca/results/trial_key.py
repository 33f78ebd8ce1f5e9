"""Key of a trial of a source model, for records and values of tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self


class TrialKey(NamedTuple):
    """A trial of a source model, which tables count as one run of a method.

    >>> TrialKey.of({"source_model": 2, "trial": 0, "round": 5})
    TrialKey(source_model=2, trial=0)
    """

    source_model: int = 0
    trial: int = 0

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The key of a round's record."""
        return cls(record["source_model"], record["trial"])

    @classmethod
    def all_of(cls, source_models: int, trials: int) -> list[Self]:
        """All keys for a number of source models and of trials per source model, in the order in which they are run.

        >>> TrialKey.all_of(1, 2)
        [TrialKey(source_model=0, trial=0), TrialKey(source_model=0, trial=1)]
        """
        return [cls(index, trial) for index in range(source_models) for trial in range(trials)]
