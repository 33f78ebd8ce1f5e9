"""How good delivered models are: at the clients that trained, and at newcomers, which training never meets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.data.metrics import Metrics
from fedwca.data.partition import Federation
from fedwca.engine.interface import Engine
from fedwca.federated.method import Method
from fedwca.federated.server import Server
from fedwca.runs.select_engine import choose_engine


def predict_delivered(method: Method, engine: Engine, weights: Tensor, rows: Tensor) -> list[Tensor]:
    """Class of each client's test images ``[N_test]`` by the model that the server delivers to it.

    This is the one place where a delivered model meets the images that it is measured on.

    Args:
        method: what was played.
        engine: has the images.
        weights: each client's model as a mixture of rows ``[K, R]``.
        rows: the server's ``[R, P]``.
    """
    return engine.classify(weights, rows)


def measure_delivered(method: Method, engine: Engine, metrics: Metrics, weights: Tensor, rows: Tensor) -> list[float]:
    """Percent of each client's test images that its delivered model is right on; NaN without any.

    Args:
        method: what was played.
        engine: has the images.
        metrics: have their labels.
        weights: as for `predict_delivered`.
        rows: likewise.
    """
    predicted = predict_delivered(method, engine, weights, rows)
    return [metrics.accuracy(client, classes) for client, classes in enumerate(predicted)]


@dataclass(frozen=True, eq=False)
class Newcomers:
    """The newcomers of a trial: their images, on an engine of their own that trains nobody, and their labels."""

    engine: Engine
    metrics: Metrics
    """Of all groups, one behind the other."""

    @staticmethod
    def of(config: RunConfig, network: Network, groups: Sequence[Federation]) -> Newcomers | None:
        """The newcomers in some groups; None where there is no group.

        Args:
            config: names the engine.
            network: the model everybody starts from.
            groups: of newcomers.
        """
        clients = [client for group in groups for client in group.clients]
        if not clients:
            return None
        engine = choose_engine(config, network, clients)
        # They never train: one row stands for the models that they have not.
        engine.bank = engine.bank[:1].clone().expand(len(clients), -1)
        return Newcomers(engine, Metrics.joined([group.metrics for group in groups]))

    def measure(self, method: Method, server: Server) -> list[float]:
        """Percent of each one's images that are predicted right, by the server's first model."""
        first = torch.zeros(len(self.metrics), len(server.rows), dtype=torch.float64)
        first[:, 0] = 1
        return measure_delivered(method, self.engine, self.metrics, first, server.rows)


def describe_accuracies(own: Sequence[float], new: Sequence[float]) -> dict[str, list[float]]:
    """Accuracies as a record has them, of clients that train, measured on validation images, and behind them newcomers.

    Args:
        own: of those that train.
        new: of newcomers, which tables count.
    """
    return {
        "accuracy": [*[math.nan] * len(own), *new],
        "accuracy_validation": [*own, *[math.nan] * len(new)],
    }
