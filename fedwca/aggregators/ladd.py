"""LADD's server: cluster averages, and a running average of each as its teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.aggregators import register
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View


@register("ladd")
class LaddAggregator(Aggregator):
    """Clients start from their cluster's model; beside it they are sent a teacher, the mean of that model over rounds.

    Rows are the C cluster models and then the C teachers. Everything but the classifier is averaged per cluster, as in
    LADD (all). A cluster without a present client keeps its model and its teacher; LADD's code hands it the global one.
    Source: Shenaj et al., Learning Across Domains and Devices, WACV 2023, sec. 4; FedWCA sec. 5 and Table 6.
    """

    label = "LADD"
    paper = "Shenaj et al. 2023, sec. 4; FedWCA sec. 5"
    references = ("start", "cluster", "source", "teacher")

    weighting: Literal["uniform", "samples"] = "samples"
    """How a cluster's mean weighs its clients: by their number of training images, or all alike."""
    start: NonNegativeInt = 5
    """First round whose cluster models enter the teacher; before, it is the cluster's model. 0: no teacher."""

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """``[2C, R+K]``: the mean of each cluster, then teachers n/(n+1) · teacher + 1/(n+1) · cluster model."""
        clusters = int(labels.max()) + 1 if rows == 1 else rows // 2
        own = super().gather({}, labels, sizes, present, 1 if rows == 1 else clusters)
        kept = own.shape[1] - len(labels)
        own = torch.cat([own[:, :kept], own.new_zeros(clusters, rows - kept), own[:, kept:]], 1)
        if rows == 1:
            return torch.cat([own, own])
        count = state["averaged"].double()[:, None]
        teachers = torch.eye(rows, rows + len(labels), dtype=own.dtype)[clusters:]
        here = self._here(labels, present, clusters)[:, None]
        return torch.cat([own, torch.where(here, (count * teachers + own) / (count + 1), teachers)])

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """The own cluster's model, and its teacher where that is another one."""
        own = one_hot(state["labels"], rows.shape[0]).double()
        teacher = own.roll(rows.shape[0] // 2, 1)
        differs = self.start > 0 and bool((state["averaged"] > 1).any())  # a mean of one model is that model
        return Offer.of_personal(torch.stack([own, teacher], 1) if differs else own)

    def blend(self, round: int, view: View) -> Blend:
        """The cluster's model; the teacher is there to be asked."""
        teacher = view.model(1) if view.own.shape[-1] > 1 else view.own
        return Blend(view.own, references={} if self.start == 0 else {"teacher": teacher})

    def learn(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """Rounds played, and models in each teacher's mean."""
        played = state.get("played", torch.tensor(0))
        averaged = state.get("averaged", torch.zeros(int(labels.max()) + 1, dtype=torch.int64))
        begun = 0 < self.start <= int(played)
        here = self._here(labels, present, len(averaged))
        return {"labels": labels, "played": played + 1, "averaged": averaged + here * begun}

    def _here(self, labels: Tensor, present: Tensor, clusters: int) -> Tensor:
        return labels[present].bincount(minlength=clusters) > 0
