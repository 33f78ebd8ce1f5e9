"""FedPer: clients share the first layers, and each has last layers of its own."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from fedwca.aggregators import register
from fedwca.core.aggregator import checked_client_weights
from fedwca.core.grouping import OneGroup
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Offer, State
from fedwca.functional import cluster_means


@register("fedper")
class FedPer(Aggregator):
    """Clients' models are averaged except for the last layers, which stay; a server row is one client's whole model.

    Source: Arivazhagan et al., Federated Learning with Personalization Layers, 2019. What a new client gets is FedTTA's
    PFL-Sampled and PFL-Ensemble.
    """

    label = "FedPer"
    paper = "Arivazhagan et al. 2019; FedTTA, Table 1 (PFL-Sampled, PFL-Ensemble)"
    grouping = OneGroup()

    weighting: Literal["uniform", "samples"] = "samples"
    """How the mean weighs clients: by their number of training images, or all alike."""
    layers: Annotated[int, Field(ge=1, le=2)] = 1
    """Last layers that stay with their client: the classifier, or the one before it too."""
    new: Literal["sampled", "mean"] = "sampled"
    """A new client's last layers: those of one client, drawn for it once, or the mean of all clients'. With one layer,
    which is linear, the mean's outputs are the mean of all clients' outputs."""

    @property
    def local_layers(self) -> int:  # type: ignore[override]
        """The last layers."""
        return self.layers

    def count_rows(self, clients: int, domains: int) -> int:
        """One row for each client."""
        return clients

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """The same mean for everybody; the previous rows where nobody with a weight is present."""
        weights = checked_client_weights(self, sizes)
        means = cluster_means(torch.zeros_like(labels), 1, weights, present).expand(len(labels), -1)
        previous = torch.eye(rows, dtype=means.dtype)[torch.arange(len(labels)) % rows]
        return torch.cat([previous * (means.sum(1, keepdim=True) == 0), means], 1)

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """Each client's own model."""
        return Offer.of_personal(torch.eye(len(rows), dtype=torch.float64))

    def deliver(self, state: State, rows: int) -> Tensor:
        """Each client's own model."""
        return torch.eye(rows, dtype=torch.float64)

    def deliver_new(self, rows: int, draws: Tensor) -> Tensor:
        """The model of a drawn client, or the mean of all clients' models; their shared layers are the same."""
        if self.new == "mean":
            return torch.full((len(draws), rows), 1 / rows, dtype=torch.float64)
        return one_hot((draws * rows).long(), rows).double()
