"""Cross-entropy on strong views, beside information maximisation on plain ones."""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.functional import information_maximization, weighted_cross_entropy
from fedwca.objectives import register


@register("strong_views")
class StrongViews(Objective):
    """L_IM(plain) + plain · CE(plain) + strong · CE(strong view), all views in one forward pass.

    The strong view counts only for images whose label has full weight (1).
    Source: ours; L_IM and the first CE are SHOT's (FedWCA eq. 9), strong views FixMatch's (Sohn et al., NeurIPS 2020).
    """

    label = "strong views"
    paper = "not published; FedWCA eq. 9 and FixMatch (Sohn et al. 2020)"
    views = ("plain", "strong")

    plain: NonNegativeFloat = 0.3
    """Weight of the cross-entropy on plain images."""
    strong: NonNegativeFloat = 1.0
    """Weight of the cross-entropy on strong views."""
    eps: PositiveFloat = 1e-5
    """Added inside the logarithms of L_IM, as for `shot`."""

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        full_weight = (batch.weights >= 1).to(batch.weights.dtype)
        plain = weighted_cross_entropy(batch.target_logits, batch.labels, batch.weights)
        strong = weighted_cross_entropy(batch.view_logits["strong"], batch.labels, full_weight)
        return information_maximization(batch.logits, eps=self.eps) + self.plain * plain + self.strong * strong
