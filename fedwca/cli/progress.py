"""A bench on a terminal: rounds, clients per second, time left, accuracy so far; quiet when nobody watches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from fedwca.experiments.bench import Progress
from fedwca.experiments.request import Plan


@contextmanager
def watching(decided: Plan, quiet: bool) -> Iterator[Progress]:
    """Progress bars on stderr while inside; only warnings if ``quiet`` or stderr is not a terminal."""
    console = Console(stderr=True)

    def warn(message: str) -> None:
        typer.echo(f"Warning: {message}", err=True)

    if quiet or not console.is_terminal:
        yield Progress(warn=warn)
        return
    bars = Bars(
        TextColumn("{task.description:<28}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
    with bars:
        yield _Bars(bars, decided, console).hooks()


class _Bars:
    """One bar for the whole run, one for what is going on now."""

    def __init__(self, bars: Bars, decided: Plan, console: Console) -> None:
        config = decided.config
        runs = config.source_models * config.trials
        self.bars, self.console, self.rounds_left = bars, console, runs * sum(rounds for _, rounds in decided.methods)
        self.all = bars.add_task("all rounds", total=self.rounds_left, note="")
        epochs = config.source_models * config.source_training.epochs
        self.source = bars.add_task("source model", total=epochs, note="", visible=False)
        self.now = bars.add_task("", total=1, note="", visible=False)
        self.clients = 0

    def hooks(self) -> Progress:
        return Progress(self.on_source, self.on_begin, self.on_client, self.on_round, self.on_warn)

    def on_source(self, epoch: int, epochs: int, accuracy: float) -> None:
        self.bars.update(self.source, completed=epoch, note=f"{accuracy:.1f} % at home", visible=True)

    def on_begin(self, label: str, rounds: int, clients: int) -> None:
        self.clients, self._accuracy = clients, ""
        self.bars.reset(self.now, total=max(1, rounds * clients), visible=rounds > 0, description=label, note="")

    def on_client(self, client: int) -> None:
        self.bars.advance(self.now)
        self._note()

    def _note(self) -> None:
        speed = self.bars.tasks[self.now].finished_speed or self.bars.tasks[self.now].speed
        if speed:
            self.bars.update(self.now, note=f"{speed:.1f} clients/s {self._accuracy}")

    _accuracy = ""

    def on_round(self, done: int, accuracy: float) -> None:
        self._accuracy = f"round {done}: {accuracy:.1f} %"
        self._note()
        self.bars.advance(self.all)

    def on_warn(self, message: str) -> None:
        self.console.print(f"Warning: {message}", markup=False)
