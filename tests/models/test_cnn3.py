"""Networks of the several-sources setting: CNN-3 and ResNet-101."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout
from fedwca.models import models
from fedwca.models.cnn3 import Cnn3
from fedwca.models.lenet import LeNet
from fedwca.models.resnet101 import ResNet101

MODELS = Path(__file__).parents[2] / "docs" / "models.md"


def some(n: int, side: int = 32) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_cnn3_is_as_large_as_published() -> None:
    network = Cnn3().build(10)
    count = sum(parameter.numel() for parameter in network.parameters())
    assert count == 4864 + 102464 + 204928 + 2 * 256 + 25168896 + 6144 + 6293504 + 4096 + 20490
    assert round(count / 1e6, 1) == 31.8
    assert [drop.shape for drop in network.drops] == [(3072,), (2048,)]
    assert network.drops[1].p == 0


def test_features_of_cnn3_are_rectified_in_both_modes() -> None:
    network = Cnn3(bottleneck=16).build(4)
    x = network.prepare(some(6))
    for training in (False, True):
        network.train(training)
        masks = [torch.ones(6, *drop.shape) for drop in network.drops] if training else []
        logits, features = network(x, masks)
        assert logits.shape == (6, 4)
        assert features.shape == (6, 16)
        assert features.min() == 0 < features.max()


def test_a_bottleneck_without_activation_is_the_default_and_its_digest_is_that_of_before() -> None:
    network = LeNet().build(4)
    assert network.extract(network.prepare(some(6))).min() < 0
    assert "activation" not in LeNet().identity()
    assert Cnn3().identity()["activation"] == "relu"
    assert LeNet(activation="relu").identity() != LeNet().identity()


@pytest.mark.parametrize("name", ["lenet", "resnet18", "resnet50", "resnet101", "cnn3"])
def test_the_page_names_the_values_of_a_row(name: str) -> None:
    with torch.device("meta"):
        network = models.build({"name": name}).build(10, pretrained=False)
    row = re.search(rf"^\| `{name}` .*\| ([\d,]+) \|$", MODELS.read_text(), re.MULTILINE)
    assert row is not None
    assert int(row[1].replace(",", "")) == Layout.of(network).width


def test_resnet101_reads_crops() -> None:
    architecture = ResNet101(side=32, weights="none", bottleneck=8)
    network = architecture.build(5)
    assert architecture.stored_side == 37
    assert network.backbone.out_features == 2048
    logits, features = network(network.prepare(some(2, 37)))
    assert (logits.shape, features.shape) == ((2, 5), (2, 8))
