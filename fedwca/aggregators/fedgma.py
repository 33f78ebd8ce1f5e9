"""FedGMA: clients' changes are averaged, and count less where their signs disagree."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.grouping import OneGroup
from fedwca.core.interfaces import Aggregator
from fedwca.functional import agreement_mask


@register("fedgma")
class FedGMA(Aggregator):
    """One model for everybody, which moves by x - server_lr · m ⊙ Δ.

    Δ = Σ w_k (x - y_k) is the clients' mean change. m is 1 for parameters whose a = |Σ w_k sign(x - y_k)| reaches the
    threshold, and a for the others. With a threshold of 0 and a rate of 1 it is FedAvg.
    Source: Tenison et al., Gradient Masked Averaging for Federated Learning, TMLR 2023, Algorithm 1.
    """

    label = "FedGMA"
    paper = "Tenison et al., TMLR 2023; FedTTA, Table 1"
    grouping = OneGroup()

    weighting: Literal["uniform", "samples"] = "samples"
    """How the mean weighs clients (w_k): by their number of training images, or all alike."""
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Agreement (tau, from 0 to 1) at or above which a parameter moves by its full mean change."""
    server_lr: PositiveFloat = 1.0
    """Factor of the mean change (eta_g)."""

    def server_step(self, rows: Tensor, mixed: Tensor, weights: Tensor, models: Tensor) -> Tensor:
        """The row, moved by the masked mean change."""
        votes = torch.zeros_like(rows, dtype=torch.float64)
        for weight, model in zip(weights[0].tolist(), models, strict=True):
            if weight:
                votes.add_((rows - model).sign(), alpha=weight)
        mask = agreement_mask(votes, self.threshold).to(rows)
        return rows - self.server_lr * mask * (rows - mixed)
