"""A client that comes after training: its cluster, its model, and if wanted its own adaptation; nobody else changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedwca.core.messages import Blend, Offer, Targets
from fedwca.core.network import Network
from fedwca.data.partition import ClientImages
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.client_task import Task, Training, client_draws
from fedwca.engine.interface import SingleStep
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.errors import UsageError
from fedwca.federated.server import compare_clients, offer_source, pool_extras
from fedwca.federated.trusted_clients import find_trusted
from fedwca.functional import member_distances
from fedwca.newcomers.federation import ClusterAssignment, TrainedFederation

By = Literal["update", "alignment"]


@dataclass(frozen=True, eq=False)
class JoinedClient:
    """What a newcomer has in the end."""

    choice: ClusterAssignment
    weights: Tensor
    """``[R]``: its start as a mixture of the server's rows."""
    network: Network
    """Its model."""
    epochs: int
    """Of its own adaptation."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What it would upload beside a model: alpha and beta in FedWCA."""


def join(
    standing: TrainedFederation,
    images: Tensor,
    by: By = "update",
    epochs: int = 0,
    done: Callable[[int], None] = lambda client: None,
) -> JoinedClient:
    """Give a client without labels a cluster and a model.

    It does what the others did, later: by update, it adapts the source model as everybody did in round 0, and goes to
    the cluster of the client whose signature is nearest; by alignment, it goes to the soft cluster model its features
    align with best (argmax of alpha, eq. 1), without training. Then it makes its start as in a client's round 1, from
    the models the server holds now, and if wanted trains on.

    Args:
        standing: the federation; left as it is.
        images: of the newcomer ``[N, 3, H, W]`` uint8, N at least 2.
        by: how the cluster is found, where the method groups clients by a clusterer.
        epochs: E of its own adaptation; 0 for none.
        done: told each client whose round 0 has been repeated, by update.

    Raises:
        UsageError: too few images, or the method leaves nothing to join.
    """
    method, server = standing.method, standing.server
    if len(images) < 2:
        raise UsageError(f"a client that joins needs at least 2 images, not {len(images)}")
    if not server.state:
        raise UsageError(f"method {method.name!r} has no rounds: all it has for anybody is the source model")
    if method.aggregator.grouping.keeps_models_apart:
        raise UsageError(
            f"method {method.name!r} keeps every client's model apart, so there is none for a newcomer; a method with "
            "clusters, or fedavg, has one"
        )
    newcomer = _source(standing)
    engine = SequentialEngine(newcomer, [_alone(images)], standing.device, 1, standing.batch_norm, standing.precision)
    rows = server.rows.to(engine.device)
    offer = method.aggregator.offer(server.state, 1, rows[:, : engine.layout.trained])
    choice = choose_cluster(standing, engine, offer, rows, by, done)
    sent = Offer(offer.personal[choice.member][None], offer.shared)

    def settle(desk: ClientWorker) -> list[tuple[Tensor, Blend]]:
        blend = method.aggregator.blend(1, desk)
        if epochs:
            desk.train(blend)
        else:
            desk.slot.copy_(desk.received.mix(blend.start[0]))
        return [((blend.start.double() @ desk.received.weights)[0], blend)]

    training = standing.training.model_copy(update={"epochs": max(1, epochs), "cuts": 1})
    task, source = _task(standing, training, 1, [_number(standing)]), server.source[None].to(engine.device)
    trusted = find_trusted(method.pseudo_labeler, engine, offer_source(1), source, task, [0])
    if trusted is not None:
        task = _task(standing, training, 1, [_number(standing)], bool(trusted[0]))
    ((weights, blend),) = engine.run(SingleStep(sent, rows, task, [0], settle))
    engine.layout.write(newcomer, engine.bank[0])
    newcomer.eval()
    return JoinedClient(choice, weights, newcomer, epochs, {name: value[0] for name, value in blend.report.items()})


def choose_cluster(
    standing: TrainedFederation,
    engine: SequentialEngine,
    offer: Offer,
    rows: Tensor,
    by: By,
    done: Callable[[int], None],
) -> ClusterAssignment:
    """The newcomer's cluster, found as its method finds clusters.

    Args:
        standing: the federation.
        engine: holds the newcomer alone; by update its model becomes what round 0 makes of the source model.
        offer: what clients would be sent in round 1.
        rows: the server's ``[R, P]``.
        by: how, where a clusterer groups clients.
        done: see `join`.
    """
    aggregator, labels = standing.method.aggregator, standing.labels.cpu()
    task = _task(standing, standing.training, 1, [_number(standing)])
    everything = torch.eye(len(rows), dtype=torch.float64)
    if int(labels.max()) == 0:
        return ClusterAssignment(0, "alone", torch.zeros(1, dtype=torch.float64), 0)
    if aggregator.grouping.clients_choose:
        sent = Offer(torch.zeros(1, 0, len(rows), dtype=torch.float64), everything)
        (losses,) = engine.run(SingleStep(sent, rows, task, [0], lambda desk: [desk.loss(desk.shared)[0]]))
        # What is sent to whoever chooses is the same for all.
        return ClusterAssignment(int(losses.argmin()), "loss", losses, 0)
    if by == "alignment":
        shared = offer.shared if len(offer.shared) else everything
        sent = Offer(torch.zeros(1, 0, len(rows), dtype=torch.float64), shared)
        (found,) = engine.run(SingleStep(sent, rows, task, [0], lambda desk: [desk.alignment(desk.shared)[0]]))
        cluster = int(found.argmax())
        return ClusterAssignment(cluster, by, found, int((labels == cluster).nonzero()[0]))
    distances, members = by_update(standing, engine, done)
    cluster = int(distances.argmin())
    return ClusterAssignment(cluster, "update", distances, int(members[cluster]))


def by_update(
    standing: TrainedFederation, engine: SequentialEngine, done: Callable[[int], None]
) -> tuple[Tensor, Tensor]:
    """Distances to clusters ``[C]`` and nearest members ``[C]`` in the signature that clients were grouped by."""
    source, clusterer = standing.server.source.to(engine.device), standing.method.clusterer
    if clusterer is not None and clusterer.norm_layers is not None:  # what was trained plays no part
        first = source.expand(len(standing.clients), -1)
    else:
        task = _task(standing, standing.training, 0, [_number(standing)])
        engine.run(SingleStep(offer_source(1), source[None], task, [0], _adapt))
        first = first_round(standing, done) if standing.first is None else standing.first
    found = BankSignatures(
        torch.cat([first.to(engine.device), engine.bank]),
        engine.layout,
        source,
        images=[*(client.train for client in standing.clients), *engine.images],
        keys=lambda client: standing.keys(0, client, "style"),
        network=engine.network,
    )
    x, metric = compare_clients(clusterer, found)
    return member_distances(x[:-1], x[-1], standing.labels, metric)


def first_round(standing: TrainedFederation, done: Callable[[int], None] = lambda client: None) -> Tensor:
    """Models of the clients after round 0 ``[K, P]``, made again.

    A server keeps the signatures of round 0. A run folder has none, but the same images and the same random numbers
    give the same models.
    """
    clients = list(range(len(standing.clients)))
    workers, batch_norm, precision = standing.workers, standing.batch_norm, standing.precision
    engine = SequentialEngine(_source(standing), standing.clients, standing.device, workers, batch_norm, precision)
    source, task = standing.server.source.to(engine.device), _task(standing, standing.training, 0, clients)
    engine.run(SingleStep(offer_source(len(clients)), source[None], task, clients, _adapt, done))
    return engine.bank


def _source(standing: TrainedFederation) -> Network:
    """A network of its own with the source model on it."""
    network = copy.deepcopy(standing.network)
    Layout.of(network).write(network, standing.server.source)
    return network


def _adapt(desk: ClientWorker) -> list[Targets]:
    return desk.train(Blend(desk.own))


def _task(
    standing: TrainedFederation, training: Training, round: int, numbers: Sequence[int], trusted: bool = True
) -> Callable[[int], Task]:
    """A client's task in a round, with the draws of the client numbers given."""
    method, keys = standing.method, standing.keys
    shared = pool_extras(method.objectives, standing.server.state) if round else {}
    return lambda client: Task(
        method.pseudo_labeler,
        method.objectives,
        training,
        client_draws(keys, round, numbers[client], training),
        shared,
        training.part(round),
        trusted,
    )


def _number(standing: TrainedFederation) -> int:
    """The newcomer's number: the first that nobody has, so that its draws are its own."""
    return len(standing.clients)


def _alone(images: Tensor) -> ClientImages:
    return ClientImages(images, images[:0], images[:0])
