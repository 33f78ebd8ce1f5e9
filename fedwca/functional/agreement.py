"""Agreement of clients' updates in sign."""

from __future__ import annotations

import torch
from torch import Tensor


def agreement_mask(votes: Tensor, threshold: float) -> Tensor:
    """Compute a mask: 1 where clients agree enough on the sign of an update, elsewhere their degree of agreement.

    Source: FedGMA (Tenison et al., TMLR 2023), the gradient mask.

    Args:
        votes: any shape, weighted sums of the signs of the clients' updates, from -1 to 1; in float64, since with
            equal weights a sum is often exactly the threshold, and float32 rounds it to either side.
        threshold: tau, from 0 (1 everywhere: plain averaging) to 1.

    Returns:
        The same shape, from 0 to 1.

    >>> agreement_mask(torch.tensor([1.0, -0.5, 0.2]), threshold=0.4)
    tensor([1.0000, 1.0000, 0.2000])
    """
    agreement = votes.abs()
    # Sums of weights that equal the threshold may be rounded to less, by far less than this.
    return torch.where(agreement >= threshold - 1e-9, torch.ones_like(agreement), agreement)
