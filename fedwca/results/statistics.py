"""Statistics for tables: means, standard deviations, paired differences with an interval and a test; plain numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fedwca.core.mean import mean, without_rounding

FEWEST = 6
"""Minimum number of pairs for the signed-rank test: with 5, its smallest two-sided p is 0.0625, never significant."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Sample:
    """Mean, standard deviation and number of values; accuracies in percent, differences in points."""

    mean: float
    std: float | None
    """Standard deviation (ddof 1); None for a single value."""
    n: int


@dataclass(frozen=True)
class Difference:
    """Statistics of one method minus another over the runs that both have, in points."""

    mean: float
    std: float | None
    n: int
    low: float | None
    """Lower bound of the confidence interval; None for a single pair."""
    high: float | None
    p: float | None
    """Two-sided p of the Wilcoxon signed-rank test; None for fewer than `FEWEST` pairs."""


def deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (ddof 1) of the values that are not NaN, None for fewer than two.

    >>> deviation([1.0, 3.0])
    1.4142135623730951
    """
    valid = [value for value in values if not math.isnan(value)]
    return statistics.stdev(valid) if len(valid) > 1 else None


def sample_of(values: Sequence[float]) -> Sample:
    """Mean, standard deviation (ddof 1) and number of the values that are not NaN.

    >>> sample_of([1.0, 2.0, 3.0])
    Sample(mean=2.0, std=1.0, n=3)
    """
    valid = [value for value in values if not math.isnan(value)]
    return Sample(statistics.fmean(valid) if valid else math.nan, deviation(valid), len(valid))


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Two-sided Student's t confidence interval of the mean; None for fewer than two values.

    >>> [round(end, 3) for end in interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.stats import t

    sample = sample_of(values)
    if sample.std is None:
        return None
    half_width = float(t.ppf((1 + level) / 2, sample.n - 1)) * sample.std / math.sqrt(sample.n)
    return sample.mean - half_width, sample.mean + half_width


def signed_rank(values: Sequence[float]) -> float | None:
    """Two-sided p of the Wilcoxon signed-rank test that differences are symmetric around 0; None for fewer than 6.

    Differences of 0, up to rounding, are left out, as Wilcoxon did; if all are 0, p is 1. p is exact without ties, and
    with ties for up to 15 differences; otherwise it is the normal approximation.

    >>> signed_rank([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    0.03125
    """
    from scipy.stats import wilcoxon

    valid = [value for value in values if not math.isnan(value)]
    if len(valid) < FEWEST:
        return None
    # Accuracies are shares of whole images: sums make equal or zero differences deviate in the last digits.
    nonzero = [value for value in (round(value, 9) for value in valid) if value != 0]
    if not nonzero:
        return 1.0
    if len({abs(value) for value in nonzero}) == len(nonzero):
        # The least p there is, in place of SciPy's 0 for 54 numbers of one sign and more.
        return max(float(wilcoxon(nonzero, method="exact").pvalue), 2.0 ** (1 - len(nonzero)))
    return _count_patterns(nonzero) if len(nonzero) <= 15 else float(wilcoxon(nonzero, method="approx").pvalue)


def _count_patterns(nonzero: Sequence[float]) -> float:
    """`signed_rank` with ties, which change the distribution of the rank sum: exact p over all 2^n sign patterns.

    SciPy's own enumeration calls its statistic once per pattern, which takes a third of a second.

    >>> _count_patterns([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    0.03125
    """
    import numpy as np
    from scipy.stats import rankdata

    ranks, sums = rankdata(np.abs(nonzero)), np.zeros(1)
    for rank in ranks:  # multiples of 0.5, so that sums are exact
        sums = np.concatenate([sums, sums + rank])
    rank_sum = ranks[np.asarray(nonzero) > 0].sum()
    return min(1.0, 2 * float(min((sums <= rank_sum).mean(), (sums >= rank_sum).mean())))


def list_differences(values: Mapping[Key, float], reference: Mapping[Key, float]) -> list[float]:
    """Differences ``values - reference`` over the keys that both have; one that is rounding alone is 0.

    >>> list_differences({"a": 0.1 + 0.2, "b": 2.0}, {"a": 0.3, "b": 1.0})
    [0.0, 1.0]
    """
    return [without_rounding(value - reference[run]) for run, value in values.items() if run in reference]


def mean_difference(differences: Iterable[float]) -> float:
    """Mean of the differences that are not NaN; 0, without a sign, where they cancel.

    >>> mean_difference([-0.1, 0.3, -0.2])
    0.0
    """
    return without_rounding(mean(differences))


def paired_difference(
    values: Mapping[Key, float], reference: Mapping[Key, float], level: float = 0.95
) -> Difference | None:
    """Statistics of ``values - reference`` over the keys that both have; None if there are none.

    Args:
        values: a method's mean over clients by run, such as (source, source model, trial).
        reference: the same of the other method.
        level: level of the confidence interval.
    """
    differences = [value for value in list_differences(values, reference) if not math.isnan(value)]
    if not differences:
        return None
    sample, bounds = sample_of(differences), interval(differences, level)
    low, high = bounds if bounds else (None, None)
    return Difference(mean_difference(differences), sample.std, sample.n, low, high, signed_rank(differences))
