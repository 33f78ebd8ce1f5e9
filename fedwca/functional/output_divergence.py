"""Divergence of outputs from reference outputs, and distillation by it."""

from __future__ import annotations

from torch import Tensor

from fedwca.functional._rows import mean_of_rows, zero_rows


def prediction_divergence(
    logits: Tensor, reference: Tensor, mask: Tensor | None = None, reverse: bool = False
) -> Tensor:
    """Average the Kullback-Leibler divergences of outputs from reference outputs; differentiable in both.

    Source: FedTTA-Prox, eq. 13, with outputs first; its released code has the reference first (``reverse``).

    Args:
        logits: ``[N, M]``.
        reference: ``[N, M]``, logits.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        reverse: take KL(reference || outputs) instead of KL(outputs || reference).

    Returns:
        ``[]`` in nats, at least 0; 0 without samples.

    >>> import torch
    >>> logits, reference = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    >>> prediction_divergence(logits, reference)  # 1/2 log 2 + 1/2 log 2/3
    tensor(0.1438)
    >>> prediction_divergence(logits, reference, reverse=True)  # 1/4 log 1/2 + 3/4 log 3/2
    tensor(0.1308)
    """
    keep = None if mask is None else mask != 0
    log_p, log_q = (zero_rows(values, keep).log_softmax(-1) for values in (logits, reference))
    if reverse:
        log_p, log_q = log_q, log_p
    probabilities = log_p.exp()
    # A class of probability 0 adds nothing, even where its logit is minus infinity.
    return mean_of_rows((probabilities * (log_p - log_q).masked_fill(probabilities == 0, 0)).sum(-1), keep)


def paired_distillation(
    adapted: Tensor,
    base: Tensor,
    teacher_adapted: Tensor,
    teacher_base: Tensor,
    lam: float,
    mask: Tensor | None = None,
    reverse: bool = False,
) -> Tensor:
    """Add the divergence of adapted outputs from the teacher's, and ``lam`` times that of the outputs before the step.

    Source: HeteroFedTTA, eq. 14, as a mean over images instead of the sum.

    Args:
        adapted: ``[N, M]``, logits of the model after its step of adaptation.
        base: ``[N, M]``, logits of the model before it.
        teacher_adapted: ``[N, M]``, the teacher's logits after its step.
        teacher_base: ``[N, M]``, the teacher's logits before it.
        lam: weight of the second term; 0 leaves only the first.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        reverse: the teacher's outputs come first in both divergences.

    Returns:
        ``[]`` in nats, at least 0; 0 without samples.

    >>> import torch
    >>> even, uneven = torch.zeros(1, 2), torch.tensor([[0.25, 0.75]]).log()
    >>> paired_distillation(even, even, uneven, uneven, lam=0.5)  # 1.5 · 0.1438
    tensor(0.2158)
    """
    return prediction_divergence(adapted, teacher_adapted, mask, reverse) + lam * prediction_divergence(
        base, teacher_base, mask, reverse
    )
