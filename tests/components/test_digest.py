"""Distillation of predictions of public images, compared with values worked out by hand (eq. 14)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedwca.core.messages import Batch, Predictions
from fedwca.errors import FedwcaError
from fedwca.objectives.digest import Digest

EVEN, UNEVEN = torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.25, 0.75]], dtype=torch.float64).log()
FORWARD = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)  # KL(1/2, 1/2 || 1/4, 3/4)


def batch(plain: Tensor, adapted: Tensor | None) -> Batch:
    teachers = {"adapted": UNEVEN.expand(len(plain), -1), "base": UNEVEN.expand(len(plain), -1)}
    labels = torch.zeros(len(plain), dtype=torch.int64)
    return Batch(plain, plain, plain, labels, torch.zeros(len(plain)), teachers, adapted_logits=adapted)


def test_the_loss_and_its_gradient_are_those_worked_out_by_hand() -> None:
    plain, adapted = (EVEN.expand(2, -1).clone().requires_grad_() for _ in range(2))
    loss = Digest(lam=0.8)(batch(plain, adapted))
    assert float(loss.detach()) == pytest.approx(1.8 * FORWARD)  # a mean over images, not their sum
    by_plain, by_adapted = torch.autograd.grad(loss, (plain, adapted))
    # p_i (log p_i/q_i − KL), with p = 1/2, q = 1/4 and 3/4: ± log 3 / 4
    slope = 0.5 * (math.log(2) - FORWARD)
    assert slope == pytest.approx(math.log(3) / 4)
    expected = torch.tensor([[slope, -slope]]).double() / 2
    assert torch.allclose(by_adapted, expected.expand(2, -1))
    assert torch.allclose(by_plain, 0.8 * expected.expand(2, -1))


def test_the_other_direction_has_another_gradient() -> None:
    adapted = EVEN.clone().requires_grad_()
    loss = Digest(lam=0, reverse=True)(batch(EVEN, adapted))
    assert float(loss.detach()) == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    (slope,) = torch.autograd.grad(loss, adapted)
    assert torch.allclose(slope, torch.tensor([[0.25, -0.25]]).double())  # p − q


def test_only_what_is_read_is_uploaded() -> None:
    predictions = Predictions(EVEN, EVEN, UNEVEN)
    targets = None  # targets are not read
    assert set(Digest().collect(predictions, targets)) == {"adapted", "base"}  # type: ignore[arg-type]
    assert set(Digest(lam=0).collect(predictions, targets)) == {"adapted"}  # type: ignore[arg-type]
    with pytest.raises(FedwcaError, match="no predictions after a step"):
        Digest().collect(Predictions(EVEN, EVEN), targets)  # type: ignore[arg-type]
    with pytest.raises(FedwcaError, match="no outputs after a step"):
        Digest()(batch(EVEN, None))


def test_means_are_over_clients_that_have_uploaded() -> None:
    adapted = torch.tensor([[[1.0, 3.0]], [[0.0, 0.0]], [[3.0, 5.0]]])
    base = torch.tensor([[[2.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]]])
    pooled = Digest().pool({"adapted": adapted, "base": base})
    assert pooled["adapted"].tolist() == [[2.0, 4.0]]
    assert pooled["base"].tolist() == [[1.0, 0.0]]
