"""The summary table of runs, and a document of it in Markdown or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedwca.core.printable import printable
from fedwca.results.describe_run import shown_round
from fedwca.results.read_run import Run, began_with
from fedwca.results.results_table import COLUMNS, requested_columns, results_table
from fedwca.results.tables import Table, escape_markdown


def summary_table(runs: Sequence[Run], names: Sequence[str], columns: Sequence[str] = ()) -> Table:
    """A row for each run and method: accuracy by target domain and their mean, difference to FedAvg, seconds a run.

    Args:
        runs: in order.
        names: what to call them; left out of the table where there is one.
        columns: names of more, see `fedwca.results.results_table.requested_columns`.

    Raises:
        UsageError: there is no such column.
    """
    several = len(runs) > 1
    entries = [
        ((called, str(entry["label"]))[not several :], {**entry, "seconds": run.seconds(name)})
        for run, called in zip(runs, names, strict=True)
        for name, entry in run.results.items()
    ]
    spread = "one run, so no spread"
    if any(entry["n"] > 1 for _, entry in entries):
        spread = "mean ± standard deviation (ddof 1) over runs"
    last = "last round" if all(run.complete for run in runs) else "last round that was run"
    chosen = {"round" in entry for _, entry in entries}
    shown = shown_round(chosen == {True}, last)
    if len(chosen) > 1:
        shown = f"{shown}, with new clients {shown_round(True)}"
    title = f"Test accuracy in percent {shown}, {spread}"
    classes = runs[0].classes if len({run.classes for run in runs}) == 1 else ()
    more = requested_columns(columns, classes, [entry for _, entry in entries])
    return results_table(title, entries, ("run", "method") if several else ("method",), [*COLUMNS, *more])


def document(runs: Sequence[Run], names: Sequence[str], latex: bool = False, columns: Sequence[str] = ()) -> str:
    """The summary table under a line for each run, as Markdown or LaTeX; ``columns`` as of `summary_table`."""
    table, about = summary_table(runs, names, columns), titles(runs, names)
    for index, run in enumerate(runs):
        about[index] += "".join(f"; {what}: {said}" for what, said in began_with(run).items())
    if latex:
        return "".join(f"% {printable(' '.join(text.split()))}\n" for text in about) + "\n" + table.latex() + "\n"
    table = replace(table, title="", notes=(table.title + ".",))
    return "".join(escape_markdown(text) + "\n\n" for text in about) + table.markdown() + "\n"


def titles(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """What was run, a line a run."""
    return [run.title if len(runs) == 1 else f"{name}: {run.title}" for run, name in zip(runs, names, strict=True)]
