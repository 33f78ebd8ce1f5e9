"""Where the square that a network sees is cut out of a stored image: centred, or random and possibly mirrored."""

from __future__ import annotations

import torch
from torch import Tensor


def center_crop(images: Tensor, side: int) -> Tensor:
    """``[..., H, W] -> [..., side, side]``, a view; of an odd rest the larger half is cut off below and on the right.

    >>> center_crop(torch.arange(16).view(4, 4), 2).tolist()
    [[5, 6], [9, 10]]
    """
    top, left = (images.shape[-2] - side) // 2, (images.shape[-1] - side) // 2
    return images[..., top : top + side, left : left + side]


def crop_corners(draws: Tensor, height: int, width: int, side: int) -> tuple[Tensor, Tensor]:
    """Top and left edges ``[B]`` int64 of random crops; every place is equally likely.

    Args:
        draws: uniform numbers in [0, 1) ``[B, 2]``.
        height: of the images, at least ``side``.
        width: of the images, at least ``side``.
        side: height and width of the crops.
    """
    rest = height - side, width - side
    top, left = ((u * (most + 1)).floor().long().clamp_max(most) for u, most in zip(draws.unbind(1), rest, strict=True))
    return top, left


def crop_and_flip(images: Tensor, top: Tensor, left: Tensor, flip: Tensor, side: int) -> Tensor:
    """One crop of each image, mirrored left to right where ``flip``; copies each pixel once.

    Args:
        images: ``[B, C, H, W]`` of any type.
        top: first row of each crop ``[B]`` int64.
        left: first column of each crop ``[B]`` int64.
        flip: whether to mirror it ``[B]`` bool.
        side: height and width of the crops.

    Returns:
        ``[B, C, side, side]``, channels last in memory.
    """
    steps = torch.arange(side, device=images.device)
    rows = top[:, None] + steps
    columns = left[:, None] + torch.where(flip[:, None], side - 1 - steps, steps)
    each = torch.arange(len(images), device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
