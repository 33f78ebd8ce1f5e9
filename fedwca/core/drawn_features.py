"""Features drawn from normal distributions: the logits of one draw, or of the mean prediction over several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SPREAD = "spread"
"""Name of the extra network that gives the standard deviations of these distributions, before softplus."""


def classify_draws(
    distributions: Tensor, classifier: Callable[[Tensor], Tensor], draws: Tensor, noise: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Logits and features, given normal distributions of features; see `fedwca.core.network.Network.classify`.

    Source: FedSR (Nguyen et al., NeurIPS 2022), as its code predicts.

    Args:
        distributions: means and standard deviations, concatenated ``[..., N, 2q]``.
        classifier: ``[..., N, q]`` to logits ``[..., N, M]``.
        draws: standard normal ``[S, q]``, the same for all samples.
        noise: one standard normal tensor ``[..., N, q]`` in a training step; empty: the mean prediction over ``draws``.

    Returns:
        With noise e: the logits of z = mean + std·e, and z, mean and std concatenated ``[..., N, 3q]``. Without: the
        logarithm of the mean softmax over draws, and the means ``[..., N, q]``.

    >>> found, classifier = torch.tensor([[1.0, 2.0]]), lambda z: torch.cat([z, 0 * z], -1)
    >>> classify_draws(found, classifier, torch.zeros(1, 1), [torch.tensor([[0.5]])])  # z = 1 + 2 · 0.5
    (tensor([[2., 0.]]), tensor([[2., 1., 2.]]))
    >>> logits, _ = classify_draws(found, classifier, torch.tensor([[-0.5], [0.5]]), ())  # z = 0 and 2
    >>> logits.exp()  # the means of 1/2 and 0.8808, and of 1/2 and 0.1192
    tensor([[0.6904, 0.3096]])
    """
    mean, std = distributions.chunk(2, -1)
    if noise:
        z = mean + std * noise[0]
        return classifier(z), torch.cat([z, mean, std], -1)
    drawn = mean[..., None, :] + std[..., None, :] * draws
    logits = classifier(drawn.flatten(-3, -2)).unflatten(-2, drawn.shape[-3:-1])
    return logits.log_softmax(-1).logsumexp(-2) - math.log(len(draws)), mean
