"""TENT: the entropy of the outputs."""

from __future__ import annotations

from torch import Tensor

from fedwca.adaptations import register
from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.functional import prediction_entropy


@register("entropy")
class Entropy(Adaptation):
    """Mean entropy of the outputs, in nats; all trained parameters move.

    Source: Wang et al. (TENT), ICLR 2021, as FedTTA compares with it.
    """

    label = "TENT"
    paper = "Wang et al. 2021 (TENT); FedTTA sec. 4.1.2"

    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        """The mean entropy."""
        return prediction_entropy(logits)
