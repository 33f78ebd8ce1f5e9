"""A run folder is read as a whole, or the error names the damaged file and line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fedwca.config.component_registries import registry_of
from fedwca.errors import FedwcaError
from fedwca.results.read_run import Run, read_run
from fedwca.results.read_run_files import read_lines, read_records
from fedwca.results.results_table import ON_REQUEST
from fedwca.results.run_schemas import SCHEMA, UNCHECKED, RoundRecord

from .runs import write_run

PAGE = Path(__file__).parents[2] / "docs" / "run-folder.md"
BENCHES = sorted(path.parent for path in (Path(__file__).parents[2] / "benchmarks/results").rglob("summary.json"))


def without(value: Any, names: Iterable[str]) -> Any:
    """A nested value without some keys, at every depth."""
    if isinstance(value, dict):
        return {key: without(inner, names) for key, inner in value.items() if key not in names}
    return [without(inner, names) for inner in value] if isinstance(value, list) else value


def test_all_documented_fields_of_a_record_are_known() -> None:
    lines = PAGE.read_text().split("\n## A line of rounds.jsonl\n")[1].split("\n## ")[0]
    documented = {
        name for cell in re.findall(r"^\| (`[^|]*) \|", lines, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }
    aggregators = registry_of("aggregator")
    reports = {report for name in aggregators.names() for report in aggregators.get(name).reports}  # type: ignore[attr-defined]
    assert {field.alias or name for name, field in RoundRecord.model_fields.items()} | UNCHECKED == documented - reports


@pytest.mark.parametrize("path", BENCHES, ids=lambda path: path.name)
def test_every_run_that_was_ever_kept_is_read(path: Path) -> None:
    run = read_run(path)
    assert run.state == "done"
    # Older summaries lack these numbers; `results` computes them from the records.
    assert without(run.results, ON_REQUEST) == without(run.summary["methods"], ON_REQUEST)
    assert run.environment["versions"]
    assert run.time.tzinfo
    assert run.title


def test_files_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name in ("summary.json", "environment.json", "rounds.jsonl"):
        (folder / name).write_text("[]\n[]\n")
    run = read_run(folder)
    assert run.methods
    assert run.state == "stopped"
    for part in ("summary", "environment", "records"):
        with pytest.raises(FedwcaError):
            getattr(run, part)


@pytest.mark.parametrize(
    ("partition", "domains", "newcomers", "who"),
    [
        ("all_labelled", ["a", "a", "b", "b"], 0, "2 clients per domain"),
        ("shards", ["x", "x", "new"], 1, "2 training clients"),
        ("unit_domains", ["a", "a", "b"], 0, "3 clients"),
    ],
)
def test_the_title_counts_the_clients_that_were_there(
    tmp_path: Path, partition: str, domains: list[str], newcomers: int, who: str
) -> None:
    source = "home" if partition == "unit_domains" else None
    folder = write_run(tmp_path / "run", partition=partition, source=source)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "domains": domains, "newcomers": newcomers}))
    special = "source home" if source else f"partition {partition}"
    assert read_run(folder).title == f"made_up, {special}, {who}, 4 rounds, seed 0"


def ask(run: Run) -> list[object]:
    """Everything that a list, a report or a comparison reads of a run."""
    return [run.title, run.time, run.accuracy, run.results, run.labels, run.has_all_rounds, run.domains]


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("config.json", "methods", []),
        ("config.json", "methods", None),
        ("config.json", "methods", {"wca": {"label": 3, "rounds": 1, "components": []}}),
        ("config.json", "methods", {"wca": {"rounds": 1, "components": []}}),
        ("config.json", "methods", {"wca": {"label": "\ud800", "rounds": 1, "components": []}}),
        ("config.json", "config", {"source": "a"}),
        ("config.json", "schema", "2"),
        ("config.json", "schema", None),
        ("config.json", "schema", SCHEMA + 1),
        ("environment.json", "time", "yesterday"),
        ("environment.json", "time", 3),
        ("summary.json", "methods", []),
        ("summary.json", "methods", {"wca": None}),
        ("summary.json", "methods", {"wca": {"mean": "x"}}),
        ("summary.json", "complete", "yes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, file: str, key: str, value: Any) -> None:
    folder = write_run(tmp_path / "run")
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, key: value}))
    with pytest.raises(FedwcaError, match=str(folder)):
        ask(read_run(folder))


@pytest.mark.parametrize("schema", [{"schema": 1}, {}])
def test_a_run_from_before_the_first_release_is_named(tmp_path: Path, schema: dict[str, Any]) -> None:
    file = write_run(tmp_path / "run") / "config.json"
    configuration = without(json.loads(file.read_text()), ["schema"])
    file.write_text(json.dumps(configuration | schema))
    with pytest.raises(FedwcaError, match=r"run: was written before fedwca 0\.1\.0 \(schema 1\); read it with"):
        read_run(file.parent)


def test_a_date_without_a_zone_is_a_date(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "environment.json").write_text('{"time": "2026-01-02"}')
    assert read_run(folder).time.year == 2026


@pytest.mark.parametrize("text", ["[" * 5000, "{", "[]", "null", "\x00"], ids=["deep", "cut", "list", "null", "zero"])
def test_what_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path / "run")
    for name in ("config.json", "summary.json", "environment.json"):
        original = (folder / name).read_text()
        (folder / name).write_text(text)
        with pytest.raises(FedwcaError, match=name):
            ask(read_run(folder))
        (folder / name).write_text(original)


@pytest.mark.parametrize(
    "line",
    ["[]", "null", "{}", "garbage", '{"method": "wca"', "[" * 5000],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    file = write_run(tmp_path / "run") / "rounds.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with pytest.raises(FedwcaError, match=r"rounds\.jsonl, line 3: is not the record of a round"):
        read_records(file.parent)


@pytest.mark.parametrize(
    "change",
    [{"accuracy": "50"}, {"accuracy": [50.0]}, {"agreement": [1.0]}, {"round": -2}, {"trial": "0"}, {"schema": 9}],
)
def test_a_line_of_other_values_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    file = write_run(tmp_path / "run") / "rounds.jsonl"
    lines = file.read_text().splitlines()
    lines[3] = json.dumps({**json.loads(lines[3]), **change})
    file.write_text("\n".join(lines))
    with pytest.raises(FedwcaError, match=r"rounds\.jsonl, line 4"):
        read_records(file.parent)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ({"steps": [1], "taken": [1]}, "accuracy_before"),
        (
            {"accuracy_before": [50.0, 40.0], "steps": [1], "taken": [1]},
            "accuracy_before has 2 values, 1 are",
        ),
    ],
)
def test_a_record_of_steps_that_lacks_something_is_damaged(steps: dict[str, Any], why: str) -> None:
    record = {"schema": 2, "method": "tent", "source_model": 0, "trial": 0, "round": 0, "accuracy": [60.0]}
    complete = {"accuracy_before": [50.0], "steps": [1], "taken": [1]}
    assert RoundRecord(**{**record, "adaptation": complete})
    with pytest.raises(ValidationError, match=why):
        RoundRecord(**{**record, "adaptation": steps})


def test_rounds_are_read_a_line_at_a_time_and_no_further_than_the_file_was_long(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", methods=1, trials=1)
    file = folder / "rounds.jsonl"
    records = read_records(folder)
    half = file.read_text().splitlines()[-1]
    file.write_text(file.read_text() + half[:20])
    lines = read_lines(folder)
    next(lines)
    with file.open("a") as appended:  # the rest of the line comes while it is read
        appended.write(half[20:] + "\n")
    assert len(list(lines)) == len(records) - 1
    assert len(read_records(folder)) == len(records) + 1
