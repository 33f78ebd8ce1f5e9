"""The table of open choices, worked by hand from made-up records, and the committed result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .scripts import script
from .test_results import RESULTS

CONFIG = {"seed": 7, "clients": 4, "samples": 400, "rounds": 10, "training": {"epochs": 5, "lr": 0.003}}
readings = script("readings")

MACHINE = {"cores": 2, "cpu": "a CPU"}


def entry(source: str, reading: str, against: str, runs: list[float], question: str = "A1") -> dict[str, Any]:
    return {
        "source": source,
        "reading": reading,
        "question": question,
        "against": against,
        "runs": runs,
        "config": CONFIG,
    }


DEFAULT = entry("synth", "default", "", [60.0, 62.0, 64.0], "")


def rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """The cells of the table's rows; the first row is the header."""
    lines = [line for line in readings.table(results, MACHINE).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in [lines[0], *lines[2:]]]


def test_one_source_is_enough() -> None:
    table_rows = rows([DEFAULT, entry("synth", "ratio", "default", [61.0, 64.0, 67.0])])
    # Differences 1, 2, 3: std 1, half an interval 4.303 / sqrt 3.
    assert table_rows == [
        ["reading", "minus", "question", "source synth"],
        ["ratio", "default", "A1", "+2.00 (-0.48 to +4.48), n = 3"],
    ]


def test_a_run_that_diverged_leaves_the_others_paired() -> None:
    (ratio,) = rows([DEFAULT, entry("synth", "ratio", "default", [61.0, 67.0]) | {"source_models": [0, 2]}])[1:]
    # Differences 1 and 3, not 1 and 5.
    assert ratio[3] == "+2.00, n = 2"


def test_a_source_that_lacks_a_reading_has_a_dash_and_all_takes_what_is_there() -> None:
    results = [
        DEFAULT,
        entry("synth", "ratio", "default", [59.0, 60.9, 63.0]),
        entry("synth", "row", "default", [60.0, 62.0, 64.0], "A16"),
        entry("mnist", "default", "", [40.0, 41.0]),
        entry("mnist", "ratio", "default", [39.0, 39.9]),
    ]
    head, ratio, row = rows(results)
    assert head[3:] == ["source synth", "source mnist", "all"]
    assert ratio[3].startswith("**-1.03 (")
    assert ratio[4] == "-1.05, n = 2", "an interval of two says nothing"
    assert ratio[5].endswith("**, n = 5")
    assert row[1:] == ["default", "A16", "+0.00 (+0.00 to +0.00), n = 3", "–", "+0.00 (+0.00 to +0.00), n = 3"]


def test_the_note_says_where_the_bases_stand() -> None:
    results = [
        DEFAULT,
        entry("synth", "ratio", "default", [61.0]),
        entry("synth", "FedAvg by samples", "", [50.0]),
        entry("synth", "FedAvg uniform", "FedAvg by samples", [51.0]),
    ]
    text = readings.table(results, MACHINE)
    assert "default 62.0, FedAvg by samples 50.0." in text
    assert "+1.00, n = 1" in text
    assert "Minus" not in text.rpartition("|")[2]
    larger = {**entry("synth", "larger", "", [50.0]), "config": {**CONFIG, "samples": 500}}
    text = readings.table([*results, larger, entry("synth", "larger, uniform", "larger", [52.0])], MACHINE)
    assert "Minus larger: 4 clients per target domain, at most 500 images each" in text


def test_a_committed_result_carries_a_decision() -> None:
    file = RESULTS / "choices.json"
    if not file.exists():
        pytest.skip("benchmarks/choices.py has not been run")
    results = json.loads(file.read_text())["results"]
    records = {(entry["source"], entry["reading"]): entry for entry in results}
    assert len(records) == len(results)
    for (source, reading), record in records.items():
        assert len(record["runs"]) == record["config"]["source_models"] * record["config"]["trials"] >= 5, reading
        if record["against"]:
            base = records[source, record["against"]]
            assert base["config"]["seed"] == record["config"]["seed"]
            changed_keys = {key for key in record["config"] if record["config"][key] != base["config"][key]}
            assert changed_keys, f"{reading} is what it is compared with"
