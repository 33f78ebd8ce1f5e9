"""Runs that stop after some minutes, between two rounds, so that the next command goes on there; no script."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fedwca.config.resolve_config import RunPlan
from fedwca.runs.reporter import Progress, RunReporter


class TimeIsUp(KeyboardInterrupt):
    """A run stops as by Ctrl-C: its last round is written down, and it can be continued."""


class StopsAfter(RunReporter):
    """Ends a run with the first round that is done when so many minutes are over."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def is_over(self) -> bool:
        """Whether no other piece is to be begun."""
        return time.monotonic() >= self.end

    def check(self, *_: Any) -> None:
        """Raises `TimeIsUp` when it is."""
        if self.is_over():
            raise TimeIsUp

    def watch(self, plan: RunPlan) -> AbstractContextManager[Progress]:
        """As in the base class."""
        return nullcontext(Progress(round=self.check, warn=self.warn))
