"""Gradient reversal, its schedule, and the loss of the domain classifier behind it."""

from __future__ import annotations

import math

from torch import Tensor


def gradient_reversal(x: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """Return values as they are, and multiply their gradients by ``-scale``.

    Source: DANN (Ganin et al., JMLR 2016), eqs. 16 and 17.

    Args:
        x: any shape, finite.
        scale: factor of the gradient, before its sign is turned.

    Returns:
        The same bits, in the same shape.

    >>> import torch
    >>> x = torch.tensor(3.0, requires_grad=True)
    >>> torch.autograd.grad(gradient_reversal(x, 0.5).square(), x)  # -0.5 · 6
    (tensor(-3.),)
    """
    fixed = x.detach()
    return fixed - scale * (x - fixed)


def reversal_scale(progress: float, gamma: float = 10.0) -> float:
    """Compute the scale that fades the reversal in: 2 / (1 + exp(-gamma·progress)) - 1.

    Source: DANN (Ganin et al., JMLR 2016), sec. 5.2.2.

    Args:
        progress: share of the training that is done, from 0 to 1.
        gamma: how fast it rises.

    Returns:
        From 0 towards 1.

    >>> import torch
    >>> [round(reversal_scale(progress), 4) for progress in (0.0, 0.1, 1.0)]
    [0.0, 0.4621, 0.9999]
    """
    return 2 / (1 + math.exp(-gamma * progress)) - 1


def domain_loss(logits: Tensor, sources: int) -> Tensor:
    """Average the cross-entropies of a domain classifier on both sides, each of which counts half; differentiable.

    Source: Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016, loss of the domain classifier.

    Args:
        logits: ``[N, 2]``, those of sources first: class 0 is a source, class 1 the target.
        sources: number of rows of sources, at least 1 and fewer than N.

    Returns:
        ``[]`` in nats, at least 0; log 2 where the classifier cannot tell.

    >>> import torch
    >>> domain_loss(torch.zeros(5, 2), 2)  # log 2
    tensor(0.6931)
    """
    log_probabilities = logits.log_softmax(-1)
    return -(log_probabilities[:sources, 0].mean() + log_probabilities[sources:, 1].mean()) / 2
