"""Seconds that a run spent in each phase of its rounds, summed from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

AT_CLIENTS = ("evidence", "label", "train", "collect")
"""Phases at clients: seconds are summed over clients, so with several workers they can exceed the round's duration."""
PHASES = (*AT_CLIENTS, "public", "group", "mix", "evaluate", "record")
OF_FEW_METHODS = ("collect", "public")
"""Phases that only methods have that upload more than models: prototypes, or predictions of public images."""


def phase_seconds(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds by method and phase over all its rounds; ``rounds`` is their number, ``round`` their wall-clock seconds.

    >>> record = {"method": "a", "round": 0, "seconds": {"train": 2.0, "round": 1.0, "evaluate": 0.5}}
    >>> phase_seconds([record])["a"]["train"]
    2.0
    """
    totals: dict[str, dict[str, float]] = {}
    for record in records:
        if "seconds" not in record or record["round"] < 0:  # before the rounds only central training is timed
            continue
        method_totals = totals.setdefault(record["method"], dict.fromkeys(("rounds", "round", *PHASES), 0.0))
        method_totals["rounds"] += 1
        for phase, seconds in record["seconds"].items():
            method_totals[phase] = method_totals.get(phase, 0.0) + seconds
    return totals
