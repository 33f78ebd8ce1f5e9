"""What commands print at their end: tables, summaries and profiles."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import Any

from rich.table import Table as TerminalTable

from fedwca.cli.shared_options import Format
from fedwca.cli.terminal import make_console, say
from fedwca.cli.wide_tables import draw_grid
from fedwca.core.plain_values import to_plain
from fedwca.errors import Diverged, FedwcaError
from fedwca.results.describe_run import trained_methods
from fedwca.results.diverged_runs import divergence_notes
from fedwca.results.last_phase_notes import last_phase_notes
from fedwca.results.phase_seconds import PHASES
from fedwca.results.read_run_files import read_configuration
from fedwca.results.tables import Table, comma_separated
from fedwca.runs.finished_run import FinishedRun


@contextmanager
def saying_what_is_kept(kept: str) -> Iterator[None]:
    """Print inside, to the end; work that is done is not lost where its output cannot be written.

    Args:
        kept: what there is, and where; a clause for the error.

    Raises:
        FedwcaError: the output cannot be written.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FedwcaError(f"the output cannot be written ({error.strerror or error}); {kept}") from None


def print_finished(done: FinishedRun, as_json: bool, columns: Sequence[str] = ()) -> None:
    """The JSON summary, or a row per method, a column per target domain, mean ± std over runs, to FedAvg.

    Raises:
        FedwcaError: the output cannot be written; says where the results are.
        Diverged: no method that trains has a run that came to its end.
    """
    with saying_what_is_kept(f"the run is whole, its results are in {done.path}"):
        _print_results(done, as_json, columns)
    trained = trained_methods(read_configuration(done.path)["methods"])
    rows = [row for row in done.table if row.name in trained]
    check_not_all_diverged([row.runs for row in rows], [row.diverged for row in rows])


def _print_results(done: FinishedRun, as_json: bool, columns: Sequence[str]) -> None:
    if as_json:
        say(json.dumps(done.summary, indent=2))
        return
    console, summary = make_console(), done.summary
    draw_grid(done.results_table(narrow=True, columns=columns), console, bold="mean")
    labels = {name: entry["label"] for name, entry in summary["methods"].items()}
    for sentence in last_phase_notes(done.records(), labels):
        console.print(f"{sentence}.", soft_wrap=True)
    for sentence in divergence_notes({row.label: row.diverged for row in done.table}):
        console.print(f"{sentence}; no number of the table is of it.", soft_wrap=True)
    timing = summary["timing"]
    console.print(
        f"Ran {timing['run_seconds']:.0f} s after {timing['setup_seconds']:.0f} s of set-up. Results, configuration "
        f"and pictures: {done.path}\nA page of it: fedwca report {quote(str(done.path))}",
        soft_wrap=True,
    )


def check_not_all_diverged(runs: Iterable[Mapping[Any, Any]], diverged: Iterable[Mapping[Any, Any]]) -> None:
    """End with exit code 1 where nothing else is there.

    Args:
        runs: of each method, those that came to their end.
        diverged: of each method, those that did not.

    Raises:
        Diverged: there are only such.
    """
    if any(diverged) and not any(runs):
        raise Diverged("every run of every method that trains diverged; a lower --lr may help")


def print_profile(profile: Mapping[str, Any]) -> None:
    """A row per method, a column per phase, seconds a round."""
    console = make_console()
    grid = TerminalTable(title="Seconds a round; evidence, label and train are summed over clients")
    for column in ("method", "round", *PHASES):
        grid.add_column(column, justify="left" if column == "method" else "right")
    for name, seconds in profile["seconds"].items():
        each = (seconds[phase] / seconds["rounds"] for phase in ("round", *PHASES))
        grid.add_row(name, *(f"{value:.3f}" for value in each))
    console.print(grid)
    if profile["trace"]:
        console.print(f"Trace of a round of {profile['of']}: {profile['trace']}, for chrome://tracing")


def print_in(form: Format, grid: Table, whole: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    """A table in the form that was asked for: ``whole`` as JSON, ``entries`` as CSV, else the grid."""
    match form:
        case Format.json:
            say(json.dumps(to_plain(whole), indent=2))
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
