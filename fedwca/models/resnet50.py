"""The ResNet-50 used for Office-Home."""

from __future__ import annotations

from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import ResNet50_Weights, WeightsEnum, resnet50

from fedwca.models import register
from fedwca.models._resnet import ResNet


@register("resnet50")
class ResNet50(ResNet):
    """ResNet-50 without its last layer: 2,048 features, 24 million parameters (96 MB a client).

    Source: He et al. 2016; FedWCA sec. 5 (Office-Home); weights IMAGENET1K_V1.
    """

    label = "ResNet-50"
    paper = "He et al. 2016; FedWCA sec. 5"

    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        """See `ResNet.torchvision`."""
        return resnet50(weights=None), ResNet50_Weights.IMAGENET1K_V1
