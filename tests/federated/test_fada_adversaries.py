"""Which way each adversary of FADA is pulled, compared with gradients of the losses written out here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedwca.centrals.fada import Fada, _SourceNets, mutual_information_bound
from fedwca.core.central import Central, DomainBatch
from fedwca.core.training_settings import CentralTraining
from fedwca.federated.central_training import train_central
from fedwca.functional import reversal_scale
from tests.federated.test_central import START, images
from tests.federated.test_central_losses import made_batch

FADE = reversal_scale(0.5)


def step(seed: int = 0) -> tuple[DomainBatch, Tensor, _SourceNets]:
    """A step in mid-training, its features ``[12, 5]``, and the nets of the first source."""
    torch.manual_seed(seed)
    parts = Fada(width=8).extra_modules(5, 3, 2)
    batch, features = made_batch(parts)
    nets = next(iter(parts.children()))
    assert isinstance(nets, _SourceNets)
    return batch, features, nets


def gradients(loss: Tensor, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, list(inputs), retain_graph=True)


def require_close(actual: Sequence[Tensor], expected: Sequence[Tensor], factor: float = 1.0) -> None:
    assert max(float(value.abs().max()) for value in expected) > 1e-4  # a test of zeros would test nothing
    for value, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(value, factor * other)


@pytest.mark.parametrize("align", [1.0, 0.5])
def test_the_domain_classifier_goes_down_and_the_features_go_up(align: float) -> None:
    batch, features, nets = step()
    outputs = nets.domain(torch.cat([batch.features[0], batch.target_features])).log_softmax(-1)
    domain_loss = -(outputs[:4, 0].mean() + outputs[4:, 1].mean()) / 2
    inputs = list(nets.domain.parameters())
    loss = Fada(width=8, align=align)(batch)[0]
    require_close(gradients(loss, inputs), gradients(domain_loss, inputs))
    without = Fada(width=8, align=0)(batch)[0]
    (moved,), (still,) = gradients(loss, [features]), gradients(without, [features])
    require_close([moved - still], gradients(domain_loss, [features]), -align * FADE)


def test_judges_learn_to_tell_classes_and_true_pairs_from_detached_halves() -> None:
    batch, _, nets = step()
    common, own = nets.disentangler(batch.features[0]).detach().chunk(2, -1)
    identifier_loss = F.cross_entropy(nets.identifier(own), batch.labels[0])
    information = mutual_information_bound(nets.statistic, common, own)
    loss = Fada(width=8)(batch)[0]
    judges: tuple[tuple[nn.Module, Tensor], ...] = ((nets.identifier, identifier_loss), (nets.statistic, -information))
    for judge, own_loss in judges:
        inputs = list(judge.parameters())
        require_close(gradients(loss, inputs), gradients(own_loss, inputs))


@pytest.mark.parametrize("disentangle", [1.0, 0.5])
def test_halves_are_pulled_to_equal_probabilities_and_to_no_shared_information(disentangle: float) -> None:
    batch, _, nets = step(seed=4)
    common, own = nets.disentangler(batch.features[0]).chunk(2, -1)
    probabilities = nets.identifier(own).softmax(-1)
    confusion_loss = -probabilities.log().mean()
    information = mutual_information_bound(nets.statistic, common, own)
    assert information > 0
    inputs = list(nets.disentangler.parameters())
    pulled, free = (gradients(Fada(width=8, disentangle=d)(batch)[0], inputs) for d in (disentangle, 0.0))
    difference = [a - b for a, b in zip(pulled, free, strict=True)]
    require_close(difference, gradients(confusion_loss + information, inputs), disentangle * FADE)


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def test_reconstruction_and_confusion_by_hand() -> None:
    """Both halves are x and their reconstruction is 2x, so its error is x², with gradient 2 · 2 · x / 3."""
    nets = _SourceNets(features=1, classes=3, width=4)
    nets.disentangler = Function(lambda x: torch.cat([x, x], -1))
    nets.reconstructor = Function(lambda halves: 2 * halves[:, :1])
    nets.statistic = Function(lambda pairs: (pairs[:, :1] - pairs[:, 1:]).square())
    for parameter in nets.identifier.parameters():
        nn.init.zeros_(parameter)
    features, labels = torch.tensor([[0.0], [1.0], [3.0]], requires_grad=True), torch.arange(3)

    def loss(**weights: float) -> Tensor:
        return Fada(**weights)._disentangle(nets, features, labels, fade=1.0)

    reconstruction_loss = loss() - loss(reconstruct=0)
    assert reconstruction_loss.item() == pytest.approx(10 / 3, rel=1e-5)
    torch.testing.assert_close(gradients(reconstruction_loss, [features])[0], torch.tensor([[0.0], [4 / 3], [4.0]]))
    # All classes alike; the bound of the information is below 0 and does not count.
    assert (loss() - loss(disentangle=0)).item() == pytest.approx(math.log(3), rel=1e-5)


def test_a_source_is_weighed_by_what_a_step_on_its_own_loss_makes_of_the_target() -> None:
    """The step before the weights are known has the run's rate, and the first source's is no step at all."""
    seen: list[Tensor] = []

    class Two(Central):
        name = "two"
        loss_per_source = True

        def extra_modules(self, features: int, classes: int, sources: int) -> nn.Module:
            return nn.Module()

        def __call__(self, step: DomainBatch) -> Tensor:
            return torch.stack(
                [
                    0 * step.logits[0].sum() + 0 * step.features[0].sum(),
                    0.01 * F.cross_entropy(step.logits[1], step.labels[1]),
                ]
            )

        def gradient_weights(self, before: Tensor, after: Tensor, classes: int) -> Tensor:
            seen.extend([before, *after])
            return torch.tensor([0.5, 0.5])

    training = CentralTraining(epochs=1, batch_size=48, lr=0.1, momentum=0, weight_decay=0)
    train_central(Two(), images(), START, training, 0)
    before, first, second = seen[:3]
    assert torch.equal(first, before)
    assert (second - before).abs().max() > 1e-5
