"""Runs of a method whose training diverged: they end there, and no table counts what they had come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedwca.results.trial_key import TrialKey

DIVERGED = "diverged"
"""Field of the last record of a run that diverged: why, in a sentence. Its accuracies are of nobody."""
NOTE = "Runs that diverged are in no mean and in no difference."
"""Under a table that has some."""


class Divergence(NamedTuple):
    """Where a run of a method ended."""

    round: int
    """In which round, counted from 1; 0: before the first."""
    why: str
    """A sentence: at which client, and what may help."""


def ended_rounds(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records of rounds that came to their end."""
    return [record for record in records if DIVERGED not in record]


def counted_rounds(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that means over runs are of: of a method's runs that did not diverge; where all did, until they did.

    Args:
        records: lines of ``rounds.jsonl``, with those in which a run diverged.
    """
    found, lost = ended_rounds(records), find_divergences(records)
    trials = [(record["method"], TrialKey.of(record)) for record in found]
    kept = {method for method, trial in trials if trial not in lost.get(method, ())}
    return [
        record
        for record, (method, trial) in zip(found, trials, strict=True)
        if method not in kept or trial not in lost.get(method, ())
    ]


def find_divergences(records: Iterable[Mapping[str, Any]]) -> dict[str, dict[TrialKey, Divergence]]:
    """Runs that diverged, by method and run (source model, trial)."""
    found: dict[str, dict[TrialKey, Divergence]] = defaultdict(dict)
    for record in records:
        if DIVERGED in record:
            found[record["method"]][TrialKey.of(record)] = Divergence(record["round"] + 1, record[DIVERGED])
    return found


def mark_divergence(found: Collection[Divergence], runs: int) -> str:
    """What a method's label has behind it; nothing where no run diverged.

    Args:
        found: of the method.
        runs: how many it has, those that diverged among them.

    >>> mark_divergence([Divergence(8, "…")], 1), mark_divergence([Divergence(8, "…")], 3), mark_divergence([], 3)
    (' (diverged in round 8)', ' (diverged in 1 of 3 runs)', '')
    """
    if not found:
        return ""
    return f" ({describe_divergence(*found)})" if runs == 1 else f" (diverged in {len(found)} of {runs} runs)"


def describe_divergence(found: Divergence) -> str:
    """When it was.

    >>> describe_divergence(Divergence(0, "…"))
    'diverged before the first round'
    """
    return f"diverged in round {found.round}" if found.round else "diverged before the first round"


def divergence_notes(found: Mapping[str, Mapping[TrialKey, Divergence]]) -> list[str]:
    """A sentence for each run that diverged.

    Args:
        found: label of a method to its runs (source model, trial) that diverged.
    """
    return [
        f"{label}, source model {trial.source_model}, trial {trial.trial}, {describe_divergence(end)}: {end.why}"
        for label, trials in found.items()
        for trial, end in sorted(trials.items())
    ]
