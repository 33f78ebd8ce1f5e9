"""One communication round, read top to bottom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedwca.core.component_answers import check_tensors
from fedwca.core.grouping import TRUSTED, averaged_clients
from fedwca.core.messages import Blend, Offer, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine
from fedwca.engine.randomness import Keys
from fedwca.federated.aggregator_weights import blend_mixtures, check_starts, gather_mixtures, regather_mixtures
from fedwca.federated.assign_clusters import assign_clusters
from fedwca.federated.client_tasks import client_task
from fedwca.federated.mean_answers import MeanAnswers, ask_about_mean
from fedwca.federated.method import Method
from fedwca.federated.participation import sample_clients
from fedwca.federated.server import (
    Server,
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
from fedwca.federated.trusted_clients import labeler_trust, measure_trust
from fedwca.federated.upload_checks import ExpectedUpload, Upload, check_uploads


@dataclass(frozen=True)
class Outcome:
    """What happened in a round."""

    labels: Tensor
    """Cluster of each client ``[K]``."""
    offer: Offer
    uploads: Mapping[int, SimulatedUpload]
    """By client; absent clients have none."""
    shared: Mapping[str, Tensor] = field(default_factory=dict)
    """What each client was sent besides models."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """The clusterer's notes on its clusters, as plain values; only in round 0."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Server time: ``group`` for checks and clusters, ``mix`` for averages."""
    gathered: Tensor | None = None
    """The server's rows as mixtures ``[C, R+K]`` of (previous rows, clients); None where clients were not asked
    about the mean."""
    mean_answers: MeanAnswers | None = None
    """What clients answered about the new mean; None where they were not asked."""
    trusted: Tensor | None = None
    """How far clients' labels are trusted ``[K]``, 0 to 1; None where all are."""
    signature: int = 0
    """How many numbers each client uploaded to be grouped by, besides its model."""

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
    """The server before round 0, which holds the source model only; every client's own model is the source model.

    Args:
        engine: has the bank.
        start: the network to use as the source model; None: the engine's.
        own: the model each client begins with ``[K, P]``, also a row of the server; None: the source model for all.
    """
    source = engine.layout.read(engine.network if start is None else start)
    rows = source[None] if own is None else own.to(engine.bank)
    engine.bank.copy_(rows.expand_as(engine.bank))
    return Server(rows, {}, source)


@dataclass(frozen=True)
class OpenRound:
    """A round of one federation that the server has opened: what it sends to whom, and what clients do with it."""

    round: int
    server: Server
    method: Method
    engine: Engine
    keys: Keys
    domains: Tensor
    offer: Offer
    shared: Mapping[str, Tensor]
    """What each client is sent besides models."""
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
    """All clients' predictions of public images, pooled, as each client was sent them."""
    public_seconds: float = 0.0
    """Wall-clock seconds in which all clients learned from these."""

    @property
    def unlabeled(self) -> Tensor:
        """Clients ``[K]`` bool without labels where others have some."""
        return find_unlabeled(self.engine.labels)

    @property
    def rows(self) -> Tensor:
        """The server's rows ``[R, P]``, which the offer's models are mixtures of."""
        return self.server.rows

    def blend(self, work: ClientWork) -> Blend:
        """Where clients start, computed from their own images."""
        with work.clock("evidence"):
            if (self.round or self.method.aggregator.offers_in_round_0) and not self.last_phase:
                return blend_mixtures(self.method.aggregator, self.round, work)
            if any(labels is not None for labels in work.labels):
                return Blend(work.own)
            # Measured with the untouched source model; in the last phase with the model that labelled clients trained.
            with torch.no_grad():  # the same pass makes the labels; its result is reused there
                return Blend(work.own, notes={"trust": measure_trust(work.outputs(work.own))})

    def upload(self, work: ClientWork, blend: Blend, targets: Sequence[Targets]) -> list[SimulatedUpload]:
        """What trained clients send back."""
        return make_uploads(blend, work, targets, work.collect(targets))

    def step(self, work: ClientWork) -> list[SimulatedUpload]:
        """A client's whole part of the round, from the offer to the upload."""
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
    """The first part of a round at the server; see `run_round`."""
    clients, shared = len(engine.images), pool_collected(method.own_objectives, server.state)

    def task(client: int) -> Task:
        trust = 1.0 if trusted is None else float(trusted[client])
        return client_task(method, training, round, keys, client, shared, trust)

    if not round and method.aggregator.offers_in_round_0:
        initial = method.aggregator.initial_state(clients)
        answered = f"aggregator {method.aggregator.name!r}: initial_state"
        server = replace(server, state=check_tensors(initial, answered))
    trusted = server.state.get(TRUSTED)  # tasks read it when they are made, so they also see the value set below
    offer = offer_models(round, server, method.aggregator, clients, engine.layout.trained)
    trainable = [k for k, lacks_labels in enumerate(find_unlabeled(engine.labels).tolist()) if not lacks_labels]
    chosen = [trainable[place] for place in sample_clients(round, len(trainable), participation, keys)]
    if not round:
        unlabeled = [k for k in chosen if engine.labels[k] is None]
        trusted = labeler_trust(method.pseudo_labeler, engine, offer, server.rows, task, unlabeled)
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
    """The last part of a round at the server: check, group, average, remember.

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
    arguments = (labels, engine.sizes, present, opened.trusted, engine.layout.trained)
    give_back = spread_trained_mean(method, engine.bank, *arguments)
    state_and_reach = {**server.state, **({"moved": measure_reach(opened)} if aggregator.infers_gradients else {})}
    gather = gather_mixtures(aggregator, state_and_reach, labels, engine.sizes, counted, len(server.rows))
    rows, mean_answers = engine.gather(gather, server.rows), None
    if aggregator.queries_clients and bool(opened.unlabeled.any()):  # clients evaluate the new mean before it is final
        mean_answers = ask_about_mean(opened.task, aggregator, engine, labels, rows, present | opened.unlabeled)
        answered, unlabeled = mean_answers.counts(present), mean_answers.counts(opened.unlabeled)
        if bool(answered.any()) and bool(unlabeled.any()):
            gather = regather_mixtures(aggregator, mean_answers.answers, gather, answered, unlabeled)
            rows = engine.gather(gather, server.rows)
    rows = take_server_step(aggregator, server.rows, rows, gather, engine.bank, engine.layout.trained)
    rows = keep_layers(aggregator, rows, engine.bank, engine.layout)
    give_back()  # diagnostics after the round, such as nearest clients, use the models that clients trained
    trust_state = {} if opened.trusted is None else {TRUSTED: opened.trusted}
    state = {**next_state(aggregator, server.state, labels, by_client, present, counted), **trust_state}
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
    """Steps times learning rate of each client ``[K]``: how far plain SGD moves at gradient norm 1; 0 if absent."""
    reach = torch.zeros(len(opened.engine.images), dtype=torch.float64)
    for client in opened.clients:
        task = opened.task(client)
        steps = task.count_steps(int(opened.engine.sizes[client]), opened.engine.layout.least_images)
        reach[client] = steps * task.training.lr
    return reach


def expect_simulated(opened: OpenRound) -> ExpectedUpload:
    """What the server accepts from a client besides its model; in a simulation also what no objective declares."""
    method, network = opened.method, opened.engine.network
    classes, features = network.classifier.out_features, network.features
    collected = declare_collected(method.objectives, classes, features)
    expected = expect_uploads(opened.round, opened.server, method.aggregator, opened.offer, collected)
    return replace(expected, undeclared=True, dtype=opened.engine.bank.dtype)


def read_signatures(opened: OpenRound) -> BankSignatures:
    """What the clusterer may read: the true domains only if it is an oracle."""
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
        domains: true domains ``[K]``, passed on to oracles only.
        participation: share of the clients that take part in a round after the first, above 0 and at most 1.
        done: called after each client.

    Raises:
        Diverged: a client's model has values that are not finite.
        FedwcaError: a client's report does not fit what the aggregator declares, or a component's answer is invalid.
    """
    opened = open_round(round, server, method, engine, training, keys, domains, participation, done)
    return close_round(opened, engine.run(opened))


def present_clients(uploads: Mapping[int, Upload], clients: int) -> Tensor:
    """Clients that took part ``[K]`` bool."""
    return torch.tensor([client in uploads for client in range(clients)])
