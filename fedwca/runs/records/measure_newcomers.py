"""Test accuracy of delivered models at newcomers: clients that take no part in training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.config.build_component import architecture
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import Federation
from fedwca.data.metrics import Metrics
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys, uniform
from fedwca.federated.aggregator_weights import newcomer_mixtures
from fedwca.federated.method import Method
from fedwca.federated.model_sizes import draw_sizes, untrained_rows
from fedwca.federated.public_images import FreshModels, holders_of
from fedwca.federated.server import Server
from fedwca.runs.records.measure_delivered import DeliveredModels, measure_delivered
from fedwca.runs.resources.select_engine import choose_engine


@dataclass(frozen=True, eq=False)
class Newcomers:
    """The newcomers of a trial: their images, in a separate engine that never trains, and their labels."""

    engine: Engine
    metrics: Metrics
    """Metrics of all groups, concatenated."""
    numbers: Sequence[int]
    """Number of each newcomer, from 0; the same client in two groups has the same number."""
    fresh: FreshModels | None = None
    """Untrained models that newcomers start from if trained ones stay with their clients; None: the server's model."""

    @staticmethod
    def of(
        config: RunConfig, network: Network, groups: Sequence[Federation], fresh: FreshModels | None = None
    ) -> Newcomers | None:
        """Build the newcomers of some groups; None if there are none.

        Args:
            config: names the engine.
            network: the model that all clients start from.
            groups: groups of newcomers.
            fresh: untrained models that newcomers start from; None: the server's model.
        """
        clients = [client for group in groups for client in group.clients]
        if not clients:
            return None
        engine = choose_engine(config, network, clients)
        # Newcomers never train, so they need no rows of their own: all share one row of the bank.
        engine.bank = engine.bank[:1].clone().expand(len(clients), -1)
        return Newcomers(engine, Metrics.joined([group.metrics for group in groups]), number_newcomers(groups), fresh)

    def measure(
        self, method: Method, server: Server, lr: float | None, training: Training, round: int, keys: Keys
    ) -> DeliveredModels:
        """Predictions of the model the server has for each newcomer, or that each learns from public images.

        Args:
            method: the method; its aggregator chooses the model for each newcomer.
            server: the server's state after a round, or before the first.
            lr: learning rate of adaptation steps on the newcomers' images; None: no adaptation.
            training: the run's training settings, unless the method has its own.
            round: the round whose learning rates are used.
            keys: source of random numbers.
        """
        if self.fresh is not None:
            method_training = method.training_in(training)
            models = self.fresh.learn(method, server.state, method_training, round)
            return measure_delivered(method, self.engine, self.metrics, self.fresh.weights, models, lr)
        draws = uniform(keys(0, -1, "welcome"), torch.tensor(self.numbers))
        mixtures = newcomer_mixtures(method.aggregator, len(server.rows), draws)
        return measure_delivered(method, self.engine, self.metrics, mixtures, server.rows, lr)


def number_newcomers(groups: Sequence[Federation]) -> list[int]:
    """The number of each newcomer, group after group; random draws depend on it, so they agree between groups."""
    return [group.first_number + index for group in groups for index in range(len(group))]


def prepare_fresh_models(
    config: RunConfig,
    method: Method,
    network: Network,
    public: Tensor,
    keys: Keys,
    clients: int,
    new: Sequence[int],
) -> FreshModels:
    """Untrained models that newcomers train on public images.

    Args:
        config: names architecture and engine.
        method: a method that learns from public images.
        network: the model that all clients start from, with the method's extra networks.
        public: public images ``[N, 3, H, W]`` uint8.
        keys: the trial's source of random numbers; their seed is that of the initial weights, too.
        clients: number of clients that train; newcomers are numbered after them.
        new: numbers of the newcomers, by which their model sizes are drawn; see `number_newcomers`.
    """
    rows = untrained_rows(architecture(config), method.trained, network, keys.seed)
    engine = choose_engine(config, network, holders_of(public, len(rows)))
    sizes = draw_sizes(keys, [clients + number for number in new], len(rows))
    return FreshModels(rows.to(engine.bank), sizes, engine, keys, clients)


def describe_accuracies(trained: Sequence[float], new: Sequence[float]) -> dict[str, list[float]]:
    """Accuracies of a record with newcomers: lists over the clients that train and then the newcomers, padded with NaN.

    Args:
        trained: accuracies of the clients that train, on validation images.
        new: accuracies of the newcomers, which tables report.
    """
    return {
        "accuracy": [*[math.nan] * len(trained), *new],
        "accuracy_validation": [*trained, *[math.nan] * len(new)],
    }
