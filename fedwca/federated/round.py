"""One communication round, read top to bottom."""

from __future__ import annotations

import builtins
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedwca.core.interfaces import Aggregator, Clusterer, Objective, PseudoLabeler
from fedwca.core.messages import Blend, Offer, State, Targets
from fedwca.engine.interface import ClientWork, Engine
from fedwca.engine.randomness import Keys, permutation
from fedwca.engine.task import Task, Training
from fedwca.federated.clustering import assign_clusters
from fedwca.federated.validation import Upload, check_uploads, make_uploads, remember_uploads, shared_uploads


@dataclass(frozen=True)
class Method:
    """A composition of components: what one row of a table is."""

    name: str
    label: str
    aggregator: Aggregator
    pseudo_labeler: PseudoLabeler
    objectives: tuple[Objective, ...]
    clusterer: Clusterer | None = None
    """Only where the aggregator's grouping needs one."""


@dataclass(frozen=True)
class Server:
    """What the server holds between rounds."""

    rows: Tensor
    """``[R, P]``; one row, the source model, before round 0."""
    state: State
    """What the aggregator remembers, and under ``remember_uploads.<objective>.<name>`` what clients last uploaded
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
    """What the clusterer says of its clusters, as plain values; only in round 0."""
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


def init_server(engine: Engine) -> Server:
    """The server before round 0: it owns the source model and nothing else; every client's own model is the source."""
    source = engine.layout.read(engine.network)
    engine.bank.copy_(source.expand_as(engine.bank))
    return Server(source[None], {}, source)


@dataclass(frozen=True)
class OpenRound:
    """A round of one federation that the server has begun: what it sends to whom, and what comes back of it."""

    round: int
    server: Server
    method: Method
    engine: Engine
    keys: Keys
    domains: Tensor
    offer: Offer
    shared: Mapping[str, Tensor]
    """What each client is sent beside models."""
    task: Callable[[int], Task]
    """What each client is to do."""
    clients: Sequence[int]
    """Those that take part."""
    done: Callable[[int], None]
    """Called after each client."""

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``, which the offer's models are mixtures of."""
        return self.server.rows

    def blend(self, work: ClientWork) -> Blend:
        """Where clients start, by what they find in their own images."""
        with work.clock("evidence"):
            return self.method.aggregator.blend(self.round, work) if self.round else Blend(work.own)

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[Upload]:
        """What trained clients send back."""
        return make_uploads(blend, work, targets, work.collect(targets))

    def step(self, clients: Sequence[int], work: ClientWork) -> list[Upload]:
        """A client's part from the first message to the last."""
        blend = self.blend(work)
        return self.upload(work, blend, work.train(blend))


def open_round(
    round: int,
    server: Server,
    method: Method,
    engine: Engine,
    training: Training,
    keys: Keys,
    domains: Tensor,
    participation: float = 1.0,
    done: Callable[[int], None] = lambda client: None,
) -> OpenRound:
    """The server's first part of a round; see `run_round`."""
    clients, shared = len(engine.images), shared_uploads(method.objectives, server.state)

    def task(client: int) -> Task:
        draws = lambda purpose: keys(round, client, purpose)  # noqa: E731
        return Task(method.pseudo_labeler, method.objectives, training.at(round), draws, shared)

    trained = server.rows[:, : engine.layout.trained]
    offer = method.aggregator.offer(server.state, round, trained) if round else offer_source(clients)
    chosen = sample_clients(round, clients, participation, keys)
    return OpenRound(round, server, method, engine, keys, domains, offer, shared, task, chosen, done)


def close_round(turn: OpenRound, uploads: Sequence[Upload]) -> tuple[Server, Outcome]:
    """The server's last part of a round: check, group, average, remember.

    Args:
        turn: the round; its clients' trained models are in the engine's bank.
        uploads: of its clients, in order.

    Raises:
        Diverged: see `run_round`.
        FedwcaError: see `run_round`.
    """
    round, server, method, engine = turn.round, turn.server, turn.method, turn.engine
    aggregator, clients, began = method.aggregator, len(engine.images), time.perf_counter()
    by_client = dict(zip(turn.clients, uploads, strict=True))
    check_uploads(engine.bank, aggregator.expected(round) if round else {}, by_client, turn.offer)
    labels, notes = assign_clusters(
        round, aggregator, method.clusterer, server.state, server.source, engine, by_client, turn.keys, turn.domains
    )
    outcome, grouped = Outcome(labels, turn.offer, by_client, turn.shared, notes), time.perf_counter()
    gather = aggregator.gather(server.state, labels, engine.sizes, outcome.present, len(server.rows))
    rows = engine.gather(gather, server.rows)
    state = aggregator.learn(server.state, labels, outcome.report, outcome.present)
    state = {**state, **remember_uploads(server.state, {k: u.collected for k, u in by_client.items()}, clients)}
    seconds = {"group": grouped - began, "mix": time.perf_counter() - grouped}
    return Server(rows, state, server.source), replace(outcome, seconds=seconds)


def run_round(
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
    turn = open_round(round, server, method, engine, training, keys, domains, participation, done)
    return close_round(turn, engine.run(turn.offer, server.rows, turn.task, turn.step, turn.clients, done))


def sample_clients(round: int, clients: int, participation: float, keys: Keys) -> list[int]:
    """Clients that take part in a round: all in round 0, where clusters are made, then a drawn share of them."""
    if round == 0 or participation == 1:
        return list(range(clients))
    number = max(1, builtins.round(participation * clients))
    return sorted(permutation(keys(round, -1, "participation"), clients)[:number].tolist())


def offer_source(clients: int) -> Offer:
    """Round 0: everybody is sent the server's only row."""
    return Offer(torch.ones(clients, 1, 1, dtype=torch.float64), torch.zeros(0, 1, dtype=torch.float64))
