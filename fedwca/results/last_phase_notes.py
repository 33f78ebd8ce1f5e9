"""What the last phase of a method did to the targets without labels, and whether these could have told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.core.mean import mean
from fedwca.results.table_rows import Record, last_records

LESS_EVEN = 0.05
"""Nats by which the entropy of predicted classes falls where the last phase is doubted: it rose by 0.02 to 0.09 where
that helped (usps, neon), and fell by 0.4 where it harmed (mnistm)."""


def last_phase_notes(records: Sequence[Record], labels: Mapping[str, str]) -> list[str]:
    """A sentence for each method whose last phase lowered the accuracy, or looks as if it had.

    Accuracies need labels, which nobody has; classes predicted before and after do not.

    Args:
        records: lines of ``rounds.jsonl``.
        labels: display label of each method.
    """
    last, rounds = last_records(records), last_records(r for r in records if "phase" not in r)
    found = []
    for name, label in labels.items():
        ended = {trial: record for trial, record in last.get(name, {}).items() if "shift" in record}
        if not ended:
            continue
        before, after = (mean(mean(group[name][trial]["accuracy"]) for trial in ended) for group in (rounds, last))
        seen = _less_even([record["shift"] for record in ended.values()])
        fell = after < before
        if fell and seen:
            found.append(f"{label}: the last phase harmed, {before:.1f} % before and {after:.1f} % after, and {seen}")
        elif fell:
            found.append(
                f"{label}: the last phase harmed, {before:.1f} % before and {after:.1f} % after; nothing in the "
                "target's unlabeled images tells so: their predicted classes are as even as before"
            )
        elif seen:
            found.append(f"{label}: the last phase is to be doubted without labels ({seen})")
    return found


def _less_even(shifts: Sequence[Mapping[str, Any]]) -> str:
    """What unlabeled images say against the last phase, over the clients of all runs; empty if nothing."""
    clients = [(shift, client) for shift in shifts for client in shift["agreement"]]
    before, after = (mean(class_entropy_of(s[when][k]) for s, k in clients) for when in ("before", "after"))
    if before - after <= LESS_EVEN:
        return ""
    one, other = (100 * mean(max(s[when][k]) / sum(s[when][k]) for s, k in clients) for when in ("before", "after"))
    changed = 100 * (1 - mean(s["agreement"][k] for s, k in clients))
    return (
        f"the target's unlabeled images tell so: {other:.0f} % of them are given one class ({one:.0f} % before; "
        f"entropy of classes {before:.2f} → {after:.2f} nats), and {changed:.0f} % changed theirs"
    )


def class_entropy_of(counts: Sequence[int]) -> float:
    """Entropy in nats of a histogram of classes.

    >>> round(class_entropy_of([2, 2, 0]), 4)
    0.6931
    """
    total = sum(counts)
    return -sum(count / total * math.log(count / total) for count in counts if count)
