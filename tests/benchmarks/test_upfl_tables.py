"""Tables of new clients, made from values by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .scripts import script

tables = script("upfl_tables")


def entry(row: str, n: int, diverged: int = 0) -> dict[str, Any]:
    return {
        "group": tables.NEW,
        "row": row,
        "mean": 50.0 if n else None,
        "std": 1.0 if n > 1 else None,
        "n": n,
        "diverged": diverged,
        "ahead": None,
        "published": 60.0,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tables, "RUNS", tmp_path)
    monkeypatch.setattr(tables, "hardware", lambda *folders: "On a machine.")
    return tmp_path


def write(folder: Path, name: str, *entries: dict[str, Any]) -> None:
    (folder / f"upfl-{name}.json").write_text(json.dumps({"values": entries}))


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_fewer_seeds_are_no_divergence(folder: Path) -> None:
    write(folder, "table1-mnist", entry("FedAvg", 3), entry("TENT", 2, diverged=1))
    write(folder, "table1-femnist", entry("FedAvg", 2), entry("TENT", 0, diverged=2))
    text = tables.BLOCKS["upfl-table1"]()
    assert rows(text) == [
        ["FedAvg", "50.0 ± 1.0", "60.0", "50.0 ± 1.0", "60.0"],
        ["TENT", "50.0 ± 1.0 (diverged in 1 of 3 runs)", "60.0", "– (diverged in 2 of 2 runs)", "60.0"],
    ]
    assert "over n = 3 (MNIST), 2 (FEMNIST) seeds" in text


def test_a_cell_by_group_or_by_alpha_says_that_runs_diverged(folder: Path) -> None:
    for name in ("table1-mnist", "table2"):
        write(folder, name, entry("FedAvg", 2, diverged=1), entry("TENT", 3))
    marked = "50.0 ± 1.0 (diverged in 1 of 3 runs)"
    text = tables.BLOCKS["upfl-table1-mnist"]()
    assert rows(text)[0] == [f"{tables.NEW}: FedAvg", marked, "", "60.0"]
    assert "over n = 3 seeds" in text
    text = tables.BLOCKS["upfl-table2"]()
    assert rows(text)[0] == ["FedAvg", marked]
    assert "over n = 3 seeds" in text


def test_a_cell_of_a_run_says_that_runs_diverged(folder: Path) -> None:
    runs = [{"source_model": seed, "mean": 50.0} for seed in range(2)]
    values = {"mean": 50.0, "std": 0.0, "n": 2, "runs": runs, "validation": {"mean": 60.0, "std": 0.0}}
    (folder / "mnist-lambda").mkdir()
    methods = {"a": values | {"label": "FedAvg"}, "b": values | {"label": "TENT", "diverged": [{"source_model": 2}]}}
    (folder / "mnist-lambda" / "summary.json").write_text(json.dumps({"methods": methods}))
    assert [row[2] for row in rows(tables.BLOCKS["upfl-lambda"]())] == [
        "50.0 ± 0.0",
        "50.0 ± 0.0 (diverged in 1 of 3 runs)",
    ]
