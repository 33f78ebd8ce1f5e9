"""What `fedwca bench` prints: where values came from before, the table after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedwca.experiments.request import Plan, provenance
from fedwca.results.summary import Row


def print_plan(decided: Plan, dataset: Any, source: str, device: str, folder: Path) -> None:
    """What will run, on what, and where each value that was set came from."""
    console = Console()
    config = decided.config
    targets = [name for name in dataset.domains if name != source]

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    say(f"{dataset.name}: source {source}; targets {', '.join(targets)}; {config.clients} clients each; on {device}")
    say("Methods: " + ", ".join(f"{method.label} ({method.name})" for method, _ in decided.methods))
    for origin, values in provenance(decided).items():
        say(f"From {origin}: {'; '.join(values)}")
    say(f"Everything else is a field's default, written out in {folder / 'config.json'}")


def print_table(decided: Plan, table: Sequence[Row], name: str, summary: dict[str, Any], folder: Path) -> None:
    """A row per method, a column per target domain, mean ± std over runs, the difference to FedAvg."""
    console = Console()
    config = decided.config
    runs = config.source_models * config.trials
    spread = f"mean ± std (ddof 1) over n = {runs} runs" if runs > 1 else "n = 1 run, so there is no spread"
    grid = Table(title=f"{name}, source {config.source}: accuracy in percent after the last round, {spread}")
    grid.add_column("method")
    for domain in table[0].domains if table else ():
        grid.add_column(domain, justify="right")
    grid.add_column("mean", justify="right", style="bold")
    grid.add_column("to FedAvg", justify="right")
    for row in table:
        entry = summary["methods"][row.name]
        cells = [_cell(entry["domains"][domain], entry["domain_stds"][domain]) for domain in row.domains]
        difference = entry.get("difference")
        paired = _cell(difference["mean"], difference["std"], "+") if difference else ""
        grid.add_row(row.label, *cells, _cell(entry["mean"], entry["std"]), paired)
    console.print(grid)
    timing = summary["timing"]
    console.print(
        f"Ran {timing['run_seconds']:.0f} s after {timing['setup_seconds']:.0f} s of set-up. Results, configuration "
        f"and pictures: {folder}",
        markup=False,
        soft_wrap=True,
    )


def _cell(value: float | None, std: float | None, sign: str = "") -> str:
    """A mean with its spread, where there is one."""
    if value is None:
        return "–"
    return f"{value:{sign}.1f}" + ("" if std is None else f" ± {std:.1f}")
