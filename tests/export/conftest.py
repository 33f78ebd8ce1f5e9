from __future__ import annotations

import pytest

from fedwca.core.model_description import ModelDescription, weights_hash
from fedwca.core.network import Network
from fedwca.models import models
from tests.conftest import SMALL_MODEL


@pytest.fixture
def about(network: Network) -> ModelDescription:
    """The description of the tests' small network, as a file of it would hold."""
    model = models.build(SMALL_MODEL)
    return ModelDescription(
        fedwca="0.1.0",
        classes=("ant", "bee", "cat"),
        side=8,
        model={"name": model.name, **model.model_dump(mode="json")},
        method="wca",
        label="FedWCA",
        holder="client 2",
        dataset="shades",
        source="amber",
        domain="brass",
        clients=(2,),
        rounds=4,
        config_hash="0123456789abcdef",
        weights_hash=weights_hash(network.state_dict()),
        accuracy=75.0,
        source_accuracy=50.0,
        images=12,
    )
