"""One convolution for many models at once: their channels side by side, in groups."""

from __future__ import annotations

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor


def convolve_each(x: Tensor, parameters: Mapping[str, Tensor], name: str, padding: int = 0) -> Tensor:
    """Convolve each model's channels with its own weights: ``[B, G·c, H, W] -> [B, G·o, H', W']``.

    Args:
        x: images or activations of G models, channels side by side.
        parameters: weights by name ``[G, …]``.
        name: of the convolution.
        padding: pixels on each side.
    """
    weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    return F.conv2d(x, weight.flatten(0, 1), bias.flatten(), padding=padding, groups=len(weight))
