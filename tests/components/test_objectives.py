"""Objectives on values worked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fedwca.kinds import Objective
from fedwca.objectives import objectives
from fedwca.objectives.shot import Shot
from fedwca.types import Batch

every = pytest.mark.parametrize("objective", [objectives.build(name) for name in objectives.names()], ids=str)


def batch(logits: Tensor, labels: list[int], weights: list[float], target: Tensor | None = None) -> Batch:
    features = torch.zeros(len(logits), 2, dtype=logits.dtype)
    target = logits if target is None else target
    return Batch(logits, features, target, torch.tensor(labels), torch.tensor(weights, dtype=logits.dtype))


def logits_of(*probabilities: list[float]) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def test_information_maximization_by_hand() -> None:
    # Outputs (3/4, 1/4) and (1/4, 3/4): mean entropy h = log 4 - 3/4 log 3, entropy of the mean log 2.
    given = batch(logits_of([0.75, 0.25], [0.25, 0.75]), [0, 1], [0, 0])
    expected = math.log(4) - 0.75 * math.log(3) - math.log(2)
    assert float(Shot(eps=1e-15)(given)) == pytest.approx(expected, abs=1e-12)
    # With 1e-5 in the logarithms, each of the four terms p·log(p + eps) moves by about eps.
    assert float(Shot()(given)) == pytest.approx(expected, abs=5e-5)


def test_cross_entropy_is_over_labelled_samples_only() -> None:
    # -log 3/4 and -log 1/4 at weights 1 and 0, then 1 and 1.
    given = logits_of([0.75, 0.25], [0.75, 0.25])
    one = float(Shot(im=0, lam=2)(batch(given, [0, 1], [1, 0])))
    both = float(Shot(im=0, lam=2)(batch(given, [0, 1], [1, 1])))
    assert one == pytest.approx(-2 * math.log(0.75))
    assert both == pytest.approx(-math.log(0.75) - math.log(0.25))


def test_labels_belong_to_the_mixed_image_and_information_to_the_plain_one() -> None:
    plain, mixed = logits_of([0.75, 0.25], [0.25, 0.75]), logits_of([0.9, 0.1], [0.9, 0.1])
    given = batch(plain, [0, 1], [1, 1], mixed)
    expected = 0.5 * (-math.log(0.9) - math.log(0.1))
    assert float(Shot(im=0, lam=1)(given)) == pytest.approx(expected)
    assert float(Shot(lam=0)(given)) == pytest.approx(float(Shot(lam=0)(batch(plain, [0, 0], [0, 0]))))


def test_best_and_worst_information() -> None:
    # Sure and balanced: -log M; all alike: 0.
    sure = batch(60 * torch.eye(3, dtype=torch.float64), [0, 1, 2], [0, 0, 0])
    assert float(Shot()(sure)) == pytest.approx(-math.log(3), abs=5e-5)
    alike = batch(torch.zeros(3, 3, dtype=torch.float64), [0, 1, 2], [0, 0, 0])
    assert float(Shot()(alike)) == pytest.approx(0, abs=1e-9)


@every
@pytest.mark.parametrize("n", [1, 4])
def test_a_finite_number_with_gradients_even_where_nothing_is_labelled(objective: Objective, n: int) -> None:
    logits = torch.full((n, 3), -200.0)
    logits[:, 0] = 200.0
    logits.requires_grad_(True)
    loss = objective(batch(logits, [0] * n, [0.0] * n))
    assert loss.shape == ()
    loss.backward()
    assert logits.grad is not None
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(logits.grad).all())
