"""`fedwca bench --profile`: where the time went, on the screen and in the run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from fedwca.results.profile import PHASES, TRACE, Tracer, phase_seconds
from fedwca.results.run_folder import RunFolder
from fedwca.runs.bench import Progress


@contextmanager
def profiling(label: str | None, progress: Progress, folder: RunFolder) -> Iterator[Progress]:
    """Progress that also records one round of a method; at the end, two files.

    Args:
        label: the method; None: the progress as it is, and no files.
        progress: who is told besides.
        folder: where ``profile.json`` and the trace go.
    """
    if label is None:
        yield progress
        return
    tracer = Tracer(label)

    def begin(label: str, rounds: int, clients: int) -> None:
        progress.begin(label, rounds, clients)
        tracer.begin(label, rounds)

    def round(done: int, accuracy: float) -> None:
        tracer.round(done)
        progress.round(done, accuracy)

    try:
        yield replace(progress, begin=begin, round=round)
    finally:
        trace = tracer.write(folder.path)
        seconds = phase_seconds(folder.records())
        folder.write("profile.json", {"seconds": seconds, "trace": TRACE if trace else None, "of": tracer.of})


def print_profile(profile: Mapping[str, Any]) -> None:
    """A row per method, a column per phase, seconds a round."""
    console = Console()
    grid = Table(title="Seconds a round; evidence, label and train are summed over clients")
    for column in ("method", "round", *PHASES):
        grid.add_column(column, justify="left" if column == "method" else "right")
    for name, seconds in profile["seconds"].items():
        each = (seconds[phase] / seconds["rounds"] for phase in ("round", *PHASES))
        grid.add_row(name, *(f"{value:.3f}" for value in each))
    console.print(grid)
    if profile["trace"]:
        console.print(f"Trace of a round of {profile['of']}: {profile['trace']}, for chrome://tracing", markup=False)
