"""Committed results hold what they claim, and the pages show the committed numbers."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import pytest

from fedwca.config.run_config import validate

from .scripts import script

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RUNS = sorted(path.parent for path in RESULTS.rglob("summary.json"))


def test_pages_show_the_committed_numbers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    assert script("tables").main() == 0, capsys.readouterr().out


def test_there_are_results() -> None:
    assert {"digit_five-mnist", "digit_five-mnistm", "digit_five-synth", "digits_mini"} <= {run.name for run in RUNS}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_says_what_it_was(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    config = json.loads((run / "config.json").read_text())
    environment = json.loads((run / "environment.json").read_text())
    assert summary["complete"] is True
    # config.json has the requested values and, beside its configuration, the decided ones; the summary has the latter.
    decided = {key: config[key] for key in ("kernels", "trials_at_once") if summary["config"].get(key) is not None}
    assert summary["config"] == {**config["config"], **decided}
    validate(summary["config"])
    assert {"python", "cpu", "cores", "device", "versions", "time"} <= set(environment)
    assert {"fedwca", "torch", "numpy"} <= set(environment["versions"])
    for name, method in summary["methods"].items():
        means = [entry["mean"] for entry in method["runs"]]
        assert len(means) == method["n"] == summary["config"]["source_models"] * summary["config"]["trials"]
        assert method["mean"] == pytest.approx(statistics.fmean(means)), name
        assert method["std"] == (pytest.approx(statistics.stdev(means)) if len(means) > 1 else None), name
        assert method["mean"] == pytest.approx(statistics.fmean(method["domains"].values()), abs=0.5), name


def test_digits_mini_has_real_gaps() -> None:
    matrix = json.loads((RESULTS / "digits_mini_matrix.json").read_text())["matrix"]
    assert len(matrix) == 5
    assert all(row[name] >= 90 for name, row in matrix.items())
    assert (
        statistics.fmean(accuracy for name, row in matrix.items() for target, accuracy in row.items() if target != name)
        <= 75
    )


def test_no_path_of_a_machine_is_in_a_result() -> None:
    for file in RESULTS.rglob("*.json"):
        assert not any(part in file.read_text() for part in ('"/home', '"/tmp', '"/work', '"/Users')), file
