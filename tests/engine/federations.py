"""Clients of unequal size, networks with little work, and all that two engines must give alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import WeightsEnum
from torchvision.models.resnet import BasicBlock

from fedwca.config.baselines import baseline_names
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.network import Backbone, Drop, Network
from fedwca.core.training_settings import Training
from fedwca.data.federation import ClientImages
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys, fold_key, uniform
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome, init_server, run_round
from fedwca.federated.server import Server
from fedwca.models.cnn3 import Cnn3
from fedwca.models.lenet import LeNet, _LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.pseudo_labelers.trusted import Trusted

SIZES = (12, 19, 12, 9)
"""With batches of 8: full ones, several of one length at the end, and a single image that is left out (9)."""
DOMAINS = torch.arange(len(SIZES)) // 2
TRAINING = Training(epochs=2, lr=0.003, batch_size=8)


def some(n: int, client: int, side: int = 32) -> Tensor:
    """Noise in one of three colours; every second image has a bright square."""
    drawn = uniform(fold_key([client, "pixels"]), torch.arange(n * 3 * side * side)).view(n, 3, side, side)
    images = (drawn * 60).to(torch.uint8)
    images[:, client // 2 % 3] += 60
    images[1::2, :, side // 4 : -side // 4, side // 4 : -side // 4] += 100
    return images


def clients(side: int = 32, sizes: tuple[int, ...] = SIZES) -> list[ClientImages]:
    return [ClientImages(some(n, k, side), some(0, k, side), some(3 + k % 2, k, side)) for k, n in enumerate(sizes)]


class Thin(LeNet):
    """A LeNet with a tenth of the work: fewer channels, and all else as it is."""

    def backbone(self) -> _LeNet:
        made = _LeNet(self.channel_dropout)
        made.width = 8 * 5 * 5
        made.conv1, made.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 8, 5)
        made.drops = (Drop(self.channel_dropout, (8, 1, 1)),)
        return made


class ShortResNet(ResNet18):
    """A ResNet-18 with one block a stage in place of two."""

    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        return TorchvisionResNet(BasicBlock, [1, 1, 1, 1]), super().torchvision()[1]


class ThinCnn3(Cnn3):
    """A CNN-3 with a hundredth of the hidden layer."""

    def backbone(self) -> Backbone:
        made = super().backbone()
        made.width, made.drops = 30, (Drop(self.hidden_dropout, (30,)),)
        made.hidden, made.norm4 = nn.Linear(8192, 30), nn.BatchNorm1d(30)
        return made


def lenet(dtype: torch.dtype = torch.float64) -> Network:
    return Thin(bottleneck=16).build(3, seed=1).to(dtype)


def rounds(engine: Engine, method: Method, count: int = 2, **options: object) -> tuple[Server, list[Outcome]]:
    server, outcomes = init_server(engine), []
    for number in range(count):
        server, outcome = run_round(
            number, server, method, engine, TRAINING, Keys(0), DOMAINS[: len(engine.images)], **options
        )  # type: ignore[arg-type]
        outcomes.append(outcome)
    return server, outcomes


def same(one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(other[name], value, rtol=tolerance, atol=tolerance, equal_nan=True)


def compare(
    loop: SequentialEngine, stacked: StackedEngine, method: Method, tolerance: float = 1e-9, **options: object
) -> None:
    """Everything that a round leaves is the same: models, targets, reports, uploads, states, evaluations."""
    start = loop.bank.clone()
    here, there = rounds(loop, method, **options), rounds(stacked, method, **options)
    for one, other in zip(here[1], there[1], strict=True):
        assert torch.equal(one.labels, other.labels)
        torch.testing.assert_close(other.weights, one.weights, rtol=tolerance, atol=tolerance, equal_nan=True)
        same(one.report, other.report, tolerance)
        assert one.uploads.keys() == other.uploads.keys()
        for client, upload in one.uploads.items():
            found = other.uploads[client]
            assert upload.passes == found.passes
            same(upload.collected, found.collected, tolerance)
            same(upload.targets.notes, found.targets.notes, tolerance)
            for name in ("labels", "weights", "partners", "mix", "matched"):
                assert torch.equal(getattr(upload.targets, name), getattr(found.targets, name)), f"{name} of {client}"
    assert (loop.bank - start).abs().max() > 1e-3
    assert float((loop.bank - stacked.bank).abs().max()) <= tolerance
    assert float((here[0].rows - there[0].rows).abs().max()) <= tolerance
    same(here[0].state, there[0].state, tolerance)
    weights = method.aggregator.deliver(here[0].state, len(here[0].rows))
    delivered = loop.deliver(weights, here[0].rows), stacked.deliver(weights, there[0].rows)
    torch.testing.assert_close(*delivered, rtol=tolerance, atol=tolerance)
    for given in ((), (weights, here[0].rows)):
        for one, other in zip(loop.predict_tests(*given), stacked.predict_tests(*given), strict=True):  # type: ignore[arg-type]
            assert torch.equal(one.classes, other.classes)
            torch.testing.assert_close(one.confidences, other.confidences, rtol=tolerance, atol=tolerance)


METHODS = [name for name in baseline_names() if name not in ("source_only", "table5_pp_fp_tm_mu")]
"""All but one without rounds, and one that is FedWCA under another name."""
KINDS = [
    *("fedavg", "fedpcl_pl", "fedprox", "fedscal", "fedtab", "fedwca", "ifca"),
    *("ladd", "ladd_plus", "local", "source_ada_bn", "table5_none"),
]
"""A method of each kind of training step: labels, how often they are renewed, objectives."""


def trained(name: str) -> Method:
    """A baseline whose clients train; a source model that was never trained would be trusted by nobody."""
    method = compose(RunConfig(baselines=(name,)))[0][0]
    gated = isinstance(method.pseudo_labeler, Trusted)
    return replace(method, pseudo_labeler=Trusted(least=0)) if gated else method
