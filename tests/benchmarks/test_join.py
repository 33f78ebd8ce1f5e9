"""What benchmarks/join.py computes from its records, by hand; and that the committed result follows from them."""

from __future__ import annotations

import json

import pytest

from .scripts import script
from .test_results import RESULTS

join = script("join")


def test_means_are_over_clients_then_seeds_and_differences_are_paired() -> None:
    records = [
        {
            "seed": seed,
            **dict.fromkeys(join.COLUMNS, value),
            "joined, update": value - lost,
            "took part, own model": 90,
        }
        for seed, value, lost in ((0, 50, 1), (0, 70, 3), (1, 80, 0), (1, 80, 4))
    ]
    summary = join.summary(records)
    assert summary["accuracy"]["took part"] == {"mean": 70, "std": pytest.approx(200**0.5), "n": 2, "seeds": [60, 80]}
    difference = summary["minus having taken part"]["joined, update"]
    assert (difference["to"], difference["mean"], difference["std"]) == ("took part", -2, 0)
    assert summary["minus having taken part"]["joined and adapted, alignment"]["mean"] == -20


def test_a_committed_result_is_what_its_records_give() -> None:
    file = RESULTS / "join.json"
    if not file.exists():
        pytest.skip("benchmarks/join.py has not been run")
    result = json.loads(file.read_text())
    assert result["complete"] is True
    assert len({record["seed"] for record in result["clients"]}) == result["config"]["seeds"] >= 3
    assert result["summary"] == join.summary(result["clients"])
