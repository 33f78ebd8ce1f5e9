"""What a network sees of its training images in a step, and which of its units are dropped: for one client, or many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.core.network import Drop, Network
from fedwca.engine.randomness import random_integers, uniform
from fedwca.functional import strong_augment


def pick_images(images: Tensor, indices: Tensor) -> Tensor:
    """Some images ``[B, 3, H, W]``, channels last in memory; quick where ``images [N, 3, H, W]`` lie so too."""
    return images.permute(0, 2, 3, 1).index_select(0, indices).permute(0, 3, 1, 2)


def _counters(count: int, step: int | Tensor, positions: Tensor, stride: int) -> Tensor:
    """Counters ``[…, B, count]`` of ``count`` numbers a place; every place of every step has its own."""
    return (step * stride + positions)[..., None] * count + torch.arange(count, device=positions.device)


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
    return network.weak(images, uniform(key, _counters(4, step, positions, stride)).flatten(0, -2))


def dropout_masks(
    drops: Sequence[Drop], key: int | Tensor, step: int | Tensor, positions: Tensor, stride: int
) -> list[Tensor]:
    """Dropout masks for the given positions of a step, scaled by 1/(1-p).

    Args:
        drops: the places of the network where units are dropped.
        key: key of this training's dropout; of G clients ``[G, 1, 1]`` int64.
        step: number of the step within the training; of G clients ``[G, 1]`` int64.
        positions: places in the step ``[B]`` or ``[G, B]`` int64; a mixed image's place is ``batch size + place of its
            sample``.
        stride: places per step.

    Returns:
        One float32 mask for each entry of ``drops``, ``[…, B, *shape]``.
    """
    counts = [torch.Size(drop.shape).numel() for drop in drops]
    drawn = random_integers(key, _counters(sum(counts), step, positions, stride)).split(counts, -1)
    # u >= p, asked of whole numbers: u is n·2⁻⁵³, and p·2⁵³ is exact.
    kept = [n >= math.ceil(drop.p * 2.0**53) for n, drop in zip(drawn, drops, strict=True)]
    return [(k.float() / (1 - drop.p)).unflatten(-1, drop.shape) for k, drop in zip(kept, drops, strict=True)]


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

    def weak(self, images: Tensor, positions: Tensor) -> Tensor:
        """Images ``[B, 3, H, W]`` as training shows them."""
        return weak_views(self.network, images, self.keys("crop"), self.step, positions, 2 * self.batch)

    def strong(self, images: Tensor, positions: Tensor) -> Tensor:
        """Strong views of images ``[B, 3, H, W]``, with crops of their own."""
        drawn = uniform(self.keys("strong"), _counters(4, self.step, positions, 2 * self.batch)).flatten(0, -2)
        crops = self.keys("crop strong")
        return weak_views(self.network, strong_augment(images, drawn), crops, self.step, positions, 2 * self.batch)

    def masks(self, positions: Tensor, strong: Tensor | None = None) -> list[Tensor]:
        """Dropout masks ``[…, B, *shape]`` of plain and mixed images; behind them those of strong views, if any."""
        drops = self.network.drops
        plain = dropout_masks(drops, self.keys("dropout"), self.step, positions, 2 * self.batch)
        if strong is None:
            return plain
        more = dropout_masks(drops, self.keys("dropout strong"), self.step, strong, self.batch)
        return [torch.cat(pair, positions.ndim - 1) for pair in zip(plain, more, strict=True)]
