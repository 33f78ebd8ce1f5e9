"""How tables are made of runs: means, spreads, paired differences, an interval and a test; plain numbers in and out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

FEWEST = 6
"""Pairs that the signed-rank test needs: with 5 its smallest two-sided p is 0.0625, so it could never say anything."""

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Sample:
    """Values in short; accuracies in percent, differences in points."""

    mean: float
    std: float | None
    """Standard deviation (ddof 1); None for a single value."""
    n: int


@dataclass(frozen=True)
class Difference:
    """One method minus another over the runs that both have; points."""

    mean: float
    std: float | None
    n: int
    low: float | None
    """Lower end of the interval; None for a single pair."""
    high: float | None
    p: float | None
    """Wilcoxon signed-rank, two-sided; None for fewer than `FEWEST` pairs."""


def deviation(values: Sequence[float]) -> float | None:
    """Sample standard deviation (ddof 1) of the values that are not NaN, None for fewer than two.

    >>> deviation([1.0, 3.0])
    1.4142135623730951
    """
    known = [value for value in values if not math.isnan(value)]
    return statistics.stdev(known) if len(known) > 1 else None


def sample_of(values: Sequence[float]) -> Sample:
    """Mean, standard deviation (ddof 1) and number of the values that are not NaN.

    >>> sample_of([1.0, 2.0, 3.0])
    Sample(mean=2.0, std=1.0, n=3)
    """
    known = [value for value in values if not math.isnan(value)]
    return Sample(statistics.fmean(known) if known else math.nan, deviation(known), len(known))


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Student's t interval of the mean, two-sided; None for fewer than two values.

    >>> [round(end, 3) for end in interval([1.0, 2.0, 3.0])]
    [-0.484, 4.484]
    """
    from scipy.stats import t

    found = sample_of(values)
    if found.std is None:
        return None
    half = float(t.ppf((1 + level) / 2, found.n - 1)) * found.std / math.sqrt(found.n)
    return found.mean - half, found.mean + half


def signed_rank(values: Sequence[float]) -> float | None:
    """Two-sided p of Wilcoxon's signed-rank test that differences are symmetric around 0; None for fewer than 6.

    Differences of 0, but for rounding, are left out (Wilcoxon's own way); where all are 0, p is 1. p is exact
    without ties, and with them up to 15 differences; beyond that it is the normal approximation.

    >>> signed_rank([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    0.03125
    """
    from scipy.stats import wilcoxon

    known = [value for value in values if not math.isnan(value)]
    if len(known) < FEWEST:
        return None
    # Shares of whole images: differences that are equal, or none, come out of sums a few last digits apart.
    moved = [value for value in (round(value, 9) for value in known) if value != 0]
    if not moved:
        return 1.0
    if len({abs(value) for value in moved}) == len(moved):
        return float(wilcoxon(moved, method="exact").pvalue)
    return _count_patterns(moved) if len(moved) <= 15 else float(wilcoxon(moved, method="approx").pvalue)


def _count_patterns(moved: Sequence[float]) -> float:
    """`signed_rank` where ties change the distribution of the rank sum: over all 2^n patterns of signs.

    SciPy's own count of them calls its statistic once a pattern, which takes a third of a second.

    >>> _count_patterns([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    0.03125
    """
    import numpy as np
    from scipy.stats import rankdata

    ranks, sums = rankdata(np.abs(moved)), np.zeros(1)
    for rank in ranks:  # halves of whole numbers, so that sums are exact
        sums = np.concatenate([sums, sums + rank])
    found = ranks[np.asarray(moved) > 0].sum()
    return min(1.0, 2 * float(min((sums <= found).mean(), (sums >= found).mean())))


def list_differences(values: Mapping[Key, float], reference: Mapping[Key, float]) -> list[float]:
    """Differences ``values - reference`` over the keys that both have."""
    return [value - reference[run] for run, value in values.items() if run in reference]


def paired_difference(
    values: Mapping[Key, float], reference: Mapping[Key, float], level: float = 0.95
) -> Difference | None:
    """Differences ``values - reference`` over the keys that both have; None where there is none.

    Args:
        values: a method's mean over clients by run, such as (source, source model, trial).
        reference: the other method's.
        level: of the interval.
    """
    paired = [value for value in list_differences(values, reference) if not math.isnan(value)]
    if not paired:
        return None
    found, ends = sample_of(paired), interval(paired, level)
    low, high = ends if ends else (None, None)
    return Difference(found.mean, found.std, found.n, low, high, signed_rank(paired))
