"""A client that comes after training: its cluster, its model, and if wanted its own adaptation; nobody else changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from fedwca.core.messages import Blend, Offer
from fedwca.core.network import Network
from fedwca.data.partition import ClientImages
from fedwca.engine.interface import SingleStep
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.errors import UsageError
from fedwca.newcomers.choose_cluster import (
    By,
    ClusterAssignment,
    choose_cluster,
    newcomer_number,
    newcomer_task,
    source_network,
    trust_newcomer,
)
from fedwca.newcomers.load_federation import TrainedFederation


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
    newcomer = source_network(standing)
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
    task = newcomer_task(standing, training, 1, [newcomer_number(standing)], trust_newcomer(standing, engine))
    ((weights, blend),) = engine.run(SingleStep(sent, rows, task, [0], settle))
    engine.layout.write(newcomer, engine.bank[0])
    newcomer.eval()
    return JoinedClient(choice, weights, newcomer, epochs, {name: value[0] for name, value in blend.report.items()})


def _alone(images: Tensor) -> ClientImages:
    return ClientImages(images, images[:0], images[:0])
