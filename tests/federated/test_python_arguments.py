"""Arguments of another type than a function of the Python interface takes are named in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import fedwca
from fedwca.aggregators.fedavg import FedAvg
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.errors import UsageError
from fedwca.models.lenet import LeNet
from fedwca.objectives.cross_entropy import CrossEntropy
from fedwca.pseudo_labelers.argmax import Argmax
from tests.conftest import some_images
from tests.federated.test_source import domain

WRONG: Any = {
    "name": "lenet",
    "dataset": "digits_mini",
    "method": "wca",
    "class": LeNet,
    "network": LeNet(),
    "images": [torch.zeros(3)],
    "training": {},
}
"""What a user may give in place of an object: its name, its class, its architecture, or its fields."""


def test_what_is_no_object_is_refused(loop: SequentialEngine, tmp_path: Path) -> None:
    server, keys, training = fedwca.init_server(loop), fedwca.Keys(0), fedwca.Training()
    method = fedwca.Method("own", "Own", FedAvg(), Argmax(), (CrossEntropy(),))
    with pytest.raises(UsageError, match=r"instance of Method, such as fedwca\.Method\(.*\), not a str"):
        fedwca.run_round(0, server, WRONG["method"], loop, training, keys, torch.zeros(4))
    with pytest.raises(UsageError, match=r"server needs an instance of Server, such as that of fedwca\.init_server"):
        fedwca.run_round(0, WRONG["network"], method, loop, training, keys, torch.zeros(4))
    with pytest.raises(
        UsageError, match=r"training needs an instance of Training, such as fedwca\.Training\(epochs=5\)"
    ):
        fedwca.run_round(0, server, method, loop, WRONG["training"], keys, torch.zeros(4))
    with pytest.raises(UsageError, match=r"start needs an instance of Network, .* not a LeNet"):
        fedwca.init_server(loop, WRONG["network"])
    with pytest.raises(UsageError, match=r"network needs an instance of Network, .* not a LeNet"):
        SequentialEngine(WRONG["network"], some_images())
    with pytest.raises(UsageError, match=r"clients needs a list of ClientImages, such as .*, not a list"):
        SequentialEngine(loop.network, WRONG["images"])
    with pytest.raises(UsageError, match=r"training needs an instance of SourceTraining"):
        fedwca.pretrain(domain(), ("a", "b"), LeNet(), WRONG["training"], 0)
    with pytest.raises(UsageError, match=r"model needs an instance of Architecture, such as LeNet\(\), not a str"):
        fedwca.pretrain(domain(), ("a", "b"), WRONG["name"], fedwca.SourceTraining(), 0)
    with pytest.raises(UsageError, match=r"not the class LeNet"):
        fedwca.load_source(tmp_path / "client0.pt", ("a", "b"), WRONG["class"])
    with pytest.raises(UsageError, match=r"instance of FederatedDataset, such as fedwca\.find_dataset"):
        fedwca.partition(WRONG["dataset"], "handwritten", clients=2, samples=60, seed=0)
