"""How many ranks share a trial's clients, and how many trials one rank carries at once."""

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


def together_at_most(ranks: int, federations: int, methods: int, asked: int | None) -> int:
    """The most federations that can go through rounds together and leave every rank something to do.

    Args:
        ranks: in the world.
        federations: source models times trials.
        methods: those with rounds.
        asked: ranks that share a trial's clients, as the user wants it.

    >>> [together_at_most(ranks, 15, 2, None) for ranks in (1, 2, 4, 64)]
    [15, 15, 7, 1]
    """
    if per_trial(ranks, federations * methods, asked) > 1:
        return 1
    return min(federations, max(1, federations * methods // ranks))
