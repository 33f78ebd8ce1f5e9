"""Augmentation of training images: weak and strong views, drawn by place in the step, for one client or many."""

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
    """Some images ``[B, 3, H, W]``, channels last in memory; quick where ``images [N, 3, H, W]`` lie so too."""
    return images.permute(0, 2, 3, 1).index_select(0, indices).permute(0, 3, 1, 2)


def weak_views(
    network: Network, images: Tensor, key: int | Tensor, step: int | Tensor, positions: Tensor, stride: int
) -> Tensor:
    """Weakly augmented images, ready for the backbone; for a network that does not augment the prepared images.

    Args:
        network: says how images are augmented and scaled.
        images: uint8 ``[B, 3, H, W]``; of G clients end to end ``[G·B, 3, H, W]``.
        key: key of this training's crops; of G clients ``[G, 1, 1]`` int64.
        step: number of the step within the training; of G clients ``[G, 1]`` int64.
        positions: places in the step ``[B]`` or ``[G, B]`` int64, as for `dropout_masks`.
        stride: places per step.
    """
    if not network.augments:
        return network.prepare(images)
    return network.weak(images, uniform(key, place_counters(4, step, positions, stride)).flatten(0, -2))


@dataclass(frozen=True)
class StepDraws:
    """What is drawn in a training step; the draws belong to a place in the step, whatever image is there.

    A step of B images has the places 0…B-1, and behind the largest B one for the partner of each.
    """

    network: Network
    keys: Callable[[str], int | Tensor]
    """A purpose to the key of its draws; of G clients ``[G, 1, 1]`` int64."""
    step: int | Tensor
    """Number of the step within the training; of G clients ``[G, 1]`` int64."""
    batch: int
    """Largest number of images in a step."""
    trains: Trains = "all"
    """Part of the model that is trained; for the classifier alone images are plain and nothing is dropped."""

    @property
    def plain(self) -> bool:
        """Whether a frozen backbone is shown plain images, of which it made something before."""
        return self.network.backbone.frozen and (self.trains == "classifier" or not self.network.augments)

    def weak(self, images: Tensor, positions: Tensor) -> Tensor:
        """Images ``[B, 3, H, W]`` as training shows them."""
        if self.trains == "classifier":
            return self.network.prepare(images)
        return weak_views(self.network, images, self.keys("crop"), self.step, positions, 2 * self.batch)

    def strong(self, images: Tensor, positions: Tensor) -> Tensor:
        """Strong views of images ``[B, 3, H, W]``, with crops of their own."""
        drawn = uniform(self.keys("strong"), place_counters(4, self.step, positions, 2 * self.batch)).flatten(0, -2)
        crops = self.keys("crop strong")
        return weak_views(self.network, strong_augment(images, drawn), crops, self.step, positions, 2 * self.batch)

    def masks(self, positions: Tensor, strong: Tensor | None = None) -> list[Tensor]:
        """Dropout masks ``[…, B, *shape]`` of plain and mixed images; behind them those of strong views, if any. Where
        features are drawn, the last are the standard normal numbers of their draw ``[…, B, q]``.
        """
        if self.trains == "classifier":
            return []
        plain = self._drawn("", positions, 2 * self.batch)
        if strong is None:
            return plain
        more = self._drawn(" strong", strong, self.batch)
        return [torch.cat(pair, positions.ndim - 1) for pair in zip(plain, more, strict=True)]

    def _drawn(self, view: str, positions: Tensor, stride: int) -> list[Tensor]:
        """Dropout masks, and the draws of features, of some places."""
        network = self.network
        found = dropout_masks(network.drops, self.keys(f"dropout{view}"), self.step, positions, stride)
        if network.draws is not None:
            places = place_counters(network.features, self.step, positions, stride)
            found.append(normal(self.keys(f"features{view}"), places))
        return found

    def noise(self, positions: Tensor, count: int) -> Tensor | None:
        """So many uniform numbers of each image ``[…, B, count]``; None of none."""
        if not count:
            return None
        return uniform(self.keys("noise"), place_counters(count, self.step, positions, self.batch))
