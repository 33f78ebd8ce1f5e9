"""Where the time of a run goes: progress that also records one round, and two files at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fedwca.results.profile import TRACE, Tracer, phase_seconds
from fedwca.results.write_run import RunFolder
from fedwca.runs.reporter import Progress


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
