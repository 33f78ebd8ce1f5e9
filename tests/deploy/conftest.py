"""A small federation in one process: the server's session, its clients, and the same method in the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedwca.aggregators import aggregators
from fedwca.cli import client
from fedwca.core.interfaces import Clusterer
from fedwca.core.network import Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.deploy.client import Client
from fedwca.deploy.composition import Composition
from fedwca.deploy.server_rules import Rules
from fedwca.deploy.session import Session
from fedwca.deploy.wire_messages import Parcel
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.models import models
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.two_model import TwoModel
from tests.conftest import SMALL_MODEL

TRAINING = Training(epochs=1, lr=0.02, batch_size=8)
PAIRS = torch.tensor([0, 0, 1, 1])


class Pairs(Clusterer):
    """Puts clients 0 and 1 in one cluster, 2 and 3 in the next, and so on, whatever their models are."""

    def __call__(self, signatures: Any) -> Tensor:
        return torch.arange(signatures.clients) // 2


def composed(aggregator: str, *objectives: Any) -> Method:
    """The method "toy": this aggregator, SHOT and further objectives, and `Pairs` where a clusterer is needed."""
    built = aggregators.build(aggregator)
    return Method(
        "toy", "Toy", built, TwoModel(), (Shot(), *objectives), Pairs() if built.grouping.needs_clusterer else None
    )


@dataclass
class Federation:
    """A method with a network and the images of its clients.

    It is played by messages (`session` and `clients`) or in the simulation engine (`simulated`).
    """

    method: Method
    network: Network
    images: list[ClientImages]
    options: dict[str, Any]

    def session(self, **rules: Any) -> Session:
        """The server's session, under these fields of `Rules`."""
        composition = Composition.of(
            self.method, models.build(SMALL_MODEL), 3, training=TRAINING, seed=1, **self.options
        )
        return Session(self.method, self.network, composition, Rules(**{"clients": len(self.images), **rules}))

    def clients(self) -> list[Client]:
        return [Client(lambda side, stretch, x=client_images.train: x) for client_images in self.images]

    def simulated(self, rounds: int, participation: float = 1.0) -> Server:
        """The server after the same rounds in the engine that `fedwca bench` uses."""
        engine = SequentialEngine(self.network, self.images, "cpu", 1, self.options.get("batch_norm", "mixed"))
        server = init_server(engine)
        for round_number in range(rounds):
            server, _ = run_round(round_number, server, self.method, engine, TRAINING, Keys(1), PAIRS, participation)
        return server


Build = Callable[..., Federation]


@pytest.fixture
def federation(network: Network, images: list[ClientImages]) -> Build:
    def build(aggregator: str = "wca:ta=1,tb=1", *objectives: Any, **options: Any) -> Federation:
        return Federation(composed(aggregator, *objectives), network, images, options)

    return build


def with_tensors(parcel: Parcel, **tensors: Tensor) -> Parcel:
    """An upload with other values of some tensors of its model."""
    return replace(parcel, models={"model": {**parcel.models["model"], **tensors}})


def delivered(session: Session) -> Tensor:
    """The models that clients end with ``[K, P]``."""
    server = session.state.server
    weights = session.method.aggregator.deliver(server.state, len(server.rows))
    return weights.to(server.rows.dtype) @ server.rows


@pytest.fixture
def flower_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run as if Flower were installed; nothing here starts it."""
    for command in ("deploy_init", "deploy", "server", "client"):
        monkeypatch.setattr(f"fedwca.cli.{command}.check_flower", lambda: None)
    monkeypatch.setattr("fedwca.deploy.flower.processes.find_flwr", lambda: Path("flwr"))


@pytest.fixture
def counted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's images are counted in this process, which has loaded torch already; that takes a new one seconds."""
    monkeypatch.setattr(client, "count_images", client._count_images)
