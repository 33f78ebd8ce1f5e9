"""Time that clients spend in each phase, measured on the host or on a GPU, which runs asynchronously."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Mark = float | torch.cuda.Event
"""A moment: a reading of the host's clock, or an event in a GPU's stream."""


@dataclass(frozen=True)
class Lap:
    """Time spent in a phase."""

    phase: str
    start: Mark
    stop: Mark
    share: float
    """Factor of the measured time."""

    @property
    def seconds(self) -> float:
        """Duration times ``share``; on a GPU this waits until the work is complete."""
        if isinstance(self.start, float) and isinstance(self.stop, float):
            return self.share * (self.stop - self.start)
        assert isinstance(self.start, torch.cuda.Event)
        assert isinstance(self.stop, torch.cuda.Event)
        self.stop.synchronize()
        return self.share * float(self.start.elapsed_time(self.stop)) / 1000


class Phases(Mapping[str, float]):
    """Seconds by phase, summed only when they are read, so that the host does not wait for a device before that."""

    def __init__(self, laps: Sequence[Lap], share: float = 1.0) -> None:
        self._laps, self._share = laps, share

    def __getitem__(self, phase: str) -> float:
        seconds = [lap.seconds for lap in self._laps if lap.phase == phase]
        if not seconds:
            raise KeyError(phase)
        return self._share * sum(seconds)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(lap.phase for lap in self._laps))

    def __len__(self) -> int:
        return len({lap.phase for lap in self._laps})

    def __reduce__(self) -> tuple[type[dict[str, float]], tuple[dict[str, float]]]:
        return dict, (dict(self),)

    def shared(self, clients: int) -> Phases:
        """The seconds of each client, if ``clients`` of them share the time equally."""
        return Phases(self._laps, self._share / clients)


class Clock:
    """Measures the seconds that work on a device takes, by phase."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._laps = device, list[Lap]()

    @property
    def seconds(self) -> Phases:
        """All seconds measured so far, by phase."""
        return Phases(self._laps)

    def mark(self) -> Mark:
        """The current moment."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def lap(self, phase: str, start: Mark, share: float = 1.0) -> None:
        """Add the time since a mark, or a share of it, to a phase."""
        self._laps.append(Lap(phase, start, self.mark(), share))

    @contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Context whose duration is added to a phase."""
        start = self.mark()
        yield
        self.lap(phase, start)
