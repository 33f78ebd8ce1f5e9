"""Losses of outputs alone: entropies, divergences, label smoothing."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, kl_div

from fedwca.errors import UsageError
from fedwca.functional import (
    diversity_loss,
    information_maximization,
    mutual_information,
    paired_distillation,
    prediction_divergence,
    prediction_entropy,
    smoothed_cross_entropy,
    weighted_cross_entropy,
)


def logs(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64).log()


def test_entropy_and_diversity_by_hand() -> None:
    # Outputs (0.8, 0.2) and (0.4, 0.6): entropies 0.5004024 and 0.6730117, mean output (0.6, 0.4).
    logits = logs([0.8, 0.2], [0.4, 0.6])
    assert prediction_entropy(logits).item() == pytest.approx((0.5004024235 + 0.6730116670) / 2, abs=1e-9)
    assert diversity_loss(logits).item() == pytest.approx(-0.6730116670, abs=1e-9)


def test_both_add_up_to_information_maximization() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, mask = 3 * torch.randn(9, 5, generator=draw), torch.rand(9, generator=draw) < 0.6
    for chosen_mask in (None, mask):
        together = prediction_entropy(logits, chosen_mask) + diversity_loss(logits, chosen_mask)
        torch.testing.assert_close(together, information_maximization(logits, chosen_mask, eps=0.0))


def test_mutual_information_by_hand() -> None:
    # Outputs (3/4, 1/4) and (1/4, 3/4): the mean has an entropy of 1 bit, each output one of 2 - 3/4 log2 3 bits.
    logits = logs([0.75, 0.25], [0.25, 0.75])
    assert mutual_information(logits).item() == pytest.approx(1 - (2 - 0.75 * math.log2(3)), abs=1e-12)
    # Only two of four classes: half of the maximum of 2 bits, however confident the outputs are.
    assert mutual_information(100 * torch.eye(4)[:2]).item() == pytest.approx(0.5)
    assert mutual_information(torch.zeros(3, 1)).item() == 0
    # True classes play no part: outputs that are surely of all classes have all information, whatever the images.
    assert mutual_information(100 * torch.eye(10)).item() == pytest.approx(1)
    assert mutual_information(100 * torch.eye(10)[:3]).item() == pytest.approx(math.log(3, 10))


def test_outputs_that_are_not_sure_have_more_information_than_their_classes() -> None:
    # 16 outputs: .51 for class 0 or 1, the rest for one of the classes 2 to 9, each pair once. The mean output is .255
    # for each of the two and .06125 for the others; each output has the same entropy. Only two classes are predicted.
    outputs = [[0.51 * (k == top) + 0.49 * (k == rest) for k in range(10)] for top in range(2) for rest in range(2, 10)]
    mean = -2 * 0.255 * math.log(0.255) - 8 * 0.06125 * math.log(0.06125)
    each = -0.51 * math.log(0.51) - 0.49 * math.log(0.49)
    information = mutual_information(logs(*[[max(p, 1e-30) for p in output] for output in outputs])).item()
    assert information == pytest.approx((mean - each) / math.log(10))
    assert math.log(2, 10) < 0.5 < information < mean / math.log(10), "above the predicted classes' bound"


def test_equal_outputs_have_no_information_and_not_less() -> None:
    logits = (0.1 * torch.arange(10, dtype=torch.float64)).repeat(6, 1)
    assert information_maximization(logits, eps=0) > 0, "by rounding"
    assert mutual_information(logits) == 0


def test_entropy_and_diversity_at_their_extremes() -> None:
    sure = 1e3 * torch.eye(4)
    assert prediction_entropy(sure).item() == 0
    assert diversity_loss(sure).item() == pytest.approx(-math.log(4))
    assert prediction_entropy(torch.zeros(3, 4)).item() == pytest.approx(math.log(4))
    assert diversity_loss(sure[:1].repeat(3, 1)).item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("loss", [prediction_entropy, diversity_loss])
@pytest.mark.parametrize("size", [40.0, 100.0, 1e4])
def test_gradients_at_sure_outputs_are_finite_twice(loss: type, size: float) -> None:
    logits = (size * torch.eye(3)).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(logits), logits, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), logits)
    assert gradient.isfinite().all()
    assert second.isfinite().all()


def test_adding_diversity_spreads_outputs_and_subtracting_it_collapses_them() -> None:
    """The diversity loss has its sign already: it is added."""
    for sign, classes in ((1, 3), (-1, 1)):
        scores = torch.randn(30, 3, generator=torch.Generator().manual_seed(1))
        bias = torch.tensor([1.0, 0.0, 0.0], requires_grad=True)
        optimiser = torch.optim.SGD([bias], 1.0)
        for _ in range(300):
            optimiser.zero_grad()
            (prediction_entropy(scores + bias) + sign * diversity_loss(scores + bias)).backward()
            optimiser.step()
        assert len((scores + bias).argmax(1).unique()) == classes


def test_smoothing_by_hand() -> None:
    # Three classes, s = 0.3: 0.8 on the label, 0.1 on each other one.
    logits = logs([0.5, 0.25, 0.25])
    expected = -(0.8 * math.log(0.5) + 0.2 * math.log(0.25))
    assert smoothed_cross_entropy(logits, torch.tensor([0]), 0.3).item() == pytest.approx(expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothing_is_torchs(smoothing: float) -> None:
    draw = torch.Generator().manual_seed(2)
    logits, labels = torch.randn(7, 4, generator=draw), torch.randint(0, 4, (7,), generator=draw)
    expected = cross_entropy(logits, labels, label_smoothing=smoothing)
    torch.testing.assert_close(smoothed_cross_entropy(logits, labels, smoothing), expected)
    weights = torch.tensor([1.0, 0.0, 2.0, 0.5, 0.0, 1.0, 1.0])
    losses = cross_entropy(logits, labels, label_smoothing=smoothing, reduction="none")
    labels = torch.where(weights > 0, labels, -7)
    expected = (weights * losses).sum() / weights.sum()
    torch.testing.assert_close(smoothed_cross_entropy(logits, labels, smoothing, weights), expected)


def test_without_smoothing_it_is_the_weighted_one_to_the_bit() -> None:
    draw = torch.Generator().manual_seed(3)
    logits, labels = torch.randn(7, 4, generator=draw), torch.randint(0, 4, (7,), generator=draw)
    weights = torch.rand(7, generator=draw)
    assert torch.equal(
        smoothed_cross_entropy(logits, labels, 0, weights), weighted_cross_entropy(logits, labels, weights)
    )


def test_no_weight_gives_zero_with_zero_gradients() -> None:
    logits = torch.randn(3, 2, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.tensor([-1, 9, 0]), weights=torch.zeros(3))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("smoothing", [-0.1, 1.5, math.nan])
def test_smoothing_out_of_range_is_refused(smoothing: float) -> None:
    with pytest.raises(UsageError, match="smoothing"):
        smoothed_cross_entropy(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), smoothing)


def test_divergence_by_hand_and_torchs() -> None:
    logits, reference = logs([0.5, 0.5], [0.9, 0.1]), logs([0.25, 0.75], [0.9, 0.1])
    forward, back = 0.5 * math.log(2) + 0.5 * math.log(2 / 3), 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    assert prediction_divergence(logits, reference).item() == pytest.approx(forward / 2)
    assert prediction_divergence(logits, reference, reverse=True).item() == pytest.approx(back / 2)
    expected = kl_div(reference.log_softmax(1), logits.log_softmax(1), reduction="batchmean", log_target=True)
    torch.testing.assert_close(prediction_divergence(logits, reference), expected)


def test_divergence_of_sure_outputs_has_finite_gradients() -> None:
    logits = (1e4 * torch.eye(3)).requires_grad_()
    for reference in (logits.detach(), torch.zeros(3, 3)):
        for reverse in (False, True):
            (gradient,) = torch.autograd.grad(prediction_divergence(logits, reference, reverse=reverse), logits)
            assert gradient.isfinite().all()
    labels = torch.tensor([[0.0, -math.inf]])
    assert prediction_divergence(labels, torch.zeros(1, 2)).item() == pytest.approx(math.log(2))
    assert prediction_divergence(torch.zeros(1, 2), labels, reverse=True).item() == pytest.approx(math.log(2))


def test_distillation_is_of_both_pairs() -> None:
    draw = torch.Generator().manual_seed(4)
    adapted, base, teacher, base_teacher = torch.randn(4, 6, 3, generator=draw, dtype=torch.float64)
    for reverse in (False, True):
        first = prediction_divergence(adapted, teacher, reverse=reverse)
        second = prediction_divergence(base, base_teacher, reverse=reverse)
        together = paired_distillation(adapted, base, teacher, base_teacher, 0.8, reverse=reverse)
        torch.testing.assert_close(together, first + 0.8 * second)
    assert paired_distillation(adapted, base, adapted, base, 0.8).item() == pytest.approx(0, abs=1e-15)


def test_losses_are_twice_differentiable() -> None:
    draw = torch.Generator().manual_seed(5)
    logits, reference = torch.randn(2, 4, 3, generator=draw, dtype=torch.float64)
    logits.requires_grad_()
    labels, mask = torch.tensor([0, 1, -1, 2]), torch.tensor([1, 1, 0, 1])
    for loss in (
        lambda z: prediction_entropy(z, mask),
        lambda z: diversity_loss(z, mask),
        lambda z: prediction_divergence(z, reference, mask),
        lambda z: prediction_divergence(z, reference, mask, reverse=True),
        lambda z: smoothed_cross_entropy(z, labels, 0.1, None, mask),
    ):
        assert torch.autograd.gradcheck(loss, logits)
        assert torch.autograd.gradgradcheck(loss, logits)
