"""The stacked engine: clients are a dimension of every tensor, so a step of all of them is one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.data.partition import ClientImages
from fedwca.engine.device_copy import synchronize, to_device
from fedwca.engine.interface import RoundWork
from fedwca.engine.layout import Layout, blend_rows, gather_rows
from fedwca.engine.precision import Precision, check_precision
from fedwca.engine.sequential.engine import Statistics
from fedwca.engine.stacked.batch import ClientBatch
from fedwca.engine.stacked.images import PackedImages
from fedwca.engine.stacked.network import StackedNetwork
from fedwca.engine.stacked.training import Capture
from fedwca.engine.stacked.tuning.graphs import CudaGraphs, RecordedSteps
from fedwca.engine.stacked.tuning.kernels import Kernels, default_kernels
from fedwca.engine.stacked.worker import StackedWorker

T = TypeVar("T")


class StackedEngine:
    """Runs slices of clients, every step of a slice at once; memory grows with the slice, not with the clients.

    Results are those of `fedwca.engine.sequential.engine.SequentialEngine` within rounding.

    Args:
        network: the model; its classifier is shared and frozen, its other tensors only give shapes.
        clients: unlabeled images, ``[N, 3, H, W]`` uint8; all of them are kept on the device.
        device: where models and images live.
        workers: clients at the same time, a slice; None: all of them.
        statistics: as for the loop.
        precision: in which clients compute; see `fedwca.engine.precision`.
        train: the clients' training images where they are on the device already, beside those of other trials.
        kernels: how training steps are carried out; None: the usual ones, see `fedwca.engine.stacked.tuning.kernels`.
    """

    def __init__(
        self,
        network: Network,
        clients: Sequence[ClientImages],
        device: str | torch.device = "cpu",
        workers: int | None = None,
        statistics: Statistics = "mixed",
        precision: Precision = "fp32",
        train: PackedImages | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self.statistics, self.precision = statistics, precision
        self.device = torch.device(device)
        check_precision(precision, network.class_vectors.dtype, self.device)
        self.layout = Layout.of(network)
        self.network = network.to(self.device)
        kernels = kernels or default_kernels(self.network, self.device)
        self.stacked = StackedNetwork(self.network, self.layout, precision, kernels)
        self.capture: Capture | None = RecordedSteps(CudaGraphs(self.device)) if kernels == "graphs" else None
        """What carries out training steps; None: they are called one by one."""
        self._train = train or PackedImages([client.train for client in clients], self.device)
        self._test = PackedImages([client.test for client in clients], self.device)
        self.images = self._train.each()
        self.sizes = torch.tensor(self._train.sizes)
        self.bank = self.layout.read(self.network).repeat(len(clients), 1)
        self.workers = max(1, min(workers or len(clients), len(clients)))

    def run(self, round: RoundWork[T]) -> list[T]:
        """As `fedwca.engine.interface.Engine.run` says; the step is taken by one slice after the other."""
        found: dict[int, T] = {}
        for crowd in self._crowds(round.clients, self._train):
            found |= zip(crowd.clients, round.step(self._desk(crowd, round)), strict=True)
            for client in crowd.clients:
                round.done(client)
        synchronize(self.device)
        return [found[client] for client in round.clients]

    def desk(self, round: RoundWork[T]) -> StackedWorker:
        """The work of a round's clients, all at once."""
        (crowd,) = self._crowds(round.clients, self._train, len(round.clients))
        return self._desk(crowd, round)

    def _desk(self, crowd: ClientBatch, round: RoundWork[T]) -> StackedWorker:
        offer = round.offer
        weights = torch.cat(
            [offer.personal[crowd.clients], offer.shared.expand(len(crowd.clients), *offer.shared.shape)], 1
        )
        personal, tasks = offer.personal.shape[1], [round.task(client) for client in crowd.clients]
        return StackedWorker(self, crowd, to_device(weights, self.device), personal, round.rows, tasks)

    def _crowds(self, clients: Sequence[int], pile: PackedImages, at_once: int | None = None) -> list[ClientBatch]:
        """Slices of clients, the largest clients first, so that those of one slice are of similar size."""
        ordered = sorted(clients, key=lambda client: -pile.sizes[client])
        width = at_once or self.workers
        slices = [ordered[i : i + width] for i in range(0, len(ordered), width)]
        return [ClientBatch(self.stacked, pile, some) for some in slices]

    def mix(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Mixtures of models ``[..., R] @ [R, P]``, BatchNorm statistics as ``statistics`` says."""
        return blend_rows(weights, rows, self.layout, self.statistics)

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows: mixtures ``[C, R+K]`` of (previous rows ``[R, P]``, bank)."""
        return gather_rows(weights, rows, self.bank, self.layout, self.statistics)

    def settled(self, crowd: ClientBatch, models: Tensor) -> Tensor:
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
                here = ClientBatch(self.stacked, self._train, tests.clients)
                models = self.settled(here, self.mix(weights[tests.clients], rows))
            classes = tests.outputs(models).logits.argmax(-1).cpu()
            found |= {client: own[:size] for client, own, size in zip(tests.clients, classes, tests.sizes, strict=True)}
        return list(found.values())
