"""Where a run's time went: phases of each method from its records, and a trace of one round."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedwca.core.files import write_atomically

AT_CLIENTS = ("evidence", "label", "train")
"""Phases of clients: seconds summed over clients, so with several workers their sum exceeds the round's."""
PHASES = (*AT_CLIENTS, "group", "mix", "evaluate", "record")
TRACE = "trace.json.gz"


def phase_seconds(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Seconds by method and phase over all its rounds, ``rounds`` of them, ``round`` as the clock saw them.

    >>> record = {"method": "a", "round": 0, "seconds": {"train": 2.0, "round": 1.0, "evaluate": 0.5}}
    >>> phase_seconds([record])["a"]["train"]
    2.0
    """
    found: dict[str, dict[str, float]] = {}
    for record in records:
        if "seconds" not in record:
            continue
        method = found.setdefault(record["method"], dict.fromkeys(("rounds", "round", *PHASES), 0.0))
        method["rounds"] += 1
        for phase, seconds in record["seconds"].items():
            method[phase] = method.get(phase, 0.0) + seconds
    return found


class Tracer:
    """Records one round of one method with torch's profiler: its second one, or its only one.

    Nothing else is recorded, because recording is expensive; a recorded round is slower than it would be without.
    """

    def __init__(self, label: str) -> None:
        self.of, self._rounds = label, 0
        self._running: Any = None
        self._recorded: Any = None

    def begin(self, label: str, rounds: int) -> None:
        """A method starts that has so many rounds."""
        self._rounds = rounds if label == self.of else 0
        if self._rounds == 1:
            self._start()

    def round(self, done: int) -> None:
        """A round has ended; so many are done."""
        if self._running is not None:
            self._stop()
        elif done == 1 and self._rounds > 1:
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
