"""Alignment, soft neighborhood density, class entropy."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from fedwca.errors import UsageError
from fedwca.functional import (
    alignment,
    class_entropy,
    mutual_information,
    prototype_labels,
    prototypes,
    soft_neighborhood_density,
)


def outputs(n: int, m: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(n, m, generator=generator, dtype=torch.float64)).softmax(-1)


def slow_density(probabilities: np.ndarray, temperature: float) -> float:
    """Eqs. 5-6, pair by pair."""
    n, total = len(probabilities), 0.0
    for i in range(n):
        terms = {}
        for j in range(n):
            if j != i:
                a, b = probabilities[i], probabilities[j]
                cosine = (a * b).sum() / math.sqrt((a * a).sum()) / math.sqrt((b * b).sum())
                terms[j] = math.exp(cosine / temperature)
        normaliser = sum(terms.values())
        total -= sum(t / normaliser * math.log(t / normaliser) for t in terms.values())
    return total / n


def test_alignment_by_hand() -> None:
    classifier = torch.tensor([[2.0, 0.0], [0.0, 7.0], [-1.0, 0.0]])
    # (3, 4): cosines 3/5, 4/5, -3/5 -> 0.8.  (-5, 12): -5/13, 12/13, 5/13 -> 12/13.  (-2, 0): 0 and 1 -> 1.
    features = torch.tensor([[3.0, 4.0], [-5.0, 12.0], [-2.0, 0.0]])
    assert alignment(features, classifier).item() == pytest.approx((0.8 + 12 / 13 + 1) / 3)


def test_alignment_does_not_depend_on_lengths() -> None:
    features, classifier = torch.randn(20, 6, dtype=torch.float64), torch.randn(4, 6, dtype=torch.float64)
    stretched = alignment(features * torch.rand(20, 1) * 9 + 0, classifier * 3)
    torch.testing.assert_close(stretched, alignment(features, classifier))


def test_alignment_of_a_dead_feature_is_zero() -> None:
    assert alignment(torch.zeros(2, 3), torch.randn(4, 3)).item() == 0.0


def test_density_by_hand() -> None:
    # rows a = (1, 0), b = (1, 0), c = (0, 1) and T = 1: cos ab = 1, ac = bc = 0.
    # a sees b with e/(e+1) and c with 1/(e+1); b likewise; c sees both with 1/2: entropy log 2.
    e = math.e
    entropy = -(e / (e + 1) * math.log(e / (e + 1)) + 1 / (e + 1) * math.log(1 / (e + 1)))
    value = soft_neighborhood_density(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), temperature=1.0)
    assert value.item() == pytest.approx((2 * entropy + math.log(2)) / 3, rel=1e-6)


def test_densitys_default_temperature_by_hand() -> None:
    # Cosines ab 0.8, ac 0.96 and bc 0.936, divided by 0.05: a row's two scores differ by 3.2, 2.72 and 0.48.
    expected = 0.0
    for difference in (3.2, 2.72, 0.48):
        p = 1 / (1 + math.exp(-difference))
        expected -= (p * math.log(p) + (1 - p) * math.log(1 - p)) / 3
    value = soft_neighborhood_density(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.96, 0.28]], dtype=torch.float64))
    assert value.item() == pytest.approx(expected) == pytest.approx(0.354114, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_density_is_the_double_loop(seed: int, temperature: float) -> None:
    rows = outputs(23, 5, seed, scale=1.0 + seed)
    expected = slow_density(rows.numpy(), temperature)
    assert soft_neighborhood_density(rows, temperature).item() == pytest.approx(expected, rel=1e-12)
    assert soft_neighborhood_density(rows.float(), temperature).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("chunk", [1, 7, 50, 1024])
def test_density_does_not_depend_on_the_chunk(chunk: int) -> None:
    rows = outputs(50, 4)
    torch.testing.assert_close(soft_neighborhood_density(rows, chunk=chunk), soft_neighborhood_density(rows, chunk=64))


def test_density_is_at_most_log_of_the_others_and_collapse_reaches_it() -> None:
    rows = outputs(40, 4)
    assert soft_neighborhood_density(rows).item() < math.log(39)
    assert soft_neighborhood_density(rows[:1].expand(40, 4)).item() == pytest.approx(math.log(39), rel=1e-12)


def test_density_excludes_itself_by_identity_not_by_value() -> None:
    # Pairs of equal rows and a small T: each row's only neighbour is its twin, so the entropy is 0. If all equal rows
    # were excluded, it would be NaN.
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert soft_neighborhood_density(rows).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("temperature", [1e-6, 1e6])
def test_density_survives_extreme_temperatures(temperature: float) -> None:
    assert soft_neighborhood_density(outputs(9, 3).float(), temperature).isfinite()


@pytest.mark.parametrize("n", [0, 1])
def test_density_of_nobody_or_one_is_zero(n: int) -> None:
    assert soft_neighborhood_density(outputs(n, 3)).item() == 0.0
    masked = soft_neighborhood_density(outputs(5, 3), mask=torch.arange(5) < n)
    assert masked.item() == 0.0


def test_padded_rows_are_nobodys_neighbours_at_any_temperature() -> None:
    rows, mask = outputs(12, 3), torch.arange(12) < 8
    for temperature in (0.05, 1.0, 10.0):
        masked = soft_neighborhood_density(rows, temperature, mask, chunk=5)
        torch.testing.assert_close(masked, soft_neighborhood_density(rows[:8], temperature))


def test_density_refuses_nonsense() -> None:
    with pytest.raises(UsageError, match="temperature"):
        soft_neighborhood_density(outputs(3, 2), 0.0)
    with pytest.raises(UsageError, match="chunk"):
        soft_neighborhood_density(outputs(3, 2), chunk=0)


def test_class_entropy_by_hand() -> None:
    rows = torch.eye(3)[torch.tensor([0, 0, 1, 0])]  # histogram 3/4, 1/4, 0
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert class_entropy(rows).item() == pytest.approx(expected)
    assert class_entropy(rows[:2]).item() == 0.0
    assert class_entropy(torch.eye(5)).item() == pytest.approx(math.log(5))


def test_no_sample_at_all() -> None:
    assert alignment(torch.zeros(0, 3), torch.randn(2, 3)).item() == 0.0
    assert class_entropy(torch.zeros(0, 3)).item() == 0.0
    assert class_entropy(torch.randn(4, 3), torch.zeros(4)).item() == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda row: soft_neighborhood_density(row),
        lambda row: mutual_information(row),
        lambda row: alignment(row, torch.eye(4)),
        lambda row: prototypes(torch.ones(4, 2), row),
        lambda row: prototype_labels(torch.ones(4, 2), row),
    ],
)
def test_one_axis_is_refused(call: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(UsageError, match=r"must have two axes, the first of samples, not the shape \[4\]"):
        call(torch.ones(4))


def test_arrays_and_masks_of_other_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="probabilities must be a tensor, not ndarray"):
        soft_neighborhood_density(np.ones((2, 2)))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"must have the shape \[4\], one for a row, not \[3\]"):
        soft_neighborhood_density(torch.ones(4, 2), mask=torch.ones(3))


def test_density_of_half_precision_is_a_number() -> None:
    half = outputs(6, 4).half()
    assert soft_neighborhood_density(half).item() == pytest.approx(
        soft_neighborhood_density(half.double()).item(), abs=0.01
    )
