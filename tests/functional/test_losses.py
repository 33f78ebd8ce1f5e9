"""Information maximization, weighted cross-entropy and distillation."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedwca.errors import UsageError
from fedwca.functional import (
    distillation,
    information_maximization,
    prototype_contrast,
    smoothed_cross_entropy,
    weighted_cross_entropy,
)


def test_information_maximization_by_hand() -> None:
    # outputs (0.8, 0.2) and (0.4, 0.6): mean (0.6, 0.4). H1 = 0.500402, H2 = 0.673012, H(mean) = 0.673012.
    logits = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64).log()
    expected = (0.5004024235 + 0.6730116670) / 2 - 0.6730116670
    assert information_maximization(logits, eps=0.0).item() == pytest.approx(expected, abs=1e-9)


def test_shot_adds_eps_inside_both_logarithms() -> None:
    logits, eps = torch.randn(7, 4, dtype=torch.float64), 1e-2
    p = logits.softmax(1)
    mean = p.mean(0)
    shot = (-(p * (p + eps).log()).sum(1)).mean() - (-(mean * (mean + eps).log()).sum())
    torch.testing.assert_close(information_maximization(logits, eps=eps), shot)


@pytest.mark.parametrize("classes", [2, 5, 10])
def test_the_minimum_is_one_hot_and_balanced(classes: int) -> None:
    logits = 1e3 * torch.eye(classes).repeat(3, 1)
    assert information_maximization(logits, eps=0.0).item() == pytest.approx(-math.log(classes), rel=1e-6)
    assert information_maximization(logits).item() == pytest.approx(-math.log(classes), abs=classes * 2e-5)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_alike_outputs_give_zero(eps: float) -> None:
    assert information_maximization(torch.zeros(8, 5), eps=eps).item() == pytest.approx(0.0, abs=1e-6)
    assert information_maximization(torch.tensor([[9.0, 1.0]] * 4), eps=eps).item() == pytest.approx(0.0, abs=1e-6)


def test_information_maximization_is_differentiable() -> None:
    logits = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([1, 1, 0, 1, 1, 1])
    assert torch.autograd.gradcheck(lambda z: information_maximization(z, mask), logits)


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_gradients_of_saturated_outputs_are_finite(eps: float) -> None:
    logits = (1e4 * torch.eye(3)).requires_grad_()
    information_maximization(logits, eps=eps).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_negative_eps_is_refused() -> None:
    with pytest.raises(UsageError, match="eps"):
        information_maximization(torch.zeros(2, 2), eps=-1.0)


def test_cross_entropy_by_hand() -> None:
    # outputs 1/2, 1/4, 1/4 for all rows; labels 0, 1, 2 cost log 2, log 4, log 4; weights 1, 0.5, 0
    logits = torch.tensor([[0.5, 0.25, 0.25]] * 3).log()
    value = weighted_cross_entropy(logits, torch.tensor([0, 1, 2]), torch.tensor([1.0, 0.5, 0.0]))
    assert value.item() == pytest.approx((math.log(2) + 0.5 * math.log(4)) / 1.5)


def test_equal_weights_are_torchs_cross_entropy() -> None:
    logits, labels = torch.randn(9, 4), torch.randint(0, 4, (9,))
    torch.testing.assert_close(weighted_cross_entropy(logits, labels, torch.ones(9)), cross_entropy(logits, labels))


def test_cross_entropy_is_differentiable_and_weightless_rows_are_not_read() -> None:
    logits = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    labels, weights = torch.tensor([0, -1, 2, 77, 1]), torch.tensor([1.0, 0.0, 0.3, 0.0, 1.0])
    assert torch.autograd.gradcheck(lambda z: weighted_cross_entropy(z, labels, weights), logits)
    wild = logits.detach().clone()
    wild[1] = torch.tensor([torch.inf, torch.nan, -3e38])
    wild.requires_grad_()
    loss = weighted_cross_entropy(wild, labels, weights)
    torch.testing.assert_close(loss, weighted_cross_entropy(logits, labels, weights))
    loss.backward()
    assert wild.grad is not None
    assert (wild.grad[1] == 0).all()
    assert wild.grad.isfinite().all()


def test_without_any_weight_loss_and_gradient_are_zero() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    loss = weighted_cross_entropy(logits, torch.full((4,), -1), torch.zeros(4))
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_a_wrong_label_with_weight_is_an_error_not_class_zero() -> None:
    with pytest.raises(RuntimeError):
        weighted_cross_entropy(torch.randn(2, 3), torch.tensor([-1, 0]), torch.ones(2))


def test_distillation_by_hand() -> None:
    # alpha halves the teacher's logits: log 9 becomes log 3, so it says 3/4 and 1/4; the outputs are 1/5 and 4/5.
    logits, teacher = torch.tensor([[0.2, 0.8]]).log(), torch.tensor([[math.log(9), 0.0]])
    expected = (0.75 * math.log(5) + 0.25 * math.log(1.25)) / 2
    assert distillation(logits, teacher, 0.5).item() == pytest.approx(expected)
    # A sample of weight 0 adds nothing, and counts in the mean.
    pair = distillation(logits.repeat(2, 1), teacher.repeat(2, 1), 0.5, torch.tensor([1.0, 0.0]))
    assert pair.item() == pytest.approx(expected / 2)


def test_prototype_contrast_is_a_mean_over_the_same_label_of_each_sample_and_over_clients() -> None:
    rows = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.8, -0.6], [-0.6, 0.8], [0.0, -1.0]]
    features = torch.tensor(rows, dtype=torch.float64)
    labels, tau, base_tau = [0, 0, 0, 2, 2, 1], 0.5, 0.25
    anchors_of_clients = [[[0.9, 0.1], [0.0, 1.0], [0.7, -0.2]], [[0.3, 0.4], [1.0, 0.0], [-0.5, 0.6]]]
    prototypes = torch.tensor(anchors_of_clients, dtype=torch.float64)
    losses = []
    for anchors in prototypes.tolist():
        for i in range(5):  # the last sample is alone with its label
            others = [j for j in range(6) if j != i]
            exponentials = {
                j: math.exp(sum(a * z for a, z in zip(anchors[labels[i]], features[j].tolist(), strict=True)) / tau)
                for j in others
            }
            same = [math.log(exponentials[j] / sum(exponentials.values())) for j in others if labels[j] == labels[i]]
            losses.append(-tau / base_tau * sum(same) / len(same))
    expected = sum(losses) / len(losses)
    assert float(prototype_contrast(features, torch.tensor(labels), prototypes, tau, base_tau)) == pytest.approx(
        expected
    )


@pytest.mark.parametrize(("tau", "base_tau"), [(0, 1), (1, 0), (-1, 1), (1, -1)])
def test_temperatures_of_prototype_contrast_are_above_zero(tau: float, base_tau: float) -> None:
    with pytest.raises(UsageError, match=f"must be above 0, not {tau} and {base_tau}"):
        prototype_contrast(torch.ones(2, 2), torch.tensor([0, 0]), torch.eye(2), tau, base_tau)


def test_smoothed_cross_entropy_of_masked_rows_by_hand() -> None:
    # Outputs 1/4 and 3/4. The second row is padding, the third has no weight, the fourth twice the first's.
    logits = torch.tensor([[0.0, math.log(3)]] * 4, dtype=torch.float64)
    labels, weights, mask = torch.tensor([0, 0, 0, 1]), torch.tensor([1.0, 5, 0, 2]), torch.tensor([1.0, 0, 1, 1])
    first, fourth = math.log(4), math.log(4 / 3)
    mean = (first + fourth) / 2
    expected = ((0.9 * first + 0.1 * mean) + 2 * (0.9 * fourth + 0.1 * mean)) / 3
    assert float(smoothed_cross_entropy(logits, labels, 0.1, weights, mask)) == pytest.approx(expected)
