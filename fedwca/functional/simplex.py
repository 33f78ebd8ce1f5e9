"""Gradient ascent of mixture weights on losses, with projection onto the simplex."""

from __future__ import annotations

import torch
from torch import Tensor


def project_simplex(values: Tensor) -> Tensor:
    """Project values onto the simplex: the nearest weights in Euclidean distance, at least 0 and of sum 1.

    Source: Duchi et al., ICML 2008, fig. 1; as AFL (Mohri et al., ICML 2019) needs it.

    Args:
        values: ``[..., K]``, finite.

    Returns:
        ``[..., K]``, at least 0, sum 1 over the last axis.

    >>> project_simplex(torch.tensor([0.9, 0.5, -1.0]))  # 0.2 less each, what is below 0 left out
    tensor([0.7000, 0.3000, 0.0000])
    """
    # Subtracting a constant does not change the projection, and keeps the digits of large values.
    values = values - values.amax(-1, keepdim=True)
    ranked = values.sort(-1, descending=True).values
    counts = torch.arange(1, values.shape[-1] + 1, device=values.device, dtype=values.dtype)
    shifts = (ranked.cumsum(-1) - 1) / counts
    last = (ranked > shifts).sum(-1, keepdim=True) - 1
    return (values - shifts.gather(-1, last)).clamp_min(0)


def mixture_ascent(weights: Tensor, losses: Tensor, lr: float) -> Tensor:
    """Move weights towards clients of larger loss, by one projected gradient step.

    Source: AFL (Mohri et al., ICML 2019), Stochastic-AFL, step of lambda.

    Args:
        weights: ``[..., K]``, at least 0, sum 1.
        losses: ``[..., K]``, loss of each client.
        lr: step size.

    Returns:
        ``[..., K]``, at least 0, sum 1 over the last axis.

    >>> mixture_ascent(torch.tensor([0.5, 0.5]), torch.tensor([3.0, 1.0]), lr=0.1)
    tensor([0.6000, 0.4000])
    """
    return project_simplex(weights + lr * losses)
