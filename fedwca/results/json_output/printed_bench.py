"""Output of ``fedwca bench`` and ``fedwca resume``."""

from __future__ import annotations

from typing import Any

from fedwca.results.json_output.printed_values import (
    MoreNumbers,
    Percent,
    PrintedTrial,
    PrintedValues,
    SpreadMean,
    TrialMean,
)


class MethodRun(MoreNumbers[float], TrialMean):
    """Results of a method in one run. Some runs have only some of the fields."""

    before: Percent = None
    """Mean accuracy before the last phase, in percent. Only methods with a last phase have it."""
    validation: Percent = None
    """Mean accuracy of the training clients on their validation images, in percent. Only runs with new clients have
    it."""
    round: int | None = None
    """Number of rounds after which the results were measured: the round with the best ``validation``. Null if the
    results are those of the last round."""
    last: Percent = None
    """Mean accuracy after the last round, in percent. Only runs with ``round`` have it."""


class DivergedRun(PrintedTrial):
    """A run in which the training of a method diverged. The method ended there."""

    round: int
    """The round in which it diverged, counted from 1. 0 means before the first round."""
    why: str
    """A sentence that says what diverged and what may help."""


class PairedMeans(PrintedValues):
    """Difference to another method, paired by run, in percentage points."""

    to: str
    """Name of the other method."""
    mean: float | None
    """Mean of the paired differences."""
    std: float | None
    """Standard deviation of the paired differences (ddof 1). Null for a single pair."""
    n: int
    """Number of pairs."""


class MethodResults(MoreNumbers[SpreadMean]):
    """Results of a method over all its runs: after the last round, or in the rounds that ``round`` gives."""

    label: str
    """Name of the method in tables. It also says how many runs diverged."""
    mean: Percent
    """Accuracy in percent: the mean over runs of the mean over clients. Null if nothing could be measured."""
    std: float | None
    """Standard deviation of the accuracy over runs (ddof 1), in percentage points. Null for a single run."""
    n: int
    """Number of runs behind the means. Runs that diverged do not count."""
    domains: dict[str, Percent]
    """Mean accuracy in percent by domain of the clients, or by group of new clients."""
    domain_stds: dict[str, float | None]
    """Standard deviation of these accuracies over runs (ddof 1), in percentage points. Null for a single run."""
    runs: list[MethodRun] = []
    """Results of each run."""
    class_accuracy: dict[str, Percent] = {}
    """Accuracy in percent by class, over the test images of all clients together: the mean over runs. The key is the
    position of the class in ``classes`` of ``config.json``, counted from 0."""
    difference: PairedMeans | None = None
    """Difference to FedAvg. Only runs that also have FedAvg contain it."""
    before: SpreadMean | None = None
    """Mean accuracy before the last phase, in percent. Only methods with a last phase have it."""
    validation: SpreadMean | None = None
    """Mean accuracy of the training clients on their validation images, in percent. Only runs with new clients have
    it."""
    round: SpreadMean | None = None
    """Number of rounds after which the results were measured. Only runs with new clients have it."""
    last: SpreadMean | None = None
    """Mean accuracy after the last round, in percent. Only runs with ``round`` have it."""
    diverged: list[DivergedRun] = []
    """Runs that diverged. The other fields do not include them."""


class Timing(PrintedValues):
    """Duration of a run in seconds. A resumed run counts the rounds that were kept and the last process."""

    total_seconds: float
    """From the start of the command to its end."""
    setup_seconds: float
    """Before the first round."""
    run_seconds: float
    """All rounds, with evaluation and records."""
    methods: dict[str, float]
    """Rounds and evaluation by method."""


class RunSummary(PrintedValues):
    """Output of ``fedwca bench --json``, with any ``--backend``, and of ``fedwca resume --json``: ``summary.json``."""

    methods: dict[str, MethodResults]
    """Results by name of the method. The composed method comes last."""
    config: dict[str, Any]
    """The resolved configuration."""
    timing: Timing
    """Duration of the run."""
    complete: bool
    """Whether the run is finished."""
