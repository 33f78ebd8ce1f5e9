"""Test accuracy of delivered models, as they are or after test-time adaptation."""

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
from fedwca.errors import Diverged
from fedwca.federated.method import Method
from fedwca.federated.upload_checks import advise_lower

AT_ONCE = {False: 32, True: 4}
"""Clients adapted at a time, by `Adaptation.generates_models`: fewer where networks about 100 times as large as a model
generate it."""


@dataclass(frozen=True)
class DeliveredModels:
    """Test predictions of the models delivered to some clients, and what adaptation did; each list has K entries."""

    predictions: list[ClassPredictions]
    """Class predictions of the client's test images."""
    before: list[float] = field(default_factory=list)
    """Accuracy in percent before adaptation, NaN without test images; empty if the models were not adapted."""
    steps: list[int] = field(default_factory=list)
    """Adaptation steps that were made."""
    taken: list[int] = field(default_factory=list)
    """Number of steps after which the model was taken."""
    entropy: list[list[float]] = field(default_factory=list)
    """Mean entropy of the outputs in nats, before adaptation and of the model taken; NaN without test images."""


def step_size(method: Method, training: Training, round: int) -> float | None:
    """Learning rate of a method's adaptation steps after a round; None if it has no adaptation.

    Args:
        method: the method.
        training: the run's training settings, unless the method has its own.
        round: the round whose learning rates are used.
    """
    if method.adaptation is None:
        return None
    return adaptation_lr(method.adaptation, method.training_in(training), round)


def measure_delivered(
    method: Method, engine: Engine, metrics: Metrics, weights: Tensor, rows: Tensor, lr: float | None
) -> DeliveredModels:
    """Predict each client's test images with its delivered model, adapted to them if the method has an adaptation.

    Args:
        method: the method.
        engine: holds the test images; adaptation uses them without their labels.
        metrics: holds the test labels.
        weights: each client's model as a mixture of rows ``[K, R]``.
        rows: the server's rows ``[R, P]``.
        lr: learning rate of adaptation steps; None: no adaptation.

    Raises:
        Diverged: a model's outputs, or those of an adapted one, are not finite.
    """
    unadapted = engine.predict_tests(weights, rows)
    check_finite_outputs(unadapted, "a client's model", "--lr")
    if method.adaptation is None or lr is None:
        return DeliveredModels(unadapted)
    delivered = DeliveredModels([], list_accuracies(metrics, unadapted))
    at_once = AT_ONCE[method.adaptation.generates_models]
    for first in range(0, len(metrics), at_once):
        clients = range(first, min(first + at_once, len(metrics)))
        for adapted in engine.adapt(method.adaptation, lr, weights, rows, clients):
            delivered.predictions.append(adapted.classify())
            delivered.steps.append(adapted.steps)
            delivered.taken.append(adapted.taken)
            delivered.entropy.append(_ends(adapted))
    check_finite_outputs(delivered.predictions, "a client's adapted model", "adaptation.lr")
    return delivered


def check_finite_outputs(predictions: Sequence[ClassPredictions], model: str, option: str | None) -> None:
    """Refuse outputs that are not finite: the largest of them is then no prediction, and would count as class 0.

    Args:
        predictions: of each client's test images.
        model: whose outputs they are, as a phrase.
        option: the command-line option of which a lower value may help; None: there is none.

    Raises:
        Diverged: an output is not finite.
    """
    if any(bool(predicted.confidences.isnan().any()) for predicted in predictions):
        sentence = f"{model} has outputs that are not finite for some of the client's test images"
        raise Diverged(f"{sentence}; {advise_lower(option)}" if option else sentence)


def list_accuracies(metrics: Metrics, predictions: Sequence[ClassPredictions]) -> list[float]:
    """Test accuracy of each client in percent; NaN without test images."""
    return [metrics.accuracy(client, predicted.classes) for client, predicted in enumerate(predictions)]


def _ends(adapted: AdaptedModel) -> list[float]:
    return [adapted.entropies[0], adapted.entropies[adapted.taken]] if adapted.entropies else [math.nan, math.nan]


def describe_steps_made(*groups: DeliveredModels) -> dict[str, Any]:
    """The ``adaptation`` entry of a record, for groups of clients in order; empty if a group was not adapted."""
    if not all(models.before for models in groups):
        return {}
    columns = {"accuracy_before": "before", "steps": "steps", "taken": "taken", "entropy": "entropy"}
    return {
        "adaptation": {key: [x for models in groups for x in getattr(models, name)] for key, name in columns.items()}
    }
