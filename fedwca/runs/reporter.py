"""Callbacks for a run's progress and warnings. Nothing here prints; the caller of a run passes a reporter that may."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from fedwca.config.resolve_config import RunPlan
from fedwca.data.dataset import FederatedDataset
from fedwca.runs.python_words import in_python_words
from fedwca.warn_caller import warn_caller


@dataclass(frozen=True)
class Progress:
    """Callbacks for the progress of rounds; each does nothing by default."""

    source_epoch: Callable[[int, int, float], None] = lambda epoch, epochs, accuracy: None
    """Called with (epochs done, epochs, held-out accuracy in percent) while source models are trained."""
    method_start: Callable[[str, int, int], None] = lambda label, rounds, clients: None
    """Called with (method, rounds, clients) when a method starts."""
    skipped_rounds: Callable[[int, int], None] = lambda rounds, clients: None
    """Called with (rounds that need not be run, clients): all of a finished run or the rest of a diverged one, with 0
    clients; or those that a resumed run has behind it, with its clients."""
    other_rounds: Callable[[int], None] = lambda rounds: None
    """Called with a number of rounds that `round_done` does not report: of other ranks, or of trials in one step."""
    client_done: Callable[[int], None] = lambda client: None
    """Called with the client's number after each client's round."""
    round_done: Callable[[int, float], None] = lambda done, accuracy: None
    """Called with (rounds done, mean accuracy in percent), once for all trials that run together."""
    method_end: Callable[[str, float], None] = lambda label, accuracy: None
    """Called with (method, mean accuracy in percent) when a method ends; NaN if no round was left to do."""
    warn: Callable[[str], None] = lambda message: None
    """Called with a sentence for the user."""
    central_epoch: Callable[[str, int, int], None] = lambda label, epoch, epochs: None
    """Called with (method, epochs done, epochs) while a method trains centrally."""


NO_PROGRESS = Progress()
"""Callbacks that do nothing."""


@dataclass(frozen=True)
class PlannedRun:
    """Description of a run just before its first round, for the user."""

    plan: RunPlan
    dataset: FederatedDataset
    domain: str | None
    """Name of the source or target domain; None: the partition has neither."""
    device: str
    folder: Path
    memory: str
    """The memory it will need, as text."""
    disk: str
    """The disk space its checkpoints will take, as text."""
    kernels: str
    """The stacked engine's kernels and why they were chosen; empty for the loop, which has one kind."""
    embeddings: str = ""
    """Where a frozen backbone's features are kept, as text; empty if the backbone is trained."""


class RunReporter:
    """Receives events of runs. This class only issues warnings, as Python warnings; subclasses report more."""

    def loading(self, dataset: str) -> None:
        """A data set is about to be read or generated."""

    def planned(self, run: PlannedRun) -> None:
        """All decisions and checks are done; the first round comes next."""

    def resumed(self, done: int, rounds: int) -> None:
        """A stopped run is resumed after ``done`` of its ``rounds`` rounds."""

    def nothing_left(self, folder: Path) -> None:
        """The run to be continued is already finished."""

    def interrupted(self, done: int, folder: Path) -> None:
        """The user stopped a run with Ctrl-C; ``done`` of its rounds are kept."""

    def note(self, sentence: str) -> None:
        """An informative message, such as which finished runs are reused."""

    def warn(self, sentence: str) -> None:
        """A warning."""
        warn_caller(in_python_words(sentence))

    def watch(self, plan: RunPlan) -> AbstractContextManager[Progress]:
        """A context manager that yields the progress callbacks for the rounds of a plan."""
        return nullcontext(Progress(warn=self.warn))


class OneOfMany(RunReporter):
    """Reporter for one of many runs: forwards warnings and progress to another reporter, and drops all other events."""

    def __init__(self, reporter: RunReporter) -> None:
        self.warn, self.watch = reporter.warn, reporter.watch  # type: ignore[method-assign]


SILENT = RunReporter()
