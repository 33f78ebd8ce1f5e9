"""Printing of results: tables, summaries and profiles."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.table import Table as TerminalTable

from fedwca.cli.shared_options import Format
from fedwca.cli.terminal import make_console, say
from fedwca.cli.wide_tables import draw_grid
from fedwca.core.plain_values import to_plain
from fedwca.core.printable import quote_path
from fedwca.errors import Diverged, FedwcaError
from fedwca.results.describe_run import trained_methods
from fedwca.results.diverged_runs import divergence_notes
from fedwca.results.last_phase_notes import last_phase_notes
from fedwca.results.phase_seconds import AT_CLIENTS, OF_FEW_METHODS, PHASES
from fedwca.results.read_run_files import read_configuration
from fedwca.results.tables import Table, comma_separated
from fedwca.runs.finished_run import FinishedRun


@contextmanager
def name_saved_results(clause: str) -> Iterator[None]:
    """Flush what is printed inside; if it cannot be written, the error says which results are saved.

    Args:
        clause: says in the error what is saved and where.

    Raises:
        FedwcaError: the output cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FedwcaError(f"the output cannot be written ({error.strerror or error}); {clause}") from None


def print_finished(finished: FinishedRun, as_json: bool, columns: Sequence[str]) -> None:
    """Print the JSON summary, or the table: method by target domain, mean ± std over runs, difference to FedAvg.

    Raises:
        FedwcaError: the output cannot be written; says where the results are saved.
        Diverged: runs diverged, and no run of a method that trains finished.
    """
    with name_saved_results(f"the run is whole, its results are in {finished.path}"):
        _print_results(finished, as_json, columns)
    trained = trained_methods(read_configuration(finished.path)["methods"])
    entries = [entry for name, entry in finished.summary["methods"].items() if name in trained]
    reasons = [divergence["why"] for entry in entries for divergence in entry.get("diverged", ())]
    check_not_all_diverged(sum(len(entry["runs"]) for entry in entries), reasons)


def _print_results(finished: FinishedRun, as_json: bool, columns: Sequence[str]) -> None:
    if as_json:
        say(json.dumps(finished.summary, indent=2))
        return
    console, summary = make_console(), finished.summary
    draw_grid(finished.results_table(narrow=True, columns=columns), console, bold="mean")
    labels = {name: entry["label"] for name, entry in summary["methods"].items()}
    for sentence in last_phase_notes(finished.records(), labels):
        console.print(f"{sentence}.", soft_wrap=True)
    for sentence in divergence_notes({row.label: row.diverged for row in finished.table}):
        console.print(f"{sentence}; no number of the table is of it.", soft_wrap=True)
    timing = summary["timing"]
    console.print(
        f"Ran {timing['run_seconds']:.0f} s after {timing['setup_seconds']:.0f} s of set-up. Results, configuration "
        f"and pictures: {finished.path}\nA page of it: fedwca report {quote_path(finished.path)}",
        soft_wrap=True,
    )


def check_not_all_diverged(finished: int, reasons: Sequence[str]) -> None:
    """Check that some run of some method finished, if any diverged.

    Args:
        finished: number of runs that did not diverge, of all methods that train.
        reasons: why each of the others diverged.

    Raises:
        Diverged: there are diverged runs and no finished ones; exit code 1.
    """
    if reasons and not finished:
        raise Diverged(f"every run of every method that trains diverged, the first because {reasons[0]}")


def print_profile(profile: Mapping[str, Any]) -> None:
    """Print seconds per round, with a row per method and a column per phase."""
    console = make_console()
    methods = profile["seconds"].values()
    phases = [phase for phase in PHASES if phase not in OF_FEW_METHODS or any(s.get(phase) for s in methods)]
    at_clients = ", ".join(phase for phase in phases if phase in AT_CLIENTS)
    grid = TerminalTable(title=f"Seconds a round; summed over clients: {at_clients}")
    for column in ("method", "round", *phases):
        grid.add_column(column, justify="left" if column == "method" else "right")
    for name, seconds in profile["seconds"].items():
        # A profile of an earlier release may lack a phase.
        seconds_per_round = (seconds.get(phase, 0.0) / seconds["rounds"] for phase in ("round", *phases))
        grid.add_row(name, *(f"{mean_seconds:.3f}" for mean_seconds in seconds_per_round))
    console.print(grid)
    if profile["trace"]:
        console.print(f"Trace of a round of {profile['of']}: {profile['trace']}, for chrome://tracing")


def print_in(form: Format, grid: Table, document: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    """Print a table in the given form: ``document`` as JSON, ``entries`` as CSV, else the grid."""
    match form:
        case Format.json:
            say(json.dumps(to_plain(document), indent=2))
        case Format.csv:
            say(comma_separated(to_plain(entries)))
        case Format.markdown:
            say(grid.markdown())
        case Format.latex:
            say(grid.latex())
        case Format.table:
            console = make_console()
            draw_grid(grid, console)
            for note in grid.notes:
                console.print(note, soft_wrap=True)
