"""IFCA: clients choose, each round, the cluster model that costs them least."""

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

    The loss is the client's objective with labels by the candidate itself. All models begin as the source model, so
    round 0 deals the clients out at random; a cluster nobody chose keeps its model.
    Source: Ghosh et al., An Efficient Framework for Clustered Federated Learning, NeurIPS 2020, Algorithm 1.
    """

    label = "IFCA"
    paper = "Ghosh et al. 2020; FedWCA App. E.3, Table 14"
    grouping = ByChoice()

    clusters: PositiveInt = 4
    """Number of cluster models k, which IFCA has to be told: that of target domains, which presets name by data set."""

    def first(self, clients: int, draws: Tensor) -> Tensor:
        """A random deal into ``clusters`` groups whose sizes differ by one at most."""
        return draws.argsort(stable=True).argsort(stable=True) % min(self.clusters, clients)

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """All models for everybody."""
        clients, models = len(state["labels"]), rows.shape[0]
        nothing = torch.zeros(clients, 0, models, dtype=torch.float64)
        return Offer(nothing, torch.eye(models, dtype=torch.float64))

    def blend(self, round: int, view: View) -> Blend:
        """The model with the least loss; of equals the first."""
        choice = view.loss(view.shared).argmin(1)
        start = one_hot(choice, view.shared.shape[0]).double() @ view.shared
        return Blend(start, references={"cluster": start}, labels=choice)
