"""Dropout masks of a training step, drawn by place in the step, for one or many clients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.core.network import Drop
from fedwca.engine.randomness import place_counters, random_integers


def dropout_masks(
    drops: Sequence[Drop], key: int | Tensor, step: int | Tensor, positions: Tensor, stride: int
) -> list[Tensor]:
    """Dropout masks for the given positions of a step, scaled by 1/(1-p).

    Args:
        drops: the network's dropout layers.
        key: key of this training's dropout; of G clients ``[G, 1, 1]`` int64.
        step: number of the step within the training; of G clients ``[G, 1]`` int64.
        positions: places in the step ``[B]`` or ``[G, B]`` int64; a mixed image's place is ``batch size + place of its
            sample``.
        stride: places per step.

    Returns:
        One float32 mask for each entry of ``drops``, ``[…, B, *shape]``.
    """
    counts = [torch.Size(drop.shape).numel() for drop in drops]
    drawn = random_integers(key, place_counters(sum(counts), step, positions, stride)).split(counts, -1)
    # The condition u >= p in integers: u is n·2⁻⁵³, and p·2⁵³ is exact.
    masks = [n >= math.ceil(drop.p * 2.0**53) for n, drop in zip(drawn, drops, strict=True)]
    return [(mask.float() / (1 - drop.p)).unflatten(-1, drop.shape) for mask, drop in zip(masks, drops, strict=True)]
