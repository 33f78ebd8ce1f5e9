"""A network as source-free adaptation splits it: feature extractor (backbone, bottleneck) and a frozen classifier."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from fedwca.registry import Component


@dataclass(frozen=True)
class Drop:
    """A place where units are dropped; the mask is drawn outside, so that every engine can draw the same."""

    p: float
    """Probability that a unit is dropped."""
    shape: tuple[int, ...]
    """Shape of one sample's mask; broadcast over what it multiplies."""


class Backbone(nn.Module):
    """What a backbone module provides: images to flat features, and the places it drops units."""

    drops: tuple[Drop, ...] = ()
    """One for each mask that `forward` takes in training."""
    width: int
    """Features that come out."""

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """``[N, 3, H, W] -> [N, width]``; ``masks`` is empty in eval mode."""
        raise NotImplementedError


class Network(nn.Module):
    """Backbone, bottleneck (fully connected, BatchNorm, dropout; no ReLU) and linear classifier.

    ``extract`` gives the features ``[N, q]`` that ``classifier`` reads. Images come in as uint8 and are scaled here.
    """

    def __init__(
        self, backbone: Backbone, bottleneck: int, dropout: float, classes: int, classifier: Literal["linear", "wn"]
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.bottleneck = nn.Linear(backbone.width, bottleneck)
        self.norm = nn.BatchNorm1d(bottleneck)
        self.classifier = nn.Linear(bottleneck, classes)
        for layer in (self.bottleneck, self.classifier):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        if classifier == "wn":
            weight_norm(self.classifier)
        self.drops = (*backbone.drops, Drop(dropout, (bottleneck,)))
        self.register_buffer("mean", torch.full((3, 1, 1), 0.5), persistent=False)
        self.register_buffer("std", torch.full((3, 1, 1), 0.5), persistent=False)

    def weak(self, images: Tensor, draws: Tensor) -> Tensor:
        """uint8 ``[B, 3, H, W]`` as training shows them, scaled; here as they are.

        Args:
            images: not yet scaled.
            draws: uniform numbers in [0, 1) ``[B, 4]``, for whatever an augmentation draws.
        """
        return self.prepare(images)

    def prepare(self, images: Tensor) -> Tensor:
        """uint8 ``[N, 3, H, W]`` to the scaled floats the backbone reads, channels last."""
        mean, std = cast(Tensor, self.mean), cast(Tensor, self.std)
        x = images.to(mean.dtype, memory_format=torch.channels_last)
        return x.sub_(mean * 255).div_(std * 255)

    def extract(self, x: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """Prepared images to features ``[N, q]``; with one mask per entry of ``drops`` in training, none otherwise."""
        z = self.norm(self.bottleneck(self.backbone(x, masks[:-1])))
        return cast(Tensor, z * masks[-1] if masks else z)

    def forward(self, x: Tensor, masks: Sequence[Tensor] = ()) -> tuple[Tensor, Tensor]:
        """Logits ``[N, M]`` and features ``[N, q]`` of prepared images."""
        features = self.extract(x, masks)
        return self.classifier(features), features

    @property
    def class_vectors(self) -> Tensor:
        """The classifier's effective weight rows ``[M, q]`` (w_m of eq. 1)."""
        return self.classifier.weight.detach()


_BUILDING = threading.Lock()


class Architecture(Component):
    """Builds networks; fields describe everything behind the backbone."""

    side: ClassVar[int] = 32
    """Height and width of its images in pixels."""

    bottleneck: PositiveInt = 256
    """q, width of the feature that the classifier reads."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Probability of dropping a bottleneck unit."""
    classifier: Literal["linear", "wn"] = "linear"
    """Plain linear layer, or one with weight normalisation as in SHOT."""

    @abstractmethod
    def backbone(self) -> Backbone:
        """A freshly initialised backbone."""

    def build(self, classes: int, seed: int = 0) -> Network:
        """A network with initial weights drawn from ``seed``; the global generator is left as it was."""
        # torch initialises from one global generator: whoever builds has it alone, on whatever thread.
        with _BUILDING, torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = Network(self.backbone(), self.bottleneck, self.dropout, classes, self.classifier)
        return network.to(memory_format=torch.channels_last)
