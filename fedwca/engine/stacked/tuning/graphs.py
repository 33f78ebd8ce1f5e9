"""Steps that are recorded once and then replayed as a single call: CUDA graphs.

A large device finishes a step of small models before the host has issued its hundreds of calls.
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
from fedwca.warn_caller import warn_caller

OFTEN = 4
"""Fewest steps of a kind for which one is recorded: the first runs as it is, and recording costs about as much."""


class Record(Protocol):
    """Records work on a device without doing it; the result does that work when it is called, on the same memory."""

    refused: bool
    """Whether some work could not be recorded; then no other recording is tried."""

    def __call__(self, work: Callable[[], object]) -> Callable[[], None]:
        """A function that does the work each time it is called.

        Raises:
            RuntimeError: the work cannot be recorded.
        """

    def free(self) -> None:
        """Give back the memory of all recordings; none of them is called any more."""

    def watched(self) -> AbstractContextManager[None]:
        """Context that tests whether work in it can be recorded later: whatever waits for the device fails."""


class CudaGraphs:
    """Records work as CUDA graphs, which share one memory pool that outlives them.

    Graphs of one round must be destroyed before those of the next are made: some versions of torch free the cuBLAS
    workspace of a stream when any graph that was recorded on it is destroyed.

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
                # A recording allocates memory of its own, and uses none of what earlier steps left in the cache.
                torch.cuda.empty_cache()
                stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
                # A pool lasts as long as one of its graphs; this one is never replayed.
                self._begun = stream, pool, _recorded(lambda: torch.zeros(1, device=self.device), stream, pool)
            stream, pool, _ = self._begun
            graph = _recorded(work, stream, pool)
        return graph.replay

    def free(self) -> None:
        """See `Record`."""
        self._begun = None
        with torch.cuda.device(self.device):
            torch.cuda.empty_cache()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """See `Record`; some versions of torch do not recover from a failed recording, so none should be started."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            # Torch warns that this mode does not detect everything.
            warnings.simplefilter("ignore", UserWarning)
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)


def _recorded(
    work: Callable[[], object], stream: torch.cuda.Stream, pool: torch.cuda._POOL_HANDLE
) -> torch.cuda.CUDAGraph:
    # Not `torch.cuda.graph`: it first waits for the device and empties its cache, which is too slow once a round.
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            # The capture must be ended; its own error would only say that something failed before.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@dataclass(frozen=True)
class RecordedSteps:
    """Hook that records an engine's training steps: a `fedwca.engine.stacked.train.Capture`."""

    record: Record

    def __call__(self, often: Mapping[Hashable, int]) -> Callable[..., None]:
        """A function that runs the steps between two labellings, of which there are ``often`` of each kind."""
        return Recorder(self.record, often).run


class Recorder:
    """Runs the steps between two labellings: the first of a kind as it is, later ones by a recording of the second.

    Args:
        record: how steps are recorded.
        often: number of steps of each kind.
    """

    def __init__(self, record: Record, often: Mapping[Hashable, int]) -> None:
        self._record, self._often = record, often
        self._seen: set[Hashable] = set()
        self._kept: dict[Hashable, tuple[tuple[Tensor, ...], Callable[[], None]]] = {}

    def run(self, kind: Hashable, values: tuple[Tensor, ...], step: Callable[..., None]) -> None:
        """Run one step.

        Args:
            kind: steps of the same kind differ in ``values`` alone, and these have the same shapes.
            values: arguments of ``step``.
            step: changes tensors whose memory is the same in all steps.

        Warns:
            UserWarning: steps cannot be recorded; they run as they are.

        Raises:
            torch.OutOfMemoryError: a step does not fit into memory even as it is.
        """
        record = self._record
        if record.refused or self._often.get(kind, 0) < OFTEN:
            step(*values)
            return
        is_first = kind not in self._seen
        try:
            if is_first:
                self._seen.add(kind)
                with record.watched():
                    step(*values)
                return
            if kind not in self._kept:
                buffers = tuple(value.clone() for value in values)
                self._kept[kind] = buffers, record(lambda: step(*buffers))
        except RuntimeError as error:
            no_memory = isinstance(error, torch.OutOfMemoryError)
            if no_memory and is_first:
                raise  # a step as it is does not fit
            record.refused, reason = True, first_line(error)[:160]
            if no_memory:
                self._kept.clear()
                record.free()
        else:
            inputs, replay = self._kept[kind]
            for buffer, value in zip(inputs, values, strict=True):
                buffer.copy_(value)
            replay()
            return
        warn_caller(f"steps cannot be recorded as CUDA graphs, so they run as they are: {reason}")
        # Nothing has changed so far: a step makes its only change at its end.
        step(*values)
