"""The stacked engine: clients are a dimension of every tensor, so a step of all of them is one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.data.partition import ClientImages
from fedwca.engine.bank import Layout, blended, gathered
from fedwca.engine.loop import Statistics
from fedwca.engine.precision import Precision, check
from fedwca.engine.protocol import Work
from fedwca.engine.stacked.crowd import Crowd
from fedwca.engine.stacked.desk import CrowdDesk
from fedwca.engine.stacked.graphs import CudaGraphs, Record
from fedwca.engine.stacked.kernels import Kernels, usual
from fedwca.engine.stacked.network import StackedNetwork
from fedwca.engine.stacked.pile import Pile
from fedwca.engine.task import Task
from fedwca.engine.transfer import arrived, sent
from fedwca.network import Network
from fedwca.types import Offer

T = TypeVar("T")


class Stacked:
    """Runs slices of clients, every step of a slice at once; memory grows with the slice, not with the clients.

    Results are those of `fedwca.engine.loop.Loop` within rounding.

    Args:
        network: the model; its classifier is shared and frozen, its other tensors only give shapes.
        clients: unlabeled images, ``[N, 3, H, W]`` uint8; all of them are kept on the device.
        device: where models and images live.
        workers: clients at the same time, a slice; None: all of them.
        statistics: as for the loop.
        precision: in which clients compute; see `fedwca.engine.precision`.
        train: the clients' training images where they are on the device already, beside those of other trials.
        kernels: how training steps are carried out; None: the usual ones, see `fedwca.engine.stacked.kernels`.
    """

    def __init__(
        self,
        network: Network,
        clients: Sequence[ClientImages],
        device: str | torch.device = "cpu",
        workers: int | None = None,
        statistics: Statistics = "mixed",
        precision: Precision = "fp32",
        train: Pile | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self.statistics, self.precision = statistics, precision
        self.device = torch.device(device)
        check(precision, network.class_vectors.dtype, self.device)
        self.layout = Layout.of(network)
        self.network = network.to(self.device)
        kernels = kernels or usual(self.network, self.device)
        self.stacked = StackedNetwork(self.network, self.layout, precision, kernels)
        self.record: Record | None = CudaGraphs(self.device) if kernels == "graphs" else None
        """How training steps are recorded."""
        self._train = train or Pile([client.train for client in clients], self.device)
        self._test = Pile([client.test for client in clients], self.device)
        self.images = self._train.each()
        self.sizes = torch.tensor(self._train.sizes)
        self.bank = self.layout.read(self.network).repeat(len(clients), 1)
        self.workers = max(1, min(workers or len(clients), len(clients)))

    def run(
        self,
        offer: Offer,
        rows: Tensor,
        task: Callable[[int], Task],
        step: Callable[[Sequence[int], Work], list[T]],
        clients: Sequence[int],
        done: Callable[[int], None] = lambda client: None,
    ) -> list[T]:
        """As `fedwca.engine.protocol.Engine.run` says; ``step`` is called for one slice after the other."""
        found: dict[int, T] = {}
        for crowd in self._crowds(clients, self._train):
            found |= zip(crowd.clients, step(crowd.clients, self._desk(crowd, offer, rows, task)), strict=True)
            for client in crowd.clients:
                done(client)
        arrived(self.device)
        return [found[client] for client in clients]

    def desk(self, offer: Offer, rows: Tensor, task: Callable[[int], Task], clients: Sequence[int]) -> CrowdDesk:
        """The work of clients, all at once; arguments as for `run`."""
        (crowd,) = self._crowds(clients, self._train, len(clients))
        return self._desk(crowd, offer, rows, task)

    def _desk(self, crowd: Crowd, offer: Offer, rows: Tensor, task: Callable[[int], Task]) -> CrowdDesk:
        weights = torch.cat(
            [offer.personal[crowd.clients], offer.shared.expand(len(crowd.clients), *offer.shared.shape)], 1
        )
        personal, tasks = offer.personal.shape[1], [task(client) for client in crowd.clients]
        return CrowdDesk(self, crowd, sent(weights, self.device), personal, rows, tasks)

    def _crowds(self, clients: Sequence[int], pile: Pile, at_once: int | None = None) -> list[Crowd]:
        """Slices of clients, the largest clients first, so that those of one slice are of similar size."""
        ordered = sorted(clients, key=lambda client: -pile.sizes[client])
        width = at_once or self.workers
        slices = [ordered[i : i + width] for i in range(0, len(ordered), width)]
        return [Crowd(self.stacked, pile, some) for some in slices]

    def mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixtures of models ``[..., R] @ [R, P]``, BatchNorm statistics as ``statistics`` says."""
        return blended(weights, rows, self.layout, self.statistics)

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""
        return gathered(weights, rows, self.bank, self.layout, self.statistics)

    def settled(self, crowd: Crowd, models: Tensor) -> Tensor:
        """Mixed models ``[G, P]`` as they are at the clients of a crowd: with their statistics where not mixed."""
        if self.statistics == "local":
            models[:, self.layout.trained :] = self.bank[crowd.numbers, self.layout.trained :]
        elif self.statistics == "recalibrated":
            crowd.recalibrate(models)
        return models

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models as they are at the clients ``[K, P]``: mixtures ``[K, R]`` of rows ``[R, P]``."""
        delivered = torch.empty_like(self.bank)
        for crowd in self._crowds(range(len(self.images)), self._train):
            delivered[crowd.numbers] = self.settled(crowd, self.mix(weights[crowd.clients], rows))
        return delivered

    def classify(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Predicted classes of each client's test images ``[N_test]``, on the CPU; see `Loop.classify`."""
        chosen = range(len(self.images)) if clients is None else clients
        found = {client: torch.zeros(0, dtype=torch.int64) for client in chosen}
        for tests in self._crowds([client for client in found if self._test.sizes[client]], self._test):
            models = self.bank[tests.numbers]
            if weights is not None and rows is not None:
                here = Crowd(self.stacked, self._train, tests.clients)
                models = self.settled(here, self.mix(weights[tests.clients], rows))
            classes = tests.outputs(models).logits.argmax(-1).cpu()
            found |= {client: own[:size] for client, own, size in zip(tests.clients, classes, tests.sizes, strict=True)}
        return list(found.values())
