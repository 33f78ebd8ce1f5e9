"""A federation in one process: the session, its clients, and the same composition in the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators import aggregators
from fedwca.core.interfaces import Clusterer
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.models.lenet import LeNet
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel

TRAINING = Training(epochs=1, lr=0.02, batch_size=8)
PAIRS = torch.tensor([0, 0, 1, 1])


class Pairs(Clusterer):
    """Two clusters of two, in order, whatever the models are."""

    def __call__(self, signatures: Any) -> Tensor:
        return torch.arange(signatures.clients) // 2


def composed(aggregator: str, *objectives: Any) -> Method:
    built = aggregators.build(aggregator)
    return Method(
        "toy", "Toy", built, TwoModel(), (Shot(), *objectives), Pairs() if built.grouping.needs_clusterer else None
    )


@dataclass
class Federation:
    """What a test needs."""

    method: Method
    network: Network
    images: list[ClientImages]
    options: dict[str, Any]

    def session(self, **rules: Any) -> Session:
        composition = Composition.of(self.method, LeNet(bottleneck=16), 3, training=TRAINING, seed=1, **self.options)
        return Session(self.method, self.network, composition, Rules(**{"clients": len(self.images), **rules}))

    def clients(self) -> list[Client]:
        return [Client(lambda side, stretch, x=given.train: x) for given in self.images]

    def simulated(self, rounds: int, participation: float = 1.0) -> Server:
        """The same by the engine that `fedwca bench` uses."""
        loop = SequentialEngine(self.network, self.images, "cpu", 1, self.options.get("batch_norm", "mixed"))
        server = init_server(loop)
        for number in range(rounds):
            server, _ = run_round(number, server, self.method, loop, TRAINING, Keys(1), PAIRS, participation)
        return server


@pytest.fixture
def federation(network: Network, images: list[ClientImages]) -> Callable[..., Federation]:
    def build(aggregator: str = "wca:ta=1,tb=1", *objectives: Any, **options: Any) -> Federation:
        return Federation(composed(aggregator, *objectives), network, images, options)

    return build


def delivered(session: Session) -> Tensor:
    """The models clients end with ``[K, P]``."""
    server = session.state.server
    weights = session.method.aggregator.deliver(server.state, len(server.rows))
    return weights.to(server.rows.dtype) @ server.rows
