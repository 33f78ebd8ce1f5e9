"""What commands print: where values came from before, tables after."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

import typer
from rich.console import Console
from rich.table import Table as TerminalTable

from fedwca.cli.options import Format
from fedwca.cli.wide_tables import draw_grid
from fedwca.config.resolve_config import provenance
from fedwca.errors import FedwcaError
from fedwca.results.profile import PHASES
from fedwca.results.read_run import count_of
from fedwca.results.results_table import narrow_columns, results_table
from fedwca.results.tables import Table, comma_separated
from fedwca.results.write_run import to_plain
from fedwca.runs.execute_run import FinishedRun
from fedwca.runs.reporter import PlannedRun


def print_plan(run: PlannedRun) -> None:
    """What will run, on what, and where each value that was set came from."""
    console, plan, dataset = Console(), run.plan, run.dataset
    targets = [name for name in dataset.domains if name != run.source]

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    each = count_of(plan.config.clients, "client")
    say(f"{dataset.name}: source {run.source}; targets {', '.join(targets)}; {each} each; on {run.device}")
    say("Methods: " + ", ".join(f"{method.label} ({method.name})" for method, _ in plan.methods))
    for origin, values in provenance(plan).items():
        say(f"From {origin}: {'; '.join(values)}")
    say(f"Memory: {run.memory}")
    if run.kernels:
        say(f"Kernels: {run.kernels}")
    say(f"Everything else is a field's default, written out in {run.folder / 'config.json'}")


def print_finished(done: FinishedRun, as_json: bool) -> None:
    """The JSON summary, or a row per method, a column per target domain, mean ± std over runs, to FedAvg.

    Raises:
        FedwcaError: the output cannot be written; says where the results are.
    """
    try:
        _print_results(done, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise FedwcaError(
            f"the output cannot be written ({why}); the run is whole, its results are in {done.path}"
        ) from None


def _print_results(done: FinishedRun, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(done.summary, indent=2))
        return
    console, config, summary = Console(), done.config, done.summary
    runs = config.source_models * config.trials
    spread = f"mean ± std (ddof 1) over n = {runs} runs" if runs > 1 else "n = 1 run, so there is no spread"
    title = f"{done.dataset}, source {config.source}: accuracy in percent after the last round, {spread}"
    entries = [((entry["label"],), entry) for entry in summary["methods"].values()]
    draw_grid(results_table(title, entries, columns=narrow_columns()), console, bold="mean")
    timing = summary["timing"]
    console.print(
        f"Ran {timing['run_seconds']:.0f} s after {timing['setup_seconds']:.0f} s of set-up. Results, configuration "
        f"and pictures: {done.path}\nA page of it: fedwca report {quote(str(done.path))}",
        markup=False,
        soft_wrap=True,
    )


def print_profile(profile: Mapping[str, Any]) -> None:
    """A row per method, a column per phase, seconds a round."""
    console = Console()
    grid = TerminalTable(title="Seconds a round; evidence, label and train are summed over clients")
    for column in ("method", "round", *PHASES):
        grid.add_column(column, justify="left" if column == "method" else "right")
    for name, seconds in profile["seconds"].items():
        each = (seconds[phase] / seconds["rounds"] for phase in ("round", *PHASES))
        grid.add_row(name, *(f"{value:.3f}" for value in each))
    console.print(grid)
    if profile["trace"]:
        console.print(f"Trace of a round of {profile['of']}: {profile['trace']}, for chrome://tracing", markup=False)


def print_in(form: Format, grid: Table, whole: Any, entries: Sequence[Mapping[str, Any]]) -> None:
    """A table in the form that was asked for: ``whole`` as JSON, ``entries`` as CSV, else the grid."""
    match form:
        case Format.json:
            typer.echo(json.dumps(to_plain(whole), indent=2))
        case Format.csv:
            typer.echo(comma_separated(to_plain(entries)))
        case Format.markdown:
            typer.echo(grid.markdown())
        case Format.latex:
            typer.echo(grid.latex())
        case Format.table:
            console = Console()
            draw_grid(grid, console)
            for note in grid.notes:
                console.print(note, markup=False, soft_wrap=True)
