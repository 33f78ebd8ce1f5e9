"""Convolutions of many channels over few pixels, computed as a matrix product: equal to torch's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedwca.engine.parameter_layout import Layout
from fedwca.engine.stacked.network import StackedNetwork
from fedwca.models._small_map_convolution import SmallMapConvolution, use_small_map_convolutions
from fedwca.models.resnet18 import ResNet18

FORMS = [
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 3, "padding": 1, "stride": 2},
    {"kernel_size": (3, 5), "padding": (0, 2), "stride": (2, 1)},
    {"kernel_size": 2, "bias": True},
]


class Calls(TorchDispatchMode):
    """Records the names of the torch operations that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def make(channels: int = 4, out: int = 256, **form: object) -> SmallMapConvolution:
    torch.manual_seed(0)
    return SmallMapConvolution(channels, out, **{"bias": False, **form}).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_gradients_are_a_convolutions(form: dict[str, object]) -> None:
    conv, x = make(**form), torch.randn(3, 4, 4, 2, dtype=torch.float64).requires_grad_()
    with Calls() as calls:
        outputs = conv(x)
    assert "convolution" not in calls.names
    expected = F.conv2d(x, conv.weight, conv.bias, conv.stride, conv.padding)
    torch.testing.assert_close(outputs, expected)
    inputs = (x, *conv.parameters())
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(outputs, inputs, upstream), torch.autograd.grad(expected, inputs, upstream)
    )


@pytest.mark.parametrize(
    ("side", "out", "multiplied"), [(2, 256, True), (3, 256, False), (4, 512, True), (5, 512, False)]
)
def test_a_product_is_taken_where_outputs_are_few(side: int, out: int, multiplied: bool) -> None:
    conv = make(2, out, kernel_size=3, padding=1)
    with Calls() as calls, torch.no_grad():
        conv(torch.zeros(1, 2, side, side, dtype=torch.float64))
    assert ("convolution" in calls.names) is not multiplied


def test_many_models_at_once_are_convolved_by_torch() -> None:
    network = ResNet18(side=32, weights="none").build(3, seed=0)
    stacked = StackedNetwork(network, Layout.of(network))
    assert any(isinstance(part, SmallMapConvolution) for part in network.modules())
    assert not any(isinstance(part, SmallMapConvolution) for part in stacked.network.modules())


def test_weights_are_where_they_were_and_others_stay_as_they_are() -> None:
    network = nn.Sequential(
        nn.Conv2d(4, 256, 3), nn.Conv2d(4, 256, 1), nn.Conv2d(4, 8, 3), nn.Conv2d(4, 256, 3, groups=2)
    )
    before = {name: value.clone() for name, value in network.state_dict().items()}
    use_small_map_convolutions(network)
    assert [type(part) is SmallMapConvolution for part in network] == [True, False, False, False]
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())


def test_a_resnet_of_64_pixels_has_products_in_its_last_stage() -> None:
    backbone = ResNet18(side=64, weights="none").build(3, seed=0).backbone
    names = {name for name, part in backbone.body.named_modules() if isinstance(part, SmallMapConvolution)}
    assert names == {f"layer{stage}.{block}.conv{i}" for stage in (3, 4) for block in (0, 1) for i in (1, 2)}
