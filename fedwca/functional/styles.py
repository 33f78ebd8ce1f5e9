"""Image style as in LADD: the low frequencies of the amplitude spectrum."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def amplitude_style(images: Tensor, share: float = 0.05) -> Tensor:
    """Average the amplitudes of the lowest frequencies over images, per channel; phases are discarded.

    Args:
        images: ``[N, 3, H, W]``, any scale; uint8 or floating.
        share: b = floor(share · min(H, W)), at least 1 and at most floor((min(H, W) - 1) / 2); the window is 2b + 1
            frequencies wide and high, its centre the mean intensity (H·W times it), which dominates.

    Returns:
        ``[3 · (2b + 1)²]`` float64, in the images' unit.

    Source: Shenaj et al. (LADD), WACV 2023, sec. 4; FedWCA App. C.2 ("the central 5% region of the
    frequency spectrum").

    >>> amplitude_style(torch.ones(1, 3, 4, 4), 0.25).view(3, 3, 3)[0].tolist()
    [[0.0, 0.0, 0.0], [0.0, 16.0, 0.0], [0.0, 0.0, 0.0]]
    """
    height, width = images.shape[-2:]
    b = min(max(1, math.floor(share * min(height, width))), (min(height, width) - 1) // 2)
    spectrum: Tensor = torch.fft.fftshift(torch.fft.fft2(images.double()), dim=(-2, -1)).abs()
    row, column = height // 2, width // 2
    window = spectrum[..., row - b : row + b + 1, column - b : column + b + 1]
    return window.mean(0).flatten()
