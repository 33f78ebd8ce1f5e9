"""What tables of single pieces share: means of clients' values by domain; no script."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence


def mean_by_domain(domains: Sequence[str], values: Sequence[float | None]) -> dict[str, float]:
    """Mean over the clients of each domain that have a value.

    Args:
        domains: of each client ``[K]``.
        values: of each client ``[K]``; None where it has none.

    >>> mean_by_domain(["x", "x", "y"], [1.0, 2.0, None])
    {'x': 1.5}
    """
    own: dict[str, list[float]] = defaultdict(list)
    for domain, value in zip(domains, values, strict=True):
        if value is not None:
            own[domain].append(value)
    return {domain: statistics.fmean(some) for domain, some in own.items()}
