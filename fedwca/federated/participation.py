"""Which clients take part in a round."""

from __future__ import annotations

import builtins

from fedwca.engine.randomness import Keys, permutation


def sample_clients(round: int, clients: int, participation: float, keys: Keys) -> list[int]:
    """Clients that take part in a round: all in round 0, where clusters are made, then a drawn share of them."""
    if round == 0 or participation == 1:
        return list(range(clients))
    number = max(1, builtins.round(participation * clients))
    return sorted(permutation(keys(round, -1, "participation"), clients)[:number].tolist())
