"""DAN: maximum mean discrepancy between sources and target as a loss, in features and in outputs."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from fedwca.centrals import register
from fedwca.core.central import Central, DomainBatch
from fedwca.functional import multi_kernel_mmd


@register("dan")
class Dan(Central):
    """Cross-entropy + lam · mean over sources of MMD² of features + MMD² of outputs, each to the target.

    Source: Long et al. (DAN), ICML 2015; SFDA, eqs. 2-4 and Table 1.
    """

    label = "DAN"
    paper = "Long et al. 2015"

    lam: NonNegativeFloat = 1.0
    """Weight of the discrepancies; 0 leaves the cross-entropy alone."""

    def __call__(self, step: DomainBatch) -> Tensor:
        """The loss of one step."""
        target = step.target_logits.softmax(-1)
        discrepancies = [
            multi_kernel_mmd(features, step.target_features) + multi_kernel_mmd(logits.softmax(-1), target)
            for features, logits in zip(step.features, step.logits, strict=True)
        ]
        return step.cross_entropy() + self.lam * torch.stack(discrepancies).mean()
