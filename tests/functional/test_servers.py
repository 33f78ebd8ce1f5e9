"""What servers compute: simplex projection, agreement, controls; and terms of representations."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.func import vmap

from fedwca.errors import UsageError
from fedwca.functional import (
    agreement_mask,
    control_update,
    gaussian_divergence,
    mixture_ascent,
    pad_to_shape,
    project_simplex,
    representation_norm,
    scaffold_weights,
)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),  # already weights
        ([0.0, 0.0], [0.5, 0.5]),
        ([3.0, 0.0], [1.0, 0.0]),
        ([1.0, 0.5], [0.75, 0.25]),
        ([-5.0], [1.0]),
        ([1e6, 1e6 + 0.5], [0.25, 0.75]),
    ],
)
def test_projection_by_hand(values: list[float], expected: list[float]) -> None:
    assert project_simplex(torch.tensor(values)).tolist() == pytest.approx(expected)


def test_projection_is_the_nearest_of_all() -> None:
    """Entries with positive weight are all shifted equally; shifted as much, no other entry would be above 0."""
    values = 2 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = project_simplex(values)
    torch.testing.assert_close(weights.sum(-1), torch.ones(50, dtype=torch.float64))
    shift = ((values - weights) * (weights > 0)).sum(-1) / (weights > 0).sum(-1)
    torch.testing.assert_close(weights, (values - shift[:, None]).clamp_min(0))
    torch.testing.assert_close(vmap(project_simplex)(values), weights)


def test_large_values_keep_their_digits() -> None:
    values = torch.tensor([0.875, 0.5, -1.0])
    assert project_simplex(values + 2**20).tolist() == project_simplex(values).tolist() == [0.6875, 0.3125, 0.0]


def test_ascent_goes_to_the_larger_loss_and_stays_without_a_rate() -> None:
    weights, losses = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([1.0, 1.0, 4.0])
    assert mixture_ascent(weights, losses, 0.0).tolist() == pytest.approx([0.5, 0.3, 0.2])
    # + 0.1, 0.1, 0.4 makes 1.6: 0.2 less each.
    assert mixture_ascent(weights, losses, 0.1).tolist() == pytest.approx([0.4, 0.2, 0.4])
    assert mixture_ascent(weights, losses, 100.0).tolist() == pytest.approx([0, 0, 1])


def test_agreement_by_hand() -> None:
    votes = torch.tensor([-1.0, 0.4, -0.39, 0.0])
    assert agreement_mask(votes, 0.4).tolist() == pytest.approx([1, 1, 0.39, 0])
    assert agreement_mask(votes, 0.0).tolist() == [1, 1, 1, 1]


def test_control_by_hand_and_without_a_step() -> None:
    c, c_k, start, end = (torch.tensor([value, 0.0]) for value in (1.0, 2.0, 3.0, 0.0))
    assert control_update(c, c_k, start, end, 4, 0.5).tolist() == [2.5, 0.0]  # 2 - 1 + 3 / (4 · 0.5)
    assert control_update(c, c_k, start, end, 0, 0.5).tolist() == [2.0, 0.0]
    steps = torch.tensor([4, 0, 2])
    stacked = [tensor.expand(3, 2) for tensor in (c, c_k, start, end)]
    together = control_update(*stacked, steps[:, None], 0.5)
    assert together[:, 0].tolist() == [2.5, 2.0, 4.0]
    torch.testing.assert_close(vmap(lambda s: control_update(c, c_k, start, end, s, 0.5))(steps), together)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    assert control_update(zero, zero, one, zero, 4, 0.1).item() == pytest.approx(2.5, rel=1e-12)


def scaffold_by_hand(
    x: Tensor, c: Tensor, controls: Tensor, models: Tensor, present: Tensor, steps: Tensor, lr: float, server_lr: float
) -> Tensor:
    """Algorithm 1 of SCAFFOLD, client after client."""
    renewed, moves = controls.clone(), []
    for k in range(len(controls)):
        if present[k]:
            moves.append(models[k] - x)
            renewed[k] = control_update(c, controls[k], x, models[k], int(steps[k]), lr)
    server = x + server_lr * torch.stack(moves).mean(0) if moves else x
    return torch.cat([server[None], (c + (renewed - controls).sum(0) / len(controls))[None], renewed])


@pytest.mark.parametrize("present", [[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]])
@pytest.mark.parametrize("begun", [False, True])
def test_scaffold_is_one_matrix(present: list[int], begun: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    rows, models = torch.randn(6, 3, generator=draw).double(), torch.randn(4, 3, generator=draw).double()
    mask, steps = torch.tensor(present).bool(), torch.tensor([4, 2, 1, 0])
    if not begun:
        rows[1:] = 0
    weights = scaffold_weights(mask, steps, 0.1, 1.5, begun)
    assert weights.dtype == torch.float64
    assert weights.shape == (6, (6 if begun else 1) + 4)
    expected = scaffold_by_hand(rows[0], rows[1], rows[2:], models, mask, steps, 0.1, 1.5)
    torch.testing.assert_close(weights @ torch.cat([rows if begun else rows[:1], models]), expected)


def test_scaffolds_first_round_is_fedavg() -> None:
    weights = scaffold_weights(torch.ones(4).bool(), torch.full((4,), 5), 0.1, 1.0, False)
    assert weights[0].tolist() == [0.0] + [0.25] * 4


def test_one_client_and_vmap() -> None:
    assert scaffold_weights(torch.ones(1).bool(), torch.ones(1), 1.0, 1.0, True).shape == (3, 4)
    present, steps = torch.rand(5, 4) < 0.5, torch.randint(0, 9, (5, 4))
    together = vmap(lambda p, s: scaffold_weights(p, s, 0.1, 1.5, True))(present, steps)
    for k in range(5):
        torch.testing.assert_close(together[k], scaffold_weights(present[k], steps[k], 0.1, 1.5, True))


def test_divergence_of_normal_distributions_is_torchs() -> None:
    draw = torch.Generator().manual_seed(2)
    mean, prior_mean = torch.randn(2, 5, 3, generator=draw, dtype=torch.float64)
    std, prior_std = 0.1 + torch.rand(2, 5, 3, generator=draw, dtype=torch.float64)
    expected = kl_divergence(Normal(mean, std), Normal(prior_mean, prior_std)).sum(1).mean()
    torch.testing.assert_close(gaussian_divergence(mean, std, prior_mean, prior_std), expected)
    assert gaussian_divergence(mean, std, mean, std).item() == pytest.approx(0, abs=1e-12)
    std.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: gaussian_divergence(mean, s, prior_mean, prior_std), std)


def test_a_width_of_zero_gives_a_number() -> None:
    std = torch.zeros(1, 2, requires_grad=True)
    loss = gaussian_divergence(torch.zeros(1, 2), std, torch.zeros(1, 2), torch.ones(1, 2))
    loss.backward()
    assert loss.isfinite()
    assert std.grad is not None
    assert std.grad.isfinite().all()


def test_widths_of_padding_are_not_read() -> None:
    mean, mask = torch.zeros(2, 1), torch.tensor([1.0, 0.0])
    std, prior_std = torch.tensor([[1.0], [0.0]], requires_grad=True), torch.tensor([[2.0], [0.0]])
    loss = gaussian_divergence(mean, std, mean, prior_std, mask)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2) + 1 / 8 - 1 / 2)
    assert std.grad is not None
    assert std.grad.flatten().tolist() == pytest.approx([1 / 4 - 1, 0])


def test_lengths_of_representations() -> None:
    z = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    loss = representation_norm(z)
    loss.backward()
    assert loss.item() == 2.5
    assert z.grad is not None
    assert z.grad.flatten().tolist() == pytest.approx([0.3, 0.4, 0, 0])


def test_padding_of_parameters() -> None:
    value = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    wide = pad_to_shape(value, (3, 4))
    assert wide.tolist() == [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 0, 0]]
    assert pad_to_shape(value, (2, 2)).tolist() == value.tolist()
    assert pad_to_shape(torch.tensor(2.0), ()).item() == 2
    assert pad_to_shape(torch.ones(2, 3, 1, 1), (4, 3, 5, 5)).sum().item() == 6
    wide.square().sum().backward()
    assert value.grad is not None
    assert value.grad.tolist() == [[2, 4], [6, 8]]
    for shape in ((1, 4), (2, 2, 1)):
        with pytest.raises(UsageError, match="does not fit"):
            pad_to_shape(value, shape)


def test_a_channel_of_zeros_has_no_gradient() -> None:
    """Behind a ReLU, zero padding gets no gradient, so the small network in the corner stays a small network."""
    first, second = (pad_to_shape(torch.randn(2, 2), (4, 4)).requires_grad_() for _ in range(2))
    loss = ((torch.randn(5, 4) @ first.mT).relu() @ second.mT).square().sum()
    gradients = torch.autograd.grad(loss, (first, second))
    assert (gradients[0][2:] == 0).all()
    assert (gradients[1][:, 2:] == 0).all()
