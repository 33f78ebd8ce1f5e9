"""What the pieces of gpu.py share: a place, precisions, a federation of random images, rounds one by one; no script."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from beside import CLASSES

from fedwca import Keys, Method, SequentialEngine, Training, init_server
from fedwca.aggregators import aggregators
from fedwca.clusterers.true import TrueDomains
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import TrialsInTurn
from fedwca.engine.precision import Precision
from fedwca.engine.stacked import StackedEngine, StackedTrials
from fedwca.engine.stacked.tuning.benchmark import Found, benchmark_kernels, pick_kernels
from fedwca.engine.stacked.tuning.kernels import Kernels
from fedwca.federated.round import close_round, open_round
from fedwca.models import models
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.two_model import TwoModel

DOMAINS = 4

PRECISIONS: dict[str, tuple[Precision, bool]] = {
    "fp32": ("fp32", False),
    "tf32": ("fp32", True),
    "bf16": ("bf16", True),
}


@dataclass(frozen=True)
class Place:
    """Where and how large the pieces are run."""

    device: str
    small: bool
    dtype: torch.dtype = torch.float32
    """Of models."""

    def settle(self) -> None:
        """Wait for the device, so that a clock read on the host means something."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds that some work takes, the device's part included."""
        self.settle()
        started = time.perf_counter()
        work()
        self.settle()
        return time.perf_counter() - started

    def peak(self) -> int | None:
        """Bytes of tensors on the device at their most since the last question; None on a CPU."""
        if not self.device.startswith("cuda"):
            return None
        found = int(torch.cuda.max_memory_allocated(self.device))
        torch.cuda.reset_peak_memory_stats(self.device)
        return found

    def held(self) -> int:
        """Bytes of tensors on the device now; 0 on a CPU."""
        return int(torch.cuda.memory_allocated(self.device)) if self.device.startswith("cuda") else 0


def federation(sizes: list[int], side: int) -> list[ClientImages]:
    """Clients with random images, no test images."""
    draw = torch.Generator().manual_seed(0)
    drawn = [torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=draw) for n in sizes]
    return [ClientImages(x, x[:0], x[:0]) for x in drawn]


def method(name: str) -> Method:
    """FedWCA with all its parts, or FedAvg as a baseline; true domains stand for clusters of the usual number."""
    if name == "fedavg":
        return Method(name, name, aggregators.build(name), Prototype(), (Shot(),))
    return Method(name, name, aggregators.build("wca"), TwoModel(), (Shot(),), TrueDomains())


class Run:
    """A federation whose rounds are timed one by one."""

    def __init__(
        self,
        place: Place,
        name: str,
        model: str,
        sizes: list[int],
        engine: str,
        precision: Precision,
        epochs: int = 5,
        trials: int = 1,
        kernels: Kernels = "eager",
    ) -> None:
        architecture = models.build(model)
        own = federation(sizes, architecture.stored)
        networks = [architecture.build(CLASSES, seed=seed).to(place.dtype) for seed in range(trials)]
        if trials > 1:
            self.engines: TrialsInTurn = StackedTrials(
                networks, [own] * trials, place.device, precision=precision, kernels=kernels
            )
        elif engine == "stacked":
            stacked = StackedEngine(networks[0], own, place.device, precision=precision, kernels=kernels)
            self.engines = TrialsInTurn([stacked])
        else:
            self.engines = TrialsInTurn([SequentialEngine(networks[0], own, place.device, precision=precision)])
        self.engine = self.engines.engines[0]
        self.place, self.method, self.training = place, method(name), Training(epochs=epochs)
        self.domains = torch.arange(len(sizes)) * DOMAINS // len(sizes)
        self.number, self.servers = 0, [init_server(engine) for engine in self.engines.engines]

    def round(self, watching: AbstractContextManager[object] | None = None) -> None:
        """One more round of all trials; ``watching`` is entered for the clients' part of it."""
        parts = {
            i: open_round(self.number, self.servers[i], self.method, engine, self.training, Keys(i), self.domains)
            for i, engine in enumerate(self.engines.engines)
        }
        with watching or nullcontext():
            every = self.engines.run(parts)
        self.servers = [close_round(parts[i], uploads)[0] for i, uploads in every.items()]
        self.number += 1

    def seconds(self, rounds: int) -> list[float]:
        """Of each of some rounds, after one that is not counted."""
        self.round()
        return [round(self.place.timed(self.round), 4) for _ in range(rounds)]


def candidates(place: Place) -> list[Kernels]:
    """Kernels that are tried where a run chooses some."""
    return ["eager", "channels-last", *(["graphs"] if place.device.startswith("cuda") else [])]


def quickest(
    place: Place, name: str, model: str, sizes: list[int], precision: Precision, trials: int = 1
) -> tuple[Kernels, Found]:
    """What a run would take by ``--kernels measure``, and what was measured for it."""
    network = models.build(model).build(CLASSES, seed=0).to(place.device)
    batch = min(64, *sizes)
    drawn = torch.stack([own.train for own in federation([batch] * len(sizes), models.build(model).stored)])
    images = drawn.to(place.device).repeat(trials, 1, 1, 1, 1)
    mixes = method(name).pseudo_labeler.mixes
    found = benchmark_kernels(network, images, precision, candidates(place), 2 if place.small else 5, mixes=mixes)
    if place.device.startswith("cuda"):
        torch.cuda.empty_cache()
    return pick_kernels(found), found


def tf32(allowed: bool) -> None:
    """Whether products of float32 numbers may be rounded to TensorFloat-32 on the way."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
