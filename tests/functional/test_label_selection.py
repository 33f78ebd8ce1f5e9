"""Which labels are selected: between two models, and of the most confident samples."""

import pytest
import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional import adaptive_threshold, confident_mask, select_labels


def pair(similarities: list[float], label: int) -> tuple[Tensor, Tensor]:
    return torch.full((len(similarities),), label), torch.tensor(similarities, dtype=torch.float64)


def choose(d: list[float], e: list[float], p: float, q: float, rule: str = "margin") -> list[int]:
    return select_labels(pair(d, 0), pair(e, 1), torch.tensor(p).double(), torch.tensor(q).double(), rule).tolist()


def test_margin_by_hand() -> None:
    # p = 0.5, q = 0: margins 2d - 1 against e: 0.8 -> 0.6 < 0.7; 0.9 -> 0.8 > 0.7; 0.75 -> 0.5 = 0.5 (tie: initial)
    assert choose([0.8, 0.9, 0.75], [0.7, 0.7, 0.5], 0.5, 0.0) == [1, 0, 0]


def test_ratio_by_hand() -> None:
    # p = 0.5, q = 0.25: 0.8/0.5 = 1.6 < 0.5/0.25 = 2; 0.8/0.5 > 0.3/0.25 = 1.2; 0.5/0.5 = 0.25/0.25 (tie: initial)
    assert choose([0.8, 0.8, 0.5], [0.5, 0.3, 0.25], 0.5, 0.25, "ratio") == [1, 0, 0]


def test_a_negative_normaliser_turns_the_ratio_round_but_not_the_margin() -> None:
    assert choose([0.9], [0.2], -0.1, -0.1, "ratio") == [1]  # -9 < -2: the worse label
    assert choose([0.9], [0.2], -0.1, -0.1, "margin") == [0]


def test_without_a_normaliser_similarities_are_compared_as_they_are() -> None:
    assert choose([0.6, 0.4], [0.5, 0.5], 0.0, 0.0) == [0, 1]
    assert choose([0.6, 0.4], [0.5, 0.5], 0.0, 0.9, "ratio") == [0, 1]
    assert choose([0.6, 0.4], [0.5, 0.5], 1.0, 0.3) == [0, 1]
    assert choose([0.6, 0.4], [0.5, 0.5], 0.3, 1.0 + 1e-9) == [0, 1]
    assert choose([0.5], [0.5], 1.0, 0.3) == [0], "a tie goes to the initial model here too"


def test_identical_models_choose_the_initial_label() -> None:
    d = torch.rand(50, dtype=torch.float64).tolist()
    for rule in ("margin", "ratio"):
        assert choose(d, d, 0.37, 0.37, rule) == [0] * 50


def test_similarities_that_rounding_keeps_from_1_are_1() -> None:
    # Both are perfect, so both margins are 1: a tie, whichever side rounding is on and whatever the normalisers are.
    for p, q in ((0.9, -0.1), (-0.1, 0.9), (0.3, 1.0)):
        assert choose([1 - 6e-8, 1.0, 1 + 6e-8], [1 + 6e-8, 1 + 6e-8, 1.0], p, q) == [0, 0, 0]
    # d / p: the larger divisor loses, and where these are equal the initial model wins.
    assert choose([1 - 6e-8, 1 - 6e-8, 1.0], [1.0] * 3, 0.5, 0.5, "ratio") == [0] * 3
    assert choose([1 - 6e-8], [1.0], 0.5, 0.25, "ratio") == [1]
    assert choose([1 - 2e-6], [1.0], 0.5, 0.5) == [1], "what is farther from 1 is not rounding"


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UsageError, match="rule"):
        choose([0.1], [0.1], 0.0, 0.0, "coin")


def test_a_share_is_rounded_down_as_it_is_written() -> None:
    # floor(0.53 · 100) = 53 and floor(0.59 · 100) = 59, though in float32 the products are below these.
    sure = torch.stack([torch.linspace(0.6, 0.8, 100), 1 - torch.linspace(0.6, 0.8, 100)], 1)
    for share in (0.53, 0.59, 0.66):
        assert int(confident_mask(sure, 0.9, share).sum()) == round(100 * share)


def test_bounds_of_confidence_are_excluded() -> None:
    assert confident_mask(torch.tensor([[0.5, 0.5]]), 0.5, 0).tolist() == [False]


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    # Entropies 0, 0, log 2, log 2: three deviations between mean and median, cut to the largest change.
    half = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]])
    assert float(adaptive_threshold(half)) == pytest.approx(0.95)


def test_the_threshold_by_hand() -> None:
    # Entropies 0, 0, L: mean L/3, median 0, variance (2·(L/3)² + (2L/3)²)/2 = L²/3; 3·(L/3)/(L/√3) = √3.
    entropies = torch.tensor([[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
    assert float(adaptive_threshold(entropies, 0.5, -9, 9)) == pytest.approx(0.5 + 3**0.5)
    # Entropies 0, L, L: mean 2L/3, median L, the same variance; 3·(-L/3)/(L/√3) = -√3.
    entropies = torch.tensor([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5]])
    assert float(adaptive_threshold(entropies, 0.5, -9, 9)) == pytest.approx(0.5 - 3**0.5)
    # Entropies 0, L, and padding: mean L/2, lower median 0, variance 2·(L/2)² = L²/2; 3·(L/2)/(L/√2) = 3/√2.
    threshold = adaptive_threshold(entropies, 0.5, -9, 9, mask=torch.tensor([1, 1, 0]))
    assert float(threshold) == pytest.approx(0.5 + 3 / 2**0.5)


@pytest.mark.parametrize(("rest", "expected"), [(1e-8, 0.8), (1e-6, 0.95)])
def test_entropies_that_hardly_vary_leave_the_base(rest: float, expected: float) -> None:
    # Entropies 0, 0 and about 2e-7 or 1.5e-5: standard deviations of 1e-7, which is near rounding, and of 9e-6.
    sure = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1 - rest, rest]], dtype=torch.float64)
    assert float(adaptive_threshold(sure)) == pytest.approx(expected)


def test_without_samples_the_threshold_is_the_base() -> None:
    assert float(adaptive_threshold(torch.zeros(0, 3))) == pytest.approx(0.8)
    assert float(adaptive_threshold(torch.full((2, 3), 1 / 3), mask=torch.zeros(2))) == pytest.approx(0.8)
