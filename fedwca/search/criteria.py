"""By what number a try of a search is judged: without target labels unless asked otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedwca.data.metrics import mean

CRITERIA = {"density": "maximize", "entropy": "minimize"}
"""What the last models say of unlabeled images, and which way is better."""
ORACLE = "accuracy"


def judge(records: Sequence[Mapping[str, Any]], criterion: str) -> float:
    """Mean over runs of the mean over clients after the last round.

    Args:
        records: of one method, all runs.
        criterion: ``density`` or ``entropy`` (no label is read), or ``accuracy`` (an oracle).
    """
    last: dict[tuple[int, int], Mapping[str, Any]] = {}
    for record in records:
        last[record["source_model"], record["trial"]] = record
    found = [r["accuracy"] if criterion == ORACLE else r["evidence"][criterion] for r in last.values()]
    return mean(mean(values) for values in found)
