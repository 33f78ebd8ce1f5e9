"""Joins a client after training: its cluster, its model and optionally its own adaptation; no other client changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import get_args

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
    newcomer_task,
    source_network,
    stand_alone,
    trust_newcomer,
)
from fedwca.newcomers.load_federation import TrainedFederation


@dataclass(frozen=True, eq=False)
class JoinedClient:
    """What a newcomer has after joining."""

    choice: ClusterAssignment
    weights: Tensor
    """``[R]``: its start as a mixture of the server's rows; all 0 where it began with an untrained model."""
    network: Network
    """Its model."""
    epochs: int
    """Epochs of its own training; 0 where its labels are not trusted: it only re-estimates BatchNorm statistics."""
    report: Mapping[str, Tensor] = field(default_factory=dict)
    """What it would upload besides a model: alpha and beta in FedWCA."""
    adaptation: Adaptation | None = None
    """The adaptation whose steps its model took on its images; None: no steps."""
    steps: AdaptedModel | None = None
    """The result of these steps."""
    size: int | None = None
    """Size of its model, from 0, where it began with an untrained one."""
    trust: float | None = None
    """Trust in the source model's labels of its images (`measure_trust`); None: clients train the whole network."""


def join(
    federation: TrainedFederation,
    images: Tensor,
    by: By = "update",
    epochs: int | None = None,
    done: Callable[[int], None] = lambda client: None,
    adaptation: Adaptation | None = None,
    size: int | None = None,
) -> JoinedClient:
    """Give a client without labels a cluster and a model.

    It repeats what the other clients did: by update, it adapts the source model as in round 0 and joins the cluster of
    the client with the nearest signature; by alignment, it joins the cluster whose soft model its features align with
    best (argmax of alpha, eq. 1), without training. Then it makes its start as a client does in round 1, from the
    models that the server holds now, and optionally trains on, or takes adaptation steps on a loss of its outputs.
    Where models stay with the clients that train, it starts from an untrained model and learns their predictions of
    public images.

    Args:
        federation: trained; it is not changed.
        images: of the newcomer ``[N, 3, H, W]`` uint8, N at least 2; not sorted by class, since an adaptation's loss
            may be a mean over batches of consecutive images.
        by: how the cluster is found, where the method groups clients by a clusterer.
        epochs: E, epochs of its own training; 0 for none; None: none, but the method's adaptation, if it has one.
        done: called with each client whose round 0 was repeated, by update.
        adaptation: its steps come last, in place of the method's own.
        size: of its model, from 0, the smallest, where a run has models of several sizes; None: drawn at random.

    Raises:
        UsageError: too few images, ``epochs`` below 0, the method has no model to join with, a network that the
            adaptation reads is missing, the method does not say what a client without labels does, epochs are asked for
            where clients train with what they kept of earlier rounds, or there is no such size or ``by``.
    """
    method, server = federation.method, federation.server
    adaptation = adaptation or (method.adaptation if epochs is None else None)
    epochs = epochs or 0
    _check_arguments(images, by, epochs)
    if not server.state:
        raise UsageError(f"method {method.name!r} has no rounds: all it has for anybody is the source model")
    sizes = 0 if federation.fresh is None else len(federation.fresh.rows)
    if size is not None and not 0 <= size < sizes:
        sizes_note = f"has models of sizes 0 to {sizes - 1}" if sizes > 1 else "has models of one size"
        raise UsageError(f"no size {size}: method {method.name!r} {sizes_note}")
    if method.aggregator.grouping.keeps_models_apart and federation.fresh is None:
        raise UsageError(
            f"method {method.name!r} keeps every client's model apart, so there is none for a newcomer; a method with "
            "clusters, or fedavg, has one"
        )
    if method.aggregator.local_layers:
        raise UsageError(
            f"method {method.name!r} leaves the last layers with its clients, so there is no whole model for a "
            "newcomer to join with; `fedwca bench` measures what other clients' would do"
        )
    check_newcomer_adapts(federation, adaptation)
    if epochs and method.aggregator.cached_models:
        raise UsageError(
            f"clients of method {method.name!r} train with what they kept of earlier rounds, which a newcomer has not; "
            "take --adapt 0"
        )
    newcomer, newcomer_images = source_network(federation), _alone(images, predicts=adaptation is not None)
    engine = SequentialEngine(
        newcomer, [newcomer_images], federation.device, 1, federation.batch_norm, federation.precision
    )
    training, round = federation.training, federation.round
    report, steps, trained = dict[str, Tensor](), None, 0
    with matmul_precision(federation.precision, federation.device):
        trust = measure_newcomer_trust(federation, engine)
        if federation.fresh is not None:
            size = int(federation.fresh.sizes[0]) if size is None else size
            engine.bank[0] = federation.fresh.learn(method, server.state, training, round, [size])[size]
            choice, weights = stand_alone(federation), torch.zeros(len(server.rows), dtype=torch.float64)
        else:
            choice, weights, report, trained = receive_model(federation, engine, by, epochs, done)
        if adaptation is not None:
            lr = adaptation_lr(adaptation, training, round)
            (steps,) = engine.adapt(adaptation, lr)
            engine.bank[0] = steps.model
    engine.layout.write(newcomer, engine.bank[0])
    network = remove_extras(newcomer).eval()
    return JoinedClient(choice, weights, network, trained, report, adaptation, steps, size, trust)


def _check_arguments(images: Tensor, by: By, epochs: int) -> None:
    if len(images) < 2:
        raise UsageError(f"a client that joins needs at least 2 images, not {len(images)}")
    if epochs < 0:
        raise UsageError(f"epochs={epochs}: takes 0 or more")
    if by not in get_args(By):
        raise UsageError(f"by='{by}': takes {' or '.join(get_args(By))}")


def receive_model(
    federation: TrainedFederation, engine: SequentialEngine, by: By, epochs: int, done: Callable[[int], None]
) -> tuple[ClusterAssignment, Tensor, dict[str, Tensor], int]:
    """A newcomer's cluster, its start as a mixture of the server's rows ``[R]``, what it would upload, and epochs that
    it trained: none where its labels are not trusted.

    Args:
        federation: trained.
        engine: holds the newcomer alone; its model is left there.
        by: see `join`.
        epochs: E, epochs of its own training.
        done: see `join`.
    """
    method, server = federation.method, federation.server
    rows = server.rows.to(engine.device)
    offer = offer_mixtures(method.aggregator, server.state, 1, rows[:, : engine.layout.trained])
    # As for the other clients, judged before training; with a last phase it is judged below, by the delivered model.
    trusted = None if method.finish else trust_newcomer(federation, engine)
    choice = choose_cluster(federation, engine, offer, rows, by, done, trusted)
    sent = Offer(offer.personal[choice.member][None], offer.shared)
    # Local BatchNorm statistics of a client that trains nothing are those of its own images.
    recalibrates = engine.batch_norm is BatchNormPolicy.LOCAL and torch.equal(
        engine.bank[0], engine.layout.read(engine.network)
    )

    def settle(work: ClientWorker) -> list[tuple[Tensor, Blend]]:
        blend = blend_mixtures(method.aggregator, 1, work)
        if epochs:
            work.train(blend)
        else:
            work.slot.copy_(work.received.mix(blend.start[0]))
            if recalibrates:
                work.replica.bind(work.slot)
                work.replica.recalibrate(work.plain)
        return [((blend.start.double() @ work.received.weights)[0], blend)]

    # It trains at the learning rate that was set, since it joins in no round, so no schedule applies.
    changes = {"epochs": max(1, epochs), "steps": None, "rounds_per_epoch": 1, "cosine": None, "decay": 1.0}
    training = federation.training.model_copy(update=changes)
    if method.finish:
        trusted = trust_newcomer(federation, engine, sent.personal[0, 0].to(rows) @ rows)
    task = newcomer_task(federation, training, 1, trusted)
    ((weights, blend),) = engine.run(SingleStep(sent, rows, task, [0], settle, trains=True))
    trained = 0 if trusted is not None and not bool(trusted.any()) else epochs
    return choice, weights, {name: value[0] for name, value in blend.report.items()}, trained


def check_newcomer_adapts(federation: TrainedFederation, adaptation: Adaptation | None) -> None:
    """Refuse a newcomer whose model cannot be adapted.

    Raises:
        UsageError: see `join`.
    """
    method, network = federation.method, federation.network
    if adaptation is None:
        if network.trains_classifier and not method.finish and method.adaptation is not None:
            raise UsageError(
                f"method {method.name!r} adapts by {method.adaptation.name}, not by epochs of training; "
                "leave --adapt out, or let `fedwca export` give its model as it is"
            )
        if network.trains_classifier and not method.finish:
            raise UsageError(
                f"method {method.name!r} has no last phase and no adaptation, so a client without labels has nothing "
                "to adapt by; take --adapt entropy, or let `fedwca export` give its model as it is"
            )
        return
    if network.is_generated != adaptation.generates_models:
        raise UsageError(
            f"method {method.name!r} generates each client's model, which no steps go with; leave --adapt out"
            if network.is_generated
            else f"adaptation {adaptation.name!r} generates a model, which method {method.name!r} has not trained; "
            "take entropy"
        )
    if federation.fresh is not None:  # the server's rows are of the widest networks
        adaptation = adaptation.at_size(len(federation.fresh.rows) - 1, len(federation.fresh.rows))
    needed = adaptation.networks(network.classifier.out_features, network.features)
    trained_shapes = {name: parameter.shape for name, parameter in network.extras.named_parameters()}
    needed_shapes = {f"{name}.{n}": x.shape for name, module in needed.items() for n, x in module.named_parameters()}
    if any(trained_shapes.get(name) != shape for name, shape in needed_shapes.items()):
        raise UsageError(
            f"adaptation {adaptation.name!r} reads a network that method {method.name!r} has not trained, or one of "
            "other widths; take entropy, or a run whose method trains it"
        )


def _alone(images: Tensor, predicts: bool) -> ClientImages:
    """The newcomer's images for training, and also as test images if it takes adaptation steps on its predictions."""
    return ClientImages(images, images if predicts else images[:0])
