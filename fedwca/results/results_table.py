"""The results table of the terminal, reports and documentation; all its columns are defined here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedwca.core.check_several import check_list
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.results.class_scores import name_class
from fedwca.results.tables import MISSING, Cell, Table, mean_cell

if TYPE_CHECKING:
    from fedwca.results.read_run import Run

Entry = Mapping[str, Any]
"""A method's results, as in ``summary.json``, with its ``seconds`` per run if they are known."""


@dataclass(frozen=True)
class ResultColumn:
    """One column of numbers: its heading, and the function that makes a method's cell."""

    heading: str
    cell: Callable[[Entry], Cell]
    narrow: bool = True
    """Whether it is shown in a terminal too."""
    known: Callable[[Entry], bool] = lambda entry: True
    """Whether a method has a value in it; the column is left out if no method has."""
    leads: bool = False
    """Whether it comes before the domains."""


def _to_fedavg(entry: Entry) -> Cell:
    difference = entry.get("difference")
    return mean_cell(difference["mean"], difference["std"], sign="+") if difference else Cell("")


def _seconds(entry: Entry) -> Cell:
    seconds = entry.get("seconds")
    return Cell(MISSING if seconds is None else f"{seconds:.0f}", seconds)


def _mean_of(name: str, digits: int = 1) -> Callable[[Entry], Cell]:
    """A function that makes the cell of a mean that some methods do not have."""

    def cell(entry: Entry) -> Cell:
        statistics = entry.get(name)
        return mean_cell(statistics["mean"], statistics["std"], digits) if statistics else Cell("")

    return cell


DIFFERENCE = ResultColumn("to FedAvg", _to_fedavg, known=lambda entry: "difference" in entry)
COLUMNS = (
    ResultColumn("training clients", _mean_of("validation"), known=lambda entry: "validation" in entry, leads=True),
    ResultColumn("before last phase", _mean_of("before"), known=lambda entry: "before" in entry),
    ResultColumn(
        "mean",
        lambda entry: mean_cell(entry["mean"], entry["std"]),
        known=lambda entry: entry["n"] > 0 and ("validation" not in entry or len(entry["domains"]) > 1),
    ),
    DIFFERENCE,
    ResultColumn("round", _mean_of("round", 0), known=lambda entry: "round" in entry),
    ResultColumn("runs", lambda entry: Cell(str(entry["n"]), entry["n"]), narrow=False),
    ResultColumn("seconds", _seconds, narrow=False),
)
"""The columns around the target domains; a new column is added here."""


def columns_for(runs: Iterable[Run]) -> list[ResultColumn]:
    """`COLUMNS`, where the difference is to the reference by its label, if it is the same in all runs.

    A composed method that is named after its aggregator may have taken FedAvg's place.
    """
    labels = {
        run.methods[entry["difference"]["to"]]["label"]  # without a mark of diverged runs
        for run in runs
        for entry in run.results.values()
        if "difference" in entry
    }
    label = labels.pop() if len(labels) == 1 else None
    named = replace(DIFFERENCE, heading=f"to {label}") if label else DIFFERENCE
    return [named if column is DIFFERENCE else column for column in COLUMNS]


ON_REQUEST = {
    "f1": "macro F1",
    "worst": "worst client",
    "client_std": "std over clients",
    "calibration_error": "calibration error",
}
"""Headings of the columns that are shown on request only, by their names in `summarise`."""
CLASS_ACCURACY = "class_accuracy"
"""Name that requests one column per class."""


def check_columns(names: Iterable[str], available: Sequence[str] = (*ON_REQUEST, CLASS_ACCURACY)) -> list[str]:
    """Canonical names of requested columns, without duplicates.

    Raises:
        UsageError: there is no such column, or the names are a single word.
    """
    requested = list(dict.fromkeys(map(canonical_name, check_list("columns", names))))
    for name in requested:
        if name not in available:
            raise UsageError(f"--column {name}: {describe_unknown('column', name, available)}")
    return requested


def requested_columns(names: Iterable[str], classes: Sequence[str], entries: Iterable[Entry]) -> list[ResultColumn]:
    """The requested columns, in the order of their names.

    Args:
        names: names in `ON_REQUEST`, or `CLASS_ACCURACY`.
        classes: class names of the data set, as far as they are known.
        entries: results of the methods, which determine the classes.

    Raises:
        UsageError: there is no such column.
    """
    labels = sorted({int(label) for entry in entries for label in entry.get(CLASS_ACCURACY, ())})
    columns = []
    for name in check_columns(names):
        columns += [_of_class(label, classes) for label in labels] if name == CLASS_ACCURACY else [_named(name)]
    return columns


def _named(name: str) -> ResultColumn:
    return ResultColumn(ON_REQUEST[name], _mean_of(name), known=lambda entry: bool(entry.get(name)))


def _of_class(label: int, classes: Sequence[str]) -> ResultColumn:
    heading = f"class {name_class(label, classes)}"
    return ResultColumn(heading, lambda entry: mean_cell(entry.get(CLASS_ACCURACY, {}).get(str(label))))


def results_table(
    title: str,
    entries: Sequence[tuple[Sequence[str], Entry]],
    heads: Sequence[str] = ("method",),
    columns: Iterable[ResultColumn] = COLUMNS,
) -> Table:
    """A row per method: accuracy by target domain, or by group of new clients, and further columns.

    Args:
        title: title of the table.
        entries: cells of the first columns, and the results of each method.
        heads: headings of the first columns.
        columns: columns before and after the target domains.
    """
    domains = list(dict.fromkeys(domain for _, entry in entries for domain in entry["domains"]))
    shown = [column for column in columns if any(column.known(entry) for _, entry in entries)]
    leading, trailing = [c for c in shown if c.leads], [c for c in shown if not c.leads]
    rows = []
    for row_heads, entry in entries:
        by_domain = [mean_cell(entry["domains"].get(d), entry["domain_stds"].get(d)) for d in domains]
        leading_cells, trailing_cells = ([column.cell(entry) for column in group] for group in (leading, trailing))
        rows.append([*row_heads, *leading_cells, *by_domain, *trailing_cells])
    headings = (*heads, *(c.heading for c in leading), *domains, *(c.heading for c in trailing))
    return Table(title, headings, rows, heads=len(heads))
