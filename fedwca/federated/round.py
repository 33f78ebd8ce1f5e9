"""One communication round, read top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedwca.core.grouping import TRUSTED, averaged_clients
from fedwca.core.messages import Blend, Offer, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine
from fedwca.engine.randomness import Keys
from fedwca.federated.aggregator_weights import blend_mixtures, check_starts, gather_mixtures, regather_mixtures
from fedwca.federated.client_tasks import client_task
from fedwca.federated.mean_answers import MeanAnswers, ask_about_mean
from fedwca.federated.method import Method
from fedwca.federated.participation import sample_clients
from fedwca.federated.server import (
    Server,
    assign_clusters,
    declare_collected,
    expect_uploads,
    find_unlabeled,
    keep_layers,
    next_state,
    offer_models,
    pool_collected,
    spread_trained_mean,
    stack_by_client,
    stack_reports,
    take_server_step,
)
from fedwca.federated.simulated_uploads import SimulatedUpload, make_uploads
from fedwca.federated.trusted_clients import find_trusted, measure_trust
from fedwca.federated.upload_checks import ExpectedUpload, Upload, check_uploads


@dataclass(frozen=True)
class Outcome:
    """What happened in a round."""

    labels: Tensor
    """Cluster of each client ``[K]``."""
    offer: Offer
    uploads: Mapping[int, SimulatedUpload]
    """By client; those that were absent are not in it."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What each client was sent beside models."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the clusterer says of its clusters, as plain values; only in round 0."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of the server: ``group`` for checks and clusters, ``mix`` for averages."""
    gathered: Tensor | None = None
    """The server's rows as mixtures ``[C, R+K]`` of (previous rows, clients); None where clients were not asked."""
    mean_answers: MeanAnswers | None = None
    """What clients said of the fresh mean; None where they were not asked."""
    trusted: Tensor | None = None
    """How far clients' labels are trusted ``[K]``, 0 to 1; None where all are."""
    signature: int = 0
    """Numbers that each client uploaded to be grouped by, beside its model."""

    @property
    def present(self) -> Tensor:
        """Clients that took part ``[K]`` bool."""
        return present_clients(self.uploads, len(self.labels))

    @property
    def weights(self) -> Tensor:
        """Starts as mixtures of the server's rows ``[K, R]``; NaN for absent clients."""
        return stack_by_client({client: upload.weights for client, upload in self.uploads.items()}, len(self.labels))

    @property
    def report(self) -> dict[str, Tensor]:
        """What clients reported: ``{name: [K, …]}``; NaN for absent clients."""
        return stack_reports(self.uploads, len(self.labels))


def init_server(engine: Engine, start: Network | None = None, own: Tensor | None = None) -> Server:
    """The server before round 0: it owns the source model and nothing else; every client's own model is the source.

    Args:
        engine: has the bank.
        start: what stands in for the source model; None: the engine's.
        own: what every client begins with ``[K, P]`` instead, each with a row at the server; None: with the source.
    """
    source = engine.layout.read(engine.network if start is None else start)
    rows = source[None] if own is None else own.to(engine.bank)
    engine.bank.copy_(rows.expand_as(engine.bank))
    return Server(rows, {}, source)


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
    last_phase: bool = False
    """Whether clients without labels adapt what they were sent, after all rounds."""
    trusted: Tensor | None = None
    """How far clients' labels are trusted ``[K]``, 0 to 1; None where all are."""
    taught: Mapping[str, Tensor] = field(default_factory=dict)
    """What each client was sent of all clients' predictions of public images."""
    public_seconds: float = 0.0
    """That all of them learned from these, by the clock."""

    @property
    def unlabeled(self) -> Tensor:
        """Clients ``[K]`` bool without labels where others have some."""
        return find_unlabeled(self.engine.labels)

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``, which the offer's models are mixtures of."""
        return self.server.rows

    def blend(self, work: ClientWork) -> Blend:
        """Where clients start, by what they find in their own images."""
        with work.clock("evidence"):
            if (self.round or self.method.aggregator.from_start) and not self.last_phase:
                return blend_mixtures(self.method.aggregator, self.round, work)
            if any(own is not None for own in work.labels):
                return Blend(work.own)
            # Of the untouched source model, or in the last phase of what clients with labels made.
            with torch.no_grad():  # the pass that labels are made by, which is not made twice
                return Blend(work.own, notes={"trust": measure_trust(work.outputs(work.own))})

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[SimulatedUpload]:
        """What trained clients send back."""
        return make_uploads(blend, work, targets, work.collect(targets))

    def step(self, work: ClientWork) -> list[SimulatedUpload]:
        """A client's part from the first message to the last."""
        blend = self.blend(work)
        return self.upload(work, blend, work.train(blend))

    def restrict(self, clients: Sequence[int]) -> OpenRound:
        """The same for some of the clients alone."""
        return replace(self, clients=clients)


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
    clients, shared = len(engine.images), pool_collected(method.own_objectives, server.state)

    def task(client: int) -> Task:
        own = 1.0 if trusted is None else float(trusted[client])
        return client_task(method, training, round, keys, client, shared, own)

    if not round and method.aggregator.from_start:
        server = replace(server, state=method.aggregator.initial_state(clients))
    trusted = server.state.get(TRUSTED)  # read by tasks when they are made, so also what is found below
    offer = offer_models(round, server, method.aggregator, clients, engine.layout.trained)
    members = [k for k, without in enumerate(find_unlabeled(engine.labels).tolist()) if not without]
    chosen = [members[place] for place in sample_clients(round, len(members), participation, keys)]
    if not round:
        unlabeled = [k for k in chosen if engine.labels[k] is None]
        trusted = find_trusted(method.pseudo_labeler, engine, offer, server.rows, task, unlabeled)
    return OpenRound(
        round=round,
        server=server,
        method=method,
        engine=engine,
        keys=keys,
        domains=domains,
        offer=offer,
        shared=shared,
        task=task,
        clients=chosen,
        done=done,
        trusted=trusted,
    )


def close_round(opened: OpenRound, uploads: Sequence[SimulatedUpload]) -> tuple[Server, Outcome]:
    """The server's last part of a round: check, group, average, remember.

    Args:
        opened: the round; its clients' trained models are in the engine's bank.
        uploads: of its clients, in order.

    Raises:
        Diverged: see `run_round`.
        FedwcaError: see `run_round`.
    """
    round, server, method, engine = opened.round, opened.server, opened.method, opened.engine
    aggregator, began = method.aggregator, time.perf_counter()
    by_client = dict(zip(opened.clients, uploads, strict=True))
    present = present_clients(by_client, len(engine.images))
    check_uploads(engine.bank, by_client, expect_simulated(opened))
    check_starts(aggregator, [upload.weights for upload in uploads])
    signatures = read_signatures(opened)
    labels, notes = assign_clusters(round, method, server.state, by_client, present, lambda: signatures, opened.keys)
    grouped = time.perf_counter()
    counted = averaged_clients(labels, present, opened.trusted)
    given = (labels, engine.sizes, present, opened.trusted, engine.layout.trained)
    give_back = spread_trained_mean(method, engine.bank, *given)
    known = {**server.state, **({"moved": measure_reach(opened)} if aggregator.infers_gradients else {})}
    gather = gather_mixtures(aggregator, known, labels, engine.sizes, counted, len(server.rows))
    rows, mean_answers = engine.gather(gather, server.rows), None
    if aggregator.asks and bool(opened.unlabeled.any()):  # the fresh mean is judged before it is final
        mean_answers = ask_about_mean(opened.task, aggregator, engine, labels, rows, present | opened.unlabeled)
        heard, unlabeled = mean_answers.counts(present), mean_answers.counts(opened.unlabeled)
        if bool(heard.any()) and bool(unlabeled.any()):
            gather = regather_mixtures(aggregator, mean_answers.answers, gather, heard, unlabeled)
            rows = engine.gather(gather, server.rows)
    rows = take_server_step(aggregator, server.rows, rows, gather, engine.bank, engine.layout.trained)
    rows = keep_layers(aggregator, rows, engine.bank, engine.layout)
    give_back()  # what is looked at after the round, such as nearest clients, is of the models that clients trained
    kept = {} if opened.trusted is None else {TRUSTED: opened.trusted}
    state = {**next_state(aggregator, server.state, labels, by_client, present, counted), **kept}
    seconds = {"group": grouped - began, "mix": time.perf_counter() - grouped}
    outcome = Outcome(
        labels,
        opened.offer,
        by_client,
        {**opened.shared, **opened.taught},
        notes,
        seconds,
        gathered=None if mean_answers is None else gather,
        mean_answers=mean_answers,
        trusted=opened.trusted,
        signature=signatures.uploaded,
    )
    return Server(rows, state, server.source), outcome


def measure_reach(opened: OpenRound) -> Tensor:
    """How far plain SGD goes in a round by a gradient of length 1 ``[K]``, steps times rate; 0 of who is absent."""
    reach = torch.zeros(len(opened.engine.images), dtype=torch.float64)
    for client in opened.clients:
        task = opened.task(client)
        taken = task.count_steps(int(opened.engine.sizes[client]), opened.engine.layout.least_images)
        reach[client] = taken * task.training.lr
    return reach


def expect_simulated(opened: OpenRound) -> ExpectedUpload:
    """What is taken from each client beside its model; a simulation takes what no objective declares."""
    method, network = opened.method, opened.engine.network
    classes, features = network.classifier.out_features, network.features
    collected = declare_collected(method.objectives, classes, features)
    expected = expect_uploads(opened.round, opened.server, method.aggregator, opened.offer, collected)
    return replace(expected, undeclared=True, dtype=opened.engine.bank.dtype)


def read_signatures(opened: OpenRound) -> BankSignatures:
    """What the clusterer may look at: the true domains only where it is an oracle."""
    engine, clusterer, keys = opened.engine, opened.method.clusterer, opened.keys
    truth = opened.domains if clusterer is not None and clusterer.oracle else None
    style_key = lambda client: keys(0, client, "style")  # noqa: E731
    source, network = opened.server.source, engine.network
    return BankSignatures(engine.bank, engine.layout, source, truth, engine.images, style_key, network)


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
    opened = open_round(round, server, method, engine, training, keys, domains, participation, done)
    return close_round(opened, engine.run(opened))


def present_clients(uploads: Mapping[int, Upload], clients: int) -> Tensor:
    """Clients that took part ``[K]`` bool."""
    return torch.tensor([client in uploads for client in range(clients)])
