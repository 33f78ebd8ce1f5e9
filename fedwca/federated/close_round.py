"""The end of a round at the server: check and group what clients sent, average, remember."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedwca.core.clusterer import Clusterer
from fedwca.core.grouping import TRUSTED, averaged_clients
from fedwca.core.messages import Offer
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys
from fedwca.errors import Diverged
from fedwca.federated.aggregator_weights import check_starts, gather_mixtures, regather_mixtures
from fedwca.federated.assign_clusters import assign_clusters
from fedwca.federated.collected_values import declare_collected
from fedwca.federated.explain_divergence import explain_divergence
from fedwca.federated.mean_answers import MeanAnswers, ask_about_mean
from fedwca.federated.open_round import OpenRound
from fedwca.federated.server import (
    Server,
    expect_uploads,
    keep_layers,
    next_state,
    spread_trained_mean,
    stack_by_client,
    stack_reports,
    take_server_step,
)
from fedwca.federated.simulated_uploads import SimulatedUpload
from fedwca.federated.upload_checks import ExpectedUpload, Upload, advise_lower, check_uploads, finite_models


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
    check_uploads(
        engine.bank, by_client, expect_simulated(opened), lambda k: explain_divergence(opened, k, by_client[k])
    )
    check_starts(aggregator, [upload.weights for upload in uploads])
    signatures = read_signatures(method.clusterer, engine, server.source, opened.domains, opened.keys)
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
    if not bool(finite_models(rows).all()):
        raise Diverged(f"the server's model has values that are not finite; {advise_lower('--lr')}")
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


def read_signatures(
    clusterer: Clusterer | None, engine: Engine, source: Tensor, domains: Tensor, keys: Keys
) -> BankSignatures:
    """What a clusterer may read of the models in an engine's bank: the true domains ``[K]`` only if it is an oracle."""
    truth = domains if clusterer is not None and clusterer.oracle else None
    style_key = lambda client: keys(0, client, "style")  # noqa: E731
    return BankSignatures(engine.bank, engine.layout, source, truth, engine.images, style_key, engine.network)


def present_clients(uploads: Mapping[int, Upload], clients: int) -> Tensor:
    """Clients that took part ``[K]`` bool."""
    return torch.tensor([client in uploads for client in range(clients)])
