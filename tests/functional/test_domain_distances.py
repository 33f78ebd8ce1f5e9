"""Distances between domains, shifts of moments, and the reversal of gradients."""

import math

import pytest
import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional import (
    domain_loss,
    gradient_reversal,
    moment_distance,
    moment_shift,
    multi_kernel_mmd,
    reversal_scale,
)


def kernel_loop(x: Tensor, y: Tensor, factors: tuple[float, ...]) -> float:
    """Equation 4 squared, pair by pair."""
    rows = [*x, *y]
    squared_distances = [
        float((a - b).square().sum()) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j
    ]
    width = sum(squared_distances) / len(squared_distances)

    def mean(first: Tensor, second: Tensor) -> float:
        values = [
            math.exp(-float((a - b).square().sum()) / (f * width)) for a in first for b in second for f in factors
        ]
        return sum(values) / len(values)

    return mean(x, x) + mean(y, y) - 2 * mean(x, y)


def test_mmd_by_hand() -> None:
    # Two points at distance 1: bandwidth 1, kernel mean of exp(-1/factor), 1 + 1 - 2 of it.
    factors = (0.25, 0.5, 1, 2, 4)
    expected = 2 - 2 * sum(math.exp(-1 / factor) for factor in factors) / 5
    assert multi_kernel_mmd(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 0.0]])).item() == pytest.approx(expected)
    # The bandwidth is the mean over both pairs of two rows, so the distance itself does not count.
    assert multi_kernel_mmd(torch.zeros(1, 3), torch.tensor([[9.0, 0.0, 0.0]])).item() == pytest.approx(expected)


def test_mmd_is_the_sum_over_pairs() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(4, 3, generator=draw), 1 + torch.randn(6, 3, generator=draw)
    x, y = x.double(), y.double()
    assert multi_kernel_mmd(x, y).item() == pytest.approx(kernel_loop(x, y, (0.25, 0.5, 1, 2, 4)), abs=1e-12)
    assert multi_kernel_mmd(x, y, (2.0,)).item() == pytest.approx(kernel_loop(x, y, (2.0,)), abs=1e-12)
    assert multi_kernel_mmd(x, x).item() == pytest.approx(0, abs=1e-12)
    far = 1e4 + x.float()
    assert multi_kernel_mmd(far, 1 + far).item() == pytest.approx(multi_kernel_mmd(x, 1 + x).item(), abs=1e-2)


def test_mmd_of_one_point_is_zero_with_zero_gradients() -> None:
    x = torch.full((3, 4), 0.1, requires_grad=True)
    value = multi_kernel_mmd(x, torch.full((5, 4), 0.1))
    value.backward()
    assert value.item() == 0
    assert x.grad is not None
    assert (x.grad == 0).all()


def test_the_bandwidth_is_a_constant() -> None:
    draw = torch.Generator().manual_seed(1)
    x, y = torch.randn(4, 3, generator=draw).double().requires_grad_(), 1 + torch.randn(5, 3, generator=draw).double()
    both = torch.cat([x.detach(), y])
    width = torch.cdist(both, both).square().sum() / (9 * 8)
    (gradient,) = torch.autograd.grad(multi_kernel_mmd(x, y), x)
    (fixed_gradient,) = torch.autograd.grad(multi_kernel_mmd(x, y, bandwidth=width), x)
    torch.testing.assert_close(gradient, fixed_gradient)
    assert torch.autograd.gradcheck(lambda z: multi_kernel_mmd(z, y, bandwidth=2.5), x)


def test_mmd_draws_domains_together() -> None:
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(2)).requires_grad_()
    y = 3 + torch.randn(20, 2, generator=torch.Generator().manual_seed(3))
    first = multi_kernel_mmd(x, y).item()
    optimiser = torch.optim.SGD([x], 30.0)
    for _ in range(60):
        optimiser.zero_grad()
        multi_kernel_mmd(x, y).backward()
        optimiser.step()
    assert multi_kernel_mmd(x, y).item() < 0.1 * first


def test_mmd_refuses_what_it_cannot_use() -> None:
    with pytest.raises(UsageError, match="rows"):
        multi_kernel_mmd(torch.zeros(2, 3), torch.zeros(2, 4))
    with pytest.raises(UsageError, match="rows"):
        multi_kernel_mmd(torch.zeros(2, 3), torch.zeros(0, 3))
    with pytest.raises(UsageError, match="factors"):
        multi_kernel_mmd(torch.zeros(2, 3), torch.zeros(2, 3), (1.0, 0.0))
    with pytest.raises(UsageError, match="bandwidth"):
        multi_kernel_mmd(torch.zeros(2, 3), torch.zeros(2, 3), bandwidth=0.0)


def test_moments_by_hand() -> None:
    # First moments are (3, 4) and (0, 0) of the sources, (0, 0) of the target: distances 5 and 0, and 5 of the pair.
    sources = [torch.tensor([[3.0, 4.0]]), torch.zeros(2, 2)]
    target = torch.zeros(3, 2)
    assert moment_distance(sources, target, order=1).item() == pytest.approx(2.5 + 5)
    # Second moments (9, 16) and (0, 0): length sqrt(337).
    assert moment_distance(sources, target).item() == pytest.approx(7.5 + 1.5 * math.sqrt(337))
    assert moment_distance(sources[:1], target, order=1).item() == pytest.approx(5)
    # Of three sources, distances are 5, 0 and 0, and 5, 5 and 0 of the pairs; each kind counts by its mean.
    assert moment_distance([*sources, target], target, order=1).item() == pytest.approx(5 / 3 + 10 / 3)


def test_moments_are_raw_and_of_the_mean() -> None:
    points = torch.tensor([[-1.0], [1.0]])
    assert moment_distance([points], torch.zeros(1, 1), order=1).item() == 0
    assert moment_distance([points], torch.zeros(1, 1), order=2).item() == 1


def test_equal_moments_have_gradient_zero() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    moment_distance([x, x.detach()], x.detach()).backward()
    assert x.grad is not None
    assert (x.grad == 0).all()


def test_moments_refuse_what_they_cannot_use() -> None:
    with pytest.raises(UsageError, match="no source"):
        moment_distance([], torch.zeros(1, 2))
    with pytest.raises(UsageError, match="order"):
        moment_distance([torch.zeros(1, 2)], torch.zeros(1, 2), order=0)


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 3.0])
def test_reversal_keeps_bits_and_turns_gradients(scale: float) -> None:
    x = torch.tensor([0.1, -3e7, 1e-30, -0.0]).requires_grad_()
    upstream = torch.tensor([1.0, 2.0, -3.0, 0.7])
    y = gradient_reversal(x, scale)
    assert torch.equal(y, x)
    assert y.signbit().tolist() == x.signbit().tolist()
    (gradient,) = torch.autograd.grad(y, x, upstream)
    torch.testing.assert_close(gradient, -scale * upstream, rtol=0, atol=0)


def test_reversal_is_faded_in() -> None:
    assert reversal_scale(0.0) == 0
    assert reversal_scale(1.0) == pytest.approx(1, abs=1e-4)
    assert reversal_scale(0.3, gamma=2.0) == pytest.approx(2 / (1 + math.exp(-0.6)) - 1)
    values = [reversal_scale(step / 10) for step in range(11)]
    assert values == sorted(values)


def test_the_loss_of_a_domain_classifier_by_hand() -> None:
    # Odds 3 to 1 for both source images, 1 to 1 for the only target image; sources and target count half each.
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0], [0.0, 0.0]])
    assert float(domain_loss(logits, 2)) == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
    turned = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])
    assert float(domain_loss(turned, 1)) == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_a_shift_of_moments_by_hand() -> None:
    # (6 - 4) / sqrt(3 + 1) = 1 and log((15 + 1) / (3 + 1)) / 2 = log 2; a channel whose inputs are alike has log 1.
    mean, variance, source = torch.tensor([6.0, 4.0]), torch.tensor([15.0, 3.0]), torch.tensor([4.0, 4.0])
    shift = moment_shift(mean, variance, source, torch.tensor([3.0, 3.0]), eps=1.0)
    assert shift.tolist() == pytest.approx([1, 0, math.log(2), 0])
