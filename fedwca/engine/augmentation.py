"""Augmentation of training images: weak and strong views, drawn by place in the step, for one or many clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.core.training_settings import Trains
from fedwca.engine.dropout import dropout_masks
from fedwca.engine.randomness import normal, place_counters, uniform
from fedwca.functional import strong_augment


def pick_images(images: Tensor, indices: Tensor) -> Tensor:
    """Images ``[B, 3, H, W]`` at ``indices``, in channels-last memory; fast if ``images [N, 3, H, W]`` is so too."""
    return images.permute(0, 2, 3, 1).index_select(0, indices).permute(0, 3, 1, 2)


def weak_views(
    network: Network, images: Tensor, key: int | Tensor, step: int | Tensor, positions: Tensor, stride: int
) -> Tensor:
    """Weakly augmented images, ready for the backbone; only prepared ones if the network does not augment.

    Args:
        network: augments and scales images.
        images: uint8 ``[B, 3, H, W]``; of G clients concatenated ``[G·B, 3, H, W]``.
        key: key of this training's crops; of G clients ``[G, 1, 1]`` int64.
        step: number of the step within the training; of G clients ``[G, 1]`` int64.
        positions: places in the step ``[B]`` or ``[G, B]`` int64, as for `dropout_masks`.
        stride: places per step.
    """
    if not network.augments:
        return network.prepare(images)
    return network.weak_view(images, uniform(key, place_counters(4, step, positions, stride)).flatten(0, -2))


@dataclass(frozen=True)
class StepDraws:
    """Random draws of a training step; they depend on the place in the step, not on the image at that place.

    The images of a step have the places 0…B-1. The image that is mixed into the one at place i has the place
    ``batch`` + i, and so has the result.
    """

    network: Network
    keys: Callable[[str], int | Tensor]
    """Maps a purpose to the key of its draws; of G clients ``[G, 1, 1]`` int64."""
    step: int | Tensor
    """Number of the step within the training; of G clients ``[G, 1]`` int64."""
    batch: int
    """Largest number of images in a step."""
    trains: Trains = "all"
    """Part of the model that is trained; if it is the classifier, there is no augmentation and no dropout."""

    @property
    def plain(self) -> bool:
        """Whether a frozen backbone reads images without augmentation, so that stored embeddings can be used."""
        return self.network.backbone.frozen and (self.trains == "classifier" or not self.network.augments)

    def weak(self, images: Tensor, positions: Tensor) -> Tensor:
        """Weak views of images ``[B, 3, H, W]``; only prepared images if the classifier alone is trained."""
        if self.trains == "classifier":
            return self.network.prepare(images)
        return weak_views(self.network, images, self.keys("crop"), self.step, positions, 2 * self.batch)

    def strong(self, images: Tensor, positions: Tensor) -> Tensor:
        """Strong views of images ``[B, 3, H, W]``, with crops of their own."""
        drawn = uniform(self.keys("strong"), place_counters(4, self.step, positions, 2 * self.batch)).flatten(0, -2)
        crops = self.keys("crop strong")
        return weak_views(self.network, strong_augment(images, drawn), crops, self.step, positions, 2 * self.batch)

    def masks(self, positions: Tensor, strong: Tensor | None = None) -> list[Tensor]:
        """Dropout masks ``[…, B, *shape]`` of plain and mixed images, followed by those of strong views, if any.

        Where features are drawn, the last entry holds the standard normal numbers of the draw ``[…, B, q]``.

        Args:
            positions: places of plain and mixed images ``[B]`` or ``[G, B]`` int64.
            strong: places of strong views, likewise; None: there are none.
        """
        if self.trains == "classifier":
            return []
        masks = self._drawn("", positions, 2 * self.batch)
        if strong is None:
            return masks
        strong_masks = self._drawn(" strong", strong, self.batch)
        return [torch.cat(pair, positions.ndim - 1) for pair in zip(masks, strong_masks, strict=True)]

    def _drawn(self, view: str, positions: Tensor, stride: int) -> list[Tensor]:
        """Dropout masks at the places, then the normal numbers of the feature draw, if there is one."""
        network = self.network
        masks = dropout_masks(network.drops, self.keys(f"dropout{view}"), self.step, positions, stride)
        if network.draws is not None:
            places = place_counters(network.features, self.step, positions, stride)
            masks.append(normal(self.keys(f"features{view}"), places))
        return masks

    def noise(self, positions: Tensor, count: int) -> Tensor | None:
        """Uniform numbers of each image ``[…, B, count]``; None if ``count`` is 0."""
        if not count:
            return None
        return uniform(self.keys("noise"), place_counters(count, self.step, positions, self.batch))
