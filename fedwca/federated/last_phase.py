"""The last phase: clients without labels adapt the model that those with labels trained, each for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedwca.core.messages import Offer
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.engine.randomness import Keys
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.close_round import Outcome
from fedwca.federated.explain_divergence import explain_divergence
from fedwca.federated.method import Method
from fedwca.federated.open_round import OpenRound
from fedwca.federated.server import Server, find_unlabeled, offer_own
from fedwca.federated.simulated_uploads import SimulatedUpload
from fedwca.federated.trusted_clients import labeler_trust
from fedwca.federated.upload_checks import ExpectedUpload, check_uploads


def open_last_phase(
    round: int,
    server: Server,
    method: Method,
    engine: Engine,
    keys: Keys,
    domains: Tensor,
    done: Callable[[int], None] = lambda client: None,
) -> OpenRound:
    """Open the last phase: clients without labels get the delivered models and train them towards pseudo-labels.

    Args:
        round: its number, that of one more round.
        server: what the server holds after the last round.
        method: has ``finish`` objectives and a ``finish_training``.
        engine: owns the clients' images and the bank, where adapted models are left.
        keys: where random numbers come from.
        domains: true domains ``[K]``.
        done: called after each client.
    """
    training = method.finish_training
    trusted: Tensor | None = None
    if not server.state:  # a method without rounds has one model for everybody
        server = replace(server, state={"labels": torch.zeros(len(engine.images), dtype=torch.int64)})
    assert training is not None

    def task(client: int) -> Task:
        draws = lambda purpose: keys(round, client, purpose)  # noqa: E731
        trust = 1.0 if trusted is None else float(trusted[client])
        return Task(method.pseudo_labeler, method.finish, training, draws, trusted=trust)

    clients = find_unlabeled(engine.labels).nonzero()[:, 0].tolist()
    offer = offer_delivered(method, server)
    # For these clients the model trained with labels takes the place of a source model.
    trusted = labeler_trust(method.pseudo_labeler, engine, offer, server.rows, task, clients)
    return OpenRound(
        round=round,
        server=server,
        method=method,
        engine=engine,
        keys=keys,
        domains=domains,
        offer=offer,
        shared={},
        task=task,
        clients=clients,
        done=done,
        trusted=trusted,
        last_phase=True,
    )


def offer_delivered(method: Method, server: Server) -> Offer:
    """An offer of the model that each client ends the rounds with, and no other."""
    return Offer.of_personal(deliver_mixtures(method.aggregator, server.state, len(server.rows)))


def close_last_phase(opened: OpenRound, uploads: Sequence[SimulatedUpload]) -> tuple[Server, Outcome]:
    """The unchanged server and the outcome of the last phase; adapted models are in the engine's bank.

    Args:
        opened: the last phase, from `open_last_phase`.
        uploads: of its clients, in order; in a deployment none of it leaves them.

    Raises:
        Diverged: an adapted model has values that are not finite.
    """
    began = time.perf_counter()
    by_client = dict(zip(opened.clients, uploads, strict=True))
    # What objectives collect stays with the clients, so only the models are checked.
    expected = ExpectedUpload(undeclared=True, dtype=opened.engine.bank.dtype)
    check_uploads(
        *(opened.engine.bank, by_client, expected),
        lambda k: explain_divergence(opened, k, by_client[k], "--set finish_training.lr"),
    )
    seconds = {"group": time.perf_counter() - began, "mix": 0.0}
    return opened.server, Outcome(opened.server.state["labels"], opened.offer, by_client, seconds=seconds)


def final_models(method: Method, server: Server, engine: Engine) -> Tensor:
    """The model each client ends with ``[K, P]``: the delivered one, or the one adapted from it in the last phase.

    Args:
        method: its aggregator delivers models.
        server: after a round.
        engine: its bank holds the models adapted in the last phase.
    """
    models = engine.deliver(
        deliver_mixtures(method.aggregator, server.state, len(server.rows), len(engine.images)), server.rows
    )
    unlabeled = find_unlabeled(engine.labels).to(models.device)
    models[unlabeled] = engine.bank[unlabeled]
    return models


@dataclass(frozen=True)
class Shift:
    """What the last phase did to a client's predictions of its training images; no label is read."""

    agreement: float
    """Share of the images whose predicted class stayed the same, from 0 to 1."""
    before: Tensor
    """Number of images that the delivered model predicts as each class ``[M]``."""
    after: Tensor
    """The same of the adapted model."""


def measure_shift(opened: OpenRound) -> dict[int, Shift]:
    """How predictions of the training images changed, for each client without labels.

    Args:
        opened: the last phase, after it; adapted models are in the engine's bank.
    """
    engine, classes = opened.engine, opened.engine.network.classifier.out_features

    def predict_classes(work: ClientWork) -> list[Tensor]:
        return [predictions.logits.argmax(1).cpu() for predictions in work.outputs(work.own)]

    def classes_by(offer: Offer, rows: Tensor, as_trained: bool) -> list[Tensor]:
        step = SingleStep(
            offer, rows, opened.task, opened.clients, predict_classes, as_trained=as_trained, source=opened.source
        )
        return engine.run(step)

    delivered = classes_by(opened.offer, opened.rows, as_trained=False)
    adapted = classes_by(offer_own(len(engine.bank)), engine.bank, as_trained=True)
    return {
        client: Shift(
            float((delivered_classes == adapted_classes).double().mean()),
            delivered_classes.bincount(minlength=classes),
            adapted_classes.bincount(minlength=classes),
        )
        for client, delivered_classes, adapted_classes in zip(opened.clients, delivered, adapted, strict=True)
    }
