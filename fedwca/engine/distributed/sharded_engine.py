"""An engine that shares the clients of a federation out over ranks; each trains and evaluates its own."""

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


def own_images(clients: Sequence[ClientImages], ranks: Ranks) -> list[ClientImages]:
    """The clients, those of other ranks without images: client k is rank (k mod G)'s, so domains are spread evenly."""
    nothing = slice(0, 0)

    def emptied(c: ClientImages) -> ClientImages:
        labels = None if c.labels is None else c.labels[nothing]
        return ClientImages(c.train[nothing], c.validation[nothing], c.test[nothing], labels)

    return [c if k % ranks.size == ranks.index else emptied(c) for k, c in enumerate(clients)]


class ShardedEngine:
    """Satisfies `fedwca.engine.interface.Engine` by another engine on each of G ranks, to the same numbers.

    Every rank holds the whole bank and plays the server's part, which is the same everywhere; it holds the images of,
    trains and evaluates only its own clients. After training, rows and uploads go round; after an evaluation, classes.

    Args:
        within: this rank's engine for all clients, made of what `own_images` gives.
        ranks: who works on these clients.
        clients: all of them, on the CPU; for counts, for signatures of images, and to know who has labels.
    """

    def __init__(self, within: Engine, ranks: Ranks, clients: Sequence[ClientImages]) -> None:
        self.within, self.ranks = within, ranks
        self.layout, self.network, self.device = within.layout, within.network, within.device
        self.bank = within.bank
        self.images, self.labels = [own.train for own in clients], [own.labels for own in clients]
        self.sizes = torch.tensor([len(x) for x in self.images])

    def _of(self, rank: int, clients: Sequence[int]) -> list[int]:
        return [client for client in clients if client % self.ranks.size == rank]

    def _level(self, rows: Tensor, clients: Sequence[int]) -> None:
        """Give everybody each client's row ``[P]`` of ``rows [K, P]`` as its own rank has it."""
        for rank in range(self.ranks.size):
            theirs = to_device(self._of(rank, clients), rows.device)
            some = rows[theirs]
            self.ranks.broadcast(some, rank)
            rows[theirs] = some

    def _gather_values(self, mine: list[T], clients: Sequence[int]) -> list[T]:
        """One value a client, in their order, from those that each rank has of its own clients."""
        found: dict[int, T] = {}
        for rank, some in enumerate(self.ranks.all_gather(mine)):
            found |= zip(self._of(rank, clients), some, strict=True)
        return [found[client] for client in clients]

    def run(self, round: RoundWork[T]) -> list[T]:
        """As the protocol says; ``done`` is called for other ranks' clients once all have ended.

        Raises:
            FedwcaError: the ranks do not send clients the same.
            RankFailed: another rank cannot go on.
        """
        offer, clients = round.offer, round.clients
        sent = zlib.crc32(b"".join(x.cpu().contiguous().numpy().tobytes() for x in (offer.personal, offer.shared)))
        found = self.within.run(round.restrict(self._of(self.ranks.index, clients)))
        values: dict[int, T] = {}
        for rank, (told, some) in enumerate(self.ranks.all_gather((sent, found))):
            if told != sent:
                raise FedwcaError(
                    f"ranks {self.ranks.members[rank]} and {self.ranks.members[self.ranks.index]} came to different "
                    "numbers on the server's part; run on machines of one kind, with the same versions"
                )
            theirs = self._of(rank, clients)
            values |= zip(theirs, some, strict=True)
            for client in theirs if rank != self.ranks.index else ():
                round.done(client)
        self._level(self.bank, clients)
        return [values[client] for client in clients]

    def gather(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Next server rows ``[C, P]``: those of the first rank, lest machines differ in a last digit."""
        mixed = self.within.gather(weights, rows)
        self.ranks.broadcast(mixed, 0)
        return mixed

    def predict_tests(
        self, weights: Tensor | None = None, rows: Tensor | None = None, clients: Sequence[int] | None = None
    ) -> list[ClassPredictions]:
        """As the protocol says, each client at its own rank."""
        asked = range(len(self.images)) if clients is None else clients
        mine = self.within.predict_tests(weights, rows, self._of(self.ranks.index, asked))
        return self._gather_values(mine, asked)

    def adapt(
        self,
        adaptation: Adaptation,
        lr: float,
        weights: Tensor | None = None,
        rows: Tensor | None = None,
        clients: Sequence[int] | None = None,
    ) -> list[AdaptedModel]:
        """As the protocol says, each client at its own rank."""
        asked = range(len(self.images)) if clients is None else clients
        mine = self.within.adapt(adaptation, lr, weights, rows, self._of(self.ranks.index, asked))
        return self._gather_values(mine, asked)

    def deliver(self, weights: Tensor, rows: Tensor) -> Tensor:
        """Models as they are at the clients ``[K, P]``."""
        models = self.within.deliver(weights, rows)
        self._level(models, range(len(self.images)))
        return models
