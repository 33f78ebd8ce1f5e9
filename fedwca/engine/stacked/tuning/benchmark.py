"""Measures which kernels are the fastest for a model, its shapes and a device, and how exact they are."""

from __future__ import annotations

import copy
import math
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.stacked.network import StackedInput, StackedNetwork
from fedwca.engine.stacked.split_leaves import split_leaves
from fedwca.engine.stacked.tuning.graphs import CudaGraphs, Record
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.errors import first_line

STEPS = 5
SLACK, LIMIT = 3.0, 0.03
"""Largest distance of a candidate's gradient from that in float64: SLACK times eager's distance, or LIMIT times the
norm, whichever is more. One unit that rounding moves across zero changes a residual network's gradient by 1 %."""
MIXED = 0.5
"""Places for mixed images as a share of a step's images: 0.37 to 0.49 in results/mixed.json."""
GAIN = 0.03
"""Share of eager's time that another candidate must save; less is noise."""

Found = dict[Kernels, dict[str, Any]]


class Candidate:
    """Training steps with one of the kernels: forward and backward passes of a model on a batch, without an update.

    Args:
        network: the model; each client has a copy.
        x: images as `Network.extract` reads them ``[G, B, …]``.
        precision: of the steps.
        kernels: how steps are carried out.
        mixes: whether steps have places for mixed images too, which do not count in the gradient.
        by_hand: see `fedwca.engine.stacked.network.StackedNetwork`.
    """

    def __init__(
        self,
        network: Network,
        x: Tensor,
        precision: Precision,
        kernels: Kernels,
        mixes: bool = False,
        by_hand: bool = True,
    ) -> None:
        layout, self.images = Layout.of(network), x.shape[1]
        self.stacked, self.layout = StackedNetwork(network, layout, precision, kernels, by_hand), layout
        self.row, self.x, self.real = layout.read(network), x, None
        if mixes:
            # A recorded step has a place for each image.
            places = self.images if kernels == "graphs" else round(MIXED * self.images)
            self.x = torch.cat([x, x[:, :places]], 1)
            real = torch.arange(self.images + places, device=x.device) < self.images
            self.real = real.expand(len(x), -1)
        # Nothing is dropped and nothing is drawn: the state of random generators stays as it is.
        self.masks = [x.new_ones(*self.x.shape[:2], *drop.shape) for drop in network.drops]
        self._record: Record | None = CudaGraphs(x.device) if kernels == "graphs" else None
        self._play: Callable[[], None] | None = None
        self._gradient = x.new_zeros(len(x), layout.trained)

    def step(self) -> Tensor:
        """The gradient of a cross-entropy ``[G, P]``; with graphs, the tensor that the recording overwrites."""
        if self._record is None:
            return self._step()
        if self._play is None:
            self._step()
            self._play = self._record(lambda: self._gradient.copy_(self._step()))
        self._play()
        return self._gradient

    def _step(self) -> Tensor:
        leaf, parameters, norm_statistics = split_leaves(self.layout, self.row.repeat(len(self.x), 1))
        logits, _, _ = self.stacked(
            parameters, norm_statistics, StackedInput(self.x, self.masks, self.real), training=True, phase="train"
        )
        logits = logits[:, : self.images]
        labels = torch.arange(logits.shape[1], device=logits.device) % logits.shape[-1]
        loss = -logits.log_softmax(-1)[:, torch.arange(len(labels), device=logits.device), labels].mean(-1).sum()
        return torch.autograd.grad(loss, leaf)[0]

    def timed(self, clock: Callable[[], float]) -> tuple[float, Tensor]:
        """Seconds of a step by ``clock``, including the device's work, and its gradient."""
        self._settle()
        start = clock()
        gradient = self.step()
        self._settle()
        return clock() - start, gradient

    def _settle(self) -> None:
        if self.x.is_cuda:
            torch.cuda.synchronize(self.x.device)


def benchmark_kernels(
    network: Network,
    images: Tensor,
    precision: Precision,
    candidates: Sequence[Kernels],
    steps: int = STEPS,
    clock: Callable[[], float] = time.perf_counter,
    mixes: bool = False,
) -> Found:
    """Time training steps of each candidate, in turn.

    Args:
        network: the model, on its device.
        images: of G clients, uint8 ``[G, B, 3, H, W]``, on the same device.
        precision: in which clients train.
        candidates: kernels to try; the first has to work.
        steps: of each candidate, after one that is not counted.
        clock: gives the time in seconds.
        mixes: whether labels mix images, which takes more memory with some candidates than with others.

    Returns:
        By candidate ``first_seconds`` (of the first step, wall-clock time), ``seconds`` (median of a step), and
        ``apart``, the distance of the first client's gradient from that in float64, divided by the norm of the latter;
        or ``error``, why the candidate cannot be used.
    """
    x = network.plain_inputs(images.flatten(0, 1)).unflatten(0, images.shape[:2])
    results: Found = {}
    entries: dict[Kernels, Candidate] = {}
    exact = Candidate(copy.deepcopy(network).double(), x[:1].double(), "fp32", "eager").step()[0]
    for name in candidates:
        try:
            # Warnings of torch about candidates that are not chosen are of no use.
            with warnings.catch_warnings(action="ignore"):
                entries[name] = Candidate(network, x, precision, name, mixes)
                seconds, gradient = entries[name].timed(time.perf_counter)
        except Exception as error:  # devices raise errors of any type
            if name == candidates[0]:
                raise
            entries.pop(name, None)
            results[name] = {"error": f"{type(error).__name__}: {first_line(error)[:200]}"}
            continue
        distance = float((gradient[0] - exact).norm() / exact.norm())
        results[name] = {"first_seconds": round(seconds, 4), "apart": distance}
    try:
        times = _time_in_turn(entries, steps, clock)
    except torch.OutOfMemoryError:
        if entries.pop("graphs", None) is None:
            raise
        times = None
    if times is None:
        # A recording keeps its memory between steps, which leaves too little for the others.
        results["graphs"] = {"error": "its memory and that of the others are more than the device has"}
        torch.cuda.empty_cache()
        times = _time_in_turn(entries, steps, clock)
    for name in entries:
        results[name]["seconds"] = round(statistics.median(times[name]), 6)
    return results


def _time_in_turn(
    entries: Mapping[Kernels, Candidate], steps: int, clock: Callable[[], float]
) -> dict[Kernels, list[float]]:
    """Seconds of each of ``steps`` steps of each candidate."""
    times: dict[Kernels, list[float]] = {name: [] for name in entries}
    for step in range(steps):
        for name in list(entries) if step % 2 == 0 else reversed(list(entries)):
            times[name].append(entries[name].timed(clock)[0])
    return times


def pick_kernels(results: Found) -> Kernels:
    """The fastest candidate that is about as exact as the first; the first if no other saves enough time.

    >>> tried = {"eager": {"seconds": 1.0, "apart": 1e-6}, "graphs": {"seconds": 0.5, "apart": 0.5}}
    >>> pick_kernels(tried | {"channels-last": {"seconds": 0.8, "apart": 1e-3}})
    'channels-last'
    """
    first = next(iter(results))
    limit = max(SLACK * results[first]["apart"], LIMIT)
    seconds = {name: result["seconds"] for name, result in results.items() if result.get("apart", math.inf) <= limit}
    fastest = min(seconds, key=lambda name: float(seconds[name]))
    return fastest if seconds[fastest] < (1 - GAIN) * seconds[first] else first
