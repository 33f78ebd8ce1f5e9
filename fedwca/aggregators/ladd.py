"""LADD's server: cluster averages, and a running average of each as its teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View


@register("ladd")
class LaddAggregator(Aggregator):
    """Clients start from their cluster's model; beside it they are sent a teacher, the mean of that model over rounds.

    Server rows are the C cluster models, then the C teachers. Everything but the classifier is averaged per cluster, as
    in LADD (all). A cluster without a present client keeps its model and its teacher; LADD's code gives it the global
    one.
    Source: Shenaj et al., Learning Across Domains and Devices, WACV 2023, sec. 4; FedWCA sec. 5 and Table 6.
    """

    label = "LADD"
    paper = "Shenaj et al. 2023, sec. 4; FedWCA sec. 5"
    references = ("start", "cluster", "source", "teacher")

    weighting: Literal["uniform", "samples"] = "samples"
    """How a cluster's mean weighs its clients: by their number of training images, or all alike."""
    start: NonNegativeInt = 5
    """First round whose cluster models enter the teacher; before, the teacher is the cluster's model. 0: no teacher."""

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """``[2C, R+K]``: the mean of each cluster, then teachers n/(n+1) · teacher + 1/(n+1) · cluster model."""
        clusters = int(labels.max()) + 1 if rows == 1 else rows // 2
        means = super().gather({}, labels, sizes, present, 1 if rows == 1 else clusters)
        previous_columns = means.shape[1] - len(labels)
        means = torch.cat(
            [
                means[:, :previous_columns],
                means.new_zeros(clusters, rows - previous_columns),
                means[:, previous_columns:],
            ],
            1,
        )
        if rows == 1:
            return torch.cat([means, means])
        count = state["averaged"].double()[:, None]
        teachers = torch.eye(rows, rows + len(labels), dtype=means.dtype)[clusters:]
        has_present = self._here(labels, present, clusters)[:, None]
        return torch.cat([means, torch.where(has_present, (count * teachers + means) / (count + 1), teachers)])

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster's model, and its teacher where that may differ from it."""
        own_cluster = self._cluster_rows(state, len(rows))
        teacher = own_cluster.roll(rows.shape[0] // 2, 1)
        differs = self.start > 0 and bool((state["averaged"] > 1).any())  # the mean of a single model is that model
        return Offer.of_personal(torch.stack([own_cluster, teacher], 1) if differs else own_cluster)

    def blend(self, round: int, view: View) -> Blend:
        """Start from the cluster's model, with the teacher as a reference."""
        teacher = view.model(1) if view.own.shape[-1] > 1 else view.own
        return Blend(view.own, references={} if self.start == 0 else {"teacher": teacher})

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """Count the rounds, and the models in each teacher's mean."""
        played = state.get("played", torch.tensor(0))
        averaged = state.get("averaged", torch.zeros(int(labels.max()) + 1, dtype=torch.int64))
        started = 0 < self.start <= int(played)
        has_present = self._here(labels, present, len(averaged))
        return {"labels": labels, "played": played + 1, "averaged": averaged + has_present * started}

    def _here(self, labels: Tensor, present: Tensor, clusters: int) -> Tensor:
        return labels[present].bincount(minlength=clusters) > 0
