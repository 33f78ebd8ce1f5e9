"""How far the inputs of a BatchNorm have moved from where it was trained."""

from __future__ import annotations

import torch
from torch import Tensor


def moment_shift(
    mean: Tensor, variance: Tensor, source_mean: Tensor, source_variance: Tensor, eps: float = 1e-5
) -> Tensor:
    """Put moments in units of a BatchNorm's own: [(mean - m_S) / sigma_S ; log(sd / sigma_S)].

    Both deviations are square roots of variance + ``eps``, as the layer divides by them, so that a channel that never
    changes has a logarithm.

    Source: ours; the statistics are those of AdaBN (Li et al., 2017).

    Args:
        mean: of each channel's inputs at a client ``[q]``.
        variance: likewise, with N in the denominator ``[q]``.
        source_mean: running mean of the layer ``[q]``.
        source_variance: running variance of the layer ``[q]``.
        eps: that of the layer, above 0.

    Returns:
        ``[2q]`` without unit; zeros where nothing has moved.

    >>> one, four = torch.tensor([1.0]), torch.tensor([4.0])
    >>> moment_shift(torch.tensor([3.0]), one, one, four, eps=1e-12)  # (3 - 1) / 2, log(1 / 2)
    tensor([ 1.0000, -0.6931])
    """
    wide = source_variance + eps
    return torch.cat([(mean - source_mean) / wide.sqrt(), ((variance + eps) / wide).log() / 2])
