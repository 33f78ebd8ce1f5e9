"""Where a run tells how it goes. Nothing here prints: whoever starts a run says who listens."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from fedwca.config.resolve_config import RunPlan
from fedwca.data.dataset import FederatedDataset


@dataclass(frozen=True)
class Progress:
    """How far the rounds are; any of these may be replaced, none must be."""

    source: Callable[[int, int, float], None] = lambda epoch, epochs, accuracy: None
    """(epochs done, epochs, held-out accuracy in percent) of the source model."""
    begin: Callable[[str, int, int], None] = lambda label, rounds, clients: None
    """(method, rounds, clients) when a method starts."""
    earlier: Callable[[int, int], None] = lambda rounds, clients: None
    """(rounds, clients) that an earlier process did: of finished methods (0 clients), or of the one that goes on."""
    elsewhere: Callable[[int], None] = lambda rounds: None
    """Rounds that were done besides those `round` tells of: by another rank, or by trials that go together."""
    client: Callable[[int], None] = lambda client: None
    """After each client's round."""
    round: Callable[[int, float], None] = lambda done, accuracy: None
    """(rounds done, mean accuracy in percent), once for all trials that go together."""
    end: Callable[[str, float], None] = lambda label, accuracy: None
    """(method, mean accuracy in percent) when a method ends; NaN where nothing was left to do."""
    warn: Callable[[str], None] = lambda message: None
    """A sentence for the user."""
    central: Callable[[str, int, int], None] = lambda label, epoch, epochs: None
    """(method, epochs done, epochs) of a method that trains where all domains are at one place."""


NO_PROGRESS = Progress()
"""Tells nobody."""


@dataclass(frozen=True)
class PlannedRun:
    """A run just before its first round, for a person."""

    plan: RunPlan
    dataset: FederatedDataset
    domain: str | None
    """Name of the one domain that is unlike the others: the source, or the target; None: there is none."""
    device: str
    folder: Path
    memory: str
    """What it will need of memory, in words."""
    disk: str
    """What its checkpoints will take of the disk, in words."""
    kernels: str
    """Which kernels the stacked engine takes and why; empty for the loop, which has one kind."""
    embeddings: str = ""
    """What is kept of a frozen backbone's work, in words; empty where the backbone is trained."""


class RunReporter:
    """Listens to runs. This one is silent but for warnings, which are Python's; a subclass says more."""

    def loading(self, dataset: str) -> None:
        """A data set is about to be read, or drawn."""

    def planned(self, run: PlannedRun) -> None:
        """Everything is decided and checked; the first round comes next."""

    def resumed(self, done: int, rounds: int) -> None:
        """A stopped run goes on after so many of its rounds."""

    def nothing_left(self, folder: Path) -> None:
        """The run that was to be continued is finished."""

    def interrupted(self, done: int, folder: Path) -> None:
        """The user stopped a run by Ctrl-C; so many rounds of it are kept."""

    def note(self, sentence: str) -> None:
        """Something that is no warning, such as which finished runs are used again."""

    def warn(self, sentence: str) -> None:
        """Something to be wary of."""
        warnings.warn(sentence, UserWarning, stacklevel=2)

    def watch(self, plan: RunPlan) -> AbstractContextManager[Progress]:
        """While inside: told how far the rounds of a plan are."""
        return nullcontext(Progress(warn=self.warn))


class OneOfMany(RunReporter):
    """Of a run that is one of many: hands its warnings and its progress on to another, and keeps the rest to itself."""

    def __init__(self, reporter: RunReporter) -> None:
        self.warn, self.watch = reporter.warn, reporter.watch  # type: ignore[method-assign]


SILENT = RunReporter()
