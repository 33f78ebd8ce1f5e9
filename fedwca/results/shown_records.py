"""Which record of a run tables show: the last one, or the best by validation; and the accuracies in a record."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fedwca.core.mean import is_lower, mean
from fedwca.results.trial_key import TrialKey

Record = Mapping[str, Any]

VALIDATION = "accuracy_validation"
"""Field of a record: validation accuracies of the clients that train, where other clients are counted."""


def shown_records(records: Iterable[Record]) -> dict[str, dict[TrialKey, Record]]:
    """The record that tables show, by method and run (source model, trial).

    That is the last record. With validation images, it is that of the round with the best mean validation accuracy over
    the clients that train; of equal ones, the latest.
    """
    records = list(records)
    shown = last_records(records)
    best: dict[tuple[str, TrialKey], float] = {}
    for record in sorted((r for r in records if VALIDATION in r and r["round"] >= 0), key=lambda r: r["round"]):
        method, trial, value = record["method"], TrialKey.of(record), mean(record[VALIDATION])
        if is_best_so_far(value, best.get((method, trial))):
            best[method, trial] = value
            shown[method][trial] = record
    return shown


def is_best_so_far(validation: float, best: float | None) -> bool:
    """Whether a round takes the place of the best of the earlier ones.

    Args:
        validation: mean validation accuracy of the round; NaN where nothing was measured.
        best: that of the best earlier round, which gives way to an equal one; None: there is none.

    >>> [is_best_so_far(50.0, best) for best in (None, 50.0, 51.0)], is_best_so_far(math.nan, None)
    ([True, True, False], False)
    """
    return not math.isnan(validation) and not is_lower(validation, -math.inf if best is None else best)


def accuracy_of_all(record: Record) -> list[float]:
    """Accuracy of each client, whether tables count it or not, on its test images or else its validation images.

    >>> accuracy_of_all({"accuracy": [math.nan, 2.0], "accuracy_validation": [1.0, math.nan]})
    [1.0, 2.0]
    """
    substitutes = record.get("accuracy_sources") or record.get(VALIDATION) or record["accuracy"]
    return [
        substitute if math.isnan(accuracy) else accuracy
        for accuracy, substitute in zip(record["accuracy"], substitutes, strict=True)
    ]


def last_records(records: Iterable[Record]) -> dict[str, dict[TrialKey, Record]]:
    """The last record by method and run (source model, trial)."""
    last: dict[str, dict[TrialKey, Record]] = defaultdict(dict)
    for record in records:
        trial = TrialKey.of(record)
        previous = last[record["method"]].get(trial)
        if previous is None or record["round"] >= previous["round"]:
            last[record["method"]][trial] = record
    return last
