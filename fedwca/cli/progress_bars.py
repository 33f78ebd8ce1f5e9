"""Progress of runs: bars on a terminal, occasional lines elsewhere, or warnings only."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from fedwca.cli.terminal import make_console, say
from fedwca.config.resolve_config import RunPlan
from fedwca.core.printable import printable
from fedwca.runs.reporter import Progress

EVERY = 5.0
"""Minimum number of seconds between two plain lines of one method."""
NARROW = 110
"""Terminal width in columns below which bars are short and show less."""


@contextmanager
def watching(plan: RunPlan, quiet: bool, lines: bool = True) -> Iterator[Progress]:
    """Callbacks that show progress on stderr while inside: bars on a terminal, lines elsewhere.

    Args:
        plan: what will run.
        quiet: show only warnings.
        lines: whether progress is shown as lines where stderr is no terminal.
    """
    console = make_console(stderr=True)
    if quiet or not (lines or console.is_terminal):
        yield Progress(warn=_warn)
    elif not console.is_terminal:
        yield _Lines(plan).hooks()
    else:
        narrow = console.width < NARROW
        bars = Bars(
            TextColumn("{task.description:<16}" if narrow else "{task.description:<28}", markup=False),
            BarColumn(bar_width=10 if narrow else 40),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            *(() if narrow else (TimeElapsedColumn(),)),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        with bars:
            yield _Bars(bars, plan, console).hooks()


@contextmanager
def show_progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while inside, on a terminal only; yields a callback that takes (done, total)."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn())
    with Bars(TextColumn("{task.description}", markup=False), *columns, console=console, transient=True) as bars:
        task = bars.add_task(description, visible=False)
        yield lambda done, total: bars.update(task, completed=done, total=total, visible=True)


def _warn(message: str) -> None:
    say(f"Warning: {message}", err=True)


def _total(plan: RunPlan) -> int:
    """Rounds of all methods, source models and trials."""
    return plan.config.source_models * plan.config.trials * sum(rounds for _, rounds in plan.methods)


class _Lines:
    """Plain lines: a method's rounds at most every `EVERY` seconds, but always its first round and its end."""

    def __init__(self, plan: RunPlan) -> None:
        self.total, self.done, self.label, self.rounds = _total(plan), 0, "", 0
        self.started, self.began, self.here, self.said = math.nan, math.nan, 0, -math.inf

    def hooks(self) -> Progress:
        return Progress(
            *(self.on_source, self.on_begin, self.on_earlier, self.on_elsewhere),
            *(lambda client: None, self.on_round, self.on_end, _warn),
            central_epoch=self.on_central,
        )

    def _due(self) -> bool:
        due = time.monotonic() - self.said >= EVERY
        if due:
            self.said = time.monotonic()
        return due

    def on_source(self, epoch: int, epochs: int, accuracy: float) -> None:
        if epoch == epochs or self._due():
            say(f"source model: epoch {epoch} of {epochs}, {accuracy:.1f} % of held-out images right", err=True)

    def on_central(self, label: str, epoch: int, epochs: int) -> None:
        if self._due():
            say(f"{label}: epoch {epoch} of {epochs}, all domains at one place", err=True)

    def on_begin(self, label: str, rounds: int, clients: int) -> None:
        now = time.monotonic()
        if math.isnan(self.started):  # source training is over
            self.started = now
        elif not self.rounds:  # the time of a method without rounds, such as central training, says nothing of rounds
            self.started += now - self.began
        self.label, self.rounds, self.began, self.said = label, rounds, now, -math.inf

    def on_earlier(self, rounds: int, clients: int) -> None:
        self.done += rounds

    def on_elsewhere(self, rounds: int) -> None:
        self.done, self.here = self.done + rounds, self.here + rounds

    def on_round(self, done: int, accuracy: float) -> None:
        self.done, self.here = self.done + 1, self.here + 1
        if self._due():
            seconds_left = (time.monotonic() - self.started) / self.here * (self.total - self.done)
            say(
                f"{self.label}: round {done} of {self.rounds}, {accuracy:.1f} %; about {seconds_left:.0f} s left",
                err=True,
            )

    def on_end(self, label: str, accuracy: float) -> None:
        say(_ended(label, accuracy), err=True)


def _ended(label: str, accuracy: float) -> str:
    # NaN: nothing was left to do, it diverged, or nobody has test images.
    return f"{label}: ended" if math.isnan(accuracy) else f"{label}: done, {accuracy:.1f} %"


def shorten_label(label: str, width: int) -> str:
    """A label of at most ``width`` columns where its run's number leaves room; the number stays whole.

    >>> shorten_label("FedWCA, moments, run 1 of 2", 20)
    'FedWCA,…, run 1 of 2'
    """
    if cell_len(label) <= width:
        return label
    number = re.search(r"(, runs? \d[\d, to]* of \d+)?$", label)[0]  # type: ignore[index]  # matches the empty end
    name = set_cell_size(label, max(1, width - len(number) - 1)).rstrip()
    return f"{name}…{number}"


class _Bars:
    """A bar for the whole run and one for what is running now; finished methods are printed above them."""

    def __init__(self, bars: Bars, plan: RunPlan, console: Console) -> None:
        config = plan.config
        self.bars, self.console = bars, console
        self.all = bars.add_task("all rounds", total=_total(plan), note="")
        epochs = config.source_models * config.source_training.epochs
        self.source = bars.add_task("source model", total=epochs, note="", visible=False)
        self.central = bars.add_task("", total=1, note="", visible=False)
        self.now = bars.add_task("", total=1, note="", visible=False)
        self.clients, self._accuracy = 0, ""
        # The other columns need the rest, or their numbers would be cut.
        self.label_width = max(16, console.width - (53 if console.width < NARROW else 80))

    def hooks(self) -> Progress:
        return Progress(
            *(self.on_source, self.on_begin, self.on_earlier, self.on_elsewhere),
            *(self.on_client, self.on_round, self.on_end, self.on_warn),
            central_epoch=self.on_central,
        )

    def on_source(self, epoch: int, epochs: int, accuracy: float) -> None:
        # Its long note would take columns from the rounds, so it goes when it is done.
        note = f"{accuracy:.1f} % of held-out images right"
        self.bars.update(self.source, completed=epoch, note=note, visible=epoch < epochs)

    def on_central(self, label: str, epoch: int, epochs: int) -> None:
        name = shorten_label(printable(label), self.label_width)
        self.bars.update(
            self.central, total=epochs, completed=epoch, visible=epoch < epochs, description=name, note="epochs"
        )

    def on_begin(self, label: str, rounds: int, clients: int) -> None:
        self.clients, self._accuracy = clients, ""
        self.bars.update(self.source, visible=False)  # all are there; those in the cache were not counted
        label = shorten_label(printable(label), self.label_width)
        self.bars.reset(self.now, total=max(1, rounds * clients), visible=rounds > 0, description=label, note="")

    def on_earlier(self, rounds: int, clients: int) -> None:
        self.bars.advance(self.all, rounds)
        self.bars.advance(self.now, rounds * clients)

    def on_elsewhere(self, rounds: int) -> None:
        self.bars.advance(self.all, rounds)

    def on_client(self, client: int) -> None:
        self.bars.advance(self.now)
        self._note()

    def _note(self) -> None:
        rate = self.bars.tasks[self.now].finished_speed or self.bars.tasks[self.now].speed
        speed = f"{rate:.1f} clients/s " if rate and self.console.width >= NARROW else ""
        self.bars.update(self.now, note=f"{speed}{self._accuracy}")

    def on_round(self, done: int, accuracy: float) -> None:
        self._accuracy = f"round {done}: {accuracy:.1f} %"
        self._note()
        self.bars.advance(self.all)

    def on_end(self, label: str, accuracy: float) -> None:
        self.console.print(_ended(label, accuracy))

    def on_warn(self, message: str) -> None:
        self.console.print(f"Warning: {message}")
