"""FedWCA with cluster weights computed by each client alone."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, Simplex, State, View
from fedwca.functional import tempered_softmax


@register("wca_l")
class WCAL(Aggregator):
    """The start is sum_c alpha_c f_c over the plain cluster models: no soft models, no beta.

    Source: FedWCA, sec. 4.2 ("Local calculation of cluster weights"), Table 3 (FedWCA-L).
    """

    label = "FedWCA-L"
    paper = "FedWCA sec. 4.2, eq. 1; Table 3"
    reports = {"alpha": Simplex()}

    ta: PositiveFloat = 0.01
    """Temperature of alpha (T_a of eq. 1), in units of a cosine."""

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster model, and all cluster models for everybody."""
        own_cluster = self._cluster_rows(state, len(rows))
        return Offer(personal=own_cluster[:, None], shared=torch.eye(rows.shape[0], dtype=torch.float64))

    def blend(self, round: int, view: View) -> Blend:
        """Eq. 1."""
        alpha = tempered_softmax(view.alignment(view.shared), self.ta)
        return Blend(alpha @ view.shared, report={"alpha": alpha})
