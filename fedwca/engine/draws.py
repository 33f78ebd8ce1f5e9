"""What a network sees of its training images in a step."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.engine.randomness import uniform


def pick_images(images: Tensor, indices: Tensor) -> Tensor:
    """Some images ``[B, 3, H, W]``, channels last in memory; quick where ``images [N, 3, H, W]`` lie so too."""
    return images.permute(0, 2, 3, 1).index_select(0, indices).permute(0, 3, 1, 2)


def weak_views(network: Network, images: Tensor, key: int, step: int, positions: Tensor, stride: int) -> Tensor:
    """Weakly augmented images, ready for the backbone; for a network that does not augment the prepared images.

    Args:
        network: says how images are augmented and scaled.
        images: uint8 ``[B, 3, H, W]``.
        key: key of this training's crops.
        step: number of the step within the training.
        positions: places in the step ``[B]`` int64, as for `fedwca.engine.sequential.replica.dropout_masks`.
        stride: places per step.
    """
    if not network.augments:
        return network.prepare(images)
    counters = 4 * (step * stride + positions)[:, None] + torch.arange(4, device=positions.device)
    return network.weak(images, uniform(key, counters))
