"""torch's profiler on one round of a run, and the seconds of its phases: two files at its end."""

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


class Tracer:
    """Records one round of one method with torch's profiler: the second that this process does, or its only one.

    Nothing else is recorded, because recording is expensive; a recorded round is slower than it would be without.
    """

    def __init__(self, label: str) -> None:
        self.of, self._rounds = label, 0
        self._running: Any = None
        self._recorded: Any = None

    def begin(self, label: str, rounds: int) -> None:
        """A method starts that has so many rounds; its label ends with which run of several it is."""
        own = label == self.of or label.startswith((f"{self.of}, run ", f"{self.of}, runs "))
        self._rounds = rounds if own else 0
        if self._rounds == 1:
            self._start()

    def round(self, done: int) -> None:
        """A round has ended; so many are done."""
        if self._running is not None:
            self._stop()
        elif done < self._rounds:
            self._start()

    def write(self, folder: Path) -> Path | None:
        """The trace as ``trace.json.gz``, for chrome://tracing or Perfetto; None where no round was recorded."""
        self._stop()
        if self._recorded is None:
            return None
        write_atomically(folder / TRACE, lambda file: self._recorded.export_chrome_trace(str(file)))
        return folder / TRACE

    def _start(self) -> None:
        if self._recorded is None:
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")
            from torch.profiler import ProfilerActivity, profile
            from torch.profiler import supported_activities as supported

            kinds = {ProfilerActivity.CPU, ProfilerActivity.CUDA} & supported()
            self._running = profile(activities=kinds, experimental_config=_all_threads())
            self._running.__enter__()

    def _stop(self) -> None:
        if self._running is not None:
            self._running.__exit__(None, None, None)
            self._recorded, self._running = self._running, None


def _all_threads() -> Any:
    """Clients run in threads of their own, which the profiler leaves out unless it is told."""
    from torch._C._profiler import _ExperimentalConfig

    return _ExperimentalConfig(profile_all_threads=True)
