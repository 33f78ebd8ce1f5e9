"""The state of a session between rounds; a checkpoint holds all of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedwca.federated.server import Server
from fedwca.functional import Metric

Names = tuple[str, ...]
"""Names of the clients in the order of their numbers; an empty string where a number is free."""


@dataclass(frozen=True)
class ClusteredClients:
    """The clients that were clustered in round 0; a late client joins the cluster of the nearest of them."""

    numbers: Tensor
    """Their numbers ``[N]`` int64."""
    vectors: Tensor
    """The vectors they were compared by ``[N, …]``."""
    metric: Metric
    """The distance between the vectors."""


@dataclass(frozen=True)
class SessionState:
    """The state of a session after a round."""

    round: int
    """The next round."""
    server: Server
    shares: Tensor
    """Share of each client's last upload in each of the server's rows ``[R, K]``."""
    names: Names
    samples: tuple[int, ...]
    """Number of training images that each client reported; 0: no answer of it was accepted yet."""
    clustered: ClusteredClients | None = None
    """Set from round 1 on if a clusterer groups the clients."""
    waiting: frozenset[int] = frozenset()
    """Clients that joined late and wait for a round in which clients report."""
