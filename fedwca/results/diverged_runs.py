"""Runs of a method whose training diverged: they end in that round, and no table counts their results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedwca.results.trial_key import TrialKey

DIVERGED = "diverged"
"""Field of a diverged run's last record: the reason, in a sentence. The accuracies of that record are all null."""
NOTE = "Runs that diverged are in no mean and in no difference."
"""Note below a table with diverged runs."""


class Divergence(NamedTuple):
    """When and why a run of a method diverged."""

    round: int
    """The round, counted from 1; 0: before the first."""
    why: str
    """A sentence that names the client and what may help."""


def ended_rounds(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records of completed rounds, without those in which a run diverged."""
    return [record for record in records if DIVERGED not in record]


def count_ended_rounds(records: Iterable[Mapping[str, Any]]) -> int:
    """Number of completed rounds, without what is recorded before the first."""
    return sum(record["round"] >= 0 for record in ended_rounds(records))


def whole_runs(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records of runs that did not diverge.

    Args:
        records: lines of ``rounds.jsonl``, including those in which a run diverged.
    """
    divergences = find_divergences(records)
    return [record for record in records if TrialKey.of(record) not in divergences.get(record["method"], ())]


def counted_rounds(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Completed records that enter means over runs: of runs that did not diverge, or of all if all of a method's did.

    Args:
        records: lines of ``rounds.jsonl``, including those in which a run diverged.
    """
    whole = whole_runs(records)
    methods_with_whole_runs = {record["method"] for record in whole}
    return [*whole, *(r for r in ended_rounds(records) if r["method"] not in methods_with_whole_runs)]


def find_divergences(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[TrialKey, Divergence]]:
    """Diverged runs by method and (source model, trial)."""
    divergences: dict[str, dict[TrialKey, Divergence]] = defaultdict(dict)
    for record in records:
        if DIVERGED in record:
            divergences[record["method"]][TrialKey.of(record)] = Divergence(record["round"] + 1, record[DIVERGED])
    return divergences


def mark_divergence(divergences: Collection[Divergence], runs: int) -> str:
    """Suffix of a method's label; empty if no run diverged.

    Args:
        divergences: diverged runs of the method.
        runs: number of its runs, including those that diverged.

    >>> mark_divergence([Divergence(8, "…")], 1), mark_divergence([Divergence(8, "…")], 3), mark_divergence([], 3)
    (' (diverged in round 8)', ' (diverged in 1 of 3 runs)', '')
    """
    if not divergences:
        return ""
    return (
        f" ({describe_divergence(*divergences)})" if runs == 1 else f" (diverged in {len(divergences)} of {runs} runs)"
    )


def describe_divergence(divergence: Divergence) -> str:
    """A phrase for when a run diverged.

    >>> describe_divergence(Divergence(0, "…"))
    'diverged before the first round'
    """
    return f"diverged in round {divergence.round}" if divergence.round else "diverged before the first round"


def divergence_notes(divergences: Mapping[str, Mapping[TrialKey, Divergence]]) -> list[str]:
    """A sentence for each diverged run.

    Args:
        divergences: diverged runs by the method's label and (source model, trial).
    """
    return [
        f"{label}, source model {trial.source_model}, trial {trial.trial}, {describe_divergence(event)}: {event.why}"
        for label, trials in divergences.items()
        for trial, event in sorted(trials.items())
    ]
