"""FedAMP: every client is drawn towards a mixture of the models that are near its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import PositiveFloat
from torch import Tensor

from fedwca.aggregators import register
from fedwca.core.grouping import EachAlone
from fedwca.core.interfaces import Aggregator
from fedwca.core.messages import Offer, State

COLUMNS = 1 << 18
"""Values of a model that are compared at once, so that no copy of all models in float64 is made."""


@register("fedamp")
class FedAMP(Aggregator):
    """Client i starts from its cloud model u_i = (1 - sum_j xi_ij) w_i + sum_j xi_ij w_j and ends with its own w_i.

    xi_ij = alpha/(K-1) · exp(-x/sigma)/sigma with x = |w_i - w_j|² in units of the median over pairs; where a row's sum
    exceeds 1 it is scaled to 1. Combine with the objective ``proximal`` for the term that keeps w_i near u_i.
    Source: Huang et al., Personalized Cross-Silo Federated Learning on Non-IID Data, AAAI 2021, eqs. 3-5.
    """

    label = "FedAMP"
    paper = "Huang et al. 2021; FedWCA App. E.3, Table 14"
    grouping = EachAlone()

    sigma: PositiveFloat = 1.0
    """Width of the attention, in median squared distances; of the two in the middle the lower counts."""
    alpha: PositiveFloat = 1.0
    """Step towards the others (alpha_k times K-1 in the paper's notation)."""

    def offer(self, state: State, round: int, rows: Tensor) -> Offer:
        """One mixture for each client, by the distances between the models that the server holds."""
        all_clients = torch.ones(rows.shape[0], dtype=torch.bool)
        uploaded = state.get("heard", all_clients)  # for the others the server holds only the source model
        clients = int(uploaded.sum())
        distances = _square_distances(rows).cpu()
        pairs = uploaded & uploaded[:, None] & ~torch.diag(all_clients)
        median = distances[pairs].median() if clients > 1 else torch.tensor(1.0, dtype=torch.float64)
        x = distances / median.clamp_min(torch.finfo(torch.float64).tiny)
        xi = torch.where(pairs, torch.exp(-x / self.sigma) / self.sigma, 0.0) * self.alpha / max(1, clients - 1)
        xi = xi / xi.sum(1, keepdim=True).clamp_min(1.0)
        cloud = xi + torch.diag((1 - xi.sum(1)).clamp_min(0))
        return Offer.of_personal(cloud)

    def next_state(self, state: State, labels: Tensor, report: Mapping[str, Tensor], present: Tensor) -> State:
        """Remember who ever uploaded a model; a checkpoint of an earlier release lacks this and counts all clients."""
        default = torch.full_like(present, "labels" in state)
        return {"labels": labels, "heard": state.get("heard", default) | present}


def _square_distances(rows: Tensor) -> Tensor:
    """Squared Euclidean distances ``[K, K]`` in float64 between the rows ``[K, P]``."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for columns in rows.split(COLUMNS, dim=1):
        part = columns.double()
        # Not by a matrix product, whose bits depend on the number of threads.
        total += torch.cdist(part, part, compute_mode="donot_use_mm_for_euclid_dist").square()
    return total
