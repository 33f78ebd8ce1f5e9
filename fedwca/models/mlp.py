"""The multilayer perceptron that federated learning uses for digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedwca.core.architecture import Side, Width
from fedwca.core.network import Backbone, Head
from fedwca.models import register
from fedwca.models._sizes import SizedArchitecture


class _Perceptron(Backbone):
    """Fully connected layers with ReLU over the pixels of a grey image."""

    def __init__(self, pixels: int, width: int, layers: int, mean: float, std: float) -> None:
        super().__init__()
        self.out_features, self.mean, self.std = width, (mean,), (std,)
        self.layers = nn.ModuleList(nn.Linear(width if layer else pixels, width) for layer in range(layers))

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x

    def forward_stacked(self, parameters: Mapping[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """As `forward`, for many models at once, with one batched matrix product per layer."""
        x = x.flatten(2)
        for layer in range(len(self.layers)):
            weight, bias = parameters[f"layers.{layer}.weight"], parameters[f"layers.{layer}.bias"]
            x = F.relu(torch.baddbmm(bias[:, None], x, weight.transpose(1, 2)))
        return x


@register("mlp")
class Mlp(SizedArchitecture):
    """Grey pixels, hidden layers of one width with ReLU, and the classifier: 784-200-200-M by default.

    Source: McMahan et al. (FedAvg), AISTATS 2017, sec. 3 (2NN); FedTTA, sec. 4.1, on MNIST.
    """

    label = "MLP"
    paper = "McMahan et al. 2017 (2NN); FedTTA sec. 4.1"

    side: Side = 28
    """Height and width in pixels of the images that it reads."""
    head: Head = "direct"
    """What is between backbone and classifier; direct: nothing."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping a feature that the classifier reads."""
    width: Width = 200
    """Number of units of a hidden layer."""
    layers: Annotated[int, Field(ge=1, le=100)] = 2
    """Number of hidden layers."""
    mean: float = 0.1307
    """Mean of the pixels on a scale from 0 to 1; subtracted."""
    std: float = Field(0.3081, gt=0)
    """Standard deviation, likewise, by which pixels are then divided."""

    def backbone(self) -> _Perceptron:
        """The backbone with torch's default initial weights."""
        return _Perceptron(self.side**2, self.widest, self.layers, self.mean, self.std)
