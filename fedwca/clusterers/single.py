"""All clients in one cluster."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.clusterers import register
from fedwca.core.interfaces import Clusterer
from fedwca.core.messages import Signatures


@register("single")
class Single(Clusterer):
    """One cluster of all clients: any cluster aggregator becomes its federated average."""

    label = "one cluster"

    def __call__(self, signatures: Signatures) -> Tensor:
        """All zeros ``[K]``."""
        return torch.zeros(signatures.clients, dtype=torch.int64)
