"""Central training: each method learns, which labels it may see, and what the cache returns."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedwca.centrals import centrals
from fedwca.centrals.dann import Dann
from fedwca.centrals.fada import Fada, cluster_gap, mutual_information_bound
from fedwca.core.architecture import Architecture
from fedwca.core.central import Central, DomainBatch
from fedwca.core.network import Backbone
from fedwca.core.training_settings import CentralTraining
from fedwca.errors import DataError, Diverged, FedwcaError, UsageError
from fedwca.federated.central_steps import CentralImages, _endless_order
from fedwca.federated.central_training import train_central
from fedwca.federated.source_model import StartModel
from fedwca.functional import reversal_scale

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


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDWCA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "centrals"


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


class Watch(Central):
    """Records the steps that it is given."""

    name = "watch"
    seen: ClassVar[list[DomainBatch]] = []

    def __call__(self, step: DomainBatch) -> Tensor:
        self.seen.append(step)
        return step.cross_entropy()


class WatchPooled(Watch):
    """The same, with all sources pooled into one."""

    pooled = True


def watch(central: Watch, training: CentralTraining) -> list[DomainBatch]:
    central.seen.clear()
    train_central(central, images(), START, training, 0)
    return list(central.seen)


def test_steps_are_as_many_as_the_largest_source_needs_and_smaller_ones_begin_again() -> None:
    steps = watch(Watch(), CentralTraining(epochs=2, batch_size=16))
    assert len(steps) == 2 * 3
    assert [len(step.features) for step in steps] == [2] * 6
    assert {tensor.shape for step in steps for tensor in (*step.features, step.target_features)} == {(16, 16)}
    assert {tensor.shape for step in steps for tensor in (*step.logits, step.target_logits)} == {(16, CLASSES)}
    assert [round(step.progress, 3) for step in steps] == [round(i / 6, 3) for i in range(6)]
    # An epoch of the first source is each of its images once.
    counts = torch.cat([step.labels[0] for step in steps[:3]]).bincount(minlength=CLASSES)
    assert counts.tolist() == [12] * CLASSES
    second = torch.cat([step.labels[1] for step in steps[:3]])
    assert second[:30].bincount(minlength=CLASSES).tolist() == SOURCES[1][1].bincount(minlength=CLASSES).tolist()


def test_pooled_domains_are_one_source_without_the_target() -> None:
    steps = watch(WatchPooled(), CentralTraining(epochs=1, batch_size=16))
    assert len(steps) == 5  # of 78 images
    assert [len(step.features) for step in steps] == [1] * 5
    assert {len(step.target_features) for step in steps} == {0}


def sum_features(step: DomainBatch) -> Tensor:
    """The sum of features, a 144th each: of a joint batch of 144 images, only BatchNorm's bias has a gradient, 1."""
    return torch.cat([*step.features, step.target_features]).sum() / 144


class Total(Central):
    """A loss whose gradient is known."""

    name = "total"

    def __call__(self, step: DomainBatch) -> Tensor:
        """See `sum_features`."""
        return sum_features(step)


ONE_BATCH = StartModel(SmallModel(bottleneck=16, dropout=0).build(CLASSES, seed=3).eval(), float("nan"), "no dropout")


def test_two_steps_of_sgd_by_hand() -> None:
    training = CentralTraining(epochs=2, batch_size=48, lr=0.1, momentum=0.5, weight_decay=0.2)
    before, after = (x.network.norm for x in (ONE_BATCH, train_central(Total(), images(), ONE_BATCH, training, 0)))
    assert not before.bias.any()
    # Velocity 1, bias -0.1; then velocity 0.5 · 1 + (1 - 0.2 · 0.1) = 1.48.
    torch.testing.assert_close(after.bias, torch.full_like(after.bias, -0.1 - 0.148), rtol=1e-4, atol=1e-4)


def test_each_pass_has_an_order_of_its_own() -> None:
    order = _endless_order((0, "central order", 0), 48, 48)
    first, second = next(order), next(order)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(48))
    assert first.tolist() != second.tolist()


class TrialSteps(Central):
    """One source without a gradient and one with a known one; records the target's features."""

    name = "trial_steps"
    loss_per_source = True
    seen: ClassVar[list[tuple[Tensor, Tensor]]] = []

    def __call__(self, step: DomainBatch) -> Tensor:
        """None for the first source, three times `sum_features` for the second."""
        return torch.stack([0 * sum_features(step), 3 * sum_features(step)])

    def gradient_weights(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
        """Equal ones."""
        self.seen.append((before, after))
        return super().gradient_weights(before, after, classes)


def test_a_trial_step_goes_down_the_sources_gradient() -> None:
    TrialSteps.seen.clear()
    train_central(TrialSteps(), images(), ONE_BATCH, CentralTraining(epochs=1, batch_size=48, lr=0.1), 0)
    ((before, after),) = TrialSteps.seen
    torch.testing.assert_close(after[0], before)
    torch.testing.assert_close(after[1], before - 0.1 * 3, rtol=0, atol=1e-3)


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


class WrongWhole(Wrong):
    """The same with one loss for all sources."""

    name = "wrong_whole"
    loss_per_source = False


class Constant(Central):
    """A loss that no model is behind."""

    name = "constant"
    per_source: bool = False

    @property
    def loss_per_source(self) -> bool:  # type: ignore[override]
        """As the field says."""
        return self.per_source

    def __call__(self, step: DomainBatch) -> Tensor:
        """The number of images."""
        return torch.ones(2) if self.per_source else torch.ones(())


@pytest.mark.parametrize(
    ("central", "said"),
    [
        (Constant(), "'constant': the loss does not depend on the model, so nothing would be trained"),
        (Constant(per_source=True), "'constant': the loss does not depend on the model"),
        (Wrong(at="extra_modules"), "'wrong': extra_modules gave nothing; right is a module"),
        (Wrong(at="loss"), r"'wrong': loss gave torch.float32 of shape \(\); right is a loss for each of 2 sources"),
        (Wrong(at="gradient_weights"), r"gave torch.float32 of shape \(1,\); right is a weight for each of 2 sources"),
        (Wrong(at="sum"), r"'wrong': gradient_weights gave \[1.0, 1.0\]; right are weights of at least 0 that sum"),
        (Wrong(at="sign"), r"'wrong': gradient_weights gave \[1.5, -0.5\]; right are weights of at least 0"),
        (Wrong(at="finite"), "values that are not finite"),  # as of a model that diverged
        (WrongWhole(), r"'wrong_whole': loss gave torch.float32 of shape \(2,\); right is one number"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(central: Central, said: str) -> None:
    training = CentralTraining(epochs=1, batch_size=48)
    train_central(Wrong(), images(), START, training, 0)
    with pytest.raises(FedwcaError, match=f"central method {said}" if said[0] == "'" else said):
        train_central(central, images(), START, training, 0)


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


def made_batch(parts: nn.Module, progress: float = 0.5) -> tuple[DomainBatch, Tensor]:
    """A step of 12 images, and the leaf tensor of their features ``[12, 5]``; feature 0 is 4 larger in the target."""
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(12, 5, generator=draw)
    features[8:, 0] += 4
    features.requires_grad_()
    logits = features[:, :3]
    labels = torch.arange(12) % 3
    sources = features[:4], features[4:8]
    batch = DomainBatch(
        sources, (logits[:4], logits[4:8]), (labels[:4], labels[4:8]), features[8:], logits[8:], progress, parts
    )
    return batch, features


@pytest.mark.parametrize(("fields", "scale"), [({}, 1.0), ({"scale": 0.5}, 0.5)], ids=str)
def test_the_domain_classifier_goes_down_and_the_features_go_up(fields: dict[str, float], scale: float) -> None:
    """The signs of gradient reversal, compared with the domain loss without reversal."""
    dann = Dann(width=8, **fields)
    torch.manual_seed(0)
    parts = dann.extra_modules(5, 3, 2)
    batch, features = made_batch(parts)
    inputs = [features, *parts.parameters()]
    gradients = torch.autograd.grad(dann(batch), inputs, retain_graph=True, allow_unused=True)
    (class_gradient,) = torch.autograd.grad(batch.cross_entropy(), features, retain_graph=True)
    log_probabilities = parts(features).log_softmax(-1)
    domain_loss = -(log_probabilities[:8, 0].mean() + log_probabilities[8:, 1].mean()) / 2
    domain_gradients = torch.autograd.grad(domain_loss, inputs)
    torch.testing.assert_close(gradients[0], class_gradient - scale * reversal_scale(0.5) * domain_gradients[0])
    for gradient, expected in zip(gradients[1:], domain_gradients[1:], strict=True):
        torch.testing.assert_close(gradient, expected)


def batch_of_points(features: Sequence[float], logits: Sequence[float]) -> DomainBatch:
    """A step with one image of each of two sources and of the target (the last number), of one feature each.

    Logits are (value, 0).
    """
    z = [torch.tensor([[value]]) for value in features]
    o = [torch.tensor([[value, 0.0]]) for value in logits]
    labels = (torch.tensor([0]), torch.tensor([0]))
    return DomainBatch(tuple(z[:2]), tuple(o[:2]), labels, z[2], o[2], 0.0, nn.Module())


def test_dan_by_hand() -> None:
    # For two points the bandwidth is their d², so MMD² is 2 - 2·mean(exp(-1/factor)) wherever they lie, and 0 if they
    # are equal. The first source differs from the target in feature and output, the second in its output alone.
    mmd = 2 - 2 * sum(math.exp(-1 / factor) for factor in (0.25, 0.5, 1, 2, 4)) / 5
    batch = batch_of_points([3.0, 1.0, 1.0], [2.0, -1.0, 0.0])
    cross_entropy = (math.log1p(math.exp(-2)) + math.log1p(math.exp(1))) / 2
    expected = cross_entropy + 0.5 * (2 * mmd + mmd) / 2
    assert centrals.build("dan:lam=0.5")(batch).item() == pytest.approx(expected, rel=1e-5)
    assert centrals.build("dan")(batch).item() == pytest.approx(cross_entropy + 1.5 * mmd, rel=1e-5)


def test_m3sda_by_hand() -> None:
    # First moments: (|1 - 0| + |3 - 0|) / 2 + |1 - 3|; second: (1 + 9) / 2 + |1 - 9|.
    batch = batch_of_points([1.0, 3.0, 0.0], [0.0, 0.0, 0.0])
    distances = {"m3sda:lam=0.1": 0.1 * (2 + 2 + 5 + 8), "m3sda:lam=0.1,order=1": 0.1 * (2 + 2), "m3sda": 5e-4 * 17}
    for word, distance in distances.items():
        assert centrals.build(word)(batch).item() == pytest.approx(math.log(2) + distance, rel=1e-5)


def test_without_weight_a_method_is_cross_entropy() -> None:
    for word in ("dan:lam=0", "m3sda:lam=0"):
        batch, _ = made_batch(nn.Module())
        assert centrals.build(word)(batch).item() == pytest.approx(batch.cross_entropy().item())


def test_fada_is_a_loss_for_each_source_and_says_what_it_is() -> None:
    fada = Fada(width=8)
    torch.manual_seed(0)
    batch, features = made_batch(fada.extra_modules(5, 3, 2), progress=0.0)
    losses = fada(batch)
    assert losses.shape == (2,)
    # The first source's loss has no gradient at the second source.
    (gradient,) = torch.autograd.grad(losses[0], features)
    assert (gradient[4:8] == 0).all()
    assert gradient[:4].abs().min() > 0
    assert "UNVERIFIED" in (Fada.__doc__ or "")
    assert "unverified" in Fada.label
    assert "without official code" in Fada.paper


def test_judges_of_fada_learn_from_features_that_they_leave_alone() -> None:
    fada = Fada(width=8, align=0, disentangle=0, reconstruct=0)
    torch.manual_seed(0)
    parts = fada.extra_modules(5, 3, 2)
    batch, features = made_batch(parts, progress=1.0)
    nets = parts[0]
    (gradient,) = torch.autograd.grad(fada(batch)[0], features, retain_graph=True)
    halves = nets.disentangler(batch.features[0])
    useful_loss = torch.nn.functional.cross_entropy(nets.classifier(halves.chunk(2, -1)[0]), batch.labels[0])
    class_loss = torch.nn.functional.cross_entropy(batch.logits[0], batch.labels[0])
    (expected,) = torch.autograd.grad(useful_loss + class_loss, features)
    torch.testing.assert_close(gradient, expected)
    judge_gradients = torch.autograd.grad(fada(batch)[0], nets.statistic.parameters())
    assert any(g.abs().max() > 0 for g in judge_gradients)


def test_adversaries_of_fada_end() -> None:
    """The disentangled halves do not diverge against a fixed judge: their loss is bounded below."""
    fada = Fada(width=8, align=0, reconstruct=0)
    torch.manual_seed(0)
    parts = fada.extra_modules(5, 3, 2)
    features = torch.randn(64, 5)
    labels = torch.arange(64) % 3
    mover = torch.optim.SGD(parts[0].disentangler.parameters(), 1.0)
    for _ in range(200):
        mover.zero_grad()
        fada._disentangle(parts[0], features, labels, fade=1.0).backward()
        mover.step()
    loss = fada._disentangle(parts[0], features, labels, fade=1.0)
    assert torch.isfinite(loss)
    assert abs(loss.item()) < 20


def test_fada_prefers_the_source_that_makes_clusters_tighter() -> None:
    before = torch.tensor([[0.0], [2.0], [10.0], [12.0]])
    tighter, looser = before.clone(), before.clone()
    tighter[1], looser[1] = 1, 3
    weights = Fada().gradient_weights(before, torch.stack([tighter, looser, before]), classes=2)
    # Gaps 2, then 1.5, 2.5 and 2.
    assert weights.tolist() == pytest.approx(torch.tensor([0.5, -0.5, 0.0]).softmax(0).tolist())
    # With no more images than classes, as in a batch of 64 on DomainNet, there is nothing to prefer.
    weights = Fada().gradient_weights(before, torch.stack([tighter, looser, before]), classes=4)
    assert weights.tolist() == pytest.approx([1 / 3] * 3)


def test_bound_of_mutual_information_by_hand() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0]])
    bound = mutual_information_bound(lambda pairs: -(pairs[:, :1] - pairs[:, 1:]).square(), x, x)
    expected = -math.log((math.exp(-9) + math.exp(-1) + math.exp(-4)) / 3)
    assert float(bound) == pytest.approx(expected, rel=1e-5)


def test_gap_of_clusters_by_hand() -> None:
    # Two clusters: {0, 2} with 2 + 2 over 2 · 2, {10, 13} with 3 + 3 over 2 · 2.
    assert cluster_gap(torch.tensor([[0.0], [2.0], [10.0], [13.0]]), 2).item() == pytest.approx(2.5)
    # From 0, 16 and 7, which are far apart, k-means moves 4 to {0, 3}: 16 / (2 · 3), {7, 11} with 8 / (2 · 2), {16}.
    moved = cluster_gap(torch.tensor([[0.0], [3.0], [7.0], [4.0], [11.0], [16.0]]), 3)
    assert moved.item() == pytest.approx(14 / 3)
    assert cluster_gap(torch.tensor([[0.0], [2.0]]), 5).item() == 0
    assert cluster_gap(torch.randn(64, 256), 64).item() == 0
    assert cluster_gap(torch.ones(64, 256).cumsum(1) * 0.3, 8).item() == 0, "rows that are alike are at distance 0"
    assert cluster_gap(torch.zeros(4, 3), 3).item() == 0


def test_the_network_moves_by_weighted_gradients_and_the_parts_by_their_own() -> None:
    """One step without momentum and weight decay, by hand: the weights of two losses are 0.25 and 0.75."""

    part_networks: list[nn.Linear] = []

    class Two(Central):
        name = "two"
        loss_per_source = True

        def extra_modules(self, features: int, classes: int, sources: int) -> nn.Module:
            part_networks.append(nn.Linear(1, sources, bias=False))
            nn.init.zeros_(part_networks[0].weight)
            return part_networks[0]

        def __call__(self, step: DomainBatch) -> Tensor:
            # The gradient of each class's bias is 1.
            total, part_outputs = step.logits[0].sum() / len(step.logits[0]), step.extra_modules(torch.ones(1))
            return torch.stack([total + part_outputs[0], 2 * total + part_outputs[1]])

        def gradient_weights(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
            assert after.shape == (2, *before.shape)
            return torch.tensor([0.25, 0.75])

    training = CentralTraining(epochs=1, batch_size=48, lr=0.1, momentum=0, weight_decay=0)
    trained = train_central(Two(), images(), START, training, 0)
    moved = START.network.classifier.bias - trained.network.classifier.bias
    torch.testing.assert_close(moved.detach(), torch.full((CLASSES,), 0.1 * (0.25 + 0.75 * 2)))
    torch.testing.assert_close(part_networks[0].weight.detach().flatten(), torch.tensor([-0.1, -0.1]))
    # Features of the target, by which losses are weighed, leave BatchNorm's statistics alone.
    assert int(trained.network.norm.num_batches_tracked) == 1
