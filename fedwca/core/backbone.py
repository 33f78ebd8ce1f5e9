"""What a backbone provides: images to features, what it expects of images, and where it drops units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn


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
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Of red, green and blue on a scale from 0 to 1, or of grey alone; subtracted from images."""
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    """What images are divided by after that."""
    augments: bool = False
    """Whether it is trained on random crops, mirrored half of the time."""
    frozen: bool = False
    """Whether it stays as it is: not trained, statistics included, and not sent."""
    shortcuts: tuple[str, ...] = ()
    """Modules beside the main path, such as projections in residual blocks; they do not count as layers."""

    def train(self, mode: bool = True) -> Backbone:
        """As in torch, but a frozen backbone stays in eval mode, so that its BatchNorm statistics do not move."""
        return super().train(mode and not self.frozen)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """``[N, C, H, W] -> [N, width]``, C as many as `mean` has; ``masks`` is empty in eval mode."""
        raise NotImplementedError

    def together(self, parameters: Mapping[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """`forward` of G backbones with weights of their own, batched by hand; where this is missing, `vmap` does it.

        Args:
            parameters: weights by name ``[G, …]``.
            x: each one's images ``[G, B, C, H, W]``.
            masks: as for `forward` ``[G, B, …]``.

        Returns:
            ``[G, B, width]``.
        """
        raise NotImplementedError

    @property
    def by_hand(self) -> bool:
        """Whether there is a `together` that says what `forward` says: in the same class, or in one made from it."""
        owner = next(cls for cls in type(self).__mro__ if {"together", "forward"} & vars(cls).keys())
        return "together" in vars(owner) and owner is not Backbone and not self.frozen
