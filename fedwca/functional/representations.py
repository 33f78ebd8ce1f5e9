"""Loss terms that keep a representation simple."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.functional._rows import length_of_rows, mean_of_rows, zero_rows


def gaussian_divergence(
    mean: Tensor, std: Tensor, prior_mean: Tensor, prior_std: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Average the Kullback-Leibler divergences of normal distributions from priors, all with independent entries.

    Source: FedSR (Nguyen et al., NeurIPS 2022), the conditional mutual information's bound.

    Args:
        mean: ``[N, d]``.
        std: ``[N, d]``, above 0.
        prior_mean: ``[N, d]``.
        prior_std: ``[N, d]``, above 0.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats: summed over d, averaged over samples; at least 0, and 0 without samples.

    >>> zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    >>> gaussian_divergence(one, one, zero, 2 * one)  # log 2 + (1 + 1)/8 - 1/2
    tensor(0.4431)
    """
    keep = None if mask is None else mask != 0
    shift = zero_rows(mean - prior_mean, keep)
    if keep is not None:
        std, prior_std = (values.masked_fill(~keep[:, None], 1) for values in (std, prior_std))
    ratio = std / prior_std
    # A standard deviation that underflowed gives a large divergence, not an infinite one.
    log_ratio = ratio.clamp_min(torch.finfo(ratio.dtype).tiny).log()
    return mean_of_rows((((ratio.square() + (shift / prior_std).square() - 1) / 2) - log_ratio).sum(-1), keep)


def representation_norm(z: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the Euclidean lengths of representations; differentiable, with gradient 0 at 0.

    Source: FedSR (Nguyen et al., NeurIPS 2022), its L2 regulariser.

    Args:
        z: ``[N, d]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in units of z; 0 without samples.

    >>> representation_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor(3.)
    """
    keep = None if mask is None else mask != 0
    return mean_of_rows(length_of_rows(zero_rows(z, keep)), keep)
