"""FedSR's objective: features that are drawn at random, short, and similar for all clients' images of one class."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from fedwca.core.interfaces import Objective
from fedwca.core.messages import Batch
from fedwca.errors import FedwcaError
from fedwca.functional import gaussian_divergence, representation_norm, weighted_cross_entropy
from fedwca.objectives import register

REFERENCE = "reference"
"""Name of the module that holds the distribution of each class."""


class ClassGaussians(nn.Module):
    """A normal distribution of features for each class, and the factor that scales features before they are compared.

    Reads labels ``[B]``, gives ``[B, 2q + 1]``: means r_y, standard deviations softplus(rho_y), the factor C.
    """

    def __init__(self, classes: int, features: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(classes, features))
        self.spread = nn.Parameter(torch.ones(classes, features))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, labels: Tensor) -> Tensor:
        """The row of each label, by a matrix product, which can be batched over clients."""
        one_hot = (labels[:, None] == torch.arange(len(self.mean), device=labels.device)).to(self.mean.dtype)
        std = nn.functional.softplus(one_hot @ self.spread)
        return torch.cat([one_hot @ self.mean, std, self.scale.expand(len(labels), 1)], 1)


@register("simple_representation")
class SimpleRepresentation(Objective):
    """CE of drawn features z, plus norm · mean ‖z‖₂, plus divergence · mean KL(N(C m, C s) ‖ N(r_y, softplus rho_y)).

    z = m + s·e with e standard normal, drawn once for an image and step; s = softplus of a layer of its own. A
    prediction is the mean softmax over ``draws`` of e. r, rho and C stay with the client; at first r = 0, rho = C = 1.
    Source: FedSR (Nguyen et al., NeurIPS 2022); its code has the norm, where one may expect its square.
    """

    label = "FedSR"
    paper = "Nguyen et al. 2022 (FedSR)"
    local_networks = (REFERENCE,)

    norm: NonNegativeFloat = 0.01
    """Weight of the features' length (alpha_L2R)."""
    divergence: NonNegativeFloat = 0.0005
    """Weight of the divergence from the class's distribution (alpha_CMI)."""
    draws: PositiveInt = 20
    """Number of draws of the features that a prediction averages over."""

    @property
    def feature_draws(self) -> int:
        """The draws of a prediction."""
        return self.draws

    def networks(self, classes: int, features: int) -> dict[str, nn.Module]:
        """The distributions of the classes."""
        return {REFERENCE: ClassGaussians(classes, features)}

    def __call__(self, batch: Batch) -> Tensor:
        """The loss of one batch; where features were not drawn, the cross-entropy alone."""
        loss = weighted_cross_entropy(batch.target_logits, batch.labels, batch.weights)
        if batch.latent is None:
            return loss
        if REFERENCE not in batch.networks:
            raise FedwcaError("objective 'simple_representation' was given no distributions of classes")
        width = batch.features.shape[1]
        mean, std, scale = batch.networks[REFERENCE](batch.labels).split((width, width, 1), 1)
        divergence = gaussian_divergence(batch.latent.mean * scale, batch.latent.std * scale.abs(), mean, std)
        return loss + self.norm * representation_norm(batch.features) + self.divergence * divergence
