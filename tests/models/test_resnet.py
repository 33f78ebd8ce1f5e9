"""Residual networks: outputs as torchvision's, weights from files, and use in the engines."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torchvision.models import ResNet18_Weights, resnet18

from fedwca.core.interfaces import PseudoLabeler
from fedwca.core.messages import Blend, Offer, Targets
from fedwca.core.network import Network
from fedwca.core.training_settings import SourceTraining, Training
from fedwca.data import Domain
from fedwca.data.federation import ClientImages
from fedwca.engine import augmentation
from fedwca.engine.augmentation import weak_views
from fedwca.engine.client_signatures import BankSignatures
from fedwca.engine.client_task import Task
from fedwca.engine.interface import SingleStep
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.randomness import Keys
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.sequential.replica import Replica
from fedwca.engine.sequential.worker import ClientWorker
from fedwca.errors import CheckpointError, InvalidConfig, UsageError
from fedwca.federated.source_model import pretrain, source_digest
from fedwca.models.resnet18 import ResNet18
from fedwca.models.resnet50 import ResNet50
from fedwca.objectives.shot import Shot
from fedwca.pseudo_labelers.prototype import Prototype

from ..engine.federations import ShortResNet
from ..engine.test_training import Fixed

SMALL = ResNet18(side=32, weights="none", bottleneck=8)
MAIN_PATH = ["conv1", *(f"layer{i}.{j}.conv{k}" for i in range(1, 5) for j in range(2) for k in (1, 2))]


@pytest.fixture(scope="module")
def network() -> Network:
    return SMALL.build(3, seed=1)


def some(n: int, side: int = 37, seed: int = 0) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@cache
def state() -> Mapping[str, Tensor]:
    """Random weights; no test changes them, to draw them takes a tenth of a second."""
    return MappingProxyType(resnet18(weights=None).state_dict())


def write(path: Path, tensors: Mapping[str, Tensor]) -> Path:
    if path.suffix == ".safetensors":
        save_file(dict(tensors), str(path))
    else:
        torch.save(dict(tensors), path)
    return path


def body(network: Network) -> dict[str, Tensor]:
    return {name.removeprefix("backbone.body."): t for name, t in network.state_dict().items() if "body" in name}


# What it computes


def test_features_are_torchvisions() -> None:
    reference = resnet18(weights=None).eval()
    network = SMALL.build(3).eval()
    network.backbone.body.load_state_dict(reference.state_dict(), strict=False)
    reference.fc = torch.nn.Identity()
    images = some(3, 32)
    scaled = (images / 255 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).view(3, 1, 1)
    with torch.no_grad():
        torch.testing.assert_close(
            network.backbone(network.prepare(images), ()), reference(scaled), atol=1e-4, rtol=1e-4
        )


def test_sizes_of_images_and_features() -> None:
    assert (ResNet18().side, ResNet18().stored_side) == (224, 256)
    assert (ResNet18(side=64).stored_side, SMALL.stored_side) == (73, 37)
    assert SMALL.backbone().out_features == 512
    assert ResNet50(weights="none").backbone().out_features == 2048
    assert (ResNet18(weights="none").build(2).eval_batch_size, SMALL.build(2).eval_batch_size) == (41, 256)


def test_the_evaluation_view_is_the_centre_and_the_training_view_a_random_crop(network: Network) -> None:
    images = some(4)
    assert network.augments
    plain = network.prepare(images)
    assert plain.shape == (4, 3, 32, 32)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(plain, network.prepare(images[..., 2:34, 2:34]))
    middle = torch.tensor([[0.5, 0.5, 0.9, 0.0]]).expand(4, 4)  # 5.99 · 0.5 → 3 of 0…5
    assert torch.equal(network.weak_view(images, middle), network.prepare(images[..., 3:35, 3:35]))
    mirrored = middle.clone()
    mirrored[:, 2] = 0.1
    assert torch.equal(network.weak_view(images, mirrored), network.weak_view(images, middle).flip(3))


def test_images_that_are_too_small_are_refused(network: Network) -> None:
    with pytest.raises(UsageError, match="31×31 pixels are too small for a network that reads 32×32"):
        network.prepare(some(2, 31))


# Weights


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("own.pth", "whole"),
        ("own.safetensors", "whole"),
        ("own.pt", "without fc"),
        ("own.pth", "half"),
        ("own.safetensors", "half"),
    ],
)
def test_weights_from_a_file(tmp_path: Path, name: str, kind: str) -> None:
    original = state()
    tensors = original if kind == "whole" else {k: v for k, v in original.items() if not k.startswith("fc.")}
    if kind == "half":
        tensors = {k: v.half() for k, v in tensors.items() if not k.endswith("num_batches_tracked")}
    file = write(tmp_path / name, tensors)
    loaded = body(SMALL.model_copy(update={"weights": file}).build(3))
    for key, value in loaded.items():
        assert value.dtype == original[key].dtype
        torch.testing.assert_close(value, original[key], atol=1e-3 if kind == "half" else 0, rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: {k: v for k, v in s.items() if k != "bn1.weight"}, "lacks 'bn1.weight' (1 tensor missing)"),
        (lambda s: {**s, "layer5.0.conv1.weight": torch.zeros(2)}, "has 'layer5.0.conv1.weight' (1 tensor)"),
        (lambda s: {**s, "conv1.weight": torch.zeros(64, 3, 3, 3)}, "conv1.weight has shape (64, 3, 3, 3); this model"),
        (lambda s: {**s, "bn1.bias": torch.full((64,), torch.nan)}, "bn1.bias has values that are not finite"),
        (lambda s: {"x": torch.zeros(2)}, "(100 tensors missing); the file has 'x'; the model needs 120 tensors"),
    ],
    ids=["missing", "unexpected", "shape", "nan", "other"],
)
def test_weights_that_do_not_fit(tmp_path: Path, change: Any, sentence: str) -> None:
    path = write(tmp_path / "w.pth", change(state()))
    with pytest.raises(CheckpointError) as caught:
        SMALL.model_copy(update={"weights": path}).build(3)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_weights_that_are_not_there() -> None:
    absent = ResNet18(weights="nowhere.pth")
    with pytest.raises(CheckpointError, match=r"nowhere\.pth: no such file; model.weights takes imagenet, none, or"):
        absent.build(3)
    with pytest.raises(CheckpointError, match=r"nowhere\.pth: No such file"):
        absent.identity()
    assert isinstance(absent.build(3, pretrained=False), Network)


def test_a_failed_download_says_which_file_goes_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", fails)
    with pytest.raises(
        CheckpointError, match=r"resnet18-f37072fd\.pth could not be .*no route.*put the file"
    ) as caught:
        ResNet18().build(3)
    assert str(tmp_path / "checkpoints" / "resnet18-f37072fd.pth") in str(caught.value)
    monkeypatch.setattr(ResNet18_Weights, "get_state_dict", lambda *_, **__: dict(state()))
    assert isinstance(ResNet18(side=32).build(3), Network)


def test_the_source_models_key_knows_the_content_of_the_weights(tmp_path: Path) -> None:
    domain = Domain("toy", some(4).permute(0, 2, 3, 1).numpy(), torch.tensor([0, 1, 0, 1]).numpy())
    file = write(tmp_path / "one.pth", state())
    (tmp_path / "moved.pth").write_bytes(file.read_bytes())
    changed_file = write(tmp_path / "other.pth", {**state(), "bn1.bias": torch.ones(64)})

    def key(**fields: Any) -> str:
        return source_digest(domain, ("a", "b"), SMALL.model_copy(update=fields), SourceTraining(), 0, "cpu")

    keys = [key(weights=file), key(weights=changed_file), key(weights="none"), key(weights="imagenet"), key(side=33)]
    assert len({*keys, key(frozen=True)}) == 6
    assert key(weights=tmp_path / "moved.pth") == keys[0]


def test_real_weights_are_read(shared_data: Path) -> None:
    path = shared_data / "weights" / "resnet18_imagenet_fp16.pth"
    if not path.is_file():
        pytest.skip("the file of ImageNet weights is not here")
    loaded = body(ResNet18(side=64, weights=path).build(7))
    assert loaded["conv1.weight"].dtype == torch.float32
    assert float(loaded["conv1.weight"].std()) > 0.05  # random ones have 0.025


# In the engine


def test_rows_hold_every_statistic_and_count_the_main_path(network: Network) -> None:
    layout = Layout.of(network)
    assert layout.trained == 11_176_512 + 512 * 8 + 8 + 2 * 8
    assert len(layout.statistics) == 2 * 21  # 20 in the backbone
    names = [slots[0].name for slots in layout.layers()]
    assert names == [f"backbone.body.{name}.weight" for name in MAIN_PATH] + ["bottleneck.weight"]
    bank = layout.read(network)[None]
    signatures = BankSignatures(bank, layout, bank[0])
    assert torch.equal(signatures.layer_weights(1)[0], network.backbone.body.conv1.weight.flatten())  # no bias
    assert torch.equal(signatures.layer_weights(17)[0], network.backbone.body.layer4[1].conv2.weight.flatten())
    with pytest.raises(InvalidConfig, match="18 layers"):
        signatures.layer_weights(19)
    assert len(Layout.of(ResNet50(weights="none").build(2)).layers()) == 49 + 1


PLAIN = Prototype()


def play(
    network: Network, training: Training, images: list[ClientImages], seed: int = 3, labeler: PseudoLabeler = PLAIN
) -> SequentialEngine:
    loop = SequentialEngine(network, images, "cpu", workers=2)

    def work(worker: ClientWorker) -> list[Targets]:
        return worker.train(Blend(worker.own))

    ones = torch.ones(1, 1, dtype=torch.float64)
    offer = Offer(personal=ones.expand(len(images), 1, 1), shared=torch.zeros(0, 1, dtype=torch.float64))
    tasks = [Task(labeler, (Shot(),), training, lambda p, k=k: Keys(seed)(0, k, p)) for k in range(len(images))]
    loop.run(SingleStep(offer, loop.bank[:1].clone(), lambda k: tasks[k], range(len(images)), work))
    return loop


SHORT = ShortResNet(**SMALL.model_dump(exclude={"name"}))
"""A fifteenth of the weights, for what trains."""
CLIENTS = [ClientImages(some(n, seed=n), some(3)) for n in (6, 10)]


def test_a_round_changes_everything_and_repeats() -> None:
    network = SHORT.build(3, seed=1)
    before = Layout.of(network).read(network)
    first = play(network, Training(epochs=1, batch_size=4), CLIENTS)
    assert bool(torch.isfinite(first.bank).all())
    for slot in (*first.layout.parameters, *first.layout.statistics):
        assert bool((slot.of(first.bank) != slot.of(before)).any()), slot.name
    assert torch.equal(first.bank, play(network, Training(epochs=1, batch_size=4), CLIENTS).bank)
    assert not torch.equal(first.bank, play(network, Training(epochs=1, batch_size=4), CLIENTS, seed=4).bank)
    assert [len(c) for c in first.classify()] == [3, 3]


def test_an_image_and_its_partner_are_cropped_independently(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, list[int], int]] = []

    def spy(network: Network, images: Tensor, key: int, step: int, positions: Tensor, stride: int) -> Tensor:
        assert len(images) == len(positions)
        seen.append((key, step, positions.tolist(), stride))
        return weak_views(network, images, key, step, positions, stride)

    monkeypatch.setattr(augmentation, "weak_views", spy)
    play(SHORT.build(3, seed=1), Training(epochs=2, batch_size=4), CLIENTS, labeler=Fixed())
    places = [(key, stride * step + place) for key, step, positions, stride in seen for place in positions]
    assert len(places) == len(set(places))  # no crop is drawn twice
    assert {stride for _, _, _, stride in seen} == {8}
    mixed = [positions for _, _, positions, _ in seen if min(positions) >= 4]
    assert sum(map(len, mixed)) == 2 * (2 + 4)  # every third of 6 and of 10 images, in two epochs


def test_a_bound_row_is_the_module(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(network), "eval_batch_size", 2)  # several batches, the last of them smaller
    layout = Layout.of(network)
    replica, row = Replica(network, layout), layout.read(SMALL.build(3, seed=2))
    replica.bind(row)
    plain = copy.deepcopy(network)
    layout.write(plain, row)
    plain.eval()
    images = some(5)
    with torch.no_grad():
        expected = plain(plain.prepare(images))[0]
    torch.testing.assert_close(replica.predict(images).logits, expected, atol=1e-5, rtol=1e-4)


def test_a_frozen_backbone_neither_changes_nor_travels() -> None:
    network = SMALL.model_copy(update={"frozen": True}).build(3, seed=1)
    layout = Layout.of(network)
    assert layout.trained == 512 * 8 + 8 + 2 * 8
    assert layout.width == layout.trained + 2 * 8
    assert [slots[0].name for slots in layout.layers()] == ["bottleneck.weight"]
    assert not any(parameter.requires_grad for parameter in network.backbone.parameters())
    before = {name: tensor.clone() for name, tensor in body(network).items()}
    loop = play(network, Training(epochs=1, batch_size=4), CLIENTS)
    replica = loop._replicas.get()
    replica.bind(loop.bank[0])
    replica.recalibrate(some(6))
    for after in (body(network), body(replica.network)):
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert not torch.equal(loop.bank[0], loop.bank[1])


@pytest.mark.parametrize("frozen", [False, True])
def test_a_source_model_is_trained_reproducibly(frozen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path))
    labels = torch.arange(16) % 2
    images = (some(16) // 4 + 180 * labels.view(-1, 1, 1, 1)).to(torch.uint8)
    domain = Domain("toy", images.permute(0, 2, 3, 1).numpy(), labels.numpy())
    model = SHORT.model_copy(update={"frozen": frozen})
    training = SourceTraining(epochs=1, batch_size=8, lr=0.01)
    first = pretrain(domain, ("dark", "bright"), model, training, 0)
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "another"))  # or the first one would be read again
    torch.manual_seed(77)
    again = pretrain(domain, ("dark", "bright"), model, training, 0)
    assert first.accuracy == again.accuracy
    assert torch.equal(Layout.of(first.network).read(first.network), Layout.of(again.network).read(again.network))


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.trace,))


def test_a_file_in_the_download_cache_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    file = tmp_path / "checkpoints" / ResNet18_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
    file.parent.mkdir()
    torch.save({"conv1.weight": Payload(tmp_path / "trace")}, file)
    with pytest.raises(CheckpointError, match="ImageNet weights of resnet18"):
        ResNet18().build(3)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("content", [b"", b"<html>no such page</html>", None])
def test_a_damaged_file_in_the_download_cache_is_no_failed_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    file = tmp_path / "checkpoints" / "resnet18-f37072fd.pth"
    file.parent.mkdir()
    if content is None:
        write(file, state())
        assert isinstance(ResNet18(side=32).build(3), Network)
        content = file.read_bytes()[:1000]
    file.write_bytes(content)
    sentence = (
        f"^ImageNet weights of resnet18: {re.escape(str(file))} is damaged, .*; remove it, so that it is downloaded"
    )
    with pytest.raises(CheckpointError, match=sentence):
        ResNet18().build(3)


def test_a_network_of_which_nothing_is_trained_is_refused() -> None:
    network = SMALL.model_copy(update={"frozen": True, "head": "direct"}).build(3, seed=1)
    with pytest.raises(UsageError, match="nothing of the model is trained: its backbone and its classifier are frozen"):
        Layout.of(network)
