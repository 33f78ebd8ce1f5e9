"""Number of ranks that share a trial's clients."""

from __future__ import annotations


def per_trial(ranks: int, units: int, requested: int | None) -> int:
    """Number of ranks that share the clients of one unit; ranks are spread over units first.

    Args:
        ranks: number of ranks in the world.
        units: number of methods with rounds, times source models, times trials.
        requested: the user's choice, a divisor of ``ranks``; None: the smallest divisor that leaves no subgroup idle.

    >>> [per_trial(8, units, None) for units in (1, 3, 8, 20)]
    [8, 4, 1, 1]
    """
    return requested or next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= max(1, units))
