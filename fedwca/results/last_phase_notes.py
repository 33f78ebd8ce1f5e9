"""Notes on methods whose last phase lowered the accuracy, and on whether unlabeled images show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.core.mean import is_lower, mean
from fedwca.results.shown_records import Record, last_records

LESS_EVEN = 0.05
"""The last phase is doubted if the entropy of predicted classes falls by more than this, in nats. The entropy rose by
0.02 to 0.09 where the phase helped (usps, neon), and fell by 0.4 where it harmed (mnistm)."""


def last_phase_notes(records: Sequence[Record], labels: Mapping[str, str]) -> list[str]:
    """A sentence for each method whose last phase lowered the accuracy, or seems to have done so.

    Accuracies need labels, which are not available in practice; predicted classes before and after do not.

    Args:
        records: lines of ``rounds.jsonl``.
        labels: display label of each method.
    """
    after_phase, before_phase = last_records(records), last_records(r for r in records if "phase" not in r)
    notes = []
    for name, label in labels.items():
        phase_records = {trial: record for trial, record in after_phase.get(name, {}).items() if "shift" in record}
        if not phase_records:
            continue
        accuracy_before, accuracy_after = (
            mean(mean(group[name][trial]["accuracy"]) for trial in phase_records)
            for group in (before_phase, after_phase)
        )
        evidence = _less_even([record["shift"] for record in phase_records.values()])
        if is_lower(accuracy_after, accuracy_before):
            unseen = (
                "; nothing in the target's unlabeled images tells so: their predicted classes are as even as before"
            )
            notes.append(
                f"{label}: the last phase harmed, {accuracy_before:.1f} % before and {accuracy_after:.1f} % after"
                f"{f', and {evidence}' if evidence else unseen}"
            )
        elif evidence:
            notes.append(f"{label}: the last phase is to be doubted without labels ({evidence})")
    return notes


def _less_even(shifts: Sequence[Mapping[str, Any]]) -> str:
    """Evidence of unlabeled images against the last phase, over the clients of all runs; empty if there is none."""
    from scipy.stats import entropy

    pairs = [(shift, client) for shift in shifts for client in shift["agreement"]]
    entropy_before, entropy_after = (mean(entropy(s[when][k]) for s, k in pairs) for when in ("before", "after"))
    if entropy_before - entropy_after <= LESS_EVEN:
        return ""
    share_before, share_after = (
        100 * mean(max(s[when][k]) / sum(s[when][k]) for s, k in pairs) for when in ("before", "after")
    )
    changed_share = 100 * (1 - mean(s["agreement"][k] for s, k in pairs))
    return (
        f"the target's unlabeled images tell so: {share_after:.0f} % of them are given one class "
        f"({share_before:.0f} % before; "
        f"entropy of classes {entropy_before:.2f} → {entropy_after:.2f} nats), and {changed_share:.0f} % changed theirs"
    )
