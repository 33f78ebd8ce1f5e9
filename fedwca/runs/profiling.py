"""Profiles one round of a run with torch's profiler, and writes the trace and the seconds of each phase."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedwca.core.files import write_atomically
from fedwca.results.phase_seconds import phase_seconds
from fedwca.results.write_run import RunFolder
from fedwca.runs.reporter import Progress

TRACE = "trace.json.gz"


@contextmanager
def profiling(label: str | None, progress: Progress, folder: RunFolder) -> Iterator[Progress]:
    """A progress object that also profiles one round of a method; on exit, ``profile.json`` and the trace are written.

    Args:
        label: the method's label; None: the progress is returned unchanged, and nothing is written.
        progress: also receives every call.
        folder: where ``profile.json`` and the trace are written.
    """
    if label is None:
        yield progress
        return
    tracer = Tracer(label)

    def begin(label: str, rounds: int, clients: int) -> None:
        progress.method_start(label, rounds, clients)
        tracer.begin(label, rounds)

    def round(finished_rounds: int, accuracy: float) -> None:
        tracer.round(finished_rounds)
        progress.round_done(finished_rounds, accuracy)

    def skip(rounds: int, clients: int) -> None:
        progress.skipped_rounds(rounds, clients)
        if clients:  # of a resumed run; others end here
            tracer.skip(rounds)

    try:
        yield replace(progress, method_start=begin, round_done=round, skipped_rounds=skip)
    finally:
        trace = tracer.write(folder.path)
        seconds = phase_seconds(folder.records())
        folder.write("profile.json", {"seconds": seconds, "trace": TRACE if trace else None, "of": tracer.of})


class Tracer:
    """Records one round of one method with torch's profiler: the second round of this process, or its only one.

    Recording is expensive, so no more is recorded; a recorded round takes longer than others.
    """

    def __init__(self, label: str) -> None:
        self.of, self._rounds = label, 0
        self._running: Any = None
        self._recorded: Any = None

    def begin(self, label: str, rounds: int) -> None:
        """A method with ``rounds`` rounds starts; its label may end with the run's number, as in ``, run 1 of 3``."""
        is_traced = label == self.of or label.startswith((f"{self.of}, run ", f"{self.of}, runs "))
        self._rounds = rounds if is_traced else 0
        if self._rounds == 1:
            self._start()

    def skip(self, rounds: int) -> None:
        """So many rounds are on record already."""
        if rounds == self._rounds - 1:
            self._start()

    def round(self, finished_rounds: int) -> None:
        """A round has ended, after which ``finished_rounds`` are done."""
        if self._running is not None:
            self._stop()
        elif finished_rounds < self._rounds:
            self._start()

    def write(self, folder: Path) -> Path | None:
        """Write ``trace.json.gz``, for chrome://tracing or Perfetto; returns its path, None if nothing was recorded."""
        self._stop()
        if self._recorded is None:
            return None
        write_atomically(folder / TRACE, lambda file: self._recorded.export_chrome_trace(str(file)))
        return folder / TRACE

    def _start(self) -> None:
        if self._recorded is None and self._running is None:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")
            from torch.profiler import ProfilerActivity, profile
            from torch.profiler import supported_activities as supported

            activities = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & supported()
            self._running = profile(activities=activities, experimental_config=_all_threads())
            self._running.__enter__()

    def _stop(self) -> None:
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._recorded, self._running = self._running, None


def _all_threads() -> Any:
    """Profiler options that include all threads: clients run in their own threads, which are left out by default."""
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig(profile_all_threads=True)
