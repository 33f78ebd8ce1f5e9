"""The stacked engine: clients are an axis of every tensor, so one call makes a step of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.class_predictions import ClassPredictions, classify_logits, classify_nothing
from fedwca.engine.device_copy import synchronize, to_device
from fedwca.engine.interface import RoundWork
from fedwca.engine.local_engine import LocalEngine
from fedwca.engine.stacked.batch_to_adapt import BatchToAdapt
from fedwca.engine.stacked.client_batch import ClientBatch
from fedwca.engine.stacked.network import StackedNetwork
from fedwca.engine.stacked.packed_images import PackedImages
from fedwca.engine.stacked.received_models import StackedReceived
from fedwca.engine.stacked.train import Capture
from fedwca.engine.stacked.tuning.graphs import CudaGraphs, RecordedSteps
from fedwca.engine.stacked.tuning.kernels import Kernels, default_kernels
from fedwca.engine.stacked.worker import StackedWorker
from fedwca.engine.test_time_adaptation import AdaptedModel, adapt_models

T = TypeVar("T")


class StackedEngine(LocalEngine):
    """Runs slices of clients, every step of a slice at once; memory grows with the slice, not with all clients.

    Results are those of `fedwca.engine.sequential.engine.SequentialEngine` within rounding.

    Args:
        network: the source model; every client uses its frozen parts, such as a classifier that is not trained.
        clients: images, ``[N, 3, H, W]`` uint8, and labels if there are any; all of them are kept on the device.
        device: where models and images live.
        workers: clients in a slice, which work at the same time; None: all of them.
        batch_norm: how BatchNorm's running statistics are treated when models are mixed.
        precision: in which clients compute; see `fedwca.engine.precision`.
        train: the clients' training images if they are on the device already, with those of other trials.
        kernels: how training steps are carried out; None: the default, see `fedwca.engine.stacked.tuning.kernels`.
    """

    def __init__(
        self,
        network: Network,
        clients: Sequence[ClientImages],
        device: str | torch.device = "cpu",
        workers: int | None = None,
        batch_norm: BatchNormPolicy | str = BatchNormPolicy.MIXED,
        precision: Precision = "fp32",
        train: PackedImages | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        super().__init__(network, clients, device, batch_norm, precision)
        kernels = kernels or default_kernels(self.network, self.device)
        self.stacked = StackedNetwork(self.network, self.layout, precision, kernels)
        self.capture: Capture | None = RecordedSteps(CudaGraphs(self.device)) if kernels == "graphs" else None
        """Runs training steps; None: they are called directly."""
        self._train = train or PackedImages([client.train for client in clients], self.device, self.network)
        self._test = PackedImages([client.test for client in clients], self.device, self.network)
        self.images = self._train.each()
        self.sizes = torch.tensor(self._train.sizes)
        self.workers = max(1, min(workers or len(clients), len(clients)))

    def run(self, round: RoundWork[T]) -> list[T]:
        """See `fedwca.engine.interface.Engine.run`; the step is called for one slice after another."""
        results: dict[int, T] = {}
        idle = {client: round.task(client).idle for client in round.clients}
        active_and_idle = ([client for client in round.clients if idle[client] is is_idle] for is_idle in (False, True))
        for batch in [batch for clients in active_and_idle for batch in self._batches(clients, self._train)]:
            results |= zip(batch.clients, round.step(self._worker(batch, round)), strict=True)
            for client in batch.clients:
                round.done(client)
        synchronize(self.device)
        return [results[client] for client in round.clients]

    def worker(self, round: RoundWork[T]) -> StackedWorker:
        """The work of a round's clients, all at once."""
        (batch,) = self._batches(round.clients, self._train, len(round.clients))
        return self._worker(batch, round)

    def _worker(self, batch: ClientBatch, round: RoundWork[T]) -> StackedWorker:
        offer, rows = round.offer, round.rows
        shared = offer.shared.expand(len(batch.clients), *offer.shared.shape)

        def mix(weights: Tensor) -> Tensor:
            models = self._mix(weights, rows)
            return models if round.as_trained else self._apply_batch_norm(batch, models)

        received = StackedReceived(
            to_device(torch.cat([offer.personal[batch.clients], shared], 1), self.device),
            offer.personal.shape[1],
            mix,
            (lambda weights: self._mix(weights, rows)) if self.batch_norm.one_model else None,
            self.layout.read(self.network) if round.source is None else round.source,
        )
        return StackedWorker(batch, received, self.bank, [round.task(client) for client in batch.clients], self.capture)

    def _batches(self, clients: Sequence[int], images: PackedImages, at_once: int | None = None) -> list[ClientBatch]:
        """Slices of clients in order of decreasing size, so that the clients of a slice have similar sizes."""
        ordered = sorted(clients, key=lambda client: -images.sizes[client])
        width = at_once or self.workers
        slices = [ordered[i : i + width] for i in range(0, len(ordered), width)]
        labels = self.labels if images is self._train else ()
        return [ClientBatch(self.stacked, images, members, labels) for members in slices]

    def _apply_batch_norm(self, batch: ClientBatch, models: Tensor) -> Tensor:
        """Mixed models ``[G, P]`` as the clients of a batch have them: with their statistics if these are not mixed."""
        return self.batch_norm.apply(models, self.bank, batch.numbers, self.layout, batch.recalibrate)

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models ``[K, P]`` as the clients have them: mixtures ``[K, R]`` of rows ``[R, P]``."""
        delivered = torch.empty_like(self.bank)
        for batch in self._batches(range(len(self.images)), self._train):
            delivered[batch.numbers] = self._apply_batch_norm(batch, self._mix(weights[batch.clients], rows))
        return delivered

    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """See `fedwca.engine.interface.Engine.predict_tests`; one slice of clients at a time."""
        chosen = range(len(self.images)) if clients is None else clients
        predictions = dict.fromkeys(chosen, classify_nothing())
        for tests in self._batches([client for client in predictions if self._test.sizes[client]], self._test):
            models = self._models(tests.clients, weights, rows)
            stacked = classify_logits(tests.outputs(models).logits)
            predictions |= {
                client: ClassPredictions(classes[:size], confidences[:size])
                for client, classes, confidences, size in zip(tests.clients, *stacked, tests.sizes, strict=True)
            }
        return list(predictions.values())

    def adapt(
        self,
        adaptation: Adaptation,
        lr: float,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> list[AdaptedModel]:
        """See `fedwca.engine.interface.Engine.adapt`; one slice of clients at a time."""
        chosen = list(range(len(self.images)) if clients is None else clients)
        adapted: dict[int, AdaptedModel] = {}
        for tests in self._batches([client for client in chosen if self._test.sizes[client]], self._test):
            models = self._models(tests.clients, weights, rows)
            adapted |= zip(tests.clients, adapt_models(BatchToAdapt(tests), models, adaptation, lr), strict=True)
        for client in chosen:
            if not self._test.sizes[client]:
                model = self._models([client], weights, rows)[0]
                adapted[client] = AdaptedModel.unmoved(model, len(self.network.class_vectors))
        return [adapted[client] for client in chosen]

    def _models(self, clients: Sequence[int], weights: Tensor | None, rows: Tensor | None) -> Tensor:
        """Models ``[G, P]`` of some clients: mixtures of rows as these clients have them, or their own in the bank."""
        batch = ClientBatch(self.stacked, self._train, clients)
        if weights is None or rows is None:
            return self.bank[batch.numbers]
        return self._apply_batch_norm(batch, self._mix(weights[batch.clients], rows))
