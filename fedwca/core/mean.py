"""A mean that leaves out NaN, and a comparison of means."""

from __future__ import annotations

import math
from collections.abc import Iterable


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN if there are none.

    >>> mean([1.0, float("nan"), 3.0])
    2.0
    """
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else math.nan


def is_lower(value: float, other: float) -> bool:
    """Whether a mean is lower than another by more than rounding; False if one is NaN.

    Accuracies are shares of whole images, so that means over clients are often equal, but for the last digits of sums.

    >>> before, after = mean([100.0, 0.0, 0.0, 200 / 3, 0.0]), mean([50 / 3, 50 / 3, 250 / 3, 0.0, 50.0])
    >>> after < before, is_lower(after, before), is_lower(1.0, 2.0)
    (True, False, True)
    """
    return round(value - other, 9) < 0
