"""Accuracy before and after the last phase, which the SFDA paper does not report separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from fedwca.results.comparison import Comparison
from fedwca.results.diverged_runs import NOTE
from fedwca.results.statistics import paired_difference
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, difference_cell, sample_cell


def phases_apart(
    title: str, tables: Mapping[str, Sequence[Row]], rows: Mapping[str, str]
) -> tuple[Table, list[dict[str, Any]]]:
    """A line for each target and method: before and after the last phase, with differences paired by run; and entries.

    Args:
        title: of the table.
        tables: rows of the results by target; each method has a last phase.
        rows: row to method; the first is what the others are compared with.
    """
    first, reference = next(iter(rows.items()))
    before_rows = {target: [replace(row, runs=row.before) for row in table] for target, table in tables.items()}
    before, after = (Comparison.of(title, by_target, reference, "target") for by_target in (before_rows, tables))
    lines, entries = [], []
    for target in [*tables, *([None] if len(tables) > 1 else [])]:
        for row, method in rows.items():
            differences = [phase.difference(method, target) for phase in (before, after)]
            gain = paired_difference(after.part(method, target), before.part(method, target))
            samples = [phase.sample(method, target) for phase in (before, after)]
            head = f"{target or 'all'}: {row}{after.mark(method, target)}"
            cells = [difference_cell(difference) for difference in (gain, *differences)]
            lines.append([head, *map(sample_cell, samples), *cells, str(samples[1].n)])
            entries.append(
                {
                    "target": target or "all",
                    "row": row,
                    "before": asdict(samples[0]),
                    "after": asdict(samples[1]),
                    "gain": asdict(gain) if gain else None,
                    "ahead_before": asdict(differences[0]) if differences[0] else None,
                    "diverged": len(after.diverged_part(method, target)),
                    "ahead_after": asdict(differences[1]) if differences[1] else None,
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
