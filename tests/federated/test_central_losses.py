"""The losses of central methods, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fedwca.centrals import centrals
from fedwca.centrals.dann import Dann
from fedwca.centrals.fada import Fada, cluster_gap, mutual_information_bound
from fedwca.core.central import DomainBatch
from fedwca.functional import reversal_scale


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
