"""The two terms of the local objective (eq. 9)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import blank, mean_of, real


def information_maximization(logits: Tensor, mask: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Mean entropy of the outputs minus the entropy of the mean output; lower is better, and differentiable.

    Source: FedWCA, app. B.4, L_IM of eq. 9; SHOT's code adds ``eps`` inside both logarithms, eq. 9 has none (0).

    Args:
        logits: ``[N, M]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        eps: at least 0.

    Returns:
        ``[]`` in nats: about -log M when each output is one-hot and the classes are balanced, about 0 when all outputs
        are alike; 0 without samples.

    Raises:
        UsageError: ``eps`` is negative.

    >>> information_maximization(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))  # -log 2
    tensor(-0.6931)
    """
    if eps < 0:
        raise UsageError(f"eps must be at least 0, not {eps}")
    keep = real(logits, mask)
    outputs = blank(logits, keep).softmax(-1)
    average = blank(outputs, keep).sum(0) / keep.sum().clamp_min(1)
    tiny = torch.finfo(outputs.dtype).tiny

    def entropy(chances: Tensor) -> Tensor:
        return -(chances * (chances + eps).clamp_min(tiny).log()).sum(-1)

    return mean_of(entropy(outputs), keep) - entropy(average)


def weighted_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the cross-entropy with weights: sum of weight times loss over the sum of weights; differentiable.

    Source: FedWCA, app. B.4, L_CE of eq. 9, over the samples that have a label to be trained towards (weight > 0).

    Args:
        logits: ``[N, M]``.
        labels: ``[N]`` int64 in 0…M-1; where the weight is 0 anything may stand, also -1.
        weights: ``[N]``, at least 0.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats, at least 0; exactly 0, with zero gradients, when no sample has a weight.

    >>> logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    >>> weighted_cross_entropy(logits, torch.tensor([1, -1]), torch.tensor([1.0, 0.0]))  # log 2
    tensor(0.6931)
    """
    active = real(logits, mask) & (weights > 0)
    weights = weights.masked_fill(~active, 0).to(logits.dtype)
    targets = labels.masked_fill(~active, 0)
    losses = -blank(logits, active).log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    total = weights.sum()
    return (weights * losses).sum() / torch.where(total > 0, total, 1)
