"""The ResNet-18 used for PACS."""

from __future__ import annotations

from torchvision.models import ResNet as TorchvisionResNet
from torchvision.models import ResNet18_Weights, WeightsEnum, resnet18

from fedwca.models import register
from fedwca.models._resnet import ResNet


@register("resnet18")
class ResNet18(ResNet):
    """ResNet-18 without its last layer: 512 features, 11 million parameters (45 MB a client).

    Source: He et al. 2016; FedWCA sec. 5 (PACS); weights IMAGENET1K_V1.
    """

    label = "ResNet-18"
    paper = "He et al. 2016; FedWCA sec. 5"

    def torchvision(self) -> tuple[TorchvisionResNet, WeightsEnum]:
        """See `ResNet.torchvision`."""
        return resnet18(weights=None), ResNet18_Weights.IMAGENET1K_V1
