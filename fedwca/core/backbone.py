"""The base class of backbones: maps images to features, and says which images it expects and where it drops units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real

from torch import Tensor, nn

from fedwca._deprecated import describe_old_member
from fedwca.errors import UsageError


@dataclass(frozen=True)
class Drop:
    """A place where units are dropped; the caller draws the mask, so that all engines can draw the same."""

    p: float
    """Probability that a unit is dropped."""
    shape: tuple[int, ...]
    """Shape of one sample's mask, which is broadcast over the tensor it multiplies."""


class Backbone(nn.Module):
    """A module that maps images to flat features, and lists the places where it drops units."""

    drops: tuple[Drop, ...] = ()
    """One for each mask that `forward` takes in training."""
    out_features: int
    """Number of features that it returns."""
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Mean of red, green and blue on a scale from 0 to 1, or of grey alone; subtracted from images."""
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Divisor of images after the mean is subtracted."""
    augments: bool = False
    """Whether it is trained on random crops, mirrored half of the time."""
    frozen: bool = False
    """Whether parameters and BatchNorm statistics never change; a frozen backbone is not sent either."""
    shortcuts: tuple[str, ...] = ()
    """Modules beside the main path, such as projections in residual blocks; they do not count as layers."""

    def __init_subclass__(cls) -> None:
        """Refuse what it defines under an old name.

        Raises:
            UsageError: there is such a name; gives the new one.
        """
        if problem := describe_old_member(cls):
            raise UsageError(problem)

    def train(self, mode: bool = True) -> Backbone:
        """As in torch, but a frozen backbone stays in eval mode, so that its BatchNorm statistics do not change."""
        return super().train(mode and not self.frozen)

    def forward(self, x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """``[N, C, H, W] -> [N, out_features]``, C being the length of `mean`; ``masks`` is empty in eval mode."""
        raise NotImplementedError

    def forward_stacked(self, parameters: Mapping[str, Tensor], x: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """`forward` of G backbones with different weights, batched by hand; without it, `vmap` is used.

        Args:
            parameters: weights by name ``[G, …]``.
            x: images of each backbone ``[G, B, C, H, W]``.
            masks: as for `forward` ``[G, B, …]``.

        Returns:
            ``[G, B, out_features]``.
        """
        raise NotImplementedError

    @property
    def has_forward_stacked(self) -> bool:
        """Whether the class that defines this `forward`, or a subclass, implements `forward_stacked`."""
        owner = next(cls for cls in type(self).__mro__ if {"forward_stacked", "forward"} & vars(cls).keys())
        return "forward_stacked" in vars(owner) and owner is not Backbone and not self.frozen


def describe_wrong_attribute(backbone: Backbone) -> str | None:
    """What is wrong with the `mean`, `std` or `shortcuts` of a backbone; None if nothing.

    >>> backbone = Backbone()
    >>> backbone.mean = (0.1,)
    >>> describe_wrong_attribute(backbone)
    'mean is (0.1,) and its std is (0.5, 0.5, 0.5); right are as many numbers, so set both'
    """
    for name in ("mean", "std"):
        value: object = getattr(backbone, name)
        is_right = isinstance(value, tuple | list) and len(value) in (1, 3) and all(isinstance(x, Real) for x in value)
        if not is_right:
            return f"{name} is {value!r}; right is (0.5, 0.5, 0.5) or, for grey images, (0.5,)"
    mean, std, shortcuts = backbone.mean, backbone.std, backbone.shortcuts
    if len(mean) != len(std):
        return f"mean is {mean!r} and its std is {std!r}; right are as many numbers, so set both"
    if not isinstance(shortcuts, tuple | list) or not all(isinstance(name, str) for name in shortcuts):
        return f"shortcuts is {shortcuts!r}; right is a tuple of names of modules, such as ('down',)"
    return None
