"""Accuracy before and after the last phase, which the SFDA paper does not report separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedwca.results.diverged_runs import NOTE, Divergence, mark_divergence
from fedwca.results.statistics import paired_difference, sample_of
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, difference_cell, sample_cell

Runs = dict[tuple[str, int, int], float]
"""(target, initial network, trial) to the accuracy of a run, percent."""


def phases_apart(
    title: str, tables: Mapping[str, Sequence[Row]], rows: Mapping[str, str]
) -> tuple[Table, list[dict[str, Any]]]:
    """A line for each target and method: before and after the last phase, with differences paired by run; and entries.

    Args:
        title: of the table.
        tables: rows of the results by target; each method has a last phase.
        rows: row to method; the first is what the others are compared with.
    """
    runs_by_row = {row: _runs(tables, method) for row, method in rows.items()}
    first = next(iter(rows))
    lines, entries = [], []
    for target in [*tables, *([None] if len(tables) > 1 else [])]:
        reference = _part(runs_by_row[first], target)
        for row in rows:
            before, after = _part(runs_by_row[row], target)
            differences = [
                paired_difference(ours, reference_runs)
                for ours, reference_runs in zip((before, after), reference, strict=True)
            ]
            gain = paired_difference(after, before)
            samples = [sample_of(list(values.values())) for values in (before, after)]
            compared = ["", ""] if row == first else [difference_cell(difference) for difference in differences]
            diverged = _diverged(tables, rows[row], target)
            head = f"{target or 'all'}: {row}{mark_divergence(diverged, len(diverged) + len(after))}"
            lines.append([head, *map(sample_cell, samples), difference_cell(gain), *compared, str(samples[1].n)])
            entries.append(
                {
                    "target": target or "all",
                    "row": row,
                    "before": asdict(samples[0]),
                    "after": asdict(samples[1]),
                    "gain": asdict(gain) if gain else None,
                    "ahead_before": asdict(differences[0]) if differences[0] and row != first else None,
                    "diverged": len(diverged),
                    "ahead_after": asdict(differences[1]) if differences[1] and row != first else None,
                }
            )
    columns = ("target: row", "before", "after", "after − before", f"before − {first}", f"after − {first}", "n")
    notes = [
        "Before and after the last phase: mean ± std (ddof 1) of the runs, percent of the target's test images.",
        "Differences are paired by run, in points, with Student's t interval at 95 %.",
        *([NOTE] if any(row.diverged for table in tables.values() for row in table) else []),
        *(
            ["all: over all runs of all targets named here; runs of one initial network are not independent."]
            * (len(tables) > 1)
        ),
        f"Differences to {first} are those of the column's phase. The paper prints nothing of this.",
    ]
    return Table(title, columns, lines, notes), entries


def _runs(tables: Mapping[str, Sequence[Row]], method: str) -> tuple[Runs, Runs]:
    row_by_target = {target: row for target, table in tables.items() for row in table if row.name == method}
    before = {(target, *trial): value for target, row in row_by_target.items() for trial, value in row.before.items()}
    after = {(target, *trial): value for target, row in row_by_target.items() for trial, value in row.runs.items()}
    return before, after


def _diverged(tables: Mapping[str, Sequence[Row]], method: str, target: str | None) -> list[Divergence]:
    """Runs of a method that diverged, for one target; None: for all."""
    rows = [row for name, table in tables.items() if target in (None, name) for row in table if row.name == method]
    return [divergence for row in rows for divergence in row.diverged.values()]


def _part(runs: tuple[Runs, Runs], target: str | None) -> tuple[Runs, Runs]:
    before, after = ({run: accuracy for run, accuracy in phase.items() if target in (None, run[0])} for phase in runs)
    return before, after
