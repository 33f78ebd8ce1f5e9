"""Shift of the inputs of a BatchNorm layer from those it was trained on."""

from __future__ import annotations

import torch
from torch import Tensor


def moment_shift(
    mean: Tensor, variance: Tensor, source_mean: Tensor, source_variance: Tensor, eps: float = 1e-5
) -> Tensor:
    """Express moments in units of a BatchNorm's own: [(mean - m_S) / sigma_S ; log(sd / sigma_S)].

    Both deviations are square roots of variance + ``eps``, as in the layer, so that the logarithm exists for a constant
    channel too.

    Source: ours; the statistics are those of AdaBN (Li et al., 2017).

    Args:
        mean: mean of each channel's inputs at a client ``[q]``.
        variance: variance of the same, with N in the denominator ``[q]``.
        source_mean: running mean of the layer ``[q]``.
        source_variance: running variance of the layer ``[q]``.
        eps: that of the layer, above 0.

    Returns:
        ``[2q]`` without unit; zeros where nothing has shifted.

    >>> one, four = torch.tensor([1.0]), torch.tensor([4.0])
    >>> moment_shift(torch.tensor([3.0]), one, one, four, eps=1e-12)  # (3 - 1) / 2, log(1 / 2)
    tensor([ 1.0000, -0.6931])
    """
    squared_scale = source_variance + eps
    return torch.cat([(mean - source_mean) / squared_scale.sqrt(), ((variance + eps) / squared_scale).log() / 2])
