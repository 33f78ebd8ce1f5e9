"""How well a clustering agrees with another one, in plain Python: scikit-learn takes seconds to import."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence


def adjusted_rand_index(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Compute the adjusted Rand index of two clusterings: 1 if they are the same, about 0 if one is drawn at random.

    Source: Hubert and Arabie, Comparing partitions (Journal of Classification 1985), eq. 5.

    Args:
        first: a label for each item.
        second: a label for each of the same items.

    >>> adjusted_rand_index("aabc", "xxyz"), adjusted_rand_index("aabb", "xyxy")
    (1.0, -0.5)
    """
    in_both, in_first, in_second = (_count_pairs(labels) for labels in (zip(first, second, strict=True), first, second))
    pairs = len(first) * (len(first) - 1)
    # The index (agreement - expected) / (greatest - expected), with whole numbers until the division.
    greatest = pairs * (in_first + in_second) - 2 * in_first * in_second
    return 2 * (pairs * in_both - in_first * in_second) / greatest if greatest else 1.0


def normalized_mutual_information(first: Sequence[Hashable], second: Sequence[Hashable]) -> float:
    """Compute the mutual information of two clusterings by the mean of their entropies: 1 if same, 0 if independent.

    Source: Kvalseth, Entropy and correlation (IEEE Transactions on Systems, Man, and Cybernetics 1987).

    Args:
        first: a label for each item.
        second: a label for each of the same items.

    >>> normalized_mutual_information("aabc", "xxyz"), normalized_mutual_information("aabb", "xyxy")
    (1.0, 0.0)
    """
    items, sizes, others = len(first), Counter(first), Counter(second)
    information = math.fsum(
        count / items * math.log(count * items / (sizes[one] * others[other]))
        for (one, other), count in Counter(zip(first, second, strict=True)).items()
    )
    mean_entropy = (_entropy(sizes) + _entropy(others)) / 2
    return min(max(information / mean_entropy, 0.0), 1.0) if mean_entropy else 1.0


def _count_pairs(labels: Iterable[Hashable]) -> int:
    """Ordered pairs of different items with the same label."""
    return sum(count * (count - 1) for count in Counter(labels).values())


def _entropy(sizes: Counter[Hashable]) -> float:
    """Entropy of a clustering in nats."""
    items = sizes.total()
    return math.fsum(count / items * math.log(items / count) for count in sizes.values())
