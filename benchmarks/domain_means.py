"""Means of clients' values over all clients and by domain, without clients that have no value; no script."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence


def known_values(values: Iterable[float | None]) -> list[float]:
    """Values of the clients that have one; a missing value is None in files and NaN in records that were read.

    >>> known_values([1.0, None, 2.0, float("nan")])
    [1.0, 2.0]
    """
    return [value for value in values if value is not None and not math.isnan(value)]


def mean_of_known(values: Iterable[float | None]) -> float:
    """Mean over the clients that have a value, to nine decimals: equal shares of images may differ in the last digits.

    >>> mean_of_known([1.0, None, 2.0])
    1.5
    >>> mean_of_known([100 / 3, 200 / 3, 200 / 3]) == mean_of_known([500 / 9])
    True
    """
    return round(statistics.fmean(known_values(values)), 9)


def mean_by_domain(domains: Sequence[str], values: Sequence[float | None]) -> dict[str, float]:
    """Mean over the clients of each domain that have a value.

    Args:
        domains: of each client ``[K]``.
        values: of each client ``[K]``; None where it has none.

    >>> mean_by_domain(["x", "x", "y"], [1.0, 2.0, None])
    {'x': 1.5}
    """
    values_by_domain: dict[str, list[float | None]] = defaultdict(list)
    for domain, value in zip(domains, values, strict=True):
        values_by_domain[domain].append(value)
    return {
        domain: mean_of_known(domain_values)
        for domain, domain_values in values_by_domain.items()
        if known_values(domain_values)
    }
