"""IFCA: in each round clients choose the cluster model with the least loss on their images."""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.aggregators import register
from fedwca.core.grouping import ByChoice
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Offer, State, View


@register("ifca")
class IFCA(Aggregator):
    """All cluster models go to everybody; a client trains the one with the least loss on its own images.

    The loss is the client's objective with labels by the candidate model itself. All models begin as the source model,
    so round 0 assigns clients to clusters at random; a cluster that nobody chose keeps its model.
    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020, Algorithm 1.
    """

    label = "IFCA"
    paper = "Ghosh et al. 2020; FedWCA App. E.3, Table 14"
    grouping = ByChoice()

    clusters: PositiveInt = 4
    """Number of cluster models k, which IFCA must be given; presets set the number of target domains by data set."""

    def first_groups(self, clients: int, draws: Tensor) -> Tensor:
        """Random groups, ``clusters`` of them, whose sizes differ by at most one."""
        return draws.argsort(stable=True).argsort(stable=True) % min(self.clusters, clients)

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """All models for everybody."""
        clients, models = len(state["labels"]), rows.shape[0]
        no_personal = torch.zeros(clients, 0, models, dtype=torch.float64)
        return Offer(no_personal, torch.eye(models, dtype=torch.float64))

    def blend(self, round: int, view: View) -> Blend:
        """The model with the least loss, the first of those with equal losses; never one whose loss is NaN."""
        losses = view.loss(view.shared)
        choice = losses.masked_fill(losses.isnan(), torch.inf).argmin(1)
        start = one_hot(choice, view.shared.shape[0]).double() @ view.shared
        return Blend(start, references={"cluster": start}, labels=choice)
