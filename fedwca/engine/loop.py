"""The plain engine: client after client on views of the bank's rows, spread over the cores with one thread each."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.data.partition import ClientImages
from fedwca.engine.bank import Layout
from fedwca.engine.client import Desk, Received
from fedwca.engine.replica import Replica
from fedwca.models._network import Network
from fedwca.types import Offer

T = TypeVar("T")


@contextmanager
def one_thread() -> Iterator[None]:
    """Tensor operations use one core inside; the parallelism is over clients, and sums have one order."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cores() -> int:
    """Cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Loop:
    """Runs clients one at a time per worker; memory is the bank plus one client's activations per worker.

    Args:
        network: the model; its classifier is shared and frozen, its other tensors only give shapes.
        clients: unlabeled images, ``[N, 3, H, W]`` uint8.
        device: where models and images live.
        workers: clients at the same time; None: as many as there are cores on a CPU, one on a GPU. Threads, not
            processes: torch releases the interpreter lock, and the bank needs no copy. Results do not depend on it.
    """

    name = "loop"

    def __init__(
        self,
        network: Network,
        clients: Sequence[ClientImages],
        device: str | torch.device = "cpu",
        workers: int | None = None,
    ) -> None:
        self.device = torch.device(device)
        self.layout = Layout.of(network)
        self.network = network.to(self.device)
        best = cores() if self.device.type == "cpu" else 1
        self.workers = max(1, min(workers or best, len(clients)))
        layout = torch.channels_last
        self.images = [c.train.to(self.device).contiguous(memory_format=layout) for c in clients]
        self._test = [c.test.to(self.device).contiguous(memory_format=layout) for c in clients]
        self.sizes = torch.tensor([len(c.train) for c in clients])
        self.dtype = self.network.class_vectors.dtype
        self.bank = torch.zeros(len(clients), self.layout.width, dtype=self.dtype, device=self.device)
        self._replicas: queue.SimpleQueue[Replica] = queue.SimpleQueue()
        for _ in range(self.workers):
            self._replicas.put(Replica(self.network, self.layout))

    def run(
        self,
        offer: Offer,
        rows: Tensor,
        step: Callable[[int, Desk], T],
        clients: Sequence[int] | None = None,
        done: Callable[[int], None] = lambda client: None,
    ) -> list[T]:
        """Send every client its offer and let it take one step; trained models are left in ``bank``.

        Args:
            offer: what each client is sent.
            rows: the server's rows ``[R, P]``.
            step: what a client does; called in a worker thread.
            clients: those that take part; None: all.
            done: called in the calling thread after each client.
        """
        chosen = range(len(self.images)) if clients is None else clients

        def work(client: int) -> T:
            weights = torch.cat([offer.personal[client], offer.shared])
            replica = self._replicas.get()
            try:
                received = Received(weights, rows)
                slot = self.bank[client]
                return step(client, Desk(replica, self.images[client], received, offer.personal.shape[1], slot))
            finally:
                self._replicas.put(replica)

        return self._map(work, chosen, done)

    def classify(self, model: Callable[[int], Tensor]) -> list[Tensor]:
        """Predicted classes of each client's test images ``[N_test]``, on the CPU.

        Args:
            model: the row ``[P]`` to use for a client.
        """

        def work(client: int) -> Tensor:
            if len(self._test[client]) == 0:
                return torch.zeros(0, dtype=torch.int64)
            replica = self._replicas.get()
            try:
                replica.bind(model(client))
                return replica.predict(self._test[client]).logits.argmax(1).cpu()
            finally:
                self._replicas.put(replica)

        return self._map(work, range(len(self._test)), lambda client: None)

    def _map(self, work: Callable[[int], T], clients: Sequence[int], done: Callable[[int], None]) -> list[T]:
        if self.workers == 1:
            results = []
            with one_thread():
                for client in clients:
                    results.append(work(client))
                    done(client)
            return results
        with one_thread():
            pool = ThreadPoolExecutor(self.workers, initializer=torch.set_num_threads, initargs=(1,))
            try:
                futures = {pool.submit(work, client): client for client in clients}
                pending: set[Future[T]] = set(futures)
                while pending:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    for future in finished:
                        future.result()
                        done(futures[future])
                return [future.result() for future in futures]
            finally:
                # After an error or Ctrl-C: clients that have not begun never do; those at work end their round.
                pool.shutdown(cancel_futures=True)
