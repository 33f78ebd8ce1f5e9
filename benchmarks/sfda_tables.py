"""The tables of docs/several-sources.md, from the runs of `benchmarks/sfda.sh` in results/sfda; no script."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from readings import on_machines

from fedwca.config.method_spec import parse_method
from fedwca.reproduce.definitions import Definition, definition, published_table
from fedwca.reproduce.phases_table import phases_apart
from fedwca.reproduce.side_by_side import AVERAGE
from fedwca.results.statistics import paired_difference, sample_of
from fedwca.results.table_rows import Row
from fedwca.results.tables import MISSING, Cell, Table, difference_cell, mean_cell, sample_cell

RUNS = Path(__file__).resolve().parent / "results" / "sfda"
NOTHING = "Not measured yet: `sh benchmarks/sfda.sh`."


ORDER = ("mnist", "mnistm", "svhn", "synth", "usps")
"""Targets, as the paper's columns."""


def results(found: Definition) -> dict[str, dict[str, Row]]:
    """Results by target and row of a table: of several folders that ran a method, all runs."""
    names = {row: parse_method(word).name for row, word in found.rows.items()}
    kept: dict[str, dict[str, Row]] = {}
    for path in sorted(RUNS.glob("*/summary.json")):
        summary = json.loads(path.read_text())
        own = kept.setdefault(summary["config"]["target"], {})
        for row, name in names.items():
            if name in summary["methods"]:
                new = read_row(name, summary["methods"][name])
                old = own.get(row, new)
                own[row] = replace(new, runs={**old.runs, **new.runs}, before={**old.before, **new.before})
    return {target: kept[target] for target in sorted(kept, key=ORDER.index)}


def complete(found: Definition) -> dict[str, list[Row]]:
    """The targets that have every row, each in the order of the table."""
    return {
        target: [own[row] for row in found.rows]
        for target, own in results(found).items()
        if all(row in own for row in found.rows)
    }


def hardware(found: Definition) -> str:
    """On what the folders were run that have a row of a table."""
    names = {parse_method(word).name for word in found.rows.values()}
    paths = [p for p in sorted(RUNS.glob("*/summary.json")) if names & set(json.loads(p.read_text())["methods"])]
    return on_machines(json.loads(path.with_name("environment.json").read_text()) for path in paths)


def read_row(name: str, entry: dict[str, Any]) -> Row:
    """A method's results from a summary."""
    runs = {(run["source_model"], run["trial"]): run for run in entry["runs"]}
    after = {key: run["mean"] for key, run in runs.items()}
    before = {key: run["before"] for key, run in runs.items() if "before" in run}
    return Row(name, entry["label"], after, {}, before)


def parts() -> str:
    """Each method before and after the last phase, paired by run."""
    found = definition("sfda-parts")
    tables = complete(found)
    if not tables:
        return NOTHING
    grid, _ = phases_apart("", tables, {row: parse_method(word).name for row, word in found.rows.items()})
    return replace(grid, notes=[*grid.notes, hardware(found)]).markdown()


def weighting() -> str:
    """What each weighting adds to the uniform mean: the mean over targets of one initial network, paired by network."""
    found = definition("sfda-parts")
    tables = complete(found)
    if len(tables) < 2:
        return NOTHING
    lines = []
    for number, row in enumerate(found.rows):
        if row == "uniform":
            continue
        cells = []
        for phase in ("before", "runs"):
            ours, uniform = (_over_targets(tables, at, phase) for at in (number, UNIFORM))
            cells.append(difference_cell(paired_difference(ours, uniform)))
        lines.append([f"{row} − uniform", *cells])
    count = len(_over_targets(tables, UNIFORM, "runs"))
    notes = [
        f"Points, mean over the targets {', '.join(tables)} of an initial network; Student's t interval at 95 % over",
        f"{count} initial networks, each with splits of its own. {hardware(found)}",
    ]
    return Table("", ("difference", "before the last phase", "after it"), lines, notes).markdown()


UNIFORM = 1
"""Place of the uniform mean among the rows of `sfda-parts`."""


def _over_targets(tables: Mapping[str, Sequence[Row]], number: int, phase: str) -> dict[tuple[int, int], float]:
    """The mean over targets by run, of the runs that every target has."""
    values = [getattr(rows[number], phase) for rows in tables.values()]
    return {run: statistics.fmean(each[run] for each in values) for run in values[0] if all(run in v for v in values)}


def accuracies(table: str) -> str:
    """Rows of a table, a column a target; beside the mean of these targets what is printed for them."""
    found = definition(table)
    tables, printed = results(found), published_table(table, "digit_five")
    rows = [row for row in found.rows if any(row in own for own in tables.values())]
    if len(rows) < len(found.rows) - 1 or printed is None:
        return NOTHING
    shared = set.intersection(*(set(row.runs) for own in tables.values() for row in own.values()))
    tables = {target: own for target, own in tables.items() if sum(row in own for row in rows) > 1}
    lines, reference = [], rows[-1]
    for row in rows:
        own = {
            target: [table[row].runs[run] for run in sorted(shared)] for target, table in tables.items() if row in table
        }
        cells = [sample_cell(sample_of(own[target])) if target in own else Cell(MISSING) for target in tables]
        every = statistics.fmean(value for values in own.values() for value in values)
        theirs = statistics.fmean(printed.values[row, target][0] for target in tables)
        if len(tables) == len(ORDER):
            theirs = printed.values[row, AVERAGE][0]
        beside = Cell(MISSING)
        if len(own) == len(tables):
            means = [_mean_by_run(tables, name, shared) for name in (row, reference)]
            beside = Cell("") if row == reference else difference_cell(paired_difference(*means))
        mean = mean_cell(every if len(own) == len(tables) else math.nan)
        lines.append([row, *cells, mean, beside, mean_cell(theirs)])
    notes = [
        "Percent of the target's test images after the last phase, where there is one; mean ± std (ddof 1) over",
        f"n = {len(shared)} runs with initial networks and splits of their own. − {reference}: difference of means",
        "over these targets, paired by run, with Student's t interval at 95 %. Printed: the mean of these targets",
        f"in the paper, on other data. {hardware(found)}",
    ]
    return Table("", ("row", *tables, "mean", f"− {reference}", "printed mean"), lines, notes).markdown()


def _mean_by_run(
    tables: Mapping[str, Mapping[str, Row]], row: str, runs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """The mean over targets of each run."""
    return {run: statistics.fmean(own[row].runs[run] for own in tables.values()) for run in runs}


BLOCKS: dict[str, Callable[[], str]] = {
    "sfda-parts": parts,
    "sfda-weighting": weighting,
    "sfda-table1": partial(accuracies, "sfda-table1"),
    "sfda-table2": partial(accuracies, "sfda-table2"),
}
