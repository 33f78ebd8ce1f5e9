"""Seconds of a run by phase, summed by hand."""

from __future__ import annotations

from typing import Any

from fedwca.results.phase_seconds import phase_seconds


def test_seconds_are_summed_over_the_rounds_of_each_method() -> None:
    def record(method: str, number: int, **seconds: float) -> dict[str, Any]:
        return {"method": method, "round": number, "seconds": seconds}

    records = [
        record("a", 0, train=2.0, round=1.5, evaluate=0.25),
        record("b", 0, train=8.0, round=4.0),
        record("a", 1, train=3.0, round=1.0),
        {"method": "a", "round": -1},  # before the first round nothing was timed
    ]
    totals = phase_seconds(records)
    assert list(totals) == ["a", "b"]
    of_a = {name: value for name, value in totals["a"].items() if value}
    assert of_a == {"rounds": 2, "round": 2.5, "train": 5, "evaluate": 0.25}
    assert (totals["b"]["rounds"], totals["b"]["train"], totals["b"]["evaluate"]) == (1, 8, 0)
