"""FedADG's objective: features that a discriminator cannot tell from those that a generator makes from noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.errors import FedwcaError
from fedwca.functional import smoothed_cross_entropy
from fedwca.objectives import register

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
"""Names of the two networks."""


@register("reference_distribution")
class ReferenceDistribution(Objective):
    """Features F(x), generated features G(u, y) of uniform noise u, and a discriminator D that the client keeps.

    One loss; each of its terms trains one network (or F and classifier) and takes the others as constants:
    D: mean (1 - D(y, G(u, y)))² + D(y, F(x))²; F and classifier: share · CE + (1 - share) · mean (1 - D(y, F(x)))²;
    G: mean D(y, G(u, y)), so that the reference moves towards the features.
    Source: FedADG (Zhang et al., 2021), after its code; differences from it: decisions, U33 to U35.
    """

    label = "FedADG"
    paper = "Zhang et al. 2021 (FedADG)"
    noise_per_image = 10
    local_networks = (DISCRIMINATOR,)

    share: Annotated[float, Field(ge=0, le=1)] = 0.85
    """Share of the cross-entropy in the loss of features and classifier (alpha)."""
    smoothing: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the label that is spread over all classes."""
    rate: PositiveFloat = 0.007
    """Learning rate of generator and discriminator."""
    width: PositiveInt = 128
    """Units of their hidden layer."""

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """G: n + M → width → q; D: M + q → width → 1, a probability; ReLU between layers."""
        inner, outer = nn.Linear(self.noise_per_image + classes, self.width), nn.Linear(self.width, features)
        first, last = nn.Linear(classes + features, self.width), nn.Linear(self.width, 1)
        return {
            GENERATOR: nn.Sequential(inner, nn.ReLU(), outer),
            DISCRIMINATOR: nn.Sequential(first, nn.ReLU(), last, nn.Sigmoid()),
        }

    def learning_rates(self) -> dict[str, float]:
        """The rate of both networks."""
        return {GENERATOR: self.rate, DISCRIMINATOR: self.rate}

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch; where there is no noise, the cross-entropy alone."""
        loss = smoothed_cross_entropy(batch.target_logits, batch.labels, self.smoothing, batch.weights)
        if batch.noise is None:
            return loss
        if GENERATOR not in batch.networks:
            raise FedwcaError("objective 'reference_distribution' was given no generator")
        classes = torch.arange(batch.logits.shape[1], device=batch.labels.device)
        one_hot = (batch.labels[:, None] == classes).to(batch.features.dtype)
        generated = batch.networks[GENERATOR](torch.cat([batch.noise[:, : self.noise_per_image], one_hot], 1))
        features = batch.features
        discriminator = batch.networks[DISCRIMINATOR]
        frozen = batch.frozen_networks[DISCRIMINATOR]

        def score(network: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
            return network(torch.cat([one_hot, features], 1))

        discriminator_loss = (
            (1 - score(discriminator, generated.detach())).square() + score(discriminator, features.detach()).square()
        ).mean()
        feature_loss = (1 - score(frozen, features)).square().mean()
        return (
            self.share * loss + (1 - self.share) * feature_loss + discriminator_loss + score(frozen, generated).mean()
        )
