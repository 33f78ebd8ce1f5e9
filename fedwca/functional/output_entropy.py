"""Information maximization, its two terms separately, and the mutual information of a model's outputs."""

from __future__ import annotations

import math

from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import check_matrix, entropy_of_rows, mean_of_rows, mean_row, zero_rows


def information_maximization(logits: Tensor, mask: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Compute mean entropy of the outputs minus entropy of the mean output; lower is better, and differentiable.

    Source: FedWCA, app. B.4, L_IM of eq. 9; SHOT's code adds ``eps`` inside both logarithms, eq. 9 has none (0).

    Args:
        logits: ``[N, M]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        eps: added inside the logarithms, at least 0.

    Returns:
        ``[]`` in nats: about -log M when each output is one-hot and the classes are balanced, about 0 when all outputs
        are alike; 0 without samples.

    Raises:
        UsageError: ``eps`` is negative, or ``logits`` has not two axes.

    >>> import torch
    >>> information_maximization(torch.tensor([[50.0, 0.0], [0.0, 50.0]]))  # -log 2
    tensor(-0.6931)
    """
    if eps < 0:
        raise UsageError(f"eps must be at least 0, not {eps}")
    check_matrix("logits", logits)
    keep = None if mask is None else mask != 0
    outputs = zero_rows(logits, keep).softmax(-1)
    average = mean_row(outputs, keep)
    return mean_of_rows(entropy_of_rows(outputs, eps), keep) - entropy_of_rows(average, eps)


def prediction_entropy(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the entropies of the outputs; lower is more confident, and differentiable.

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
    """Compute minus the entropy of the mean output; lower is more balanced over classes, and differentiable.

    The sum of this and `prediction_entropy` is `information_maximization` with ``eps=0``.

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
    return -entropy_of_rows(mean_row(zero_rows(logits, keep).softmax(-1), keep))


def mutual_information(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute (H(mean p) - mean H(p)) / log M: the information of outputs p about the class, relative to its maximum.

    For a source model that was not adapted, it is low where most of its labels are wrong. Training by information
    maximization raises it whether labels are right or wrong.

    Source: Bridle et al., NIPS 1991, of the samples given here, divided by log M.

    Args:
        logits: ``[N, M]``.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` without unit, from 0 (all outputs equal) to 1 (each output one-hot, classes balanced); 0 without samples,
        and with one class.

    Raises:
        UsageError: ``logits`` has not two axes.

    >>> import torch
    >>> mutual_information(torch.tensor([[0.0, 50.0], [50.0, 0.0]]))
    tensor(1.)
    """
    information = -information_maximization(logits, mask, eps=0) / math.log(max(2, logits.shape[-1]))
    return information.clamp_min(0)  # equal outputs may be rounded to less
