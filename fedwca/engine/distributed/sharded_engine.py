"""An engine that distributes the clients of a federation over ranks; each rank trains and evaluates its own."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.data.federation import ClientImages
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.device_copy import to_device
from fedwca.engine.distributed.process_group import Ranks
from fedwca.engine.interface import Engine, RoundWork
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.errors import FedwcaError

T = TypeVar("T")


def without_other_images(clients: Sequence[ClientImages], ranks: Ranks) -> list[ClientImages]:
    """The clients, where those of other ranks have no images.

    Client k belongs to rank k mod G, so that domains are spread evenly.
    """
    empty = slice(0, 0)

    def without_images(c: ClientImages) -> ClientImages:
        labels = None if c.labels is None else c.labels[empty]
        return ClientImages(c.train[empty], c.test[empty], labels=labels)

    return [c if k % ranks.size == ranks.index else without_images(c) for k, c in enumerate(clients)]


class ShardedEngine:
    """Implements `fedwca.engine.interface.Engine` by another engine on each of G ranks, with the same results.

    Every rank holds the whole bank and runs the server's part, which is the same on all of them. It has the images of
    its own clients only, and trains and evaluates only these. Ranks exchange rows and uploads after training, and
    predictions after an evaluation.

    Args:
        within: this rank's engine for all clients, made with the result of `without_other_images`.
        ranks: the ranks that share the clients.
        clients: all of them with their images, on the CPU; for their sizes, signatures of images, and labels.
    """

    def __init__(self, within: Engine, ranks: Ranks, clients: Sequence[ClientImages]) -> None:
        self.within, self.ranks = within, ranks
        self.layout, self.network = within.layout, within.network
        self.device, self.precision = within.device, within.precision
        self.bank = within.bank
        self.images, self.labels = [client.train for client in clients], [client.labels for client in clients]
        self.sizes = torch.tensor([len(x) for x in self.images])

    def _of(self, rank: int, clients: Sequence[int]) -> list[int]:
        return [client for client in clients if client % self.ranks.size == rank]

    def _level(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Overwrite, on all ranks, each client's row ``[P]`` of ``rows [K, P]`` by that of the client's own rank."""
        for rank in range(self.ranks.size):
            indices = to_device(self._of(rank, clients), rows.device)
            rank_rows = rows[indices]
            self.ranks.broadcast(rank_rows, rank)
            rows[indices] = rank_rows

    def _gather_values(self, own_values: list[T], clients: Sequence[int]) -> list[T]:
        """One value per client, in the order of ``clients``, from the values that each rank has of its own clients."""
        by_client: dict[int, T] = {}
        for rank, values in enumerate(self.ranks.all_gather(own_values)):
            by_client |= zip(self._of(rank, clients), values, strict=True)
        return [by_client[client] for client in clients]

    def run(self, round: RoundWork[T]) -> list[T]:
        """As the protocol says; ``done`` is called for other ranks' clients once all ranks have finished.

        Raises:
            FedwcaError: ranks differ in what they send to clients.
            RankFailed: another rank cannot go on.
        """
        offer, clients = round.offer, round.clients
        checksum = zlib.crc32(b"".join(x.cpu().contiguous().numpy().tobytes() for x in (offer.personal, offer.shared)))
        own_values = self.within.run(round.restrict(self._of(self.ranks.index, clients)))
        values: dict[int, T] = {}
        for rank, (rank_checksum, rank_values) in enumerate(self.ranks.all_gather((checksum, own_values))):
            if rank_checksum != checksum:
                raise FedwcaError(
                    f"ranks {self.ranks.members[rank]} and {self.ranks.members[self.ranks.index]} came to different "
                    "numbers on the server's part; run on machines of one kind, with the same versions"
                )
            rank_clients = self._of(rank, clients)
            values |= zip(rank_clients, rank_values, strict=True)
            for client in rank_clients if rank != self.ranks.index else ():
                round.done(client)
        if round.trains:
            self._level(self.bank, clients)
        return [values[client] for client in clients]

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows ``[C, P]``: those of the first rank, because machines may differ in the last digit."""
        mixed = self.within.gather(weights, rows)
        self.ranks.broadcast(mixed, 0)
        return mixed

    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """As the protocol says, each client at its own rank."""
        chosen = range(len(self.images)) if clients is None else clients
        own_predictions = self.within.predict_tests(weights, rows, self._of(self.ranks.index, chosen))
        return self._gather_values(own_predictions, chosen)

    def adapt(
        self,
        adaptation: Adaptation,
        lr: float,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> list[AdaptedModel]:
        """As the protocol says, each client at its own rank; adapted models come without their rows."""
        chosen = range(len(self.images)) if clients is None else clients
        own_models = self.within.adapt(adaptation, lr, weights, rows, self._of(self.ranks.index, chosen))
        return self._gather_values(own_models, chosen)

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models ``[K, P]`` as the clients have them."""
        models = self.within.deliver(weights, rows)
        self._level(models, range(len(self.images)))
        return models
