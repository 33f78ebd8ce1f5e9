"""Embeddings by a frozen backbone are computed once: in both engines, the same numbers as if it ran each time."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn

from fedwca.aggregators.wca import WCA
from fedwca.clusterers.finch import Finch
from fedwca.core.network import Backbone, Network
from fedwca.data.federation import ClientImages
from fedwca.engine import embeddings
from fedwca.engine.augmentation import StepDraws
from fedwca.engine.embeddings import count_embedding_bytes, embed_images, place_client_embeddings
from fedwca.engine.interface import Engine
from fedwca.engine.sequential import engine as sequential
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine, packed_images
from fedwca.errors import Unwritable
from fedwca.federated.method import Method
from fedwca.models.lenet import LeNet
from fedwca.objectives.server_client_alignment import ServerClientAlignment
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype
from tests.engine.federations import ShortResNet, clients, compare, rounds

from .test_training import Fixed

ENGINES: list[Any] = [SequentialEngine, StackedEngine]


class Thin(Backbone):
    """A frozen convolution with BatchNorm; records how many images each call gets."""

    out_features = 6

    def __init__(self, augments: bool) -> None:
        super().__init__()
        self.frozen, self.augments = True, augments
        self.shown: list[int] = []
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 5, 4), nn.BatchNorm2d(6), nn.ReLU())

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        self.shown.append(len(x))
        return self.layers(x).mean((2, 3))

    def __deepcopy__(self, memo: dict[int, Any]) -> Thin:
        duplicate = Thin(self.augments)
        duplicate.load_state_dict(self.state_dict())
        duplicate.shown = self.shown  # counts for all copies
        return duplicate.requires_grad_(False).eval().to(self.layers[0].weight.dtype)


class FrozenLeNet(LeNet):
    """A LeNet with that backbone."""

    augments: bool = False

    def backbone(self) -> Thin:  # type: ignore[override]
        backbone = Thin(self.augments)
        backbone.layers[1].running_mean += 0.1
        return backbone


def network(augments: bool = False) -> Network:
    return FrozenLeNet(bottleneck=5, augments=augments).build(3, seed=1).double()


def method(mixes: bool = True, *extra_objectives: Any) -> Method:
    labeler = Fixed() if mixes else Prototype()
    return Method("wca", "FedWCA", WCA(), labeler, (Shot(), *extra_objectives), Finch())


@pytest.mark.parametrize("augments", [False, True])
@pytest.mark.parametrize("strong", [False, True])
def test_engines_agree(augments: bool, strong: bool) -> None:
    client_images = clients(37 if augments else 32)
    wca_method = method(True, *([ServerClientAlignment()] if strong else []))
    compare(
        SequentialEngine(network(augments), client_images, "cpu", 1),
        StackedEngine(network(augments), client_images),
        wca_method,
    )


def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every forward pass and every step run the backbone."""
    monkeypatch.setattr(sequential, "embed_images", lambda network, images: list(images))
    monkeypatch.setattr(packed_images, "embed_images", lambda network, images, trials: [None])
    monkeypatch.setattr(StepDraws, "plain", False)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("made", ["thin", "resnet"])
def test_the_numbers_are_those_of_a_backbone_that_is_run_each_time(
    engine: Any, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ShortResNet(side=32, weights="none", bottleneck=5, frozen=True, augment=False)
    side, sizes = (32, (12, 9, 11, 10)) if made == "thin" else (37, (8, 9))

    def play() -> tuple[Engine, Any]:
        built = network() if made == "thin" else model.build(3, seed=1).double()
        built_engine = engine(built, clients(side, sizes), "cpu", 1)
        return built_engine, rounds(built_engine, method())

    cached_engine, (_, cached_outcomes) = play()
    keep_nothing(monkeypatch)
    uncached_engine, (_, uncached_outcomes) = play()
    torch.testing.assert_close(cached_engine.bank, uncached_engine.bank, rtol=0, atol=1e-9)
    assert (cached_engine.bank - cached_engine.bank[:1]).abs().max() > 1e-3
    for cached, uncached in zip(cached_outcomes, uncached_outcomes, strict=True):
        torch.testing.assert_close(cached.weights, uncached.weights, rtol=0, atol=1e-9)
    for cached, uncached in zip(cached_engine.predict_tests(), uncached_engine.predict_tests(), strict=True):
        assert torch.equal(cached.classes, uncached.classes)
        torch.testing.assert_close(cached.confidences, uncached.confidences, rtol=0, atol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_image_is_read_once(engine: Any) -> None:
    model, client_images = network(), clients(32)
    built_engine = engine(model, client_images, "cpu", 1)
    image_count = sum(len(client.train) + len(client.test) for client in client_images)
    assert sum(model.backbone.shown) == image_count
    rounds(built_engine, method(mixes=False))
    built_engine.classify()
    assert sum(model.backbone.shown) == image_count
    rounds(built_engine, method())  # mixed images are new ones
    assert sum(model.backbone.shown) > image_count


def test_batch_norm_inside_stands_still() -> None:
    model = network()
    initial_state = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    engine = StackedEngine(model, clients(32), "cpu", 1, "recalibrated")
    rounds(engine, method())
    for name, value in engine.stacked.network.backbone.state_dict().items():
        assert torch.equal(value, initial_state[name]), name


def test_clients_with_the_same_images_share_embeddings() -> None:
    model, images = network(), clients(32)[0].train
    first, second, empty = embed_images(model, [images, images, images[:0]])
    assert first.data_ptr() == second.data_ptr()
    assert (first.shape, empty.shape) == ((12, 6), (0, 6))
    torch.testing.assert_close(first, model.backbone(model.prepare(images), ()))
    assert embed_images(LeNet().build(3), [images])[0] is images


def test_what_is_too_large_for_memory_lies_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory = [engine(network(), clients(32), "cpu", 1) for engine in ENGINES]
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path))
    monkeypatch.setattr(embeddings, "LARGEST_IN_MEMORY", 100)
    in_files = [engine(network(), clients(32), "cpu", 1) for engine in ENGINES]
    assert (tmp_path / "embeddings").is_dir()
    assert not list((tmp_path / "embeddings").iterdir())  # nothing is left behind
    for memory_engine, file_engine in zip(in_memory, in_files, strict=True):
        rounds(memory_engine, method()), rounds(file_engine, method())
        assert torch.equal(memory_engine.bank, file_engine.bank)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system reserves no space")
def test_a_disk_without_space_for_them_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(descriptor: int, offset: int, size: int) -> None:
        assert (offset, size) == (0, 9 * 6 * 8)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path))
    monkeypatch.setattr(embeddings, "LARGEST_IN_MEMORY", 100)
    monkeypatch.setattr(os, "posix_fallocate", fill)
    with pytest.raises(Unwritable, match=r"embeddings: cannot be written \(No space left on device\)"):
        embed_images(network(), [torch.zeros(9, 3, 32, 32, dtype=torch.uint8)])


def test_trials_together_have_a_place_each(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [[torch.zeros(8, 3, 32, 32, dtype=torch.uint8)] for _ in range(2)]
    monkeypatch.setattr(embeddings, "LARGEST_IN_MEMORY", 8 * 6 * 8)
    made = Mock(wraps=embeddings._make_room)
    monkeypatch.setattr(embeddings, "_make_room", made)
    monkeypatch.setattr(embeddings, "cache_dir", Mock(side_effect=AssertionError("they are written to the disk")))
    first, second = packed_images.PackedImages.several(images, torch.device("cpu"), network())
    assert made.call_args.args[1:] == (16, 2)
    assert first.shown(network(), torch.tensor([0]), torch.tensor([[3]])).shape == (1, 1, 6)
    assert second.sizes == [8]


def test_bytes_of_embeddings() -> None:
    assert count_embedding_bytes(network(), 10) == 10 * 6 * 8
    assert count_embedding_bytes(LeNet().build(3), 10) == 0


def test_training_and_test_images_have_a_place_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def some(count: int) -> torch.Tensor:
        return torch.zeros(count, 3, 8, 8, dtype=torch.uint8)

    monkeypatch.setattr(embeddings, "LARGEST_IN_MEMORY", 10 * 6 * 8)
    clients = [ClientImages(some(8), some(2)), ClientImages(some(4), some(6))]
    assert place_client_embeddings(network(), clients) == (8 * 6 * 8, 12 * 6 * 8)
    assert place_client_embeddings(LeNet().build(3), clients) == (0, 0)
