"""The three-convolution network of multi-source adaptation on Digit-Five."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedwca.core.architecture import Architecture, Width
from fedwca.core.network import Backbone, Drop
from fedwca.models import register


class _ThreeConvolutions(Backbone):
    """Convolutions of 5×5 pixels 3→64→64→128, each with BatchNorm and ReLU, and a hidden layer 8192→3072; 32×32 in."""

    out_features = 3072

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 64, 5, padding=2), nn.BatchNorm2d(64)
        self.conv2, self.norm2 = nn.Conv2d(64, 64, 5, padding=2), nn.BatchNorm2d(64)
        self.conv3, self.norm3 = nn.Conv2d(64, 128, 5, padding=2), nn.BatchNorm2d(128)
        self.hidden, self.norm4 = nn.Linear(8192, self.out_features), nn.BatchNorm1d(self.out_features)
        self.drops = (Drop(dropout, (self.out_features,)),)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 3, 2, 1)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 3, 2, 1)
        x = F.relu(self.norm3(self.conv3(x))).flatten(1)
        x = F.relu(self.norm4(self.hidden(x)))
        return x * masks[0] if masks else x


@register("cnn3")
class Cnn3(Architecture):
    """Three convolutions and two fully connected layers, all with BatchNorm and ReLU: 31.8 million parameters.

    127 MB a client. The second fully connected layer is the bottleneck, so the classifier is the last layer alone.

    Source: Peng et al., ICCV 2019 (M3SDA), the network for Digit-Five; SFDA with MDMGB sec. 4.
    """

    label = "CNN-3"
    paper = "Peng et al. 2019; SFDA with MDMGB sec. 4"

    side: Literal[32] = 32
    """Height and width in pixels of what the backbone reads; fixed."""
    bottleneck: Width = 2048
    """q, width of the feature that the classifier reads."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability of dropping a bottleneck unit."""
    activation: Literal["none", "relu"] = "relu"
    """What follows the bottleneck's BatchNorm."""
    hidden_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Probability of dropping a unit of the hidden layer."""

    def backbone(self) -> _ThreeConvolutions:
        """The backbone with torch's default initial weights."""
        return _ThreeConvolutions(self.hidden_dropout)
