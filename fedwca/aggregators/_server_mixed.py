"""Starts that the server can mix by itself: each client is sent its cluster's model and its start."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View


class ServerMixed(Aggregator):
    """Sends own cluster model and ready start (Q = 2, S = 0)."""

    def weights(self, own: Tensor) -> Tensor:
        """The starts as mixtures of cluster models ``[K, C]``, from one-hot clusters ``[K, C]``."""
        raise NotImplementedError

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster's model first, the ready start second."""
        own = one_hot(state["labels"], rows.shape[0]).double()
        return Offer.of_personal(torch.stack([own, self.weights(own)], 1))

    def blend(self, round: int, view: View) -> Blend:
        """The ready one."""
        return Blend(view.model(1))
