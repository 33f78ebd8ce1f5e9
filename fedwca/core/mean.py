"""A mean that leaves out NaN."""

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
