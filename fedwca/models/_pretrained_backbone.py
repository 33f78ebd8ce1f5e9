"""Backbones with pre-trained weights; shared by the modules of ResNets and of timm's networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field
from torch import Tensor, nn

from fedwca.core.architecture import Architecture
from fedwca.core.files import expand_home
from fedwca.core.network import Backbone
from fedwca.core.tensor_files import file_digest

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PretrainedBackbone(Backbone):
    """A network without its classifier, such as a torchvision ResNet up to and including global average pooling.

    Args:
        body: maps images to features.
        width: number of features.
        frozen: whether its weights are not trained.
        augments: whether training uses random crops, mirrored half of the time.
        mean: of each channel of the images it was trained on, on a scale from 0 to 1.
        std: standard deviation of the same.
    """

    def __init__(
        self,
        body: nn.Module,
        width: int,
        frozen: bool,
        augments: bool,
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
    ) -> None:
        super().__init__()
        self.body, self.out_features, self.frozen, self.augments, self.mean, self.std = (
            body,
            width,
            frozen,
            augments,
            mean,
            std,
        )

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        return cast(Tensor, self.body(x).flatten(1))


class PretrainedArchitecture(Architecture):
    """A backbone with pre-trained weights; images are kept at 8/7 of ``side`` and cropped."""

    side: Annotated[int, Field(ge=32, le=4096)] = 224
    """Height and width in pixels of the crops that the backbone reads."""
    frozen: bool = False
    """Whether only the bottleneck is trained and sent, and the backbone keeps its weights."""
    augment: bool = True
    """Whether training is on random crops, mirrored half of the time; a frozen backbone reads plain images once."""

    @property
    def stored_side(self) -> int:
        """Height and width in pixels at which images are kept: 256 for crops of 224, as in SHOT."""
        return round(self.side * 256 / 224)

    def identity(self) -> dict[str, Any]:
        """As in the base class, with the digest of a file of weights in place of its path."""
        values = super().identity()
        weights = getattr(self, "weights", None)
        if isinstance(weights, Path):
            values["weights"] = file_digest(expand_home(weights))
        return values
