"""Which clients take part in a round."""

from __future__ import annotations

from fedwca.engine.randomness import Keys, permutation


def sample_clients(
    round: int, clients: int, participation: float, keys: Keys, least: int = 1, repeats: int = 0
) -> list[int]:
    """Clients that take part: all in round 0, where clusters are made, later a random share, at least ``least``.

    Args:
        round: r, counted from 0.
        clients: number of clients to draw from.
        participation: the share, above 0 and at most 1.
        keys: of the run's random draws.
        least: smallest number of clients that are drawn.
        repeats: how often the round was repeated; each repeat draws anew, as those drawn before did not answer.
    """
    if round == 0 or participation == 1:
        return list(range(clients))
    count = max(least, count_sampled(clients, participation))
    return sorted(permutation(keys(round, -1, f"participation{repeats or ''}"), clients)[:count].tolist())


def count_sampled(clients: int, participation: float) -> int:
    """How many clients take part in each round after the first.

    >>> [count_sampled(10, share) for share in (0.01, 0.3, 1.0)]
    [1, 3, 10]
    """
    return max(1, round(participation * clients))
