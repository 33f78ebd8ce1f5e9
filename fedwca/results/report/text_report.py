"""The summary table of runs, and a Markdown or LaTeX document with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedwca.core.printable import printable
from fedwca.results.describe_run import describe_single_run, shown_round
from fedwca.results.read_run import Run, run_notes
from fedwca.results.results_table import columns_for, requested_columns, results_table
from fedwca.results.tables import Table, escape_markdown


def summary_table(runs: Sequence[Run], names: Sequence[str], columns: Sequence[str] = ()) -> Table:
    """A row per run and method: accuracy by target domain and their mean, difference to FedAvg, seconds per run.

    Args:
        runs: the runs, in order.
        names: display name of each run; left out of the table if there is only one run.
        columns: names of further columns, see `fedwca.results.results_table.requested_columns`.

    Raises:
        UsageError: there is no such column.
    """
    several = len(runs) > 1
    entries = [
        ((run_name, str(entry["label"]))[not several :], {**entry, "seconds": run.seconds(method)})
        for run, run_name in zip(runs, names, strict=True)
        for method, entry in run.results.items()
    ]
    measured = max((entry["n"] for _, entry in entries), default=0)
    spread = describe_single_run(measured)
    if measured > 1:
        spread = "mean ± standard deviation (ddof 1) over runs"
    last = "last round" if all(run.complete for run in runs) else "last round that was run"
    selected_round_flags = {"round" in entry for _, entry in entries}
    round_text = shown_round(selected_round_flags == {True}, last)
    if len(selected_round_flags) > 1:
        round_text = f"{round_text}, with new clients {shown_round(True)}"
    title = f"Test accuracy in percent {round_text}, {spread}"
    classes = runs[0].classes if len({run.classes for run in runs}) == 1 else ()
    extra_columns = requested_columns(columns, classes, [entry for _, entry in entries])
    columns_shown = [*columns_for(runs), *extra_columns]
    return results_table(title, entries, ("run", "method") if several else ("method",), columns_shown)


def document(runs: Sequence[Run], names: Sequence[str], latex: bool = False, columns: Sequence[str] = ()) -> str:
    """One line per run and the summary table, as Markdown or LaTeX; ``columns`` as in `summary_table`."""
    table, lines = summary_table(runs, names, columns), titles(runs, names)
    for index, run in enumerate(runs):
        lines[index] += "".join(f"; {heading}: {value}" for heading, value in run_notes(run).items())
    if latex:
        return "".join(f"% {printable(' '.join(text.split()))}\n" for text in lines) + "\n" + table.latex() + "\n"
    table = replace(table, title="", notes=(table.title + ".",))
    return "".join(escape_markdown(text) + "\n\n" for text in lines) + table.markdown() + "\n"


def titles(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """The title of each run, preceded by its name if there are several."""
    return [run.title if len(runs) == 1 else f"{name}: {run.title}" for run, name in zip(runs, names, strict=True)]
