"""Diagnostics that do not affect training: other clusterings of round 0, and outputs of the final models."""

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
from fedwca.engine.client_task import Task
from fedwca.engine.interface import ClientWork, Engine, SingleStep
from fedwca.engine.randomness import Keys
from fedwca.federated.aggregator_weights import deliver_mixtures
from fedwca.federated.close_round import read_signatures
from fedwca.federated.method import Method
from fedwca.federated.server import Server


def cluster_by_probes(
    specs: Sequence[str], engine: Engine, source: Tensor, metrics: Metrics, keys: Keys
) -> dict[str, Any]:
    """How other clusterers group the clients: by spec, ``labels [K]`` and their agreement with the true domains.

    Args:
        specs: clusterers, such as ``finch:signature=2``.
        engine: its bank holds the clients' models of round 0.
        source: the model that all clients started from ``[P]``.
        metrics: holds the true domains, which only an oracle clusterer may read.
        keys: the run's source of random numbers, for signatures of randomly drawn images.
    """
    clusterings = {}
    for spec in specs:
        clusterer = registry_of("clusterer").build(spec)
        signatures = read_signatures(clusterer, engine, source, metrics.domain_labels(), keys)
        labels = check_labels(clusterer(signatures).cpu(), len(metrics), clusterer.name)
        clusterings[spec] = {"labels": labels.tolist(), **metrics.clustering(labels)}
    return clusterings


def measure_evidence(
    server: Server, method: Method, engine: Engine, training: Training, models: Tensor | None
) -> dict[str, list[float]]:
    """Density and entropy of the final models' outputs on the clients' own training images; reads no labels.

    Args:
        server: the server's state after the last round.
        method: the method.
        engine: holds the images.
        training: the run's training settings.
        models: the clients' final models ``[K, P]``; None: the delivered ones.

    Returns:
        ``density``: soft neighborhood density (eq. 6, nats; higher is better); ``entropy``: mean entropy of the outputs
        (nats; lower is better, but lowest for a model that always predicts one class). Each has one value per client,
        NaN for clients with labels.
    """
    rows = server.rows if models is None else models
    weights = (
        deliver_mixtures(method.aggregator, server.state, len(rows))
        if models is None
        else torch.eye(len(rows)).double()
    )
    labelled = [labels is not None for labels in engine.labels]
    offer = Offer.of_personal(weights)

    def measure(work: ClientWork) -> list[tuple[float, float]]:
        entropies = [torch.special.entr(outputs.probabilities).sum(1).mean() for outputs in work.outputs(work.own)]
        return list(zip(work.density(work.own).tolist(), map(float, entropies), strict=True))

    task = Task(method.pseudo_labeler, method.own_objectives, training, lambda purpose: 0)
    clients = range(len(engine.images))
    evidence = engine.run(SingleStep(offer, rows, lambda client: task, clients, measure, as_trained=models is not None))
    masked = [
        (math.nan, math.nan) if has_labels else values for has_labels, values in zip(labelled, evidence, strict=True)
    ]
    density, entropy = zip(*masked, strict=True)
    return {"density": list(density), "entropy": list(entropy)}
