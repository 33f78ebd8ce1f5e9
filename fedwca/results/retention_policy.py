"""How many checkpoints of a unit a run keeps: ``--keep``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedwca.errors import InvalidConfig


@dataclass(frozen=True)
class RetentionPolicy:
    """How many checkpoints of a unit are kept; None: all."""

    running: int | None
    """Number kept while the unit runs; at least two, so that one remains if the newest is damaged."""
    ended: int | None
    """Number kept after the last round."""
    selected: bool = False
    """Whether the checkpoint of the round that tables show is kept too, see `SelectedRound`."""

    @classmethod
    def parse(cls, text: str) -> RetentionPolicy:
        """The policy for ``last``, ``selected``, ``all``, ``none`` or a number.

        >>> RetentionPolicy.parse("selected")
        RetentionPolicy(running=2, ended=1, selected=True)

        Raises:
            InvalidConfig: the text is none of these.
        """
        policies = {"last": cls(2, 1), "selected": cls(2, 1, True), "all": cls(None, None), "none": cls(2, 0)}
        if text in policies:
            return policies[text]
        if not (re.fullmatch("[0-9]{1,9}", text) and int(text)):
            raise InvalidConfig(f"--keep {text}: takes last, selected, all, none or a number of at least 1")
        return cls(max(2, int(text)), int(text))


KEEP_ALL = RetentionPolicy(None, None)
