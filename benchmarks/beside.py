"""The engines beside the plain loop on the same work: local epochs on fixed labels, nothing else."""

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
from fedwca.runs.select_engine import ENGINES

CLASSES = 10


class Fixed(PseudoLabeler):
    """Labels that cost nothing, because the plain loop makes none either."""

    models = ()

    @property
    def mixes(self) -> bool:
        return False

    def __call__(self, predictions, draws, mask=None) -> Targets:  # type: ignore[no-untyped-def]
        everyone = torch.arange(len(draws), device=draws.device)
        ones = torch.ones(len(draws), device=draws.device)
        return Targets(everyone % CLASSES, ones, partners=everyone, mix=0 * ones, matched=ones.bool())


def images(clients: int, each: int) -> torch.Tensor:
    """Random images ``[clients, each, 3, 32, 32]`` uint8."""
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (clients, each, 3, 32, 32), dtype=torch.uint8, generator=draw)


def plain(clients: int, each: int, epochs: int = 1, device: str = "cpu") -> Callable[[], None]:
    """The plain loop over all clients; images are floats on the device before it starts."""
    data = [(x.to(device).float() / 255 - 0.5) / 0.5 for x in images(clients, each)]
    models, labels = [PlainLeNet(CLASSES).to(device) for _ in data], torch.arange(each, device=device) % CLASSES

    def work() -> None:
        for model, x in zip(models, data, strict=True):
            train(model, x, labels, epochs)

    return work


def engine(
    clients: int,
    each: int,
    epochs: int = 1,
    workers: int | None = 1,
    device: str = "cpu",
    kind: str = "loop",
    **options: str,
) -> Callable[[], None]:
    """A FedAvg round of an engine (``kind``) with labels given; ``workers`` None: as many clients as it takes."""
    data = [ClientImages(x, x[:0], x[:0]) for x in images(clients, each)]
    made = ENGINES[kind](LeNet().build(CLASSES), data, device, workers, **options)  # type: ignore[arg-type]
    method = Method("fixed", "fixed", aggregators.build("fedavg"), Fixed(), (Shot(),))
    training, domains = Training(epochs=epochs), torch.zeros(clients, dtype=torch.int64)
    server, _ = run_round(0, init_server(made), method, made, training, Keys(0), domains)
    return lambda: run_round(1, server, method, made, training, Keys(0), domains) and None  # type: ignore[func-returns-value]


def cpu(work: Callable[[], None]) -> float:
    """CPU seconds of this process, all threads."""
    started = time.process_time()
    work()
    return time.process_time() - started


def wall(work: Callable[[], None]) -> float:
    """Seconds on the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def take_turns(ways: Mapping[str, Callable[[], None]], turns: int) -> dict[str, list[float]]:
    """CPU seconds by way, each way called once unmeasured, then in turns whose order alternates."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for turn in range(turns):
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            seconds[name].append(cpu(ways[name]))
    return seconds


def describe_ratios(seconds: Sequence[float], others: Sequence[float], digits: int = 2) -> dict[str, Any]:
    """Median and quartiles of ratios within turns."""
    ratios = [own / other for own, other in zip(seconds, others, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4)
    quarters = [round(low, digits), round(high, digits)]
    return {"median": round(statistics.median(ratios), digits), "quarters": quarters}
