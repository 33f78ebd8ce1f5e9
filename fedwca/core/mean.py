"""The mean over what is known."""

from __future__ import annotations

import math
from collections.abc import Iterable


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN where none is left.

    >>> mean([1.0, float("nan"), 3.0])
    2.0
    """
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
