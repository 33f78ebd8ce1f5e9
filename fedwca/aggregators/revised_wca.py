"""FedWCA whose cluster weights are computed by clients in one round of U and reused by the server in the others."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.aggregators import register
from fedwca.aggregators.wca import WCA
from fedwca.core.messages import Blend, Bounded, Offer, Simplex, State, View
from fedwca.functional import blend_weights


@register("revised_wca")
class RevisedWCA(WCA):
    """In reused rounds each client is sent two models: own cluster's, and the start mixed with its last weights v_k.

    Blocks of U rounds begin at round 1; their first round is FedWCA's own.
    Source: FedWCA, App. D, Table 10.
    """

    label = "Revised FedWCA"
    paper = "FedWCA App. D, eq. 8, Table 10"

    u: PositiveInt = 5
    """U, rounds that share one computation of weights; 1 is FedWCA."""

    def _reused(self, round: int) -> bool:
        return (round - 1) % self.u != 0

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """As FedWCA; in reused rounds the own cluster model and the start that the server mixed."""
        if not self._reused(round):
            return super().offer(state, round, rows)
        own_cluster = self._cluster_rows(state, len(rows))
        return Offer.of_personal(torch.stack([own_cluster, state["v"]], 1))

    def blend(self, round: int, view: View) -> Blend:
        """As FedWCA; in reused rounds the start that the server mixed."""
        return Blend(view.model(1)) if self._reused(round) else super().blend(round, view)

    def expected_reports(self, round: int) -> Mapping[str, Simplex | Bounded]:
        """As FedWCA; nothing in reused rounds."""
        return {} if self._reused(round) else self.reports

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """Remember v_k (eq. 8, with the soft models that the clients used) besides what FedWCA remembers."""
        learned = super().next_state(state, labels, report, present)
        own_cluster = one_hot(labels, len(learned["soft"])).double()
        if not report:
            return {"v": own_cluster, **learned}
        v = blend_weights(own_cluster, report["alpha"].nan_to_num(), report["beta"].nan_to_num(), state["soft"])
        return {**learned, "v": torch.where(present[:, None], v, state["v"])}
