"""What commands print: where values came from before, tables after."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import typer
from rich.console import Console

from fedwca.cli.options import Format
from fedwca.cli.wide_tables import draw_grid
from fedwca.config.layers import RunPlan, provenance
from fedwca.results.results_table import narrow_columns, results_table
from fedwca.results.run import count_of
from fedwca.results.run_folder import to_plain
from fedwca.results.summary import Row
from fedwca.results.tables import Table, comma_separated


def print_plan(
    decided: RunPlan, dataset: Any, source: str, device: str, folder: Path, memory: str, kernels: str = ""
) -> None:
    """What will run, on what, and where each value that was set came from."""
    console = Console()
    config = decided.config
    targets = [name for name in dataset.domains if name != source]

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    each = count_of(config.clients, "client")
    say(f"{dataset.name}: source {source}; targets {', '.join(targets)}; {each} each; on {device}")
    say("Methods: " + ", ".join(f"{method.label} ({method.name})" for method, _ in decided.methods))
    for origin, values in provenance(decided).items():
        say(f"From {origin}: {'; '.join(values)}")
    say(f"Memory: {memory}")
    if kernels:
        say(f"Kernels: {kernels}")
    say(f"Everything else is a field's default, written out in {folder / 'config.json'}")


def print_table(decided: RunPlan, table: Sequence[Row], name: str, summary: dict[str, Any], folder: Path) -> None:
    """A row per method, a column per target domain, mean ± std over runs, the difference to FedAvg."""
    console = Console()
    config = decided.config
    runs = config.source_models * config.trials
    spread = f"mean ± std (ddof 1) over n = {runs} runs" if runs > 1 else "n = 1 run, so there is no spread"
    title = f"{name}, source {config.source}: accuracy in percent after the last round, {spread}"
    entries = [((row.label,), summary["methods"][row.name]) for row in table]
    draw_grid(results_table(title, entries, columns=narrow_columns()), console, bold="mean")
    timing = summary["timing"]
    console.print(
        f"Ran {timing['run_seconds']:.0f} s after {timing['setup_seconds']:.0f} s of set-up. Results, configuration "
        f"and pictures: {folder}\nA page of it: fedwca report {quote(str(folder))}",
        markup=False,
        soft_wrap=True,
    )


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
