import pytest

from fedwca.core.training_settings import Training
from fedwca.functional.learning_rate import cosine_learning_rate


def test_cosine_learning_rate_by_hand() -> None:
    # Half of a cosine over four rounds: cos 0 = 1, cos 45° = √½, cos 90° = 0, cos 135° = -√½, cos 180° = -1.
    half = 0.5**0.5
    right = [1.0, (1 + half) / 2, 0.5, (1 - half) / 2, 0.0]
    assert [cosine_learning_rate(1.0, round, 4) for round in range(5)] == pytest.approx(right, abs=1e-15)


def test_it_is_proportional_falls_and_stays_at_zero() -> None:
    rates = [cosine_learning_rate(0.3, round, 7) for round in range(10)]
    assert rates == pytest.approx([0.3 * cosine_learning_rate(1.0, round, 7) for round in range(10)])
    assert rates == sorted(rates, reverse=True)
    assert rates[7:] == [0.0, 0.0, 0.0]


def test_a_rate_that_decays_falls_in_each_round() -> None:
    # To a quarter over two rounds: by a half in each.
    training = Training(lr=0.8, decay=0.25, decay_rounds=2)
    assert [training.at(round).lr for round in range(4)] == pytest.approx([0.8, 0.4, 0.2, 0.1])
