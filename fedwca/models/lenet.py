"""The two-convolution LeNet used for digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedwca.core.architecture import Architecture
from fedwca.core.network import Backbone, Drop
from fedwca.models import register
from fedwca.models._grouped_convolution import convolve_each
from fedwca.models._halving_pool import max_pool_2x2


class _LeNet(Backbone):
    """conv 3→20, pool, ReLU, conv 20→50, channel dropout, pool, ReLU; 32×32 in, 50·5·5 = 1250 out."""

    out_features = 1250

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.drops = (Drop(dropout, (50, 1, 1)),)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        x = F.relu(max_pool_2x2(self.conv1(x)))
        x = max_pool_2x2(self.conv2(x))
        # A mask is constant over its channel and not negative, so it can follow pooling, with a quarter of the work.
        x = F.relu(x * masks[0] if masks else x)
        return x.flatten(1)

    def forward_stacked(self, parameters: Mapping[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """As `forward`, for many models at once; all their channels stay side by side, so that no layer moves data."""
        models = len(x)
        x = x.transpose(0, 1).flatten(1, 2)
        x = F.relu(max_pool_2x2(convolve_each(x, parameters, "conv1")))
        x = max_pool_2x2(convolve_each(x, parameters, "conv2"))
        x = F.relu(x * masks[0].transpose(0, 1).flatten(1, 2) if masks else x)
        features: Tensor = x.unflatten(1, (models, -1)).transpose(0, 1).flatten(2)
        return features


@register("lenet")
class LeNet(Architecture):
    """SHOT's LeNetBase with three input channels at 32×32.

    Source: LeCun et al. 1998; Liang et al. (SHOT) 2020; FedWCA sec. 5 ("LeNet with two convolution layers").
    """

    label = "LeNet"
    paper = "LeCun et al. 1998; SHOT's LeNetBase"

    side: Literal[32] = 32
    """Height and width in pixels of what the backbone reads; fixed."""
    channel_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Probability of dropping a channel of the second convolution."""

    def backbone(self) -> _LeNet:
        """A LeNet with torch's default initial weights."""
        return _LeNet(self.channel_dropout)
