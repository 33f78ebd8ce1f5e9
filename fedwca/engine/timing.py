"""Where the time of clients at work goes, on the host or on a GPU, which works behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

Mark = float | torch.cuda.Event
"""A moment: a reading of the host's clock, or a place in the queue of a device."""


@dataclass(frozen=True)
class Lap:
    """Time that went into a phase."""

    phase: str
    start: Mark
    stop: Mark
    share: float
    """How much of it counts."""

    @property
    def seconds(self) -> float:
        """How long it took; on a GPU this waits until it is over."""
        if isinstance(self.start, float) and isinstance(self.stop, float):
            return self.share * (self.stop - self.start)
        assert isinstance(self.start, torch.cuda.Event)
        assert isinstance(self.stop, torch.cuda.Event)
        self.stop.synchronize()
        return self.share * float(self.start.elapsed_time(self.stop)) / 1000


class Phases(Mapping[str, float]):
    """Seconds by phase, added up when somebody looks, so that a device need not be waited for before."""

    def __init__(self, laps: Sequence[Lap], share: float = 1.0) -> None:
        self._laps, self._share = laps, share

    def __getitem__(self, phase: str) -> float:
        found = [lap.seconds for lap in self._laps if lap.phase == phase]
        if not found:
            raise KeyError(phase)
        return self._share * sum(found)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(lap.phase for lap in self._laps))

    def __len__(self) -> int:
        return len({lap.phase for lap in self._laps})

    def __reduce__(self) -> tuple[type[dict[str, float]], tuple[dict[str, float]]]:
        return dict, (dict(self),)

    def shared(self, clients: int) -> Phases:
        """What each of so many clients has of it."""
        return Phases(self._laps, self._share / clients)


class Clock:
    """Seconds by phase, of whoever is at work on a device."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._laps = device, list[Lap]()

    @property
    def seconds(self) -> Phases:
        """By phase, of all that was measured."""
        return Phases(self._laps)

    def mark(self) -> Mark:
        """Now."""
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def lap(self, phase: str, start: Mark, share: float = 1.0) -> None:
        """Adds the time since a mark, or a share of it, to a phase."""
        self._laps.append(Lap(phase, start, self.mark(), share))

    @contextmanager
    def clock(self, phase: str) -> Iterator[None]:
        """Adds the time spent inside to a phase."""
        start = self.mark()
        yield
        self.lap(phase, start)
