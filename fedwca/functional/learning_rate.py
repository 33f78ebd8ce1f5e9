"""The learning rate over rounds."""

from __future__ import annotations

import math


def cosine_learning_rate(lr: float, round: int, rounds: int) -> float:
    """Compute a round's learning rate, which falls from ``lr`` to 0 along half a cosine and then stays 0.

    ``lr · (1 + cos(π · round / rounds)) / 2``.

    Source: Loshchilov and Hutter 2017, eq. 5, without restarts.

    Args:
        lr: learning rate of round 0.
        round: counted from 0.
        rounds: number of rounds over which it falls, at least 1.

    Returns:
        From ``lr`` to 0.

    >>> [cosine_learning_rate(2.0, number, 2) for number in range(4)]
    [2.0, 1.0, 0.0, 0.0]
    """
    return lr * (1 + math.cos(math.pi * min(round / rounds, 1))) / 2
