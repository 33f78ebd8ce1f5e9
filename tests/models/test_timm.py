"""Backbones of timm: their names, sides, scaling and weights; nothing is downloaded here."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fedwca.config.compose_methods import compose
from fedwca.config.run_config import RunConfig
from fedwca.core.model_description import KEY, ModelDescription
from fedwca.core.network import Network
from fedwca.core.tensor_files import open_tensors
from fedwca.engine.parameter_layout import Layout
from fedwca.engine.sequential.engine import SequentialEngine
from fedwca.engine.stacked import StackedEngine
from fedwca.errors import CheckpointError, InvalidConfig
from fedwca.models import models
from tests.engine.federations import clients, compare

from ..cli.conftest import call

timm = pytest.importorskip("timm")

NAMES = ("vit_tiny_patch16_224", "convnext_atto", "mobilenetv3_small_050", "resnet18")
NOISY = "ignore:Converting a tensor with requires_grad=True to a scalar:UserWarning"


def build(name: str, **fields: Any) -> Network:
    options = {"side": 32, "weights": "none", "bottleneck": 4, **fields}
    return models.build({"name": "timm", "network": name, **options}).build(3, seed=1)


def images(n: int, side: int = 37) -> Tensor:
    return torch.randint(0, 256, (n, 3, side, side), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def state(name: str, **fields: Any) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        network = timm.create_model(name, **fields)
        for parameter in network.parameters():  # also those whose initial value is constant
            nn.init.normal_(parameter, std=0.1)
        for norm in network.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.running_mean += 0.1
    return {key: tensor.contiguous() for key, tensor in network.state_dict().items()}


# Names


def test_a_name_is_enough() -> None:
    model = models.build("timm:vit_tiny_patch16_384,weights=none,bottleneck=8")
    assert (model.network, model.side, model.stored_side, model.bottleneck) == ("vit_tiny_patch16_384", 384, 439, 8)
    assert models.build("timm:resnet18,side=64").side == 64
    assert models.parse("timm:network=resnet18") == models.parse("timm:resnet18")
    assert models.build(models.dump(model)) == model
    assert models.build("timm:resnet18").identity()["weights"] == "timm/resnet18.a1_in1k"


def test_near_names_are_said() -> None:
    with pytest.raises(InvalidConfig, match=r"no network of that name; did you mean 'resnet18' or .*given 'resnt18'"):
        models.build("timm:resnt18")
    with pytest.raises(InvalidConfig, match="no network of that name"):
        models.build("timm:hf-hub:somebody/code")
    with pytest.raises(InvalidConfig, match=r"model timm\.network: must be given"):
        models.build("timm")


def test_names_are_listed() -> None:
    output = call("list", "models", "timm:vit_tiny_patch16*").out
    assert "timm:vit_tiny_patch16_224" in output
    assert "augreg" not in output
    assert "timm:vit_tiny_patch16_224.augreg_in21k" in call("list", "models", "timm:vit_tiny*.*").out
    assert "timm" in call("list", "models").out


def test_without_timm_one_sentence_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InvalidConfig, match=r"needs the library timm, .*pip install 'fedwca\[timm\]'"):
        models.build("timm:resnet18")


# What it computes


@pytest.mark.parametrize("name", NAMES)
def test_features_are_timms(name: str) -> None:
    sized = {"img_size": 32} if name.startswith("vit") else {}
    reference = timm.create_model(name, num_classes=0, **sized).eval()
    network = build(name).eval()
    pretrained_cfg = timm.models.get_pretrained_cfg(name)
    scaled = images(2, 32) / 255 - torch.tensor(pretrained_cfg.mean).view(3, 1, 1)
    scaled = scaled / torch.tensor(pretrained_cfg.std).view(3, 1, 1)
    weights = reference.state_dict()
    network.backbone.body.load_state_dict(dict(zip(network.backbone.body.state_dict(), weights.values(), strict=True)))
    with torch.no_grad():
        features = network.backbone(network.prepare(images(2, 32)), ())
        torch.testing.assert_close(features, reference(scaled), atol=1e-4, rtol=1e-4)
    assert features.shape == (2, network.backbone.out_features)


def test_a_side_that_does_not_do_is_refused() -> None:
    with pytest.raises(ValueError, match=r"timm:inception_v3 cannot be made for images of 32×32 pixels .*side is 299"):
        build("inception_v3")


def test_layers_are_those_of_torchvisions_resnet() -> None:
    names = [slots[0].name for slots in Layout.of(build("resnet18")).layers()]
    torchvision_network = models.build("resnet18:side=32,weights=none,bottleneck=4").build(3)
    assert names == [slots[0].name for slots in Layout.of(torchvision_network).layers()]


@pytest.mark.filterwarnings(NOISY)
@pytest.mark.parametrize(
    ("name", "frozen"),
    [
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in NAMES if name != "mobilenetv3_small_050"),
        ("mobilenetv3_small_050", False),
        ("mobilenetv3_small_050", True),
    ],
)
def test_both_engines_give_the_same(name: str, frozen: bool) -> None:
    method = compose(RunConfig(baselines=("fedwca",)))[0][0]
    network, few = build(name, frozen=frozen).double(), clients(37, (8, 8))
    compare(SequentialEngine(network, few, "cpu", 1), StackedEngine(network, few), method)


class Reads(nn.Module):
    """Reads a value, for which vmap has no rule."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (1.0 if float(x.sum()) > 0 else 2.0)


@pytest.mark.filterwarnings(NOISY)
def test_what_vmap_cannot_do_is_done_one_by_one() -> None:
    method = compose(RunConfig(baselines=("fedavg",)))[0][0]
    network, few = build("mobilenetv3_small_050").double(), clients(37, (8, 8))
    network.backbone.body.conv_stem = nn.Sequential(network.backbone.body.conv_stem, Reads())
    with pytest.warns(UserWarning, match="the backbone cannot be run for all clients at once, so it runs one by one"):
        compare(SequentialEngine(network, few, "cpu", 1), StackedEngine(network, few), method)


# Weights


@pytest.mark.parametrize("name", NAMES)
def test_weights_from_a_file(tmp_path: Path, name: str) -> None:
    original = state(name)
    save_file(original, str(tmp_path / "own.safetensors"))
    body = build(name, weights=tmp_path / "own.safetensors").backbone.body.state_dict()
    for key, value in body.items():
        origin = original[key.replace(".norm.", ".") if key.replace(".norm.", ".") in original else key]
        if key != "pos_embed":  # it has fewer patches
            torch.testing.assert_close(value, origin)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: {k: v for k, v in s.items() if k != "bn1.weight"}, "lacks 'bn1.norm.weight' (1 tensor missing)"),
        (lambda s: {**s, "bn9.weight": torch.zeros(2)}, "has 'bn9.weight' (1 tensor)"),
        (
            lambda s: {**s, "bn1.bias": torch.full_like(s["bn1.bias"], torch.nan)},
            "bn1.norm.bias has values that are not",
        ),
    ],
    ids=["missing", "unexpected", "nan"],
)
def test_weights_that_do_not_fit(tmp_path: Path, change: Any, sentence: str) -> None:
    path = tmp_path / "own.safetensors"
    save_file(change(state("mobilenetv3_small_050")), str(path))
    with pytest.raises(CheckpointError) as caught:
        build("mobilenetv3_small_050", weights=path)
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    torch.save(state("resnet18"), tmp_path / "own.pth")
    with pytest.raises(CheckpointError, match=r"own\.pth: weights for timm are read from \.safetensors files alone"):
        build("resnet18", weights=tmp_path / "own.pth")
    with pytest.raises(CheckpointError, match=r"absent\.safetensors: no such file"):
        build("resnet18", weights="absent.safetensors")


def test_weights_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, requests = tmp_path / "model.safetensors", []
    save_file(state("resnet18"), str(path))

    def fetches(repository: str, file: str, revision: str | None) -> str:
        requests.append((repository, file, revision))
        return str(path)

    def fails(*_: Any, **__: Any) -> str:
        raise OSError("no route to host")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=fetches))
    build("resnet18.a1_in1k", weights="pretrained")
    assert requests == [("timm/resnet18.a1_in1k", "model.safetensors", None)]
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(hf_hub_download=fails))
    with pytest.raises(
        CheckpointError, match=r"weights of timm:resnet18 could not be fetched \(no route to host\); take"
    ):
        build("resnet18", weights="pretrained")
    with pytest.raises(CheckpointError, match="timm has no weights of seresnet18"):
        build("seresnet18", weights="pretrained")


# In a run


@pytest.mark.filterwarnings(NOISY)
@pytest.mark.parametrize("suffix", [".safetensors", pytest.param(".pt2", marks=pytest.mark.slow)])
def test_a_run_and_its_model_handed_on(tmp_path: Path, suffix: str) -> None:
    random = np.random.default_rng(0)
    for domain in ("day", "night"):
        pixels = random.integers(0, 256, (12, 40, 40, 3), dtype=np.uint8)
        np.savez(tmp_path / f"{domain}.npz", images=pixels, labels=np.arange(12) % 2, classes=np.array(["cat", "dog"]))
    model = "timm:mobilenetv3_small_050,weights=none,side=32,bottleneck=4,frozen=true,augment=false"
    run = ("--data", tmp_path, "--source", "day", "--clients", 1, "--rounds", 1, "--epochs", 1, "--model", model)
    few = ("--set", "source_training.epochs=1", "--baseline", "none", "--out", tmp_path / "run")
    bench = call("bench", *map(str, (*run, *few)))
    assert bench.code == 0, bench.err
    (line,) = (line for line in bench.out.splitlines() if line.startswith("Frozen backbone: "))
    assert "features of 10 images are computed once and kept in memory (" in line
    assert line.endswith("for all passes over plain images")
    out = tmp_path / f"one{suffix}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about .pt2 files
        assert call("export", str(tmp_path / "run"), "--client", "0", "--out", str(out)).code == 0
        predicted = call("predict", str(out), str(tmp_path / "night.npz"), "--trust-code")
    assert len(predicted.out.splitlines()) == 1 + 12, predicted.err
    if suffix == ".safetensors":
        description = ModelDescription.read(open_tensors(out).metadata[KEY], out)
        assert (description.model["network"], description.model["side"], description.side) == (
            "mobilenetv3_small_050",
            32,
            37,
        )
