"""Samples pooled from the summaries of groups, as in the paper's tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fedwca.results.statistics import Sample


def pool_samples(groups: Sequence[Sample]) -> Sample:
    """All values of several groups as one sample, from the groups' summaries alone.

    The "Avg." rows of FedWCA's tables are this: mean and standard deviation (ddof 1) over all runs of all sources, so
    that the spread is mostly that between sources.

    >>> pool_samples([Sample(1.0, 0.0, 2), Sample(3.0, 0.0, 2)])
    Sample(mean=2.0, std=1.1547005383792515, n=4)
    """
    total = sum(group.n for group in groups)
    mean = sum(group.n * group.mean for group in groups) / total
    squares = sum((g.n - 1) * (g.std or 0.0) ** 2 + g.n * (g.mean - mean) ** 2 for g in groups)
    return Sample(mean, math.sqrt(squares / (total - 1)) if total > 1 else None, total)
