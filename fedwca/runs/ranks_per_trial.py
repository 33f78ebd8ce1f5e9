"""How many ranks share a trial's clients."""

from __future__ import annotations


def per_trial(ranks: int, units: int, asked: int | None) -> int:
    """Ranks that share the clients of one method on one federation: trials first, clients with what is left.

    Args:
        ranks: in the world.
        units: methods with rounds, times source models, times trials.
        asked: by the user; divides ``ranks``.

    >>> [per_trial(8, units, None) for units in (1, 3, 8, 20)]
    [8, 4, 1, 1]
    """
    return asked or next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= max(1, units))
