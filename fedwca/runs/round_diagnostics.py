"""Looks that decide nothing: other clusterings of round 0, and what the last models say of unlabeled images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.config.component_registries import registry_of
from fedwca.core.grouping import check_labels
from fedwca.core.messages import Offer
from fedwca.core.training_settings import Training
from fedwca.data.metrics import Metrics
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.engine.randomness import Keys
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.method import Method
from fedwca.federated.server import Server


def cluster_layers(
    words: Sequence[str], engine: Engine, source: Tensor, metrics: Metrics, keys: Keys
) -> dict[str, Any]:
    """How other clusterers would group the clients: by word ``labels [K]``, and how they compare with the true domains.

    Args:
        words: clusterers, such as ``finch:signature=2``.
        engine: with the clients' models of round 0 in its bank.
        source: the model everybody started from ``[P]``.
        metrics: knows the true domains, which only an oracle is shown.
        keys: of the run, for signatures that are drawn.
    """
    found = {}
    for word in words:
        clusterer = registry_of("clusterer").build(word)
        truth = metrics.domain_labels() if clusterer.oracle else None
        signatures = BankSignatures(
            engine.bank, engine.layout, source, truth, engine.images, lambda k: keys(0, k, "style"), engine.network
        )
        labels = check_labels(clusterer(signatures).cpu(), len(metrics), clusterer.name)
        found[word] = {"labels": labels.tolist(), **metrics.clustering(labels)}
    return found


def measure_evidence(
    server: Server, method: Method, engine: Engine, training: Training, models: Tensor | None = None
) -> dict[str, list[float]]:
    """What the models that clients end with say of the clients' own training images; no label is read.

    Args:
        server: after the last round.
        method: what was played.
        engine: has the images.
        training: of the run.
        models: those that clients end with ``[K, P]``; None: what they are delivered. Clients with labels are left out.

    Returns:
        ``density``: soft neighborhood density (eq. 6, nats; more is better); ``entropy``: mean entropy of the outputs
        (nats; less is better, and least for a model that always says the same); each one value a client.
    """
    rows = server.rows if models is None else models
    weights = (
        deliver_mixtures(method.aggregator, server.state, len(rows))
        if models is None
        else torch.eye(len(rows)).double()
    )
    labelled = [own is not None for own in engine.labels]
    offer = Offer.of_personal(weights)

    def look(work: ClientWork) -> list[tuple[float, float]]:
        found = [torch.special.entr(own.probabilities).sum(1).mean() for own in work.outputs(work.own)]
        return list(zip(work.density(work.own).tolist(), map(float, found), strict=True))

    task = Task(method.pseudo_labeler, method.own_objectives, training, lambda purpose: 0)
    found = engine.run(SingleStep(offer, rows, lambda client: task, range(len(engine.images)), look))
    known = [(math.nan, math.nan) if own else both for own, both in zip(labelled, found, strict=True)]
    density, entropy = zip(*known, strict=True)
    return {"density": list(density), "entropy": list(entropy)}
