"""Which clients take part in a round."""

from __future__ import annotations

from fedwca.engine.randomness import Keys, permutation


def sample_clients(round: int, clients: int, participation: float, keys: Keys, least: int = 1) -> list[int]:
    """Clients that take part: all in round 0, where clusters are made, later a random share, at least ``least``."""
    if round == 0 or participation == 1:
        return list(range(clients))
    count = max(least, count_sampled(clients, participation))
    return sorted(permutation(keys(round, -1, "participation"), clients)[:count].tolist())


def count_sampled(clients: int, participation: float) -> int:
    """How many clients take part in each round after the first.

    >>> [count_sampled(10, share) for share in (0.01, 0.3, 1.0)]
    [1, 3, 10]
    """
    return max(1, round(participation * clients))
