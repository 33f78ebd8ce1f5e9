"""The stacked engine gives what the plain loop gives: every registered method, clients of unequal size, two rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import WeightsEnum
from torchvision.models.resnet import BasicBlock

from fedwca.aggregators.wca import WCA
from fedwca.clusterers.true import TrueDomains
from fedwca.config.baselines import baseline_names
from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.core.network import Architecture, Backbone, Drop, Network
from fedwca.data.federation import ClientImages
from fedwca.engine.client_task import Training
from fedwca.engine.interface import Engine
from fedwca.engine.randomness import Keys, fold_key, uniform
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.engine.stacked.step_groups import equal_size_groups, step_groups
from fedwca.federated.method import Method
from fedwca.federated.round import Outcome, init_server, run_round
from fedwca.federated.server import Server
from fedwca.models.cnn3 import Cnn3
from fedwca.models.lenet import LeNet, _LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.objectives.proximal import Proximal
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.trusted import Trusted
from fedwca.pseudo_labelers.two_model import TwoModel

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


@pytest.mark.parametrize("name", METHODS)
def test_every_registered_method(name: str) -> None:
    compare(SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients()), trained(name))


@pytest.mark.parametrize(
    ("batch_norm", "at_once"), [("mixed", 1), ("mixed", 3), ("pooled", 3), ("local", 2), ("recalibrated", 3)]
)
def test_every_policy_and_slice(batch_norm: str, at_once: int | None) -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(), Proximal(to="cluster")), TrueDomains())
    loop = SequentialEngine(lenet(), clients(), "cpu", 1, batch_norm)
    compare(loop, StackedEngine(lenet(), clients(), "cpu", at_once, batch_norm), method)


@pytest.mark.parametrize("name", ["fedwca", "revised_fedwca", "fedpcl_pl", "ifca"])
def test_partial_participation(name: str) -> None:
    method = compose(RunConfig(baselines=(name,)))[0][0]
    compare(
        SequentialEngine(lenet(), clients(), "cpu", 1),
        StackedEngine(lenet(), clients(), workers=2),
        method,
        participation=0.5,
    )


@pytest.mark.parametrize("name", ["fedwca", "fedavg", "fedscal"])
def test_float32_stays_within_a_thousandth_of_the_update(name: str) -> None:
    method = compose(RunConfig(baselines=(name,)))[0][0]
    # No last batch of three: BatchNorm over so few values would blow up what is rounded.
    own = clients(sizes=(16, 24, 16, 8))
    loop, stacked = SequentialEngine(lenet(torch.float32), own, "cpu", 1), StackedEngine(lenet(torch.float32), own)
    start = loop.bank.clone()
    rounds(loop, method), rounds(stacked, method)
    assert ((stacked.bank - loop.bank).norm(dim=1) / (loop.bank - start).norm(dim=1)).max() < 1e-3


@pytest.mark.parametrize("options", [{"classifier": "wn"}, {"frozen": True}], ids=str)
def test_residual_networks(options: dict[str, object]) -> None:
    architecture = ShortResNet.model_validate({"weights": "none", "side": 32, "bottleneck": 8, **options})
    networks = [architecture.build(3, seed=1).double() for _ in range(2)]
    # Full batches alone: a BatchNorm over three values would blow up the rounding of so many layers.
    own = clients(architecture.stored, (8, 8))
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    compare(SequentialEngine(networks[0], own, "cpu", 1), StackedEngine(networks[1], own), method)


class Doubled(Backbone):
    """Twice its channels while it is trained."""

    width = 4

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, self.width, 3), nn.BatchNorm2d(self.width)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        found = self.norm(self.conv(x)).relu().mean((2, 3))
        return 2 * found if self.training else found


class OtherInTraining(Architecture):
    """Around it."""

    name = "other_in_training"

    def backbone(self) -> Backbone:
        return Doubled()


def test_a_backbone_that_does_otherwise_in_training() -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    loop, stacked = (OtherInTraining(side=8, bottleneck=6).build(3, seed=1).double() for _ in range(2))
    own = clients(8, (16, 8, 16, 8))
    compare(
        SequentialEngine(loop, own, "cpu", 1, "recalibrated"),
        StackedEngine(stacked, own, "cpu", 3, "recalibrated"),
        method,
    )


class ThinCnn3(Cnn3):
    """A CNN-3 with a hundredth of the hidden layer."""

    def backbone(self) -> Backbone:
        made = super().backbone()
        made.width, made.drops = 30, (Drop(self.hidden_dropout, (30,)),)
        made.hidden, made.norm4 = nn.Linear(8192, 30), nn.BatchNorm1d(30)
        return made


def test_a_network_with_a_hidden_layer_and_an_activation() -> None:
    networks = [ThinCnn3(bottleneck=12).build(3, seed=1).double() for _ in range(2)]
    own = clients(32, (8, 8))
    method = Method("wca", "FedWCA", WCA(), TwoModel(mu=0.5), (Shot(),), TrueDomains())
    compare(SequentialEngine(networks[0], own, "cpu", 1), StackedEngine(networks[1], own), method)


class Curious(Objective):
    """Looks at a value, which cannot be done for many clients at once."""

    name = "curious"

    def __call__(self, batch: Batch) -> Tensor:
        return batch.logits.sum() * (1e-3 if float(batch.logits.detach().sum()) > 0 else 2e-3)


def test_what_cannot_be_batched_runs_one_by_one_and_says_so() -> None:
    method = Method("wca", "FedWCA", WCA(), TwoModel(), (Shot(), Curious()), TrueDomains())
    loop, stacked = SequentialEngine(lenet(), clients(), "cpu", 1), StackedEngine(lenet(), clients())
    rounds(loop, method, 1)
    with pytest.warns(UserWarning, match="the objectives cannot be run for all clients at once"):
        rounds(stacked, method, 1)
    assert float((loop.bank - stacked.bank).abs().max()) <= 1e-9


def test_spans_leave_nobody_out() -> None:
    sizes = sorted(SIZES, reverse=True)
    done = [0] * len(sizes)
    for step in range(4):
        for span in step_groups(sizes, step, 8):
            assert all(sizes[k] - 8 * step == span.images or span.images == 8 for k in range(span.first, span.stop))
            for client in range(span.first, span.stop):
                done[client] += span.images
    assert [size - got for size, got in zip(sizes, done, strict=True)] == [int(size % 8 == 1) for size in sizes]
    assert [(span.first, span.stop) for span in equal_size_groups(sizes)] == [(0, 1), (1, 3), (3, 4)]
