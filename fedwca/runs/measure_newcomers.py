"""How good delivered models are at newcomers, which training never meets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.config.run_config import RunConfig
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import Federation
from fedwca.data.metrics import Metrics
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys, uniform
from fedwca.federated.aggregator_weights import newcomer_mixtures
from fedwca.federated.method import Method
from fedwca.federated.model_sizes import begin_rows, draw_sizes
from fedwca.federated.public_images import FreshModels, holders_of
from fedwca.federated.server import Server
from fedwca.runs.load_data import architecture
from fedwca.runs.measure_delivered import DeliveredModels, measure_delivered
from fedwca.runs.select_engine import choose_engine


@dataclass(frozen=True, eq=False)
class Newcomers:
    """The newcomers of a trial: their images, on an engine of their own that trains nobody, and their labels."""

    engine: Engine
    metrics: Metrics
    """Of all groups, one behind the other."""
    numbers: Sequence[int]
    """Of each, from 0; who is in two groups has one."""
    fresh: FreshModels | None = None
    """What they begin with where models stay with the clients that train; None: the server's first model."""

    @staticmethod
    def of(
        config: RunConfig, network: Network, groups: Sequence[Federation], fresh: FreshModels | None = None
    ) -> Newcomers | None:
        """The newcomers in some groups; None where there is no group.

        Args:
            config: names the engine.
            network: the model everybody starts from.
            groups: of newcomers.
            fresh: what they begin with; None: the server's model.
        """
        clients = [client for group in groups for client in group.clients]
        if not clients:
            return None
        engine = choose_engine(config, network, clients)
        # They never train: one row stands for the models that they have not.
        engine.bank = engine.bank[:1].clone().expand(len(clients), -1)
        return Newcomers(engine, Metrics.joined([group.metrics for group in groups]), number_newcomers(groups), fresh)

    def measure(
        self, method: Method, server: Server, lr: float | None, training: Training, round: int, keys: Keys
    ) -> DeliveredModels:
        """How good the model is that the server has for each of them, or that each learns from public images.

        Args:
            method: what was played; its aggregator says which model that is.
            server: after a round, or before the first.
            lr: size of an adaptation's steps on their images; None: none are made.
            training: how clients train, unless the method says it.
            round: in whose learning rates.
            keys: where random numbers come from.
        """
        if self.fresh is not None:
            own = method.training_in(training)
            models = self.fresh.learn(method, server.state, own, round)
            return measure_delivered(method, self.engine, self.metrics, self.fresh.weights, models, lr)
        draws = uniform(keys(0, -1, "welcome"), torch.tensor(self.numbers))
        sent = newcomer_mixtures(method.aggregator, len(server.rows), draws)
        return measure_delivered(method, self.engine, self.metrics, sent, server.rows, lr)


def number_newcomers(groups: Sequence[Federation]) -> list[int]:
    """The number of each newcomer, group after group; what is drawn for one is the same in every group it is in."""
    return [group.first + place for group in groups for place in range(len(group))]


def prepare_fresh_models(
    config: RunConfig,
    method: Method,
    network: Network,
    public: Tensor,
    seed: int,
    keys: Keys,
    clients: int,
    new: Sequence[int],
) -> FreshModels:
    """Models that nobody trained, for newcomers to learn from public images.

    Args:
        config: names architecture and engine.
        method: learns from public images.
        network: the model everybody starts from, with the method's extra ones.
        public: images ``[N, 3, H, W]`` uint8.
        seed: of initial weights.
        keys: of the trial.
        clients: that train, whose numbers come first.
        new: numbers of newcomers, whose sizes are drawn; see `number_newcomers`.
    """
    rows = begin_rows(architecture(config), method.trained, network, seed)
    engine = choose_engine(config, network, holders_of(public, len(rows)))
    sizes = draw_sizes(keys, [clients + number for number in new], len(rows))
    return FreshModels(rows.to(engine.bank), sizes, engine, keys, clients)


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
