"""ODPFL-HN: a hypernetwork generates a client's model from an embedding of its images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Self

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from fedwca.adaptations import register
from fedwca.core.adaptation import Adaptation, ExtraNetworks
from fedwca.functional import prediction_entropy

ENCODER, HYPERNETWORK = "encoder", "hypernetwork"
"""Names of the two networks."""


class Hypernetwork(nn.Module):
    """Maps an embedding ``[d]`` to a model's parameters ``[P]``: hidden layers, and a linear head for each tensor."""

    def __init__(self, embedding: int, width: int, layers: int, sizes: list[int]) -> None:
        super().__init__()
        widths = [embedding, *[width] * layers]
        hidden = [part for i in range(layers) for part in (nn.Linear(widths[i], widths[i + 1]), nn.ReLU())]
        self.hidden = nn.Sequential(*hidden)
        self.heads = nn.ModuleList(nn.Linear(width, size) for size in sizes)

    def forward(self, embedding: Tensor) -> Tensor:
        """The parameters."""
        h = self.hidden(embedding)
        return torch.cat([head(h) for head in self.heads])


@register("generated")
class Generated(Adaptation):
    """theta = H(mean of E(x) over a client's images), with an encoder E and a hypernetwork H.

    In training, a client starts at theta, takes its steps to theta', and updates E and H by the vector-Jacobian product
    of theta at theta - theta'. For predictions a client takes H(mean of E(its images)), and no step.
    Source: ODPFL-HN (Amosy et al., 2021), trained as pFedHN (Shamsian et al., ICML 2021); sizes as FedTTA has them.
    """

    label = "ODPFL-HN"
    paper = "Amosy et al. 2021 (ODPFL-HN); Shamsian et al. 2021 (pFedHN)"
    generates_models = True

    encoder_rate: PositiveFloat = 0.5
    """Learning rate of the encoder (eta_encoder)."""
    rate: PositiveFloat = 0.5
    """Learning rate of the hypernetwork (eta_hn)."""
    clip: PositiveFloat | None = 50.0
    """Largest norm of the gradient of each of the two networks."""
    embedding: PositiveInt = 32
    """Length of the encoder's embedding of a client (d)."""
    width: PositiveInt = 100
    """Units of each hidden layer of the hypernetwork."""
    layers: PositiveInt = 4
    """Hidden layers of the hypernetwork, each followed by ReLU."""

    @model_validator(mode="after")
    def _takes_no_step(self) -> Self:
        if self.steps > 1 or self.lr is not None or self.patience is not None or self.weight_decay:
            raise ValueError("a generated model takes no steps; leave out lr, steps, patience and weight_decay")
        return self

    def generators(self, shapes: Mapping[str, tuple[int, ...]], image: tuple[int, int]) -> dict[str, nn.Module]:
        """E: convolutions 32, 64 of 5×5 pixels with pooling where the model has some, else pixels → 200; both → d."""
        channels, side = image
        if any(len(shape) == 4 for shape in shapes.values()):
            first, second = nn.Conv2d(channels, 32, 5, padding=2), nn.Conv2d(32, 64, 5, padding=2)
            body: list[nn.Module] = [
                first,
                nn.ReLU(),
                nn.MaxPool2d(2),
                second,
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Flatten(),
            ]
            last = nn.Linear(64 * (side // 4) ** 2, self.embedding)
        else:
            body = [nn.Flatten(), nn.Linear(channels * side**2, 200), nn.ReLU()]
            last = nn.Linear(200, self.embedding)
        sizes = [math.prod(shape) for shape in shapes.values()]
        return {
            ENCODER: nn.Sequential(*body, last),
            HYPERNETWORK: Hypernetwork(self.embedding, self.width, self.layers, sizes),
        }

    def generate(self, networks: ExtraNetworks, images: Tensor) -> Tensor:
        """The parameters of a client's model."""
        return networks[HYPERNETWORK](networks[ENCODER](images).mean(0))

    def learning_rates(self) -> dict[str, float]:
        """The rates of both networks."""
        return {ENCODER: self.encoder_rate, HYPERNETWORK: self.rate}

    def loss(self, logits: Tensor, networks: ExtraNetworks) -> Tensor:
        """Zero, because no step is taken."""
        return 0 * prediction_entropy(logits)
