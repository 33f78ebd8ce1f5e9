"""The ResNet-101 used for DomainNet."""

from __future__ import annotations

from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import ResNet101_Weights, WeightsEnum, resnet101

from fedwca.models import register
from fedwca.models._resnet import ResNet


@register("resnet101")
class ResNet101(ResNet):
    """ResNet-101 without its last layer: 2,048 features, 43 million parameters (172 MB a client).

    Source: He et al. 2016; SFDA with MDMGB sec. 4 (DomainNet); weights IMAGENET1K_V1.
    """

    label = "ResNet-101"
    paper = "He et al. 2016; SFDA with MDMGB sec. 4"

    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        """See `ResNet.torchvision`."""
        return resnet101(weights=None), ResNet101_Weights.IMAGENET1K_V1
