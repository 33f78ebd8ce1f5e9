"""What the command line prints about a run: the plan on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from fedwca.cli.progress_bars import watching
from fedwca.cli.terminal import WAITING, make_console, say
from fedwca.config.build_component import build_partition
from fedwca.config.resolve_config import RunPlan, provenance
from fedwca.runs.reporter import PlannedRun, Progress, RunReporter


class ConsoleReporter(RunReporter):
    """Reports a run on the console.

    Args:
        silent: stdout is for a program: no plan is printed, and progress is shown on a terminal only.
        quiet: no progress and no notes; the plan and warnings are printed.
        dry: nothing will be run.
    """

    def __init__(self, silent: bool = False, quiet: bool = False, dry: bool = False) -> None:
        self.silent, self.quiet, self.dry = silent, quiet, dry

    def loading(self, dataset: str) -> None:
        """Show on the waiting line which data set is read."""
        WAITING.say(f"reading {dataset}; what is drawn or decoded is kept in the cache")

    def planned(self, run: PlannedRun) -> None:
        """Print the plan, unless silent."""
        if not self.silent:
            print_plan(run, self.dry)

    def resumed(self, done: int, rounds: int) -> None:
        """Print how many rounds are done already, unless silent."""
        if not self.silent:
            say(f"Going on after {done} of {rounds} rounds")

    def nothing_left(self, folder: Path) -> None:
        """Print that the run is finished, unless silent or quiet."""
        if not (self.silent or self.quiet):
            say(f"{folder} is finished; nothing is left to do", err=True)

    def note(self, sentence: str) -> None:
        """Print a note on stderr, unless quiet."""
        if not self.quiet:
            say(sentence, err=True)

    def warn(self, sentence: str) -> None:
        """Print a warning on stderr, always."""
        say(f"Warning: {sentence}", err=True)

    @contextmanager
    def watch(self, plan: RunPlan) -> Iterator[Progress]:
        """Progress as bars or lines; if quiet only warnings, if silent no lines, as a program may read stderr too.

        What a plugin prints inside goes to stderr: stdout has the plan and the results alone, such as those of --json.
        """
        with watching(plan, self.quiet, lines=not self.silent) as progress, redirect_stdout(sys.stderr):
            yield progress


def print_plan(run: PlannedRun, dry: bool) -> None:
    """Print what will run, on which data and device, and where each value that was set came from."""
    console, plan, dataset = make_console(), run.plan, run.dataset

    def print_line(text: str) -> None:
        console.print(text, soft_wrap=True)

    partition = build_partition(plan.config)
    print_line(f"{dataset.name}: {partition.describe(dataset, run.domain, plan.config.clients)}; on {run.device}")
    print_line("Methods: " + ", ".join(f"{method.label} ({method.name})" for method, _ in plan.methods))
    if any(method.finish for method, _ in plan.methods):
        print_line(f"Rounds: {plan.config.rounds}; a last phase counts as one more")
    for origin, values in provenance(plan).items():
        print_line(f"From {origin}: {'; '.join(values)}")
    print_line(f"Memory: {run.memory}")
    print_line(f"Disk: {run.disk}")
    if run.embeddings:
        print_line(f"Frozen backbone: {run.embeddings}")
    if run.kernels:
        print_line(f"Kernels: {run.kernels}")
    config_note = "" if dry else f", written out in {run.folder / 'config.json'}"
    print_line(f"Everything else is a field's default{config_note}")
