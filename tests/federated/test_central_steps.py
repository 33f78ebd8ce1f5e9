"""Steps of central training: their order, number and gradients, and answers of methods that do not fit."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from fedwca.core.central import Central, DomainBatch
from fedwca.core.training_settings import CentralTraining
from fedwca.errors import FedwcaError
from fedwca.federated.central_steps import _endless_order
from fedwca.federated.central_training import train_central
from fedwca.federated.source_model import StartModel
from tests.federated.test_central import CLASSES, SOURCES, START, SmallModel, Wrong, images

pytestmark = pytest.mark.usefixtures("cache")


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
