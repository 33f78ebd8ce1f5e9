"""Equal weights on all cluster models."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.aggregators import register
from fedwca.aggregators._server_mixed import ServerMixed


@register("equal")
class Equal(ServerMixed):
    """Weight 1/C on every cluster model, whatever its size.

    Source: FedWCA, sec. 5.2.1, Table 3 (Equal).
    """

    label = "Equal"
    paper = "FedWCA sec. 5.2.1, Table 3"

    def weights(self, own: Tensor) -> Tensor:
        """``1/C`` everywhere."""
        return torch.full_like(own, 1 / own.shape[1])
