"""A client that comes after training: its cluster, its model, and if wanted its own adaptation; nobody else changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedwca.core.adaptation import Adaptation
from fedwca.core.messages import Blend, Offer
from fedwca.core.network import Network
from fedwca.data.federation import ClientImages
from fedwca.engine.batch_norm import BatchNormPolicy
from fedwca.engine.client_task import adaptation_lr
from fedwca.engine.interface import SingleStep
from fedwca.engine.precision import matmul_precision
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.errors import UsageError
from fedwca.federated.aggregator_weights import blend_mixtures, offer_mixtures
from fedwca.federated.extra_networks import remove_extras
from fedwca.newcomers.choose_cluster import (
    By,
    ClusterAssignment,
    choose_cluster,
    measure_newcomer_trust,
    newcomer_number,
    newcomer_task,
    source_network,
    stand_alone,
    trust_newcomer,
)
from fedwca.newcomers.load_federation import TrainedFederation


@dataclass(frozen=True, eq=False)
class JoinedClient:
    """What a newcomer has in the end."""

    choice: ClusterAssignment
    weights: Tensor
    """``[R]``: its start as a mixture of the server's rows; all 0 where it began with a model that nobody trained."""
    network: Network
    """Its model."""
    epochs: int
    """Of its own training; 0 where its labels are not trusted: it re-estimates BatchNorm's statistics alone."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What it would upload beside a model: alpha and beta in FedWCA."""
    adaptation: Adaptation | None = None
    """Whose steps its model took on its images; None: none."""
    steps: AdaptedModel | None = None
    """What these steps did."""
    size: int | None = None
    """Which size its model has, from 0, where it began with one that nobody trained."""
    trust: float | None = None
    """What the source model says of the class on its images, from 0 to 1; None: clients train the whole network."""


def join(
    federation: TrainedFederation,
    images: Tensor,
    by: By = "update",
    epochs: int = 0,
    done: Callable[[int], None] = lambda client: None,
    adaptation: Adaptation | None = None,
    size: int | None = None,
) -> JoinedClient:
    """Give a client without labels a cluster and a model.

    It does what the others did, later: by update, it adapts the source model as everybody did in round 0, and goes to
    the cluster of the client whose signature is nearest; by alignment, it goes to the soft cluster model its features
    align with best (argmax of alpha, eq. 1), without training. Then it makes its start as in a client's round 1, from
    the models the server holds now, and if wanted trains on, or takes steps on a loss of its outputs. Where models stay
    with the clients that train, it learns what these say of public images, from a model that nobody trained.

    Args:
        federation: trained; left as it is.
        images: of the newcomer ``[N, 3, H, W]`` uint8, N at least 2.
        by: how the cluster is found, where the method groups clients by a clusterer.
        epochs: E of its own adaptation; 0 for none.
        done: told each client whose round 0 has been repeated, by update.
        adaptation: its steps end what the client does; None: the method's own, if it has one and there are no epochs.
        size: of its model, from 0, the smallest, where models of a run have several; None: drawn.

    Raises:
        UsageError: too few images, the method leaves nothing to join, a network that the adaptation reads is not there,
            clients have labels and nothing says what one without them does, or there is no such size.
    """
    method, server = federation.method, federation.server
    adaptation = adaptation or (None if epochs else method.adaptation)
    check_newcomer_adapts(federation, adaptation)
    if len(images) < 2:
        raise UsageError(f"a client that joins needs at least 2 images, not {len(images)}")
    if not server.state:
        raise UsageError(f"method {method.name!r} has no rounds: all it has for anybody is the source model")
    sizes = 0 if federation.fresh is None else len(federation.fresh.rows)
    if size is not None and not 0 <= size < sizes:
        known = f"has models of sizes 0 to {sizes - 1}" if sizes > 1 else "has models of one size"
        raise UsageError(f"no size {size}: method {method.name!r} {known}")
    if method.aggregator.grouping.keeps_models_apart and federation.fresh is None:
        raise UsageError(
            f"method {method.name!r} keeps every client's model apart, so there is none for a newcomer; a method with "
            "clusters, or fedavg, has one"
        )
    if epochs and method.aggregator.holds:
        raise UsageError(
            f"clients of method {method.name!r} train with what they kept of earlier rounds, which a newcomer has not; "
            "take --adapt 0"
        )
    if method.aggregator.keeps:
        raise UsageError(
            f"method {method.name!r} leaves the last layers with its clients, so there is no whole model for a "
            "newcomer to join with; `fedwca bench` measures what other clients' would do"
        )
    newcomer, alone = source_network(federation), _alone(images, predicts=adaptation is not None)
    engine = SequentialEngine(newcomer, [alone], federation.device, 1, federation.batch_norm, federation.precision)
    training, round = federation.training, federation.round
    report, steps, trained = dict[str, Tensor](), None, epochs
    with matmul_precision(federation.precision, federation.device):
        trust = measure_newcomer_trust(federation, engine)
        if federation.fresh is not None:
            size = int(federation.fresh.sizes[0]) if size is None else size
            engine.bank[0] = federation.fresh.learn(method, server.state, training, round, [size])[size]
            choice, weights = stand_alone(federation), torch.zeros(len(server.rows), dtype=torch.float64)
        else:
            choice, weights, report, trained = receive_model(federation, engine, by, epochs, done)
        if adaptation is not None:
            lr = adaptation_lr(adaptation, training.at(round), training.factor(round))
            (steps,) = engine.adapt(adaptation, lr)
            engine.bank[0] = steps.model
    engine.layout.write(newcomer, engine.bank[0])
    own = remove_extras(newcomer).eval()
    return JoinedClient(choice, weights, own, trained, report, adaptation, steps, size, trust)


def receive_model(
    federation: TrainedFederation, engine: SequentialEngine, by: By, epochs: int, done: Callable[[int], None]
) -> tuple[ClusterAssignment, Tensor, dict[str, Tensor], int]:
    """A newcomer's cluster, its start as a mixture of the server's rows ``[R]``, what it would upload, and epochs that
    it trained: none where its labels are not trusted.

    Args:
        federation: trained.
        engine: holds the newcomer alone; its model is left there.
        by: see `join`.
        epochs: E of its own adaptation.
        done: see `join`.
    """
    method, server = federation.method, federation.server
    rows = server.rows.to(engine.device)
    offer = offer_mixtures(method.aggregator, server.state, 1, rows[:, : engine.layout.trained])
    # Asked as the others were, before anything is trained; where a last phase adapts it, below of what is delivered.
    trusted = None if method.finish else trust_newcomer(federation, engine)
    choice = choose_cluster(federation, engine, offer, rows, by, done, trusted)
    sent = Offer(offer.personal[choice.member][None], offer.shared)
    # Statistics that stay with clients are, at one that trains nothing, those of its own images.
    measures = engine.batch_norm is BatchNormPolicy.LOCAL and torch.equal(
        engine.bank[0], engine.layout.read(engine.network)
    )

    def settle(work: ClientWorker) -> list[tuple[Tensor, Blend]]:
        blend = blend_mixtures(method.aggregator, 1, work)
        if epochs:
            work.train(blend)
        else:
            work.slot.copy_(work.received.mix(blend.start[0]))
            if measures:
                work.replica.bind(work.slot)
                work.replica.recalibrate(work.plain)
        return [((blend.start.double() @ work.received.weights)[0], blend)]

    # Epochs of its own are at the rate that was set: it comes in no round, so no schedule says where it stands.
    own = {"epochs": max(1, epochs), "steps": None, "cuts": 1, "cosine": None, "decay": 1.0}
    training = federation.training.model_copy(update=own)
    if method.finish:
        trusted = trust_newcomer(federation, engine, sent.personal[0, 0].to(rows) @ rows)
    task = newcomer_task(federation, training, 1, [newcomer_number(federation)], trusted)
    ((weights, blend),) = engine.run(SingleStep(sent, rows, task, [0], settle))
    trained = 0 if trusted is not None and not bool(trusted.any()) else epochs
    return choice, weights, {name: value[0] for name, value in blend.report.items()}, trained


def check_newcomer_adapts(federation: TrainedFederation, adaptation: Adaptation | None) -> None:
    """Refuse a newcomer that has nothing to adapt by.

    Raises:
        UsageError: see `join`.
    """
    method, network = federation.method, federation.network
    if adaptation is None:
        if network.whole and not method.finish:
            raise UsageError(
                f"method {method.name!r} has no last phase and no adaptation, so a client without labels has nothing "
                "to adapt by; take --adapt entropy, or let `fedwca export` give its model as it is"
            )
        return
    if network.generated != adaptation.by_client:
        raise UsageError(
            f"method {method.name!r} generates each client's model, which no steps go with; leave --adapt out"
            if network.generated
            else f"adaptation {adaptation.name!r} generates a model, which method {method.name!r} has not trained; "
            "take entropy"
        )
    if federation.fresh is not None:  # rows are those of the widest networks
        adaptation = adaptation.at_size(len(federation.fresh.rows) - 1, len(federation.fresh.rows))
    needed = adaptation.networks(network.classifier.out_features, network.features)
    trained = {name: parameter.shape for name, parameter in network.extras.named_parameters()}
    asked = {f"{name}.{n}": x.shape for name, made in needed.items() for n, x in made.named_parameters()}
    if any(trained.get(name) != shape for name, shape in asked.items()):
        raise UsageError(
            f"adaptation {adaptation.name!r} reads a network that method {method.name!r} has not trained, or one of "
            "other widths; take entropy, or a run whose method trains it"
        )


def _alone(images: Tensor, predicts: bool) -> ClientImages:
    """The newcomer's images to train on, and to predict if it is to take steps on what it predicts."""
    return ClientImages(images, images[:0], images if predicts else images[:0])
