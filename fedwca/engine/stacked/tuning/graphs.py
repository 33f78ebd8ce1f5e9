"""Steps that are recorded once and then played again as a single call: CUDA graphs.

A large device finishes a step of small models sooner than the host has asked for its hundreds of calls.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fedwca.errors import UsageError, first_line

OFTEN = 4
"""Steps of a kind from which on it is recorded: the first runs as it is, and recording costs about as much again."""


class Record(Protocol):
    """Takes work on a device and does none of it; what it gives does that work each time, on the same memory."""

    refused: bool
    """Whether some work could not be recorded; nothing is tried again."""

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        """The work, to be done as often as the result is called.

        Raises:
            RuntimeError: it cannot be recorded.
        """

    def watched(self) -> AbstractContextManager[None]:
        """In which work that is to be recorded later shows whether it can be: what waits for the device fails."""


class CudaGraphs:
    """Records work as CUDA graphs; all of them share one pool of memory, which stays when they are gone.

    Graphs of one round have to be gone before those of the next are made: some versions of torch free what cuBLAS works
    with on a stream when any graph that was recorded on it is destroyed.

    Args:
        device: where the work is done.

    Raises:
        UsageError: the device has no CUDA graphs.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise UsageError(f"kernels graphs needs a CUDA device, not {device}; take eager")
        self.device, self.refused = device, False
        self._begun: tuple[torch.cuda.Stream, torch.cuda._POOL_HANDLE, torch.cuda.CUDAGraph] | None = None

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        """The work as a graph; see `Record`."""
        with torch.cuda.device(self.device):
            if self._begun is None:
                # A recording takes memory of its own, and none of what steps before it left in the cache.
                torch.cuda.empty_cache()
                stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
                # A pool lasts as long as one of its graphs; this one is never played.
                self._begun = stream, pool, _recorded(lambda: torch.zeros(1, device=self.device), stream, pool)
            stream, pool, _ = self._begun
            graph = _recorded(work, stream, pool)
        return graph.replay

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See `Record`: some versions of torch do not get over a recording that failed, so that none should begin."""
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            # It says that it does not see everything.
            warnings.simplefilter("ignore", UserWarning)
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def _recorded(
    work: Callable[[], object], stream: torch.cuda.Stream, pool: torch.cuda._POOL_HANDLE
) -> torch.cuda.CUDAGraph:
    # Not `torch.cuda.graph`: it waits for the device and empties its memory first, which is too much once a round.
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            # The stream must be given back, and says only that something went wrong before.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@dataclass(frozen=True)
class RecordedSteps:
    """The hook by which an engine's training steps are recorded: a `fedwca.engine.stacked.train.Capture`."""

    record: Record

    def __call__(self, often: Mapping[Hashable, int]) -> Callable[..., None]:
        """What carries out the steps between two labellings, of which there will be so many of each kind."""
        return Recorder(self.record, often).run


class Recorder:
    """Runs the steps between two labellings: the first of a kind as it is, then by a recording of the second.

    Args:
        record: how steps are recorded.
        often: how many steps of each kind there will be.
    """

    def __init__(self, record: Record, often: Mapping[Hashable, int]) -> None:
        self._record, self._often = record, often
        self._seen: set[Hashable] = set()
        self._kept: dict[Hashable, tuple[tuple[Tensor, ...], Callable[[], None]]] = {}

    def run(self, kind: Hashable, values: tuple[Tensor, ...], step: Callable[..., None]) -> None:
        """One step.

        Args:
            kind: steps of the same kind differ in ``values`` alone, and these have the same shapes.
            values: what it is called with.
            step: changes tensors that stay where they are for all steps.

        Warns:
            UserWarning: steps cannot be recorded; they run as they are.
        """
        record = self._record
        if record.refused or self._often.get(kind, 0) < OFTEN:
            step(*values)
            return
        try:
            if kind not in self._seen:
                self._seen.add(kind)
                with record.watched():
                    step(*values)
                return
            if kind not in self._kept:
                own = tuple(value.clone() for value in values)
                self._kept[kind] = own, record(lambda: step(*own))
        except RuntimeError as error:
            record.refused, why = True, first_line(error)[:160]
        else:
            mine, play = self._kept[kind]
            for place, value in zip(mine, values, strict=True):
                place.copy_(value)
            play()
            return
        warnings.warn(f"steps cannot be recorded as CUDA graphs, so they run as they are: {why}", stacklevel=2)
        # Nothing was changed: a step ends with its only change.
        step(*values)
