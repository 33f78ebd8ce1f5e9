"""Chooses the cluster of a newcomer: by its model's update, by alignment of features, or by its loss."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedwca.core.grouping import TRUSTED
from fedwca.core.messages import Offer
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.client_task import Task
from fedwca.engine.interface import SingleStep
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.federated.assign_clusters import compare_clients
from fedwca.federated.client_tasks import client_task, train_own
from fedwca.federated.collected_values import pool_collected
from fedwca.federated.server import offer_source
from fedwca.federated.trusted_clients import labeler_trust_alone, measure_trust_alone
from fedwca.functional import member_distances
from fedwca.newcomers.load_federation import TrainedFederation

By = Literal["update", "alignment"]


@dataclass(frozen=True, eq=False)
class ClusterAssignment:
    """The cluster of a newcomer, and the scores of all clusters."""

    cluster: int
    by: str
    """update, alignment, loss (where clients choose by it), alone (there is one cluster), or own (where clients keep
    their models, each is a cluster, and so is the newcomer)."""
    scores: Tensor
    """Of each cluster ``[C]`` float64: distances, cosines or losses; a 0 for alone, empty for own."""
    member: int
    """A client of that cluster, by update the nearest one; the newcomer is sent what this client would be sent. By loss
    client 0, as all are sent the same; own: the newcomer's number."""

    @property
    def ranked(self) -> list[int]:
        """Clusters, the best first, without empty ones."""
        sign = -1 if self.by == "alignment" else 1
        order = (sign * self.scores).argsort(stable=True).tolist()
        return [cluster for cluster in order if bool(self.scores[cluster].isfinite())]

    @property
    def runner_up(self) -> int | None:
        """The second best cluster; None if there is only one."""
        return self.ranked[1] if len(self.ranked) > 1 else None

    @property
    def margin(self) -> float | None:
        """How much worse the runner-up is, in the unit of the scores."""
        second = self.runner_up
        return None if second is None else abs(float(self.scores[second] - self.scores[self.cluster]))


def stand_alone(federation: TrainedFederation) -> ClusterAssignment:
    """A cluster of its own for the newcomer, where models stay with the clients."""
    number = newcomer_number(federation)
    return ClusterAssignment(number, "own", torch.zeros(0, dtype=torch.float64), number)


def choose_cluster(
    federation: TrainedFederation,
    engine: SequentialEngine,
    offer: Offer,
    rows: Tensor,
    by: By,
    done: Callable[[int], None],
    trusted: Tensor | None = None,
) -> ClusterAssignment:
    """The newcomer's cluster, found as its method finds clusters.

    Args:
        federation: trained.
        engine: holds the newcomer alone; by update its model becomes what round 0 makes of the source model.
        offer: what each client would be sent in round 1.
        rows: the server's ``[R, P]``.
        by: how the cluster is chosen, where a clusterer groups clients.
        done: see `join`.
        trusted: how far its labels are trusted ``[1]``, 0 to 1; None: in full.
    """
    aggregator, labels = federation.method.aggregator, federation.labels.cpu()
    task = newcomer_task(federation, federation.training, 1)
    # After the clusters' models a server may hold others, such as teachers; if clients choose, each row is a cluster.
    clusters = len(rows) if aggregator.grouping.clients_choose else int(labels.max()) + 1
    all_clusters = torch.eye(clusters, len(rows), dtype=torch.float64)
    if clusters == 1:
        return ClusterAssignment(0, "alone", torch.zeros(1, dtype=torch.float64), 0)
    if aggregator.grouping.clients_choose:
        sent = Offer(torch.zeros(1, 0, len(rows), dtype=torch.float64), all_clusters)
        (losses,) = engine.run(SingleStep(sent, rows, task, [0], lambda work: [work.loss(work.shared)[0]]))
        # Clients that choose are all sent the same, so any member will do.
        return ClusterAssignment(int(losses.masked_fill(losses.isnan(), torch.inf).argmin()), "loss", losses, 0)
    if by == "alignment":
        shared = offer.shared if len(offer.shared) == clusters else all_clusters
        sent = Offer(torch.zeros(1, 0, len(rows), dtype=torch.float64), shared)
        (alignments,) = engine.run(SingleStep(sent, rows, task, [0], lambda work: [work.alignment(work.shared)[0]]))
        cluster = int(alignments.masked_fill(alignments.isnan(), -torch.inf).argmax())
        return ClusterAssignment(cluster, by, alignments, int((labels == cluster).nonzero()[0]))
    distances, members = by_update(federation, engine, done, trusted)
    cluster = int(distances.argmin())
    return ClusterAssignment(cluster, "update", distances, int(members[cluster]))


def by_update(
    federation: TrainedFederation, engine: SequentialEngine, done: Callable[[int], None], trusted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Distances to clusters ``[C]`` and nearest members ``[C]``, by the signature that clients were grouped by."""
    source, clusterer = federation.server.source.to(engine.device), federation.method.clusterer
    if clusterer is not None and not clusterer.compares_models:
        first = source.expand(len(federation.clients), -1)
    else:
        task = newcomer_task(federation, federation.training, 0, trusted)
        engine.run(SingleStep(offer_source(1), source[None], task, [0], train_own, trains=True))
        first = repeat_round_zero(federation, done)
    signatures = BankSignatures(
        torch.cat([first.to(engine.device), engine.bank]),
        engine.layout,
        source,
        images=[*(client.train for client in federation.clients), *engine.images],
        keys=lambda client: federation.keys(0, client, "style"),
        network=engine.network,
    )
    vectors, metric = compare_clients(clusterer, signatures)
    return member_distances(vectors[:-1], vectors[-1], federation.labels, metric)


def repeat_round_zero(federation: TrainedFederation, done: Callable[[int], None]) -> Tensor:
    """Models of the clients after round 0 ``[K, P]``, trained again.

    A server keeps the signatures of round 0, a run folder does not. The same images and the same random numbers give
    the same models.
    """
    clients = list(range(len(federation.clients)))
    workers, batch_norm, precision = federation.workers, federation.batch_norm, federation.precision
    engine = SequentialEngine(
        source_network(federation), federation.clients, federation.device, workers, batch_norm, precision
    )
    source, trusted = federation.server.source.to(engine.device), federation.server.state.get(TRUSTED)
    task = newcomer_task(federation, federation.training, 0, trusted, clients)
    engine.run(SingleStep(offer_source(len(clients)), source[None], task, clients, train_own, done, trains=True))
    return engine.bank


def source_network(federation: TrainedFederation) -> Network:
    """A new network with the weights of the source model."""
    network = copy.deepcopy(federation.network)
    Layout.of(network).write(network, federation.server.source)
    return network


def trust_newcomer(
    federation: TrainedFederation, engine: SequentialEngine, delivered: Tensor | None = None
) -> Tensor | None:
    """How far the labels of an engine's newcomer are trusted ``[1]``, 0 to 1; None where all labels are.

    Judged by the outputs of the source model, or of the ``delivered`` model ``[P]`` where a last phase adapts that.
    """
    task = newcomer_task(federation, federation.training, 0)(0)
    model = federation.server.source if delivered is None else delivered
    return labeler_trust_alone(federation.method.pseudo_labeler, engine, model, task)


def measure_newcomer_trust(federation: TrainedFederation, engine: SequentialEngine) -> float | None:
    """Trust in the source model's labels of the newcomer's images (`measure_trust`); None: there is no such model."""
    if federation.network.trains_classifier:
        return None
    task = newcomer_task(federation, federation.training, 0)(0)
    return measure_trust_alone(engine, federation.server.source, task)


def newcomer_task(
    federation: TrainedFederation,
    training: Training,
    round: int,
    trusted: Tensor | None = None,
    numbers: Sequence[int] | None = None,
) -> Callable[[int], Task]:
    """The task of each client of an engine in a round.

    Args:
        federation: trained.
        training: how the clients train.
        round: r, counted from 0.
        trusted: how far each client's labels are trusted ``[K]``, from 0 to 1; None: in full.
        numbers: the clients' numbers, which decide their random draws; None: the engine has the newcomer alone.
    """
    numbers = [newcomer_number(federation)] if numbers is None else numbers
    method, keys = federation.method, federation.keys
    shared = pool_collected(method.own_objectives, federation.server.state) if round else {}

    def task(client: int) -> Task:
        trust = 1.0 if trusted is None else float(trusted[client])
        return client_task(method, training, round, keys, numbers[client], shared, trust)

    return task


def newcomer_number(federation: TrainedFederation) -> int:
    """The newcomer's number: the first that is free, so that its random draws are its own."""
    return len(federation.clients)
