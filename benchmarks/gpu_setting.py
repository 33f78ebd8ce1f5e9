"""What the pieces of gpu.py share: a device, precisions, a federation of random images, single rounds; no script."""

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
from fedwca.federated.close_round import close_round
from fedwca.federated.open_round import open_round
from fedwca.models import models
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from fedwca.pseudo_labelers.two_model import TwoModel

DOMAINS = 4

PRECISIONS: dict[str, tuple[Precision, bool]] = {
    "fp32": ("fp32", False),
    "tf32": ("fp32", True),
    "bf16": ("bf16", False),
}


@dataclass(frozen=True)
class Place:
    """Device and size of the pieces' runs."""

    device: str
    small: bool
    dtype: torch.dtype = torch.float32
    """Floating-point type of models."""

    def settle(self) -> None:
        """Wait for the device, so that a clock read on the host means something."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def timed(self, work: Callable[[], Any]) -> float:
        """Seconds that work takes, the device's part included."""
        self.settle()
        started = time.perf_counter()
        work()
        self.settle()
        return time.perf_counter() - started

    def peak(self) -> int | None:
        """Peak bytes of tensors on the device since the last call; None on a CPU."""
        if not self.device.startswith("cuda"):
            return None
        peak = int(torch.cuda.max_memory_allocated(self.device))
        torch.cuda.reset_peak_memory_stats(self.device)
        return peak

    def held(self) -> int:
        """Bytes of tensors on the device now; 0 on a CPU."""
        return int(torch.cuda.memory_allocated(self.device)) if self.device.startswith("cuda") else 0


def federation(sizes: list[int], side: int) -> list[ClientImages]:
    """Clients with random images, no test images."""
    generator = torch.Generator().manual_seed(0)
    client_images = [torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=generator) for n in sizes]
    return [ClientImages(x, x[:0]) for x in client_images]


def method(name: str) -> Method:
    """FedWCA with all its parts, or FedAvg as a baseline; true domains stand in for clusters, as many as usual."""
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
        data = federation(sizes, architecture.stored_side)
        networks = [architecture.build(CLASSES, seed=seed).to(place.dtype) for seed in range(trials)]
        if trials > 1:
            self.engines: TrialsInTurn = StackedTrials(
                networks, [data] * trials, place.device, precision=precision, kernels=kernels
            )
        elif engine == "stacked":
            stacked = StackedEngine(networks[0], data, place.device, precision=precision, kernels=kernels)
            self.engines = TrialsInTurn([stacked])
        else:
            self.engines = TrialsInTurn([SequentialEngine(networks[0], data, place.device, precision=precision)])
        self.engine = self.engines.engines[0]
        self.place, self.method, self.training = place, method(name), Training(epochs=epochs)
        self.domains = torch.arange(len(sizes)) * DOMAINS // len(sizes)
        self.number, self.servers = 0, [init_server(engine) for engine in self.engines.engines]

    def round(self, watching: AbstractContextManager[object] | None = None) -> None:
        """Run the next round of all trials; ``watching`` is entered for the clients' part of it."""
        parts = {
            i: open_round(self.number, self.servers[i], self.method, engine, self.training, Keys(i), self.domains)
            for i, engine in enumerate(self.engines.engines)
        }
        with watching or nullcontext():
            uploads_by_trial = self.engines.run(parts)
        self.servers = [close_round(parts[i], uploads)[0] for i, uploads in uploads_by_trial.items()]
        self.number += 1

    def seconds(self, rounds: int) -> list[float]:
        """Seconds of each of ``rounds`` rounds, after one that is not counted."""
        self.round()
        return [round(self.place.timed(self.round), 4) for _ in range(rounds)]


def candidates(place: Place) -> list[Kernels]:
    """Kernels among which a run chooses."""
    return ["eager", "channels-last", *(["graphs"] if place.device.startswith("cuda") else [])]


def quickest(
    place: Place, name: str, model: str, sizes: list[int], precision: Precision, trials: int = 1
) -> tuple[Kernels, Found]:
    """The kernels that ``--kernels measure`` would choose for a run, and the measurements."""
    network = models.build(model).build(CLASSES, seed=0).to(place.device)
    batch = min(64, *sizes)
    batches = torch.stack(
        [client.train for client in federation([batch] * len(sizes), models.build(model).stored_side)]
    )
    images = batches.to(place.device).repeat(trials, 1, 1, 1, 1)
    mixes = method(name).pseudo_labeler.mixes
    measured = benchmark_kernels(network, images, precision, candidates(place), 2 if place.small else 5, mixes=mixes)
    if place.device.startswith("cuda"):
        torch.cuda.empty_cache()
    return pick_kernels(measured), measured


def tf32(allowed: bool) -> None:
    """Allow or forbid TensorFloat-32 in products of float32 numbers."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
