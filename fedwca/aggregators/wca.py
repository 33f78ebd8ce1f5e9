"""Weighted cluster aggregation (FedWCA)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, Simplex, State, View
from fedwca.functional import soft_cluster_weights, tempered_softmax


@register("wca")
class WCA(Aggregator):
    """Every client starts from a mixture of its own cluster model and all soft cluster models.

    Source: FedWCA, sec. 4.2, eqs. 1-3 and 7-8, Algorithm 1.
    """

    label = "FedWCA"
    paper = "FedWCA sec. 4.2, eqs. 1-3, 7-8"
    reports = {"alpha": Simplex(), "beta": Simplex(2)}

    ta: PositiveFloat = 0.01
    """Temperature of alpha (T_a of eq. 1), in units of a cosine; towards 0 only the best aligned cluster counts."""
    tb: PositiveFloat = 0.05
    """Temperature of beta (T_b of eq. 3), in nats; towards 0 the denser of own and mixed model gets all weight."""
    direction: Literal["column", "row"] = "column"
    """Reading of A in eq. 2: column, what other clusters gain (the paper's text); row, the cluster's own preference."""

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster model, and all soft cluster models for everybody."""
        own_cluster = self._cluster_rows(state, len(rows))
        return Offer(personal=own_cluster[:, None], shared=state["soft"])

    def blend(self, round: int, view: View) -> Blend:
        """Eqs. 1, 3 and the first line of eq. 7."""
        alpha = tempered_softmax(view.alignment(view.shared), self.ta)
        mixed = alpha @ view.shared
        scores = torch.stack([view.density(view.own), view.density(mixed)], 1)
        beta = tempered_softmax(scores, self.tb)
        start = beta[:, :1] * view.own + beta[:, 1:] * mixed
        return Blend(start, report={"alpha": alpha, "beta": beta})

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """Eq. 2; until clients have reported, soft models are the cluster models (Algorithm 1, line 10).

        A client that is absent counts with what it reported last; one that never reported does not count.
        """
        if not report:
            return {"soft": torch.eye(int(labels.max()) + 1, dtype=torch.float64), **state, "labels": labels}
        previous = {name: state.get(name, torch.full_like(value, torch.nan)) for name, value in report.items()}
        latest = {name: torch.where(present[:, None], report[name], previous[name]) for name in report}
        reported = ~latest["beta"].isnan().any(1)
        soft = soft_cluster_weights(latest["alpha"], latest["beta"], labels, self.direction, reported)
        return {**state, "labels": labels, "soft": soft, **latest}
