"""Square crops of stored images for a network: centred, or random and possibly mirrored."""

from __future__ import annotations

import torch
from torch import Tensor


def center_crop(images: Tensor, side: int) -> Tensor:
    """Crop the centre ``[..., H, W] -> [..., side, side]``, as a view.

    Of an odd margin, the larger half is cut off below and on the right.

    >>> center_crop(torch.arange(16).view(4, 4), 2).tolist()
    [[5, 6], [9, 10]]
    """
    top, left = (images.shape[-2] - side) // 2, (images.shape[-1] - side) // 2
    return images[..., top : top + side, left : left + side]


def crop_corners(draws: Tensor, height: int, width: int, side: int) -> tuple[Tensor, Tensor]:
    """Compute the top and left edges ``[B]`` int64 of random crops; all positions are equally likely.

    Args:
        draws: uniform numbers in [0, 1) ``[B, 2]``.
        height: height of the images, at least ``side``.
        width: width of the images, at least ``side``.
        side: height and width of the crops.
    """
    margins = height - side, width - side
    top, left = ((u * (m + 1)).floor().long().clamp_max(m) for u, m in zip(draws.unbind(1), margins, strict=True))
    return top, left


def crop_and_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor, side: int) -> Tensor:
    """Take one crop of each image, mirrored left to right where ``flip``; each pixel is copied once.

    Args:
        images: ``[B, C, H, W]`` of any type.
        top: first row of each crop ``[B]`` int64.
        left: first column of each crop ``[B]`` int64.
        flip: whether to mirror it ``[B]`` bool.
        side: height and width of the crops.

    Returns:
        ``[B, C, side, side]``, channels last in memory.
    """
    offsets = torch.arange(side, device=images.device)
    rows = top[:, None] + offsets
    columns = left[:, None] + torch.where(flip[:, None], side - 1 - offsets, offsets)
    index = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
