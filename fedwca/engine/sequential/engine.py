"""The sequential engine: one client after another on views of the bank's rows, on each of several threads."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.core.network import Network
from fedwca.core.training_settings import Precision
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.class_predictions import ClassPredictions, classify_logits, classify_nothing
from fedwca.engine.client_task import SentModels
from fedwca.engine.cpu_cores import count_cores, limit_to_one_thread
from fedwca.engine.device_copy import synchronize
from fedwca.engine.embeddings import embed_images
from fedwca.engine.interface import RoundWork
from fedwca.engine.local_engine import LocalEngine
from fedwca.engine.precision import check_workers
from fedwca.engine.sequential.generated_model import generated_predictions
from fedwca.engine.sequential.images_to_adapt import ImagesToAdapt
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.engine.test_time_adaptation import AdaptedModel, adapt_models

T = TypeVar("T")


class SequentialEngine(LocalEngine):
    """Runs one client at a time per worker; memory is the bank plus one client's activations per worker.

    Args:
        network: the source model; every client uses its frozen parts, such as a classifier that is not trained.
        clients: images, ``[N, 3, H, W]`` uint8, and labels if there are any.
        device: where models and images live.
        workers: clients at the same time; None: as many as there are cores on a CPU, one on a GPU. They run in threads,
            not processes: torch releases the interpreter lock, and the bank needs no copy. Results do not depend on it.
        batch_norm: how BatchNorm's running statistics are treated when models are mixed; see `BatchNormPolicy`.
        precision: in which clients compute; with bfloat16, evaluation and recalibration stay in the network's own.

    Raises:
        UsageError: clients cannot compute in that precision, or not several at the same time.
    """

    def __init__(
        self,
        network: Network,
        clients: Sequence[ClientImages],
        device: str | torch.device = "cpu",
        workers: int | None = None,
        batch_norm: BatchNormPolicy | str = BatchNormPolicy.MIXED,
        precision: Precision = "fp32",
    ) -> None:
        super().__init__(network, clients, device, batch_norm, precision)
        default_workers = count_cores() if self.device.type == "cpu" else 1
        check_workers(precision, workers)
        self.workers = max(1, min(workers or default_workers, len(clients)))
        layout = torch.channels_last
        unique_images = {id(c.train): c.train for c in clients}  # clients with the same image tensor share it
        on_device = {key: x.to(self.device).contiguous(memory_format=layout) for key, x in unique_images.items()}
        self.images = [on_device[id(c.train)] for c in clients]
        self._test = [c.test.to(self.device).contiguous(memory_format=layout) for c in clients]
        self._plain, self._plain_test = (embed_images(self.network, images) for images in (self.images, self._test))
        self.sizes = torch.tensor([len(c.train) for c in clients])
        self._replicas: queue.SimpleQueue[Replica] = queue.SimpleQueue()
        for _ in range(self.workers):
            self._replicas.put(Replica(self.network, self.layout, precision))

    def run(self, round: RoundWork[T]) -> list[T]:
        """See `fedwca.engine.interface.Engine.run`; the step is called in a worker thread, for one client."""
        offer, rows = round.offer, round.rows
        source = self.layout.read(self.network) if round.source is None else round.source

        def work(client: int) -> T:
            weights = torch.cat([offer.personal[client], offer.shared])
            with self._replica() as replica:

                def mix(weights: Tensor) -> Tensor:
                    model = self._mix(weights, rows)
                    return model if round.as_trained else self._apply_batch_norm(client, model, replica)

                received = SentModels(weights, mix, source)
                arguments = (self.images[client], self.labels[client], received, offer.personal.shape[1])
                worker = ClientWorker(replica, *arguments, self.bank[client], round.task(client), self._plain[client])
                return round.step(worker)[0]

        results = self._map(work, round.clients, round.done)
        synchronize(self.device)
        return results

    @contextmanager
    def _replica(self) -> Iterator[Replica]:
        """Context with a replica that no other thread uses."""
        replica = self._replicas.get()
        try:
            yield replica
        finally:
            self._replicas.put(replica)

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models ``[K, P]`` as the clients have them and `classify` evaluates them: mixtures ``[K, R]`` of rows."""

        def work(client: int) -> Tensor:
            with self._replica() as replica:
                return self._model(client, weights, rows, replica)

        return torch.stack(self._map(work))

    def _apply_batch_norm(self, client: int, row: Tensor, replica: Replica) -> Tensor:
        """A mixed model ``[P]`` as a client has it: with that client's statistics if they are not mixed."""

        def recalibrate(model: Tensor) -> None:
            replica.bind(model)
            replica.recalibrate(self._plain[client])

        return self.batch_norm.apply(row, self.bank, client, self.layout, recalibrate)

    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """See `fedwca.engine.interface.Engine.predict_tests`; one client after another."""

        def work(client: int) -> ClassPredictions:
            if len(self._test[client]) == 0:
                return classify_nothing()
            with self._replica() as replica:
                replica.bind(self._model(client, weights, rows, replica))
                return classify_logits(replica.predict(self._plain_test[client]).logits)

        return self._map(work, clients)

    def adapt(
        self,
        adaptation: Adaptation,
        lr: float,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> list[AdaptedModel]:
        """See `fedwca.engine.interface.Engine.adapt`; one client after another."""

        def work(client: int) -> AdaptedModel:
            with self._replica() as replica:
                row = self._model(client, weights, rows, replica)
                if adaptation.generates_models:
                    return generated_predictions(replica, adaptation, self._test[client], row)
                (adapted,) = adapt_models(ImagesToAdapt(replica, self._plain_test[client]), row[None], adaptation, lr)
                return adapted

        return self._map(work, clients)

    def _model(self, client: int, weights: Tensor | None, rows: Tensor | None, replica: Replica) -> Tensor:
        """A client's model ``[P]``: a mixture of rows as the client has it, or its own in the bank."""
        if weights is None or rows is None:
            return self.bank[client]
        return self._apply_batch_norm(client, self._mix(weights[client], rows), replica)

    def _map(
        self,
        work: Callable[[int], T],
        clients: Sequence[int] | None = None,
        done: Callable[[int], None] = lambda client: None,
    ) -> list[T]:
        """The result of ``work`` for each client, by default for all, on as many threads as there are workers."""
        clients = range(len(self.images)) if clients is None else clients
        if self.workers == 1:
            results = []
            with limit_to_one_thread():
                for client in clients:
                    results.append(work(client))
                    done(client)
            return results
        with limit_to_one_thread():
            pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
            try:
                futures = {pool.submit(work, client): client for client in clients}
                for future in as_completed(futures):
                    future.result()
                    done(futures[future])
                return [future.result() for future in futures]
            finally:
                # After an error or Ctrl-C, clients that have not started are cancelled; the others finish their round.
                pool.shutdown(cancel_futures=True)
