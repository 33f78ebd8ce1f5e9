"""Each client alone."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.clusterers import register
from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import Signatures


@register("each")
class Each(Clusterer):
    """Each client is its own cluster (C = K)."""

    label = "each alone"

    def __call__(self, signatures: Signatures) -> Tensor:
        """``0..K-1``."""
        return torch.arange(signatures.clients)

    def fewest_clusters(self, clients: int) -> int:
        """K."""
        return clients
