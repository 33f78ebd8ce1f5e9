"""The two terms of information maximization, each by itself, and what they say of a model."""

from __future__ import annotations

import math

from torch import Tensor

from fedwca.functional._rows import count_rows, entropy_of_rows, mean_of_rows, zero_rows


def prediction_entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the entropies of the outputs; lower is surer, and differentiable.

    Source: SFDA, eq. 17; TENT (Wang et al., ICLR 2021); the least of it is FedTTA++'s choice.

    Args:
        logits: ``[N, M]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats, from 0 to log M; 0 without samples. Gradients are finite also where an output is 0.

    >>> import torch
    >>> prediction_entropy(torch.tensor([[0.0, 0.0], [50.0, 0.0]]))  # (log 2 + 0) / 2
    tensor(0.3466)
    """
    keep = None if mask is None else mask != 0
    return mean_of_rows(entropy_of_rows(zero_rows(logits, keep).softmax(-1)), keep)


def diversity_loss(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Take minus the entropy of the mean output; lower is more balanced over classes, and differentiable.

    Its sign is in it: it is added to `prediction_entropy`, and both make `information_maximization` with ``eps=0``.

    Source: SFDA, eq. 18, over the samples given here.

    Args:
        logits: ``[N, M]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats, from -log M to 0; 0 without samples.

    >>> import torch
    >>> diversity_loss(torch.tensor([[0.0, 50.0], [50.0, 0.0]]))  # -log 2
    tensor(-0.6931)
    """
    keep = None if mask is None else mask != 0
    outputs = zero_rows(zero_rows(logits, keep).softmax(-1), keep)
    return -entropy_of_rows(outputs.sum(0) / count_rows(outputs, keep))


def mutual_information(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Take (H(mean p) - mean H(p)) / log M: what outputs say of the class, as a share of all there is to say.

    Asked of a source model that was not adapted, it is low where most of its labels are wrong. Training by information
    maximization raises it whether labels are right or wrong.

    Source: Bridle et al., NIPS 1991, of the samples given here, divided by log M.

    Args:
        logits: ``[N, M]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` without unit, from 0 (all outputs alike) to 1 (sure of each sample, classes balanced); 0 without samples,
        and with one class.

    >>> import torch
    >>> mutual_information(torch.tensor([[0.0, 50.0], [50.0, 0.0]]))
    tensor(1.)
    """
    return -(diversity_loss(logits, mask) + prediction_entropy(logits, mask)) / math.log(max(2, logits.shape[-1]))
