"""Helpers of engine tests: clients of unequal size, small networks, and the comparison of two engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import ResNet18_Weights, WeightsEnum
from torchvision.models.resnet import BasicBlock

from fedwca.clusterers.true import TrueDomains
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
from fedwca.federated.close_round import Outcome
from fedwca.federated.method import Method
from fedwca.federated.round import init_server, run_round
from fedwca.federated.server import Server
from fedwca.models.cnn3 import Cnn3
from fedwca.models.lenet import LeNet, _LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.pseudo_labelers.trusted import Trusted

SIZES = (12, 19, 12, 9)
"""Images of each client. With batches of 8 the last batches have 4, 3, 4 and 1 images; the single one is left out."""
DOMAINS = torch.arange(len(SIZES)) // 2
SIDE = 14
"""Height and width of images: in `Thin`, both poolings then halve an even side, as in a LeNet."""
TRAINING = Training(epochs=2, lr=0.003, batch_size=8)


def some(n: int, client: int, side: int = SIDE) -> Tensor:
    """Noise in one of three colours; every second image has a bright square."""
    drawn = uniform(fold_key([client, "pixels"]), torch.arange(n * 3 * side * side)).view(n, 3, side, side)
    images = (drawn * 60).to(torch.uint8)
    images[:, client // 2 % 3] += 60
    images[1::2, :, side // 4 : -side // 4, side // 4 : -side // 4] += 100
    return images


def clients(side: int = SIDE, sizes: tuple[int, ...] = SIZES) -> list[ClientImages]:
    return [ClientImages(some(n, k, side), some(3 + k % 2, k, side)) for k, n in enumerate(sizes)]


class Thin(LeNet):
    """A LeNet with fewer channels, of 3×3 pixels, and for smaller images, for a hundredth of the computation."""

    side: Literal[14] = SIDE  # type: ignore[assignment]

    def backbone(self) -> _LeNet:
        backbone = _LeNet(self.channel_dropout)
        backbone.out_features = 8 * 2 * 2
        backbone.conv1, backbone.conv2 = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 8, 3)
        backbone.drops = (Drop(self.channel_dropout, (8, 1, 1)),)
        return backbone


class _NarrowResNet(TorchvisionResNet):
    """A torchvision ResNet with one block per stage instead of two, and with fewer channels."""

    channels: ClassVar[dict[int, int]] = {64: 8, 128: 16, 256: 32, 512: 256}
    """Of each stage, by those of a ResNet-18. The last one has the fewest that are computed as a matrix product."""

    def __init__(self) -> None:
        super().__init__(BasicBlock, [1, 1, 1, 1])
        self.fc = nn.Linear(256, 1000)

    def _make_layer(self, block: type[BasicBlock], planes: int, *arguments: Any, **options: Any) -> nn.Sequential:  # type: ignore[override]
        if planes == 64:  # the first stage
            self.inplanes, self.conv1, self.bn1 = 8, nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
        return super()._make_layer(block, self.channels[planes], *arguments, **options)


class ShortResNet(ResNet18):
    """A ResNet-18 with one block per stage instead of two, and with fewer channels: a fifteenth of the weights."""

    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        return _NarrowResNet(), ResNet18_Weights.IMAGENET1K_V1


class ThinCnn3(Cnn3):
    """A CNN-3 for smaller images with a tenth of the channels and a hundredth of the hidden layer's units."""

    side: Literal[14] = SIDE  # type: ignore[assignment]

    def backbone(self) -> Backbone:
        backbone = super().backbone()
        backbone.out_features, backbone.drops = 30, (Drop(self.hidden_dropout, (30,)),)
        backbone.conv1, backbone.norm1 = nn.Conv2d(3, 6, 5, padding=2), nn.BatchNorm2d(6)
        backbone.conv2, backbone.norm2 = nn.Conv2d(6, 6, 5, padding=2), nn.BatchNorm2d(6)
        backbone.conv3, backbone.norm3 = nn.Conv2d(6, 12, 5, padding=2), nn.BatchNorm2d(12)
        backbone.hidden, backbone.norm4 = nn.Linear(12 * 4 * 4, 30), nn.BatchNorm1d(30)
        return backbone


def lenet(dtype: torch.dtype = torch.float64) -> Network:
    return Thin(bottleneck=16).build(3, seed=1).to(dtype)


def rounds(engine: Engine, method: Method, count: int | None = None, **options: object) -> tuple[Server, list[Outcome]]:
    """The server after ``count`` rounds (None: `needed_rounds`) from the network's own weights, and their outcomes."""
    server, outcomes = init_server(engine), []
    for number in range(needed_rounds(method) if count is None else count):
        server, outcome = run_round(
            number, server, method, engine, TRAINING, Keys(0), DOMAINS[: len(engine.images)], **options
        )  # type: ignore[arg-type]
        outcomes.append(outcome)
    return server, outcomes


def same(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], tolerance: float) -> None:
    """Check that both mappings have the same names, and equal values up to the tolerance."""
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=tolerance, atol=tolerance, equal_nan=True)


def compare(
    loop: SequentialEngine, stacked: StackedEngine, method: Method, tolerance: float = 1e-9, **options: object
) -> None:
    """Check that `needed_rounds` give the same models, targets, reports, uploads, server states and predictions.

    Args:
        loop: the plain engine, whose results are the reference.
        stacked: the engine that is tested, with the same network and clients.
        method: what is run.
        tolerance: absolute and relative; labels have to be equal.
        options: further arguments of `run_round`.
    """
    start = loop.bank.clone()
    loop_result, stacked_result = rounds(loop, method, **options), rounds(stacked, method, **options)
    for expected, actual in zip(loop_result[1], stacked_result[1], strict=True):
        assert torch.equal(expected.labels, actual.labels)
        torch.testing.assert_close(actual.weights, expected.weights, rtol=tolerance, atol=tolerance, equal_nan=True)
        same(expected.report, actual.report, tolerance)
        assert expected.uploads.keys() == actual.uploads.keys()
        for client, upload in expected.uploads.items():
            actual_upload = actual.uploads[client]
            assert upload.passes == actual_upload.passes
            same(upload.collected, actual_upload.collected, tolerance)
            same(upload.targets.notes, actual_upload.targets.notes, tolerance)
            for name in ("labels", "weights", "partners", "partner_weights", "models_agree"):
                assert torch.equal(getattr(upload.targets, name), getattr(actual_upload.targets, name)), (
                    f"{name} of {client}"
                )
    assert (loop.bank - start).abs().max() > 1e-3
    assert float((loop.bank - stacked.bank).abs().max()) <= tolerance
    assert float((loop_result[0].rows - stacked_result[0].rows).abs().max()) <= tolerance
    same(loop_result[0].state, stacked_result[0].state, tolerance)
    weights = method.aggregator.deliver(loop_result[0].state, len(loop_result[0].rows))
    delivered = loop.deliver(weights, loop_result[0].rows), stacked.deliver(weights, stacked_result[0].rows)
    torch.testing.assert_close(*delivered, rtol=tolerance, atol=tolerance)
    for arguments in ((), (weights, loop_result[0].rows)):
        for expected, actual in zip(loop.predict_tests(*arguments), stacked.predict_tests(*arguments), strict=True):  # type: ignore[arg-type]
            assert torch.equal(expected.classes, actual.classes)
            torch.testing.assert_close(expected.confidences, actual.confidences, rtol=tolerance, atol=tolerance)


METHODS = [name for name in baseline_names() if name not in ("source_only", "table5_pp_fp_tm_mu")]
"""All baselines but ``source_only``, which has no rounds, and ``table5_pp_fp_tm_mu``, which is FedWCA."""
KINDS = [
    *("fedavg", "fedpcl_pl", "fedprox", "fedscal", "fedtab", "fedwca", "ifca"),
    *("ladd", "ladd_plus", "local", "source_ada_bn", "table5_none"),
]
"""Baselines that cover every kind of training step: pseudo-labels, how often they are renewed, objectives."""


def trained(name: str) -> Method:
    """A baseline by name, that does all it does within `needed_rounds` of a hardly trained model.

    Clusters are `DOMAINS`, as FINCH would find one cluster, in which methods do not differ. The trust threshold is 0:
    no client would be trusted. Revised FedWCA and LADD do early what they do from round 6 on by default.
    """
    method = compose(RunConfig(baselines=(name,)))[0][0]
    early = {"revised_wca": {"u": 2}, "ladd": {"start": 1}}.get(method.aggregator.name, {})
    return replace(
        method,
        aggregator=method.aggregator.model_copy(update=early),
        clusterer=TrueDomains() if method.clusterer else None,
        pseudo_labeler=Trusted(least=0) if isinstance(method.pseudo_labeler, Trusted) else method.pseudo_labeler,
    )


def needed_rounds(method: Method) -> int:
    """Rounds until the method of `trained` has done all it does.

    Revised FedWCA reuses weights in its third round; LADD sends a teacher of several models in its fourth.
    """
    return {"revised_wca": 3, "ladd": 4}.get(method.aggregator.name, 2)
