"""What a frozen backbone makes of images is computed once: the same numbers as without, in both engines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedwca.aggregators.wca import WCA
from fedwca.clusterers.finch import Finch
from fedwca.core.network import Backbone, Network
from fedwca.engine import embeddings
from fedwca.engine.augmentation import StepDraws
from fedwca.engine.embeddings import count_embedding_bytes, embed_images
from fedwca.engine.interface import Engine
from fedwca.engine.sequential import engine as sequential
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine, packed_images
from fedwca.federated.method import Method
from fedwca.models.lenet import LeNet
from fedwca.models.resnet18 import ResNet18
from fedwca.objectives.server_client_alignment import ServerClientAlignment
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from tests.engine.federations import clients, compare, rounds

from .test_training import Fixed

ENGINES: list[Any] = [SequentialEngine, StackedEngine]


class Thin(Backbone):
    """A convolution with BatchNorm in it; counts the images that it is shown."""

    width = 6

    def __init__(self, augments: bool) -> None:
        super().__init__()
        self.frozen, self.augments = True, augments
        self.shown: list[int] = []
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 5, 4), nn.BatchNorm2d(6), nn.ReLU())

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        self.shown.append(len(x))
        return self.layers(x).mean((2, 3))

    def __deepcopy__(self, memo: dict[int, Any]) -> Thin:
        own = Thin(self.augments)
        own.load_state_dict(self.state_dict())
        own.shown = self.shown  # counts for all copies
        return own.requires_grad_(False).eval().to(self.layers[0].weight.dtype)


class FrozenLeNet(LeNet):
    """With that backbone."""

    augments: bool = False

    def backbone(self) -> Thin:  # type: ignore[override]
        made = Thin(self.augments)
        made.layers[1].running_mean += 0.1
        return made


def network(augments: bool = False) -> Network:
    return FrozenLeNet(bottleneck=5, augments=augments).build(3, seed=1).double()


def method(mixes: bool = True, *more: Any) -> Method:
    labeler = Fixed() if mixes else Prototype()
    return Method("wca", "FedWCA", WCA(), labeler, (Shot(), *more), Finch())


@pytest.mark.parametrize("augments", [False, True])
@pytest.mark.parametrize("strong", [False, True])
def test_engines_agree(augments: bool, strong: bool) -> None:
    own = clients(37 if augments else 32)
    asked = method(True, *([ServerClientAlignment()] if strong else []))
    compare(SequentialEngine(network(augments), own, "cpu", 1), StackedEngine(network(augments), own), asked)


def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass and every step runs the backbone."""
    monkeypatch.setattr(sequential, "embed_images", lambda network, images: list(images))
    monkeypatch.setattr(packed_images, "embed_images", lambda network, images: [None])
    monkeypatch.setattr(StepDraws, "plain", False)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("made", ["thin", "resnet18"])
def test_the_numbers_are_those_of_a_backbone_that_is_run_each_time(
    engine: Any, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ResNet18(side=32, weights="none", bottleneck=5, frozen=True, augment=False)
    side, sizes = (32, (12, 9, 11, 10)) if made == "thin" else (37, (8, 9))

    def play() -> tuple[Engine, Any]:
        built = network() if made == "thin" else model.build(3, seed=1).double()
        found = engine(built, clients(side, sizes), "cpu", 1)
        return found, rounds(found, method())

    once, (_, outcomes) = play()
    keep_nothing(monkeypatch)
    each, (_, others) = play()
    torch.testing.assert_close(once.bank, each.bank, rtol=0, atol=1e-9)
    assert (once.bank - once.bank[:1]).abs().max() > 1e-3
    for one, other in zip(outcomes, others, strict=True):
        torch.testing.assert_close(one.weights, other.weights, rtol=0, atol=1e-9)
    for one, other in zip(once.predict_tests(), each.predict_tests(), strict=True):
        assert torch.equal(one.classes, other.classes)
        torch.testing.assert_close(one.confidences, other.confidences, rtol=0, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_image_is_read_once(engine: Any) -> None:
    made, own = network(), clients()
    found = engine(made, own, "cpu", 1)
    every = sum(len(client.train) + len(client.test) for client in own)
    assert sum(made.backbone.shown) == every
    rounds(found, method(mixes=False))
    found.classify()
    assert sum(made.backbone.shown) == every
    rounds(found, method())  # mixed images are new ones
    assert sum(made.backbone.shown) > every


def test_batch_norm_inside_stands_still() -> None:
    made = network()
    before = {name: own.clone() for name, own in made.backbone.state_dict().items()}
    found = StackedEngine(made, clients(), "cpu", 1, "recalibrated")
    rounds(found, method())
    for name, own in found.stacked.network.backbone.state_dict().items():
        assert torch.equal(own, before[name]), name


def test_clients_of_one_pile_share_it_and_nobody_needs_images() -> None:
    made, some = network(), clients()[0].train
    one, other, none = embed_images(made, [some, some, some[:0]])
    assert one.data_ptr() == other.data_ptr()
    assert (one.shape, none.shape) == ((12, 6), (0, 6))
    torch.testing.assert_close(one, made.backbone(made.prepare(some), ()))
    assert embed_images(LeNet().build(3), [some])[0] is some


def test_what_is_too_large_for_memory_lies_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [engine(network(), clients(), "cpu", 1) for engine in ENGINES]
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path))
    monkeypatch.setattr(embeddings, "LARGEST_IN_MEMORY", 100)
    there = [engine(network(), clients(), "cpu", 1) for engine in ENGINES]
    assert (tmp_path / "embeddings").is_dir()
    assert not list((tmp_path / "embeddings").iterdir())  # nothing is left behind
    for one, other in zip(here, there, strict=True):
        rounds(one, method()), rounds(other, method())
        assert torch.equal(one.bank, other.bank)


def test_bytes() -> None:
    assert count_embedding_bytes(network(), 10) == 10 * 6 * 8
    assert count_embedding_bytes(LeNet().build(3), 10) == 0
