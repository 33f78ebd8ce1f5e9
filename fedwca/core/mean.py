"""A mean that leaves out NaN, and comparisons of means that pass over rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable

ROUNDING = 5e-10
"""Accuracies, in percent, that differ by less are equal: they are shares of whole images, and the last digits of sums
deviate."""


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN if there are none.

    >>> mean([1.0, float("nan"), 3.0])
    2.0
    """
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else math.nan


def without_rounding(difference: float) -> float:
    """The difference of two means; 0, without a sign, if it is below `ROUNDING`.

    >>> without_rounding(0.3 - (0.1 + 0.2)), without_rounding(-1.0)
    (0.0, -1.0)
    """
    return 0.0 if abs(difference) < ROUNDING else difference


def is_lower(value: float, other: float) -> bool:
    """Whether a mean is lower than another by more than rounding; False if one is NaN.

    >>> before, after = mean([100.0, 0.0, 0.0, 200 / 3, 0.0]), mean([50 / 3, 50 / 3, 250 / 3, 0.0, 50.0])
    >>> after < before, is_lower(after, before), is_lower(1.0, 2.0)
    (True, False, True)
    """
    return without_rounding(value - other) < 0
