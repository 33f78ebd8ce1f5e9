"""Counts of communications for methods with several labelled sources.

Source: SFDA with MDMGB, sec. 4.6 and Table 4, which prints numbers without a rule. Both rules here are inferred from
them: for SFDA, models sent up or down count once for all clients together.
"""

from __future__ import annotations

from fedwca.errors import UsageError


def sfda(epochs: int, r: float) -> int:
    """Communications as Table 4 seems to count them: models up and the aggregated model down, r times an epoch.

    Args:
        epochs: E.
        r: aggregations per epoch.

    Raises:
        UsageError: r times the epochs is no whole number above 0, so no aggregation follows the last epoch.

    >>> [sfda(epochs, 0.2) for epochs in (45, 90, 135, 180)]
    [18, 36, 54, 72]
    """
    rounds = epochs * r
    if rounds < 0.5 or abs(rounds - round(rounds)) > 1e-6:
        raise UsageError(
            f"{epochs} epochs with {r:g} aggregations each are {rounds:g} aggregations; a whole number above 0 is right"
        )
    return 2 * round(rounds)


def sfda_with_evidence(epochs: int, r: float) -> int:
    """The same count, with what sec. 3.2 also sends: the uniform mean down to sources and target, and centroids up.

    >>> sfda_with_evidence(45, 0.2)
    36
    """
    return 2 * sfda(epochs, r)


def fada(epochs: int, smallest: int, batch: int) -> int:
    """FADA's communications: three per step, with as many steps per epoch as the smallest domain has full batches.

    Inferred: 7,438 images of USPS and batches of 64 give Table 4's numbers exactly.

    Args:
        epochs: E.
        smallest: training images of the smallest domain.
        batch: images per step.

    >>> [fada(epochs, 7438, 64) for epochs in (45, 90, 135, 180)]
    [15660, 31320, 46980, 62640]
    """
    return 3 * (smallest // batch) * epochs
