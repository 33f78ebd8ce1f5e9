"""The results table, for the terminal, reports and documentation: its columns are listed here alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name
from fedwca.results.class_scores import name_class
from fedwca.results.tables import MISSING, Cell, Table, mean_cell

Entry = Mapping[str, Any]
"""A method's results, as in ``summary.json``, with its ``seconds`` a run where they are known."""


@dataclass(frozen=True)
class ResultColumn:
    """One column of numbers: its heading, and a method's cell in it."""

    heading: str
    cell: Callable[[Entry], Cell]
    narrow: bool = True
    """Whether a terminal shows it as well."""
    known: Callable[[Entry], bool] = lambda entry: True
    """Whether a method has something to show in it; the column is left out where none has."""
    leads: bool = False
    """Whether it stands before the domains."""


def _to_fedavg(entry: Entry) -> Cell:
    difference = entry.get("difference")
    return mean_cell(difference["mean"], difference["std"], sign="+") if difference else Cell("")


def _seconds(entry: Entry) -> Cell:
    seconds = entry.get("seconds")
    return Cell(MISSING if seconds is None else f"{seconds:.0f}", seconds)


def _mean_of(name: str, digits: int = 1) -> Callable[[Entry], Cell]:
    """The cell of a mean that not every method has."""

    def cell(entry: Entry) -> Cell:
        found = entry.get(name)
        return mean_cell(found["mean"], found["std"], digits) if found else Cell("")

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
"""What stands behind a method's name and its target domains; another column is another line here."""


ON_REQUEST = {
    "f1": "macro F1",
    "worst": "worst client",
    "client_std": "std over clients",
    "calibration_error": "calibration error",
}
"""Columns that stand in a table when they are asked for: their headings, by their names in `summarise`."""
CLASS_ACCURACY = "class_accuracy"
"""Asks for a column a class."""


def check_columns(names: Iterable[str], known: Sequence[str] = (*ON_REQUEST, CLASS_ACCURACY)) -> list[str]:
    """Names that ask for columns, each once.

    Raises:
        UsageError: there is no such column.
    """
    asked = list(dict.fromkeys(map(canonical_name, names)))
    for name in asked:
        if name not in known:
            raise UsageError(f"--column {name}: {describe_unknown('column', name, known)}")
    return asked


def requested_columns(names: Iterable[str], classes: Sequence[str], entries: Iterable[Entry]) -> list[ResultColumn]:
    """Columns by the names that ask for them.

    Args:
        names: of `ON_REQUEST`, and `CLASS_ACCURACY`.
        classes: what the data set calls them; fewer where that is not known.
        entries: methods' results, which say what classes there are.

    Raises:
        UsageError: there is no such column.
    """
    labels = sorted({int(label) for entry in entries for label in entry.get(CLASS_ACCURACY, ())})
    found = []
    for name in check_columns(names):
        found += [_of_class(c, classes) for c in labels] if name == CLASS_ACCURACY else [_named(name)]
    return found


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
    """A row for each method: its accuracy by target domain, or group of new clients, among `COLUMNS`.

    Args:
        title: of the table.
        entries: what the first columns hold, and the method's results.
        heads: names of the first columns.
        columns: what stands around the target domains.
    """
    domains = list(dict.fromkeys(domain for _, entry in entries for domain in entry["domains"]))
    shown = [column for column in columns if any(column.known(entry) for _, entry in entries)]
    lead, behind = [c for c in shown if c.leads], [c for c in shown if not c.leads]
    rows = []
    for named, entry in entries:
        by_domain = [mean_cell(entry["domains"].get(d), entry["domain_stds"].get(d)) for d in domains]
        before, after = ([column.cell(entry) for column in some] for some in (lead, behind))
        rows.append([*named, *before, *by_domain, *after])
    headings = (*heads, *(c.heading for c in lead), *domains, *(c.heading for c in behind))
    return Table(title, headings, rows, heads=len(heads))


def narrow_columns() -> list[ResultColumn]:
    """`COLUMNS` without those that a terminal leaves out."""
    return [column for column in COLUMNS if column.narrow]
