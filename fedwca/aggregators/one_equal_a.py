"""A mixture of One-hot and Equal, with weights that each client computes."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.aggregators._server_mixed import ServerMixed
from fedwca.core.messages import Blend, Simplex, View
from fedwca.functional import tempered_softmax


@register("one_equal_a")
class OneEqualA(ServerMixed):
    """beta_0 · own cluster model + beta_1 · mean of all cluster models, beta by SND (eq. 3).

    Source: FedWCA, sec. 5.2.1, Table 3 (One-Equal-A).
    """

    label = "One-Equal-A"
    paper = "FedWCA sec. 5.2.1, Table 3; eq. 3"
    reports = {"beta": Simplex(2)}

    tb: PositiveFloat = 0.05
    """Temperature of beta, in nats."""

    def weights(self, own: Tensor) -> Tensor:
        """``1/C`` everywhere: the second model that is sent is the mean."""
        return torch.full_like(own, 1 / own.shape[1])

    def blend(self, round: int, view: View) -> Blend:
        """Eq. 3 on the two models that were sent."""
        mean = view.model(1)
        beta = tempered_softmax(torch.stack([view.density(view.own), view.density(mean)], 1), self.tb)
        return Blend(beta[:, :1] * view.own + beta[:, 1:] * mean, report={"beta": beta})
