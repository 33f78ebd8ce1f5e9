"""One communication round, read top to bottom."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedwca.engine.protocol import Engine, Work
from fedwca.engine.randomness import Keys, permutation, uniform
from fedwca.engine.signature import BankSignatures
from fedwca.engine.task import Task, Training
from fedwca.errors import FedwcaError
from fedwca.kinds import Aggregator, Clusterer, Objective, PseudoLabeler
from fedwca.types import Blend, Offer, State
from fedwca.uploads import Upload, check, collected, share, uploaded


@dataclass(frozen=True)
class Method:
    """A composition of components: what one row of a table is."""

    name: str
    label: str
    aggregator: Aggregator
    pseudo_labeler: PseudoLabeler
    objectives: tuple[Objective, ...]
    clusterer: Clusterer | None = None
    """Only where the aggregator's partition is given from outside."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    rows: Tensor
    """``[R, P]``; one row, the source model, before round 0."""
    state: State
    """What the aggregator remembers, and under ``collected.<objective>.<name>`` what clients last uploaded
    beside their models ``[K, …]``; empty before round 0."""
    source: Tensor
    """``[P]``, the model everybody started from."""


@dataclass(frozen=True)
class Outcome:
    """What happened in a round."""

    labels: Tensor
    """Cluster of each client ``[K]``."""
    offer: Offer
    uploads: Mapping[int, Upload]
    """By client; those that were absent are not in it."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What each client was sent beside models."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the clusterer says of its partition, as plain values; only in round 0."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of the server: ``group`` for checks and clusters, ``mix`` for averages."""

    @property
    def present(self) -> Tensor:
        """Clients that took part ``[K]`` bool."""
        return torch.tensor([client in self.uploads for client in range(len(self.labels))])

    @property
    def weights(self) -> Tensor:
        """Starts as mixtures of the server's rows ``[K, R]``; NaN for absent clients."""
        return self._stacked({client: upload.weights for client, upload in self.uploads.items()})

    @property
    def report(self) -> dict[str, Tensor]:
        """What clients reported: ``{name: [K, …]}``; NaN for absent clients."""
        names = next(iter(self.uploads.values())).report
        return {name: self._stacked({k: u.report[name][0] for k, u in self.uploads.items()}) for name in names}

    def _stacked(self, values: Mapping[int, Tensor]) -> Tensor:
        missing = torch.full_like(next(iter(values.values())), torch.nan)
        return torch.stack([values.get(client, missing) for client in range(len(self.labels))])


def begin(engine: Engine) -> Server:
    """The server before round 0: it owns the source model and nothing else; every client's own model is the source."""
    source = engine.layout.read(engine.network)
    engine.bank.copy_(source.expand_as(engine.bank))
    return Server(source[None], {}, source)


def play(
    round: int,
    server: Server,
    method: Method,
    engine: Engine,
    training: Training,
    keys: Keys,
    domains: Tensor,
    participation: float = 1.0,
    done: Callable[[int], None] = lambda client: None,
) -> tuple[Server, Outcome]:
    """One round: send, adapt at the clients, group, average, remember.

    Args:
        round: r, counted from 0.
        server: what the server holds.
        method: the components.
        engine: owns the clients' images and the bank.
        training: epochs and optimiser.
        keys: where random numbers come from.
        domains: true domains ``[K]``, handed on to oracles alone.
        participation: share of the clients that take part in a round after the first, above 0 and at most 1.
        done: called after each client.

    Raises:
        Diverged: a client's model has values that are not finite.
        FedwcaError: a client's report does not fit what the aggregator declares.
    """
    aggregator, clients = method.aggregator, len(engine.images)
    shared = share(method.objectives, server.state)

    def task(client: int) -> Task:
        draws = lambda purpose: keys(round, client, purpose)  # noqa: E731
        return Task(method.pseudo_labeler, method.objectives, training.at(round), draws, shared)

    def adapt(some: Sequence[int], work: Work) -> list[Upload]:
        with work.clock("evidence"):
            blend = aggregator.blend(round, work) if round else Blend(work.own)
        targets = work.train(blend)
        return uploaded(blend, work, targets, work.collect(targets))

    trained = server.rows[:, : engine.layout.trained]
    offer = aggregator.offer(server.state, round, trained) if round else source_for(clients)
    chosen = attendance(round, clients, participation, keys)
    uploads = dict(zip(chosen, engine.run(offer, server.rows, task, adapt, chosen, done), strict=True))
    adapted = time.perf_counter()
    check(engine.bank, aggregator.expected(round) if round else {}, uploads, offer)
    labels, notes = partition(round, server, method, engine, uploads, keys, domains)
    outcome, grouped = Outcome(labels, offer, uploads, shared, notes), time.perf_counter()
    gather = aggregator.gather(server.state, labels, engine.sizes, outcome.present, len(server.rows))
    rows = engine.gather(gather, server.rows)
    state = aggregator.learn(server.state, labels, outcome.report, outcome.present)
    state = {**state, **collected(server.state, {k: u.collected for k, u in uploads.items()}, clients)}
    seconds = {"group": grouped - adapted, "mix": time.perf_counter() - grouped}
    return Server(rows, state, server.source), replace(outcome, seconds=seconds)


def attendance(round: int, clients: int, participation: float, keys: Keys) -> list[int]:
    """Clients that take part in a round: all in round 0, where clusters are made, then a drawn share of them."""
    if round == 0 or participation == 1:
        return list(range(clients))
    number = max(1, builtins.round(participation * clients))
    return sorted(permutation(keys(round, -1, "participation"), clients)[:number].tolist())


def source_for(clients: int) -> Offer:
    """Round 0: everybody is sent the server's only row."""
    return Offer(torch.ones(clients, 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))


def partition(
    round: int,
    server: Server,
    method: Method,
    engine: Engine,
    uploads: Mapping[int, Upload],
    keys: Keys,
    domains: Tensor,
) -> tuple[Tensor, Mapping[str, Any]]:
    """Cluster of each client ``[K]``: by the clusterer once after round 0, or as the aggregator's partition says.

    With the clusterer's labels come its notes.
    """
    clients = len(engine.images)
    match method.aggregator.partition:
        case "one":
            return torch.zeros(clients, dtype=torch.int64), {}
        case "each":
            return torch.arange(clients), {}
        case "self" if not round:
            return method.aggregator.first(clients, uniform(keys(0, -1, "partition"), torch.arange(clients))), {}
        case "self":
            labels = server.state["labels"].clone()
            for client, upload in uploads.items():
                if upload.label is not None:
                    labels[client] = upload.label[0]
            return labels, {}
        case _ if round:
            return server.state["labels"], {}
        case _:
            assert method.clusterer is not None
            truth = domains if method.clusterer.oracle else None
            found = BankSignatures(
                engine.bank, engine.layout, server.source, truth, engine.images, lambda k: keys(0, k, "style")
            )
            labels = checked(method.clusterer(found).cpu(), clients, method.clusterer.name)
            return labels, method.clusterer.notes(found)


def checked(labels: Tensor, clients: int, name: str) -> Tensor:
    """A clusterer's labels, if they are one for each client, numbered from 0 without gaps.

    Raises:
        FedwcaError: they are not.
    """
    right = labels.shape == (clients,) and labels.dtype == torch.int64
    if not right or labels.unique().tolist() != list(range(int(labels.max()) + 1)):
        raise FedwcaError(
            f"clusterer {name!r} gave {labels.tolist()}; right would be {clients} int64 labels, 0 to C-1 without gaps"
        )
    return labels
