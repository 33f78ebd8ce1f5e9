"""How good models are after their steps on the images that they predict."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from fedwca.core.training_settings import Training
from fedwca.data.metrics import Metrics
from fedwca.engine.client_task import adaptation_lr
from fedwca.engine.interface import Engine
from fedwca.federated.method import Method

AT_ONCE = 32
"""Clients whose adapted models are there at a time."""


def measure_adapted(
    metrics: Metrics,
    engine: Engine,
    method: Method,
    training: Training,
    round: int,
    weights: Tensor,
    rows: Tensor,
) -> tuple[list[float], dict[str, Any]]:
    """Test accuracy of each client in percent after its steps, NaN without test images; and what the steps did.

    Args:
        metrics: holds the labels.
        engine: holds the images; each client's steps are made on its test images, without their labels.
        method: says which steps.
        training: how clients train in all rounds, unless the method says it.
        round: in whose learning rates.
        weights: the model of each client as a mixture of ``rows`` ``[K, R]``.
        rows: ``[R, P]``.
    """
    adaptation = method.adaptation
    assert adaptation is not None
    training = method.training or training
    now = training.at(round)
    lr, clients = adaptation_lr(adaptation, now, now.lr / training.lr), len(metrics)
    accuracy, steps, taken, entropy = [], [], [], []
    for first in range(0, clients, AT_ONCE):
        some = range(first, min(first + AT_ONCE, clients))
        for client, found in zip(some, engine.adapt(adaptation, lr, weights, rows, some), strict=True):
            accuracy.append(metrics.accuracy(client, found.classes))
            steps.append(found.steps)
            taken.append(found.taken)
            entropy.append([*found.entropies[:1], *found.entropies[found.taken :][:1]] or [math.nan, math.nan])
    return accuracy, {"steps": steps, "taken": taken, "entropy": entropy}
