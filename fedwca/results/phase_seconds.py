"""Where a run's time went: seconds of each phase of a round, summed from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

AT_CLIENTS = ("evidence", "label", "train")
"""Phases of clients: seconds summed over clients, so with several workers their sum exceeds the round's."""
PHASES = (*AT_CLIENTS, "group", "mix", "evaluate", "record")


def phase_seconds(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds by method and phase over all its rounds, ``rounds`` of them, ``round`` as the clock saw them.

    >>> record = {"method": "a", "round": 0, "seconds": {"train": 2.0, "round": 1.0, "evaluate": 0.5}}
    >>> phase_seconds([record])["a"]["train"]
    2.0
    """
    found: dict[str, dict[str, float]] = {}
    for record in records:
        if "seconds" not in record:
            continue
        method = found.setdefault(record["method"], dict.fromkeys(("rounds", "round", *PHASES), 0.0))
        method["rounds"] += 1
        for phase, seconds in record["seconds"].items():
            method[phase] = method.get(phase, 0.0) + seconds
    return found
