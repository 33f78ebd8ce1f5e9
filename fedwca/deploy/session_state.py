"""What a session remembers between rounds: all that a restart needs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedwca.federated.server import Server
from fedwca.functional import Metric

Names = tuple[str, ...]
"""Names of the clients by their number; empty where a number is free."""


@dataclass(frozen=True)
class ClusteredClients:
    """The clients that clusters were made of in round 0; a late one joins the cluster of the nearest of them."""

    numbers: Tensor
    """``[N]`` int64."""
    vectors: Tensor
    """``[N, …]``: what they were compared by."""
    metric: Metric
    """How."""


@dataclass(frozen=True)
class SessionState:
    """Plain values."""

    round: int
    """The next one."""
    server: Server
    shares: Tensor
    """Share of each client's last upload in each of the server's rows ``[R, K]``."""
    names: Names
    samples: tuple[int, ...]
    """Training images each client named; 0: none yet."""
    clustered: ClusteredClients | None = None
    """From round 1 on, where a clusterer groups the clients."""
    waiting: frozenset[int] = frozenset()
    """Clients that joined late and wait for a round in which clients report."""
