"""How good delivered models are, as they are or after an adaptation's steps on the images that they predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedwca.core.training_settings import Training
from fedwca.data.metrics import Metrics
from fedwca.engine.class_predictions import ClassPredictions
from fedwca.engine.client_task import adaptation_lr
from fedwca.engine.interface import Engine
from fedwca.engine.test_time_adaptation import AdaptedModel
from fedwca.federated.method import Method

AT_ONCE = {False: 32, True: 4}
"""Clients whose adapted models are there at a time, by whether networks a hundred times as large generate them."""


@dataclass(frozen=True)
class DeliveredModels:
    """How good they are at some clients, each by the model that it is delivered."""

    said: list[ClassPredictions]
    """What it says of the client's test images."""
    before: list[float] = field(default_factory=list)
    """Percent of its test images before an adaptation's steps, NaN without any; empty where none were made."""
    steps: list[int] = field(default_factory=list)
    """That were made."""
    taken: list[int] = field(default_factory=list)
    """Steps behind the model that was taken."""
    entropy: list[list[float]] = field(default_factory=list)
    """Mean entropy of the outputs in nats, before and by the model that was taken; NaN without test images."""


def step_size(method: Method, training: Training, round: int) -> float | None:
    """Size of the steps of a method's adaptation after a round; None: it has none.

    Args:
        method: what was played.
        training: how clients train, unless the method says it.
        round: in whose learning rates.
    """
    if method.adaptation is None:
        return None
    training = method.training_in(training)
    return adaptation_lr(method.adaptation, training.at(round), training.factor(round))


def measure_delivered(
    method: Method, engine: Engine, metrics: Metrics, weights: Tensor, rows: Tensor, lr: float | None
) -> DeliveredModels:
    """How good each client's delivered model is on its test images; these are met by no other code.

    Args:
        method: what was played.
        engine: has the images; an adaptation's steps are made on them without their labels.
        metrics: have their labels.
        weights: each client's model as a mixture of rows ``[K, R]``.
        rows: the server's ``[R, P]``.
        lr: size of an adaptation's steps; None: none are made.
    """
    plain = engine.predict_tests(weights, rows)
    if method.adaptation is None or lr is None:
        return DeliveredModels(plain)
    delivered = DeliveredModels([], list_accuracies(metrics, plain))
    at_once = AT_ONCE[method.adaptation.by_client]
    for first in range(0, len(metrics), at_once):
        clients = range(first, min(first + at_once, len(metrics)))
        for adapted in engine.adapt(method.adaptation, lr, weights, rows, clients):
            delivered.said.append(adapted.classify())
            delivered.steps.append(adapted.steps)
            delivered.taken.append(adapted.taken)
            delivered.entropy.append(_ends(adapted))
    return delivered


def list_accuracies(metrics: Metrics, said: Sequence[ClassPredictions]) -> list[float]:
    """Percent of each client's test images that are predicted right; NaN without any."""
    return [metrics.accuracy(client, own.classes) for client, own in enumerate(said)]


def _ends(found: AdaptedModel) -> list[float]:
    return [found.entropies[0], found.entropies[found.taken]] if found.entropies else [math.nan, math.nan]


def describe_steps_made(*found: DeliveredModels) -> dict[str, Any]:
    """What steps did at some clients and those behind them, as a record has it; nothing where none were made."""
    if not all(own.before for own in found):
        return {}
    columns = {"accuracy_before": "before", "steps": "steps", "taken": "taken", "entropy": "entropy"}
    return {"adaptation": {key: [x for own in found for x in getattr(own, name)] for key, name in columns.items()}}
