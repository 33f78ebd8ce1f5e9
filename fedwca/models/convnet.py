"""The network of two convolutions that federated learning uses for small images, grey or coloured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

import torch.nn.functional as F
from pydantic import BeforeValidator, Field, PositiveFloat, model_validator
from torch import Tensor, nn

from fedwca.core.architecture import Width
from fedwca.core.network import Backbone, Head
from fedwca.models import register
from fedwca.models._grouped_convolution import convolve_each
from fedwca.models._halving_pool import max_pool_2x2
from fedwca.models._sizes import SizedArchitecture
from fedwca.user_values import split_numbers


class _TwoConvolutions(Backbone):
    """Convolutions of 5×5 pixels with ReLU, each followed by pooling to half the side."""

    def __init__(self, side: int, width: int, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean, self.std = mean, std
        self.conv1 = nn.Conv2d(len(mean), width, 5, padding=2)
        self.conv2 = nn.Conv2d(width, 2 * width, 5, padding=2)
        self.out_features = 2 * width * (side // 4) ** 2

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        # ReLU after pooling gives the same result as before it, with a quarter of the work.
        x = F.relu(max_pool_2x2(self.conv1(x)))
        return F.relu(max_pool_2x2(self.conv2(x))).flatten(1)

    def forward_stacked(self, parameters: Mapping[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """As `forward`, for many models at once, with all their channels side by side."""
        models = len(x)
        x = x.transpose(0, 1).flatten(1, 2)
        for name in ("conv1", "conv2"):
            x = F.relu(max_pool_2x2(convolve_each(x, parameters, name, padding=2)))
        features: Tensor = x.unflatten(1, (models, -1)).transpose(0, 1).flatten(2)
        return features


@register("convnet")
class ConvNet(SizedArchitecture):
    """Two convolutions, a hidden layer, and the classifier.

    Source: McMahan et al. (FedAvg), AISTATS 2017, sec. 3 (the CNN); FedTTA, sec. 4.1.
    """

    label = "ConvNet"
    paper = "McMahan et al. 2017; FedTTA sec. 4.1"

    side: Annotated[int, Field(ge=4, le=4096)] = 32
    """Height and width in pixels of the images that it reads."""
    head: Head = "hidden"
    """What is between backbone and classifier; hidden: a fully connected layer with ReLU."""
    bottleneck: Width = 512
    """q, width of the hidden layer."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropping a feature that the classifier reads."""
    width: Width = 32
    """Channels of the first convolution; the second has twice as many."""
    channels: Literal[1, 3] = 3
    """3 for colours, 1 for grey."""
    mean: Annotated[tuple[float, ...], BeforeValidator(split_numbers)] = (0.5,)
    """Mean of each channel on a scale from 0 to 1, as 0.49+0.48+0.45, or one for all; subtracted from images."""
    std: Annotated[tuple[PositiveFloat, ...], BeforeValidator(split_numbers)] = (0.5,)
    """Standard deviation, likewise, by which images are then divided."""

    @model_validator(mode="after")
    def _has_values_for_its_channels(self) -> Self:
        for name in ("mean", "std"):
            if len(getattr(self, name)) not in (1, self.channels):
                raise ValueError(f"{name} has {len(getattr(self, name))} values; 1 or {self.channels} are right")
        return self

    def backbone(self) -> _TwoConvolutions:
        """The backbone with torch's default initial weights."""
        mean, std = (values * (self.channels // len(values)) for values in (self.mean, self.std))
        return _TwoConvolutions(self.side, self.widest, mean, std)
