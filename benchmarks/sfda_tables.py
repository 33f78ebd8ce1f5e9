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

from readings import check_same_settings, on_machines

from fedwca.config.method_spec import parse_method
from fedwca.reproduce.definitions import Definition, definition, published_table
from fedwca.reproduce.phases_table import phases_apart
from fedwca.reproduce.side_by_side import AVERAGE
from fedwca.results.statistics import paired_difference, sample_of
from fedwca.results.table_rows import Row
from fedwca.results.tables import MISSING, Cell, Table, difference_cell, mean_cell, sample_cell

RUNS = Path(__file__).resolve().parent / "results" / "sfda"
NOTHING = "Not measured yet: `bash benchmarks/sfda.sh`."


ORDER = ("mnist", "mnistm", "svhn", "synth", "usps")
"""Targets in the order of the paper's columns."""


def results(table: Definition) -> dict[str, dict[str, Row]]:
    """Results by target and row of a table; runs of a method in several folders are joined.

    Raises:
        ValueError: folders differ in their settings.
    """
    names = {row: parse_method(method).name for row, method in table.rows.items()}
    by_target: dict[str, dict[str, Row]] = {}
    summaries = {path.parent.name: json.loads(path.read_text()) for path in sorted(RUNS.glob("*/summary.json"))}
    # No source model is trained here.
    configs = {name: summary["config"] for name, summary in summaries.items()}
    check_same_settings(configs, "target", "source_training")
    for summary in summaries.values():
        target_rows = by_target.setdefault(summary["config"]["target"], {})
        for row, name in names.items():
            if name in summary["methods"]:
                new = read_row(name, summary["methods"][name])
                old = target_rows.get(row, new)
                target_rows[row] = replace(new, runs={**old.runs, **new.runs}, before={**old.before, **new.before})
    return {target: by_target[target] for target in sorted(by_target, key=ORDER.index)}


def complete(table: Definition) -> dict[str, list[Row]]:
    """Rows in the order of the table, by target; without targets that lack a row."""
    return {
        target: [target_rows[row] for row in table.rows]
        for target, target_rows in results(table).items()
        if all(row in target_rows for row in table.rows)
    }


def hardware(table: Definition) -> str:
    """Hardware of the run folders that have a row of a table, as a sentence."""
    names = {parse_method(method).name for method in table.rows.values()}
    paths = [p for p in sorted(RUNS.glob("*/summary.json")) if names & set(json.loads(p.read_text())["methods"])]
    return on_machines(json.loads(path.with_name("environment.json").read_text()) for path in paths)


def read_row(name: str, entry: dict[str, Any]) -> Row:
    """A method's results from a summary."""
    runs = {(run["source_model"], run["trial"]): run for run in entry["runs"]}
    after = {key: run["mean"] for key, run in runs.items()}
    before = {key: run["before"] for key, run in runs.items() if "before" in run}
    return Row(name, entry["label"], after, {}, before)


def parts() -> str:
    """One row per target and method: accuracy before and after the last phase, and differences paired by run."""
    table = definition("sfda-parts")
    by_target = complete(table)
    if not by_target:
        return NOTHING
    grid, _ = phases_apart("", by_target, {row: parse_method(method).name for row, method in table.rows.items()})
    return replace(grid, notes=[*grid.notes, hardware(table)]).markdown()


def weighting() -> str:
    """One row per weighting: its gain over the uniform mean, averaged over targets and paired by initial network."""
    table = definition("sfda-parts")
    targets = complete(table)
    if len(targets) < 2:
        return NOTHING
    lines = []
    for row_index, row in enumerate(table.rows):
        if row == "uniform":
            continue
        cells = []
        for phase in ("before", "runs"):
            weighted, uniform = (_over_targets(targets, index, phase) for index in (row_index, UNIFORM))
            cells.append(difference_cell(paired_difference(weighted, uniform)))
        lines.append([f"{row} − uniform", *cells])
    count = len(_over_targets(targets, UNIFORM, "runs"))
    notes = [
        f"Points, mean over the targets {', '.join(targets)} of an initial network; Student's t interval at 95 % over",
        f"{count} initial networks, each with splits of its own. {hardware(table)}",
    ]
    return Table("", ("difference", "before the last phase", "after it"), lines, notes).markdown()


UNIFORM = 1
"""Index of the uniform mean among the rows of `sfda-parts`."""


def _over_targets(by_target: Mapping[str, Sequence[Row]], row_index: int, phase: str) -> dict[tuple[int, int], float]:
    """Mean over targets by run, for the runs that all targets have.

    Args:
        by_target: rows of a table by target.
        row_index: which of these rows.
        phase: attribute of `Row`: "before" the last phase, or "runs" after it.
    """
    means_by_run = [getattr(rows[row_index], phase) for rows in by_target.values()]
    return {
        run: statistics.fmean(means[run] for means in means_by_run)
        for run in means_by_run[0]
        if all(run in means for means in means_by_run)
    }


def accuracies(table_name: str) -> str:
    """One row per row of a published table, one column per target; beside our mean over these targets the paper's."""
    table = definition(table_name)
    by_target, printed = results(table), published_table(table_name, "digit_five")
    rows = [row for row in table.rows if any(row in target_rows for target_rows in by_target.values())]
    if len(rows) < len(table.rows) - 1 or printed is None:
        return NOTHING
    runs = set.intersection(*(set(row.runs) for target_rows in by_target.values() for row in target_rows.values()))
    by_target = {
        target: target_rows for target, target_rows in by_target.items() if sum(row in target_rows for row in rows) > 1
    }
    lines, reference = [], rows[-1]
    for row in rows:
        samples = {
            target: [target_rows[row].runs[run] for run in sorted(runs)]
            for target, target_rows in by_target.items()
            if row in target_rows
        }
        cells = [
            sample_cell(sample_of(samples[target])) if target in samples else Cell(MISSING) for target in by_target
        ]
        row_mean = statistics.fmean(value for values in samples.values() for value in values)
        printed_mean = statistics.fmean(printed.values[row, target][0] for target in by_target)
        if len(by_target) == len(ORDER):
            printed_mean = printed.values[row, AVERAGE][0]
        difference = Cell(MISSING)
        if len(samples) == len(by_target):
            means = [_mean_by_run(by_target, key, runs) for key in (row, reference)]
            difference = Cell("") if row == reference else difference_cell(paired_difference(*means))
        mean = mean_cell(row_mean if len(samples) == len(by_target) else math.nan)
        lines.append([row, *cells, mean, difference, mean_cell(printed_mean)])
    notes = [
        "Percent of the target's test images after the last phase, where there is one; mean ± std (ddof 1) over",
        f"n = {len(runs)} runs with initial networks and splits of their own. − {reference}: difference of means",
        "over these targets, paired by run, with Student's t interval at 95 %. Printed: the mean of these targets",
        f"in the paper, on other data. {hardware(table)}",
    ]
    return Table("", ("row", *by_target, "mean", f"− {reference}", "printed mean"), lines, notes).markdown()


def _mean_by_run(
    by_target: Mapping[str, Mapping[str, Row]], row: str, runs: Iterable[tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """Mean of a row over targets, by run."""
    return {run: statistics.fmean(target_rows[row].runs[run] for target_rows in by_target.values()) for run in runs}


BLOCKS: dict[str, Callable[[], str]] = {
    "sfda-parts": parts,
    "sfda-weighting": weighting,
    "sfda-table1": partial(accuracies, "sfda-table1"),
    "sfda-table2": partial(accuracies, "sfda-table2"),
}
