"""The same work for the engines and for the plain loop: local epochs on fixed labels, nothing else."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from plain import PlainLeNet, train

from fedwca import Keys, Method, Training, init_server, run_round
from fedwca.aggregators import aggregators
from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Targets
from fedwca.data.federation import ClientImages
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.runs.resources.select_engine import ENGINES

CLASSES = 10


class Fixed(PseudoLabeler):
    """Fixed labels that take no time to compute, because the plain loop computes none either."""

    models = ()

    @property
    def mixes(self) -> bool:
        return False

    def __call__(self, predictions, draws, mask=None) -> Targets:  # type: ignore[no-untyped-def]
        indices = torch.arange(len(draws), device=draws.device)
        ones = torch.ones(len(draws), device=draws.device)
        return Targets(indices % CLASSES, ones, partners=indices, partner_weights=0 * ones, models_agree=ones.bool())


def images(clients: int, per_client: int) -> torch.Tensor:
    """Random images ``[clients, per_client, 3, 32, 32]`` uint8."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (clients, per_client, 3, 32, 32), dtype=torch.uint8, generator=generator)


def plain(clients: int, per_client: int, epochs: int = 1, device: str = "cpu") -> Callable[[], None]:
    """A function that trains all clients in the plain loop, on float images that are on the device already."""
    data = [(x.to(device).float() / 255 - 0.5) / 0.5 for x in images(clients, per_client)]
    models, labels = [PlainLeNet(CLASSES).to(device) for _ in data], torch.arange(per_client, device=device) % CLASSES

    def work() -> None:
        for model, x in zip(models, data, strict=True):
            train(model, x, labels, epochs)

    return work


def engine(
    clients: int,
    per_client: int,
    epochs: int = 1,
    workers: int | None = 1,
    device: str = "cpu",
    kind: str = "loop",
    **options: str,
) -> Callable[[], None]:
    """A function that runs a FedAvg round of an engine on fixed labels; ``workers`` None is the engine's default."""
    data = [ClientImages(x, x[:0]) for x in images(clients, per_client)]
    client_engine = ENGINES[kind](LeNet().build(CLASSES), data, device, workers, **options)  # type: ignore[arg-type]
    method = Method("fixed", "fixed", aggregators.build("fedavg"), Fixed(), (Shot(),))
    training, domains = Training(epochs=epochs), torch.zeros(clients, dtype=torch.int64)
    server, _ = run_round(0, init_server(client_engine), method, client_engine, training, Keys(0), domains)
    return lambda: run_round(1, server, method, client_engine, training, Keys(0), domains) and None  # type: ignore[func-returns-value]


def cpu(work: Callable[[], None]) -> float:
    """CPU seconds that work takes in this process, over all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def wall(work: Callable[[], None]) -> float:
    """Wall-clock seconds that work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def take_turns(workloads: Mapping[str, Callable[[], None]], turns: int) -> dict[str, list[float]]:
    """CPU seconds of each workload by turn; each is called once unmeasured, then in turns whose order alternates."""
    seconds: dict[str, list[float]] = {name: [] for name in workloads}
    for work in workloads.values():
        work()
    for turn in range(turns):
        for name in list(workloads) if turn % 2 == 0 else reversed(list(workloads)):
            seconds[name].append(cpu(workloads[name]))
    return seconds


def describe_ratios(seconds: Sequence[float], base_seconds: Sequence[float], digits: int = 2) -> dict[str, Any]:
    """Median and quartiles of the ratios ``seconds / base_seconds`` within turns."""
    ratios = [value / base for value, base in zip(seconds, base_seconds, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    quarters = [round(low, digits), round(high, digits)]
    return {"median": round(statistics.median(ratios), digits), "quarters": quarters}
