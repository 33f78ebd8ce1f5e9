"""What the command line says of a run: the plan on stdout, all else on stderr."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from fedwca.cli.progress_bars import watching
from fedwca.cli.terminal import WAITING, make_console, say
from fedwca.config.compose_methods import component
from fedwca.config.resolve_config import RunPlan, provenance
from fedwca.runs.reporter import PlannedRun, Progress, RunReporter


class ConsoleReporter(RunReporter):
    """Tells a person at a terminal.

    Args:
        silent: stdout is for a program; no plan, and progress on a terminal alone.
        quiet: no progress, and nothing else that is no warning.
        dry: nothing will be run.
    """

    def __init__(self, silent: bool = False, quiet: bool = False, dry: bool = False) -> None:
        self.silent, self.quiet, self.dry = silent, quiet, dry

    def loading(self, dataset: str) -> None:
        """Say so where a line waits."""
        WAITING.say(f"reading {dataset}; what is drawn or decoded is kept in the cache")

    def planned(self, run: PlannedRun) -> None:
        """Print the plan."""
        if not self.silent:
            print_plan(run, self.dry)

    def resumed(self, done: int, rounds: int) -> None:
        """Say where it goes on."""
        if not self.silent:
            say(f"Going on after {done} of {rounds} rounds")

    def nothing_left(self, folder: Path) -> None:
        """Say so."""
        if not (self.silent or self.quiet):
            say(f"{folder} is finished; nothing is left to do", err=True)

    def note(self, sentence: str) -> None:
        """On stderr, whoever reads stdout."""
        if not self.quiet:
            say(sentence, err=True)

    def warn(self, sentence: str) -> None:
        """On stderr, whoever reads stdout."""
        say(f"Warning: {sentence}", err=True)

    def watch(self, plan: RunPlan) -> AbstractContextManager[Progress]:
        """Bars or lines, or warnings alone; no lines where stdout is for a program, which may read stderr too."""
        return watching(plan, self.quiet, lines=not self.silent)


def print_plan(run: PlannedRun, dry: bool) -> None:
    """What will run, on what, and where each value that was set came from."""
    console, plan, dataset = make_console(), run.plan, run.dataset

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    partition = component("partition", plan.config.partition, plan.config.components)
    say(f"{dataset.name}: {partition.describe(dataset, run.domain, plan.config.clients)}; on {run.device}")
    say("Methods: " + ", ".join(f"{method.label} ({method.name})" for method, _ in plan.methods))
    for origin, values in provenance(plan).items():
        say(f"From {origin}: {'; '.join(values)}")
    say(f"Memory: {run.memory}")
    say(f"Disk: {run.disk}")
    if run.embeddings:
        say(f"Frozen backbone: {run.embeddings}")
    if run.kernels:
        say(f"Kernels: {run.kernels}")
    where = "" if dry else f", written out in {run.folder / 'config.json'}"
    say(f"Everything else is a field's default{where}")
