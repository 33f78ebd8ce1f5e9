"""Long-tailed selections of images: the higher the number of a class, the fewer images it keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedwca.errors import UsageError
from fedwca.functional.shard_partition import Positions


def long_tail(labels: NDArray[Any], classes: int, ratio: float, random: Generator, reverse: bool = False) -> Positions:
    """Choose ``floor(n_c · ratio^(-c / (M - 1)))`` of the n_c images of each class c, at least one if it has any.

    Source: Cui et al., CVPR 2019 (class-balanced loss), sec. 5.1: exponentially fewer images per class.

    Args:
        labels: ``[N]`` int64, 0…M-1.
        classes: M.
        ratio: 1 or more: images of class 0 over images of the last class, if all classes have equally many before.
        random: draws the chosen images.
        reverse: whether the last class keeps all of its images, and class 0 is the rarest.

    Returns:
        Ascending positions of the chosen images.

    Raises:
        UsageError: ``ratio`` is below 1.

    >>> labels = np.repeat(np.arange(3), 100)
    >>> np.bincount(labels[long_tail(labels, 3, 100.0, np.random.default_rng(0))]).tolist()
    [100, 10, 1]
    """
    if not 1 <= ratio < np.inf:
        raise UsageError(f"ratio must be 1 or more, not {ratio}")
    chosen = []
    for label in range(classes):
        positions = np.flatnonzero(labels == label)
        rank = classes - 1 - label if reverse else label
        # 1e-9: a whole number by the formula may come out just below it in floating point.
        number = int(len(positions) * ratio ** (-rank / max(1, classes - 1)) + 1e-9)
        chosen.append(random.permutation(positions)[: max(1, number)])
    return np.sort(np.concatenate([*chosen, np.zeros(0, np.int64)]))
