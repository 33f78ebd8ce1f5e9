"""AFL: one model for everybody, trained for the mixture of clients on which its loss is largest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.grouping import OneGroup
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Blend, Bounded, State, View
from fedwca.functional import mixture_ascent


@register("afl")
class AFL(Aggregator):
    """Clients' models are averaged by weights that grow where the model they were sent has a large loss.

    The mean is x = Σ λ_i y_i over the clients that are present; then λ is projected back onto the simplex from
    λ + rate · losses. λ begins uniform, so a rate of 0 is the uniform mean. The loss of an absent client counts as the
    mean of the others'.
    Source: Mohri et al., Agnostic Federated Learning, ICML 2019, Stochastic-AFL, with several local steps as FedTTA
    compares it.
    """

    label = "AFL"
    paper = "Mohri et al., ICML 2019; FedTTA, Table 1"
    grouping = OneGroup()
    reports = {"received_loss": Bounded((1,), math.inf)}

    weighting: Literal["uniform"] = "uniform"
    """Clients are weighted by their losses alone, not by their sizes."""
    rate: NonNegativeFloat = 0.001
    """Step size of the clients' weights (gamma_lambda), in 1/nats."""

    def initial_state(self, clients: int) -> State:
        """Uniform weights of the clients."""
        return {"labels": torch.zeros(clients, dtype=torch.int64), "mixture": _uniform(clients)}

    def blend(self, round: int, view: View) -> Blend:
        """The model that all clients were sent, and its loss on all of the client's images."""
        return Blend(view.own, report={"received_loss": view.loss(view.own[:1])})

    def gather(self, state: State, labels: Tensor, sizes: Tensor, present: Tensor, rows: int) -> Tensor:
        """The mean by the clients' weights; the previous row where all present clients have weight 0."""
        weights = state.get("mixture", _uniform(len(labels))) * present
        total = weights.sum()
        previous = torch.zeros(rows, dtype=torch.float64)
        if total == 0:
            previous[0] = 1
            return torch.cat([previous, weights])[None]
        return torch.cat([previous, weights / total])[None]

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """The weights after a step towards larger losses."""
        mixture = state.get("mixture", _uniform(len(labels)))
        if report:
            losses = report["received_loss"][:, 0].double()
            mixture = mixture_ascent(mixture, torch.where(present, losses, losses[present].mean()), self.rate)
        return {"labels": labels, "mixture": mixture}


def _uniform(clients: int) -> Tensor:
    return torch.full((clients,), 1 / clients, dtype=torch.float64)
