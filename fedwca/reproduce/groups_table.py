"""Accuracies of clients that train and of groups of new clients, beside the published numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedwca.data.labelled_clients import NEW, TRAINING
from fedwca.reproduce.side_by_side import NOTHING, Values, compare_cells
from fedwca.results.diverged_runs import NOTE
from fedwca.results.statistics import paired_difference, sample_of
from fedwca.results.table_rows import Row
from fedwca.results.tables import Table, difference_cell, sample_cell
from fedwca.results.trial_key import TrialKey


def groups_beside(
    title: str, table: Sequence[Row], rows: Mapping[str, str], values: Values, citation: str
) -> tuple[Table, list[dict[str, Any]]]:
    """A line for each group and row: ours, published, their difference, and that to the first row, paired by run.

    All values are of the round that validation images choose. Returns the table and its entries.

    Args:
        title: of the table.
        table: rows of our results.
        rows: row to method.
        values: (row, group) to what is published.
        citation: paper and table of the values; empty where there are none.
    """
    results = {row.name: row for row in table}
    groups = list(dict.fromkeys(group for row in table if row.runs for group in row.domains))
    shown_groups = [TRAINING, *groups, *([NEW] if len(groups) > 1 else [])]
    first, compared = next(iter(rows)), len(rows) > 1
    lines, entries = [], []
    for group in shown_groups:
        reference = _runs(results[rows[first]], group)
        for row, method in rows.items():
            runs = _runs(results[method], group)
            ours = sample_of(list(runs.values()))
            printed = values.get((row, group))
            published = compare_cells(ours, printed) if values else []
            difference = None if row == first else paired_difference(runs, reference)
            paired = [difference_cell(difference) if row != first else ""] if compared else []
            lines.append(
                [f"{group}: {row}{results[method].mark}", sample_cell(ours, 2), *paired, *published, str(ours.n)]
            )
            mean, std = printed or (None, None)
            entries.append(
                {
                    "group": group,
                    "row": row,
                    **asdict(ours),
                    "diverged": len(results[method].diverged),
                    "ahead": asdict(difference) if difference else None,
                    "published": mean,
                    "published_std": std,
                }
            )
    notes = [
        "Mean ± std (ddof 1) of the runs, percent, in the round that was best on training clients' validation images.",
        *([f"− {first}: paired by run, points, with Student's t interval at 95 %."] if compared else []),
        *(["Difference: ours − published, points."] if values else []),
        *([NOTE] if any(row.diverged for row in table) else []),
        *([f"{NEW}: over all groups of them."] if len(groups) > 1 else []),
        f"Published: {citation}." if values else NOTHING,
    ]
    published_columns = ("published", "difference") if values else ()
    columns = ("clients: row", "ours", *([f"− {first}"] * compared), *published_columns, "n")
    return Table(title, columns, lines, notes), entries


def _runs(row: Row, group: str) -> Mapping[TrialKey, float]:
    """Trial means of a row by run: of clients that train, of all new clients, or of a group of these."""
    if group == TRAINING:
        return row.validation
    return dict(zip(row.runs, row.domains[group], strict=True)) if group in row.domains else row.runs
