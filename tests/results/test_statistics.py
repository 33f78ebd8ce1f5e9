"""Statistics against values worked out by hand, and the paper's Avg. rows from its own rows."""

from __future__ import annotations

import itertools
import math

import pytest

from fedwca.core.mean import mean
from fedwca.results.statistics import (
    Difference,
    Sample,
    deviation,
    interval,
    paired_difference,
    sample_of,
    signed_rank,
)
from fedwca.results.tables import difference_cell
from tests.results.pool_samples import pool_samples


def test_a_sample_leaves_out_what_was_not_measured() -> None:
    assert sample_of([2.0, math.nan, 4.0]) == Sample(3.0, pytest.approx(math.sqrt(2)), 2)
    assert sample_of([5.0]) == Sample(5.0, None, 1)
    assert deviation([math.nan, 1.0]) is None


def test_a_t_interval_by_hand() -> None:
    # n = 3: mean 2, std 1, t(2 df) = 4.3027, half width 4.3027 / sqrt(3) = 2.4841.
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)
    # n = 11, where printed tables often stop: 10 df, t = 2.2281; deviations 5..0..5 give a variance of 110 / 10.
    values = [float(value) for value in range(11)]
    half = 2.2281 * math.sqrt(11) / math.sqrt(11)
    assert interval(values) == pytest.approx((5 - half, 5 + half), abs=1e-3)
    assert interval([3.0]) is None


def test_signed_rank_says_nothing_with_five_pairs() -> None:
    assert signed_rank([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert signed_rank([math.nan, 1.0, 2.0, 3.0, 4.0, 5.0]) is None, "nor with a sixth that was not measured"


def test_signed_rank_by_counting() -> None:
    # All six positive: 2 of the 2^6 patterns of signs are as extreme.
    assert signed_rank([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(2 / 64)
    assert signed_rank([float(number) for number in range(1, 61)]) == 2.0**-59  # SciPy: 0
    # Only the smallest is negative, rank sum 1: patterns {}, {1} and their mirrors.
    assert signed_rank([-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(4 / 64)
    assert signed_rank([0.0] * 6) == 1.0
    # A difference of 0 is left out, so five are left: 2 of 2^5.
    assert signed_rank([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 32)


def test_signed_rank_with_ties_counts_every_pattern() -> None:
    ranks = [2.0, 2.0, 4.5, 6.0, 2.0, 4.5, 7.0]  # of 1, 1, 2, 3, 1, 2, 5
    least = 2.0  # only one of the ones is negative
    sums = [sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in itertools.product((0, 1), repeat=7)]
    extreme = sum(min(s, 28 - s) <= least for s in sums)
    assert signed_rank([1.0, 1.0, 2.0, 3.0, -1.0, 2.0, 5.0]) == pytest.approx(extreme / 2**7)


def test_as_many_of_either_sign_are_no_evidence() -> None:
    # Ranks 1.5, 1.5, 3.5, 3.5, 5.5 and 5.5: the positive ones sum to 10.5 of 21, in the middle of all patterns.
    assert signed_rank([1.0, -1.0, 2.0, -2.0, 3.0, -3.0]) == 1.0


def test_ties_are_counted_up_to_fifteen_differences_and_approximated_from_sixteen_on() -> None:
    assert signed_rank([1.0] * 15) == pytest.approx(2 / 2**15)
    # Sixteen ranks of 8.5: their sum is 136 where 68 is expected, with a variance of 16 · 8.5² / 4 = 17²; z = 4.
    assert signed_rank([1.0] * 16) == pytest.approx(math.erfc(4 / math.sqrt(2)))


def test_differences_are_paired_by_run() -> None:
    ours = {("mnist", 0, 0): 70.0, ("mnist", 0, 1): 72.0, ("mnist", 1, 0): 50.0}
    theirs = {("mnist", 0, 0): 69.0, ("mnist", 0, 1): 69.0, ("synth", 0, 0): 1.0}
    difference = paired_difference(ours, theirs)
    assert difference is not None
    assert (difference.mean, difference.n, difference.p) == (2.0, 2, None)
    assert difference.std == pytest.approx(math.sqrt(2))
    assert difference.low == pytest.approx(2 - 12.7062, abs=1e-3)
    assert paired_difference(ours, {("usps", 0, 0): 1.0}) is None
    assert paired_difference({"a": math.nan}, {"a": 1.0}) is None, "nothing was measured in both"
    # n = 3 at a level of 90 %: mean 2, std 1, t(2 df) = 2.9200.
    ninety = paired_difference({"a": 1.0, "b": 2.0, "c": 3.0}, dict.fromkeys("abc", 0.0), level=0.9)
    assert ninety is not None
    assert (ninety.low, ninety.high) == pytest.approx((2 - 2.92 / math.sqrt(3), 2 + 2.92 / math.sqrt(3)), abs=1e-4)


def test_pooled_equals_the_sample_of_all_values() -> None:
    groups = [[1.0, 2.0, 4.0], [10.0, 12.0], [7.0]]
    expected = sample_of([value for group in groups for value in group])
    pooled = pool_samples([sample_of(group) for group in groups])
    assert (pooled.mean, pooled.std, pooled.n) == (pytest.approx(expected.mean), pytest.approx(expected.std), 6)


@pytest.mark.parametrize(
    ("rows", "mean", "std"),
    [
        ([(72.74, 3.57), (90.13, 2.08), (82.93, 0.79), (58.56, 4.26), (84.94, 1.15)], 77.86, 11.56),
        ([(80.63, 2.44), (83.18, 0.86), (65.50, 1.24), (84.22, 6.60)], 78.38, 8.38),
        ([(66.06, 0.50), (68.32, 0.42), (61.46, 0.88), (68.06, 0.46)], 65.97, 2.83),
    ],
)
def test_the_papers_average_row_is_over_all_runs_of_all_sources(
    rows: list[tuple[float, float]], mean: float, std: float
) -> None:
    pooled = pool_samples([Sample(*row, 15) for row in rows])
    assert pooled.mean == pytest.approx(mean, abs=0.0051)
    assert pooled.std == pytest.approx(std, abs=0.0051)


def test_rounding_makes_no_ranks() -> None:
    """Means of shares of images: a difference of 25/24 comes out of two sums a few last digits apart."""
    exact = [-25 / 24, -25 / 12, -75 / 28, 0.0, 25 / 24, 125 / 24, 25 / 12, 25 / 26]
    rounded = [value + sign * 4e-15 for value, sign in zip(exact, (1, -1, 1, 1, -1, 1, 1, -1), strict=True)]
    # Ranks 2.5, 4.5, 6, 2.5, 7, 4.5, 1: the negative ones sum to 13 of 28; counted over all 2^7 patterns of signs.
    assert signed_rank(rounded) == signed_rank(exact) == pytest.approx(0.921875)


def test_methods_that_differ_by_rounding_alone_are_equal() -> None:
    """10 of 30 images are right in each run; means over clients of 6 images differ in the last digit."""
    ours, theirs = (mean(100 * right / 6 for right in clients) for clients in ([1, 1, 5, 0, 3], [6, 0, 0, 4, 0]))
    assert ours < theirs
    difference = paired_difference(dict.fromkeys("abcdef", ours), dict.fromkeys("abcdef", theirs))
    assert difference == Difference(0.0, 0.0, 6, 0.0, 0.0, 1.0)
    assert difference_cell(difference) == "+0.0 [+0.0, +0.0]"
