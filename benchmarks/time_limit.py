"""Runs that stop after some minutes, between two rounds, so that the next command goes on there; no script."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from fedwca.config.resolve_config import RunPlan
from fedwca.runs.reporter import Progress, RunReporter


class TimeIsUp(KeyboardInterrupt):
    """Stops a run like Ctrl-C: the last finished round is kept, and the run can be continued."""


class StopsAfter(RunReporter):
    """Ends a run after the first round that finishes when ``minutes`` have passed since this object was created."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.end

    def check(self, *_: Any) -> None:
        """Check the time.

        Raises:
            TimeIsUp: the time is up.
        """
        if self.is_over():
            raise TimeIsUp

    def watch(self, plan: RunPlan) -> AbstractContextManager[Progress]:
        """See the base class."""
        return nullcontext(Progress(round_done=self.check, warn=self.warn))
