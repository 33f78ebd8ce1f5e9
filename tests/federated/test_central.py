"""Central training: each method learns, which labels it may see, and what the cache returns."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedwca.centrals import centrals
from fedwca.core.architecture import Architecture
from fedwca.core.central import Central, DomainBatch
from fedwca.core.network import Backbone
from fedwca.core.training_settings import CentralTraining
from fedwca.errors import DataError, Diverged, UsageError
from fedwca.federated.central_steps import CentralImages
from fedwca.federated.central_training import train_central
from fedwca.federated.source_model import StartModel

pytestmark = pytest.mark.usefixtures("cache")
CLASSES = 4


TRAINING = CentralTraining(epochs=16, batch_size=16)


class Small(Backbone):
    """One convolution, then means over 4 × 4 patches of its output; reads images of 16 × 16 pixels."""

    out_features = 32

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return nn.functional.avg_pool2d(self.conv(x).relu(), 4).flatten(1)


class SmallModel(Architecture):
    side: int = 16

    def backbone(self) -> Backbone:
        return Small()


START = StartModel(SmallModel(bottleneck=16).build(CLASSES, seed=3).eval(), float("nan"), "untrained")


def domain(shade: int, contrast: int, seed: int, images: int = 48) -> tuple[Tensor, Tensor]:
    """Noise of one brightness; the brighter quarter is the class. Domains differ in brightness and contrast."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % CLASSES
    pixels = shade + torch.randint(-10, 11, (images, 3, 16, 16), generator=draw)
    for image, label in zip(pixels, labels.tolist(), strict=True):
        top, left = 8 * (label // 2), 8 * (label % 2)
        image[:, top : top + 8, left : left + 8] += contrast
    return pixels.clamp(0, 255).to(torch.uint8), labels


SOURCES = [domain(60, 90, 0), domain(100, 60, 1, images=30)]


TARGET, ANSWERS = domain(150, 45, 2, images=40)


def images(oracle: bool = False) -> CentralImages:
    pixels, labels = zip(*SOURCES, strict=True)
    return CentralImages(pixels, labels, TARGET, ANSWERS if oracle else None)


def accuracy(trained: StartModel, pixels: Tensor = TARGET, labels: Tensor = ANSWERS) -> float:
    with torch.no_grad():
        logits, _ = trained.network(trained.network.prepare(pixels))
    return float((logits.argmax(1) == labels).float().mean())


def same(first: StartModel, second: StartModel) -> bool:
    states = first.network.state_dict(), second.network.state_dict()
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


WORDS = [*sorted({*centrals.names()} - {"pooled"}), "pooled", "pooled:on=target"]


every = pytest.mark.parametrize("word", WORDS)


@functools.cache
def train(word: str) -> tuple[StartModel, list[int]]:
    """The model of a central method, and the epochs of its progress."""
    central = centrals.build(word)
    epochs: list[int] = []
    arguments = central, images(central.oracle), START, TRAINING, 0
    return train_central(*arguments, progress=lambda epoch, of: epochs.append(epoch)), epochs


@every
def test_each_learns_on_sources_that_differ_from_the_target(word: str) -> None:
    trained, epochs = train(word)
    assert epochs == list(range(TRAINING.epochs + 1))
    assert not trained.network.training
    assert accuracy(START) < 0.4
    assert accuracy(trained) >= 0.5
    if not centrals.build(word).oracle:
        assert all(accuracy(trained, *source) > 0.9 for source in SOURCES)


@pytest.mark.parametrize("word", ["dan", "dann", "m3sda", "pooled:on=target"])
def test_who_sees_the_target_is_better_there_than_who_does_not(word: str) -> None:
    assert accuracy(train(word)[0]) > accuracy(train("pooled")[0])


@every
def test_the_same_bits_again_and_from_the_cache(word: str, cache: Path) -> None:
    central, training = centrals.build(word), TRAINING.model_copy(update={"epochs": 1})
    before = copy.deepcopy(START.network.state_dict())
    first = train_central(central, images(central.oracle), START, training, 0)
    (path,) = cache.iterdir()
    assert path.name == f"{central.name}-{first.digest}.safetensors"
    calls: list[int] = []
    cached = train_central(
        central, images(central.oracle), START, training, 0, progress=lambda epoch, of: calls.append(epoch)
    )
    assert calls == []
    path.unlink()
    again = train_central(central, images(central.oracle), START, training, 0)
    assert same(first, cached)
    assert same(first, again)
    assert first.digest == cached.digest == again.digest
    assert all(torch.equal(START.network.state_dict()[name], value) for name, value in before.items())
    assert not same(first, train_central(central, images(central.oracle), START, training, 1))


def test_everything_that_determines_it_is_in_the_digest() -> None:
    training = CentralTraining(epochs=1, batch_size=48)
    pixels, labels = zip(*SOURCES, strict=True)
    dann = centrals.build("dann")
    changed_target = TARGET.clone()
    changed_target[0, 0, 0, 0] += 1
    digests = [
        train_central(*arguments).digest
        for arguments in (
            (dann, images(), START, training, 0),
            (dann, images(), START, training, 1),
            (dann, images(), START, CentralTraining(epochs=1, batch_size=32), 0),
            (centrals.build("dann:scale=0.5"), images(), START, training, 0),
            (centrals.build("dan"), images(), START, training, 0),
            (dann, CentralImages(pixels, labels, changed_target), START, training, 0),
            (dann, CentralImages(pixels[::-1], labels[::-1], TARGET), START, training, 0),
            (dann, CentralImages(pixels, (labels[0].flip(0), labels[1]), TARGET), START, training, 0),
            (dann, images(), StartModel(START.network, START.accuracy, "another"), training, 0),
        )
    ]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize(
    "damage", [lambda content: content[: -len(content) // 4] + bytes(len(content) // 4), lambda content: content[:-9]]
)
def test_a_damaged_file_is_made_again(cache: Path, damage: Callable[[bytes], bytes]) -> None:
    training = CentralTraining(epochs=1, batch_size=48)
    first = train_central(centrals.build("pooled"), images(), START, training, 0)
    (path,) = cache.iterdir()
    intact = path.read_bytes()
    path.write_bytes(damage(intact))
    with pytest.warns(UserWarning, match="the central model pooled is trained again"):
        again = train_central(centrals.build("pooled"), images(), START, training, 0)
    assert same(first, again)
    assert path.read_bytes() == intact


def test_a_cache_that_cannot_be_written_costs_no_result(cache: Path) -> None:
    cache.parent.mkdir()
    cache.write_text("not a folder")
    with pytest.warns(UserWarning, match="the central model pooled could not be kept"):
        train_central(centrals.build("pooled"), images(), START, CentralTraining(epochs=1, batch_size=48), 0)


def test_only_an_oracle_sees_the_targets_labels() -> None:
    with pytest.raises(UsageError, match="central method dann may not see the labels of the target"):
        train_central(centrals.build("dann"), images(oracle=True), START, TRAINING, 0)
    with pytest.raises(UsageError, match="central method pooled needs the labels of the target"):
        train_central(centrals.build("pooled:on=target"), images(), START, TRAINING, 0)


def test_what_does_not_fit_is_refused() -> None:
    pixels, labels = zip(*SOURCES, strict=True)
    with pytest.raises(DataError, match="the target has no training image"):
        CentralImages(pixels, labels, TARGET[:0])
    with pytest.raises(DataError, match=r"source 2 has 30 images, but labels \[29\]"):
        CentralImages(pixels, (labels[0], labels[1][:29]), TARGET)
    with pytest.raises(DataError, match="no labelled source"):
        CentralImages((), (), TARGET)


class Wrong(Central):
    """Gives something else than a central method has to, at one place."""

    name = "wrong"
    loss_per_source = True
    at: str = ""

    def extra_modules(self, features: int, classes: int, sources: int) -> nn.Module:
        """None, or nothing."""
        modules: Any = None if self.at == "extra_modules" else nn.Module()
        return modules  # type: ignore[no-any-return]

    def __call__(self, step: DomainBatch) -> Tensor:
        """A loss of each source, or of all."""
        if self.at == "loss":
            return step.cross_entropy()
        return torch.stack([F.cross_entropy(*source) for source in zip(step.logits, step.labels, strict=True)])

    def gradient_weights(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
        """Equal ones, or too few, or as `at` says."""
        wrong = {"sum": torch.ones(2), "sign": torch.tensor([1.5, -0.5]), "finite": torch.full((2,), torch.nan)}
        weights = super().gradient_weights(before, after, classes)[self.at == "gradient_weights" :]
        return wrong.get(self.at, weights)


def test_the_code_of_a_plugins_method_is_in_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    training = CentralTraining(epochs=1, batch_size=48)
    first = train_central(Wrong(), images(), START, training, 0).digest
    assert train_central(Wrong(), images(), START, training, 0).digest == first
    monkeypatch.setattr(Wrong, "_code", "hash of other lines")
    assert train_central(Wrong(), images(), START, training, 0).digest != first


def test_a_source_of_one_image() -> None:
    pixels, labels = zip(*SOURCES, strict=True)
    data = CentralImages((pixels[0], pixels[1][:1]), (labels[0], labels[1][:1]), TARGET[:1])
    trained = train_central(centrals.build("m3sda"), data, START, CentralTraining(epochs=1, batch_size=8), 0)
    assert all(torch.isfinite(tensor).all() for tensor in trained.network.state_dict().values())


@pytest.mark.parametrize("word", ["dann", "fada"])
def test_a_classifier_with_weight_normalisation(word: str) -> None:
    network = SmallModel(bottleneck=16, classifier="wn").build(CLASSES, seed=3).eval()
    start = StartModel(network, float("nan"), "untrained, normalised")
    trained = train_central(centrals.build(word), images(), start, CentralTraining(epochs=2, batch_size=16), 0)
    assert not torch.equal(trained.network.classifier.weight, network.classifier.weight)


def test_values_that_are_not_finite_are_said(cache: Path) -> None:
    with pytest.raises(Diverged, match="central training of pooled"):
        train_central(centrals.build("pooled"), images(), START, CentralTraining(epochs=4, lr=1e30), 0)
    assert not cache.exists()
