"""TENT: the entropy of the outputs."""

from __future__ import annotations

import math
from typing import Literal

from torch import Tensor

from fedwca.adaptations import register
from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.functional import prediction_entropy


@register("entropy")
class Entropy(Adaptation):
    """Mean entropy of the outputs; all trained parameters move.

    Source: Wang et al. (TENT), ICLR 2021, as FedTTA compares with it.
    """

    label = "TENT"
    paper = "Wang et al. 2021 (TENT); FedTTA sec. 4.1.2"

    unit: Literal["nats", "bits"] = "nats"
    """Unit of the entropy; bits, as in FedTTA's released code, make gradients larger by 1/log 2."""

    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        """The mean entropy."""
        entropy = prediction_entropy(logits)
        return entropy / math.log(2) if self.unit == "bits" else entropy
