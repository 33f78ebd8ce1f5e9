"""DANN: a domain classifier on features, whose gradient is reversed."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from fedwca.centrals import register
from fedwca.core.central import Central, DomainBatch
from fedwca.functional import domain_loss, gradient_reversal, reversal_scale


@register("dann")
class Dann(Central):
    """Cross-entropy + that of a domain classifier (source or target) on features with reversed gradients.

    The reversal is faded in over training; sources and target have weight one half each.
    Source: Ganin et al. (DANN), JMLR 2016; SFDA, Table 1.
    """

    label = "DANN"
    paper = "Ganin et al. 2016"

    scale: NonNegativeFloat = 1.0
    """Factor of the reversed gradient, on top of the one that fades it in."""
    width: PositiveInt = 256
    """Hidden units of the domain classifier."""

    def extra_modules(self, features: int, classes: int, sources: int) -> nn.Module:
        """The domain classifier."""
        return nn.Sequential(nn.Linear(features, self.width), nn.ReLU(), nn.Linear(self.width, 2))

    def __call__(self, step: DomainBatch) -> Tensor:
        """The loss of one step."""
        sources, target = torch.cat(step.features), step.target_features
        reversed_ = gradient_reversal(torch.cat([sources, target]), self.scale * reversal_scale(step.progress))
        return step.cross_entropy() + domain_loss(step.extra_modules(reversed_), len(sources))
