"""The tables of docs/several-sources.md, from the runs of `benchmarks/sfda.sh` in results/sfda; no script."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedwca.config.method_spec import parse_method
from fedwca.reproduce.definitions import AVERAGE, Definition, definition, published_table
from fedwca.reproduce.phases_table import phases_apart
from fedwca.results.statistics import sample_of
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, mean_cell, sample_cell

RUNS = Path(__file__).resolve().parent / "results" / "sfda"
NOTHING = "Not measured yet: `sh benchmarks/sfda.sh`."


def finished(found: Definition) -> dict[str, list[Row]]:
    """The results of a table's methods by target, in the order of its rows; targets that lack one are left out."""
    names = [parse_method(word).name for word in found.rows.values()]
    entries: dict[str, dict[str, Any]] = {}
    for path in sorted(RUNS.glob("*/summary.json")):
        summary = json.loads(path.read_text())
        entries.setdefault(summary["config"]["target"], {}).update(summary["methods"])
    order = ("mnist", "mnistm", "svhn", "synth", "usps")
    return {
        target: [read_row(name, entries[target][name]) for name in names]
        for target in sorted(entries, key=order.index)
        if all(name in entries[target] for name in names)
    }


def read_row(name: str, entry: dict[str, Any]) -> Row:
    """A method's results from a summary."""
    runs = {(run["source_model"], run["trial"]): run for run in entry["runs"]}
    after = {key: run["mean"] for key, run in runs.items()}
    before = {key: run["before"] for key, run in runs.items() if "before" in run}
    return Row(name, entry["label"], after, {}, before)


def parts() -> str:
    """Each method before and after the last phase, paired by run."""
    found = definition("sfda-parts")
    tables = finished(found)
    if not tables:
        return NOTHING
    grid, _ = phases_apart("", tables, {row: parse_method(word).name for row, word in found.rows.items()})
    return grid.markdown()


def accuracies() -> str:
    """Rows of Table 1, a column a target; beside the mean of these targets what is printed for them."""
    found = definition("sfda-table1")
    tables, printed = finished(found), published_table("sfda-table1", "digit_five")
    if not tables or printed is None:
        return NOTHING
    lines = []
    for number, row in enumerate(found.rows):
        own = {target: list(table[number].runs.values()) for target, table in tables.items()}
        whole = len(tables) == len({column for _, column in printed.values} - {AVERAGE})
        theirs = [printed.values[row, target][0] for target in tables]
        average = printed.values[row, AVERAGE][0] if whole else statistics.fmean(theirs)
        every = statistics.fmean(value for values in own.values() for value in values)
        lines.append(
            [row, *(sample_cell(sample_of(values)) for values in own.values()), mean_cell(every), mean_cell(average)]
        )
    count = len(next(iter(tables.values()))[0].runs)
    notes = [
        "Percent of the target's test images after the last phase, where there is one; mean ± std (ddof 1) over",
        f"n = {count} runs with initial networks and splits of their own. Printed: the mean of these targets in the",
        "paper, on other data.",
    ]
    return Table("", ("Table 1", *tables, "mean", "printed mean"), lines, notes).markdown()


BLOCKS: dict[str, Callable[[], str]] = {"sfda-parts": parts, "sfda-table1": accuracies}
