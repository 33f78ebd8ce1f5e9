"""SHOT's objective: information maximisation and cross-entropy on pseudo-labels (eq. 9)."""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.functional import information_maximization, weighted_cross_entropy
from fedwca.objectives import register


@register("shot")
class Shot(Objective):
    """L_IM on the plain images + lambda · L_CE on the labelled ones, each over the mini-batch.

    Source: Liang et al. (SHOT), ICML 2020; FedWCA App. B.4, eq. 9.
    """

    label = "SHOT"
    paper = "Liang et al. 2020; FedWCA eq. 9"

    lam: NonNegativeFloat = 0.1
    """Weight of the cross-entropy (lambda of eq. 9)."""
    im: NonNegativeFloat = 1.0
    """Weight of the information maximisation; 0 switches it off."""
    eps: PositiveFloat = 1e-5
    """Added inside the logarithms, as SHOT's code does."""

    def __call__(self, batch: Batch) -> Tensor:
        """Eq. 9 on one batch."""
        ce = weighted_cross_entropy(batch.target_logits, batch.labels, batch.weights)
        return self.im * information_maximization(batch.logits, eps=self.eps) + self.lam * ce
