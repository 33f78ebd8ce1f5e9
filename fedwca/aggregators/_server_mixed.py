"""Base of aggregators whose start models the server mixes: a client is sent its cluster's model and its start."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View


class ServerMixed(Aggregator):
    """Sends each client its cluster's model and its start model, already mixed (Q = 2, S = 0)."""

    def weights(self, own: Tensor) -> Tensor:
        """Each client's start as a mixture of cluster models ``[K, C]``, from its own cluster, one-hot ``[K, C]``."""
        raise NotImplementedError

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster's model first, the start second."""
        own_cluster = self._cluster_rows(state, len(rows))
        return Offer.of_personal(torch.stack([own_cluster, self.weights(own_cluster)], 1))

    def blend(self, round: int, view: View) -> Blend:
        """The start that the server mixed."""
        return Blend(view.model(1))
