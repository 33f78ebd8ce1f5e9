"""The layers between backbone and classifier, and networks that read grey images."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from fedwca.core.architecture import Architecture
from fedwca.data.federation import ClientImages
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.stacked.network import StackedInput, StackedNetwork
from fedwca.errors import UsageError
from fedwca.models import models
from fedwca.models.convnet import ConvNet
from fedwca.models.lenet import LeNet
from fedwca.models.mlp import Mlp

SMALL = [
    Mlp(side=6, width=5),
    Mlp(side=6, width=5, layers=3, dropout=0.3),
    Mlp(side=6, width=5, head="hidden", bottleneck=4),
    ConvNet(side=8, width=2, bottleneck=4, channels=1, mean=(0.1,), std=(0.4,)),
    ConvNet(side=8, width=2, head="bottleneck", bottleneck=4, dropout=0.2, mean=(0.1, 0.2, 0.3), std=(0.4,)),
    ConvNet(side=8, width=2, head="direct", classifier="wn"),
]


def pictures(count: int, side: int, grey: bool = False) -> Tensor:
    random = torch.Generator().manual_seed(3)
    shape = (count, 1 if grey else 3, side, side)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=random).expand(-1, 3, -1, -1)


def test_a_network_without_values_draws_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch would import its compiler for draws on the meta device, where the size of a file's model is compared."""

    def draw(weight: Tensor) -> Tensor:
        raise AssertionError("it draws")

    monkeypatch.setattr(torch.nn.init, "xavier_normal_", draw)
    with torch.device("meta"):
        outline = LeNet().build(3)
    assert {parameter.device.type for parameter in outline.parameters()} == {"meta"}


def test_source_models_of_a_plugin_are_told_apart_by_its_code() -> None:
    class Own(LeNet):
        """An architecture of one's own."""

    assert set(Own().identity()) - set(LeNet().identity()) == {"code"}


def test_a_head_that_was_not_chosen_leaves_source_models_what_they_were() -> None:
    assert LeNet().identity() == {
        "name": "lenet",
        "side": 32,
        "bottleneck": 256,
        "dropout": 0.5,
        "classifier": "linear",
        "channel_dropout": 0.5,
    }
    assert LeNet(head="direct").identity()["head"] == "direct"


@pytest.mark.parametrize(
    ("attribute", "value", "said"),
    [
        ("mean", 0.5, r"mean is 0\.5; right is \(0\.5, 0\.5, 0\.5\) or, for grey images, \(0\.5,\)"),
        ("std", (0.5, 0.5), r"std is \(0\.5, 0\.5\); right is \(0\.5, 0\.5, 0\.5\)"),
        (
            "mean",
            (0.5,),
            r"mean is \(0\.5,\) and its std is \(0\.5, 0\.5, 0\.5\); right are as many numbers, so set both",
        ),
        ("shortcuts", "down", r"shortcuts is 'down'; right is a tuple of names of modules, such as \('down',\)"),
    ],
)
def test_wrong_attributes_of_a_backbone_are_refused(attribute: str, value: object, said: str) -> None:
    class Own(LeNet):
        """LeNet with another value of an attribute."""

        name = "own"

        def backbone(self) -> Any:
            backbone = super().backbone()
            setattr(backbone, attribute, value)
            return backbone

    with pytest.raises(UsageError, match=rf"model 'own': its backbone's {said}"):
        Own().build(3)


def test_the_published_networks() -> None:
    mlp, convnet = Mlp().build(10), ConvNet(channels=1, side=28, bottleneck=2048).build(62)
    assert [tuple(p.shape) for p in mlp.parameters() if p.ndim > 1] == [(200, 784), (200, 200), (10, 200)]
    assert [tuple(p.shape) for p in convnet.parameters() if p.ndim > 1] == [
        *((32, 1, 5, 5), (64, 32, 5, 5)),
        *((2048, 64 * 7 * 7), (62, 2048)),
    ]
    for network in (mlp, convnet):
        assert (network.drops, Layout.of(network).statistics, Layout.of(network).least_images) == ((), (), 1)
        for layer in (module for module in network.modules() if isinstance(module, torch.nn.Linear)):
            assert (
                0 < float(layer.bias.detach().abs().max()) <= 1 / math.sqrt(layer.in_features)
            )  # torch's default initialisation
    assert Layout.of(LeNet().build(3)).least_images == 2


@pytest.mark.parametrize("model", SMALL, ids=repr)
def test_many_at_once_give_what_each_gives(model: Architecture) -> None:
    networks = [model.build(3, seed=seed, trains_classifier=True).double() for seed in range(2)]
    layout, x = Layout.of(networks[0]), pictures(5, model.side)
    rows = torch.stack([layout.read(network) for network in networks])
    masks = [torch.rand(5, *drop.shape).round().double() * 2 for drop in networks[0].drops]
    for by_hand in (True, False):
        stacked = StackedNetwork(networks[0], layout, by_hand=by_hand)
        assert stacked.by_hand is by_hand
        parameters = {slot.name: slot.of(rows) for slot in layout.parameters}
        statistics = {slot.name: slot.of(rows) for slot in layout.statistics}
        prepared = networks[0].prepare(x)
        both = StackedInput(torch.stack([prepared] * 2), [torch.stack([mask] * 2) for mask in masks])
        logits, features, _ = stacked(parameters, statistics, both)
        for index, network in enumerate(networks):
            expected, expected_features = network.eval()(prepared, masks)
            assert torch.allclose(logits[index], expected, atol=1e-12)
            assert torch.allclose(features[index], expected_features, atol=1e-12)
            assert expected_features.shape == (5, network.features)


def test_grey_is_any_of_three_equal_channels_and_the_mean_of_others() -> None:
    network = Mlp(side=6, mean=0.25, std=0.5).build(3).double()
    grey = pictures(4, 6, grey=True)
    scaled = (grey[:, :1].double() / 255 - 0.25) / 0.5
    assert network.channels == 1
    assert torch.allclose(network.prepare(grey), scaled, atol=1e-12, rtol=0)
    colours = pictures(4, 6)
    mean = colours.double().mean(1, keepdim=True)
    assert torch.allclose(network.prepare(colours), (mean / 255 - 0.25) / 0.5, atol=1e-12, rtol=0)


def test_values_are_for_the_channels_there_are() -> None:
    with pytest.raises(ValidationError, match="mean has 3 values; 1 or 1 are right"):
        ConvNet(channels=1, mean=(0.1, 0.2, 0.3))
    assert ConvNet(mean=(0.1,)).build(2).channels == 3


def test_nobody_needs_images_to_train_on_to_be_measured() -> None:
    from fedwca.engine.sequential.engine import SequentialEngine
    from fedwca.engine.stacked import StackedEngine

    network, none = Mlp(side=6).build(3, trains_classifier=True), pictures(0, 6)
    clients = [ClientImages(none, pictures(n, 6)) for n in (3, 0, 5)]
    sequential, stacked = (engine(network, clients).classify() for engine in (SequentialEngine, StackedEngine))
    assert [len(predictions) for predictions in sequential] == [3, 0, 5]
    assert all(map(torch.equal, sequential, stacked))


def test_numbers_may_be_written_as_text() -> None:
    grey = models.build("convnet:channels=1,mean=0.1307,std=0.3081")
    assert grey == ConvNet(channels=1, mean=(0.1307,), std=(0.3081,))
    assert models.build("convnet:mean=0.49+0.48+0.45") == ConvNet(mean=(0.49, 0.48, 0.45))
    assert models.build("lenet:side=32") == models.build("lenet")
    with pytest.raises(UsageError, match="Input should be 1 or 3"):
        models.build("convnet:channels=2")
