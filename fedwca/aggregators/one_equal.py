"""A fixed weight on the own cluster model, equal weights on the others."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedwca.aggregators import register
from fedwca.aggregators._server_mixed import ServerMixed


@register("one_equal")
class OneEqual(ServerMixed):
    """Weight p on the own cluster model, (1 - p)/(C - 1) on each other one.

    Source: FedWCA, sec. 5.2.1, Table 3 (One-Equal).
    """

    label = "One-Equal"
    paper = "FedWCA sec. 5.2.1, Table 3"

    p: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Weight of the own cluster; 1 where there is only one."""

    def weights(self, own: Tensor) -> Tensor:
        """``p`` where ``own`` is 1."""
        clusters = own.shape[1]
        return own if clusters == 1 else own * self.p + (1 - own) * (1 - self.p) / (clusters - 1)
