"""How far outputs are from other outputs, and distillation made of it."""

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
        reverse: take KL(reference || outputs) in place of KL(outputs || reference).

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
    first, second = (zero_rows(each, keep).log_softmax(-1) for each in (logits, reference))
    if reverse:
        first, second = second, first
    chances = first.exp()
    # What has no chance adds nothing, also where its logit is minus infinity.
    return mean_of_rows((chances * (first - second).masked_fill(chances == 0, 0)).sum(-1), keep)


def paired_distillation(
    adapted: Tensor,
    base: Tensor,
    teacher_adapted: Tensor,
    teacher_base: Tensor,
    lam: float,
    mask: Tensor | None = None,
    reverse: bool = False,
) -> Tensor:
    """Draw the adapted outputs to the adapted teacher's, plus ``lam`` times the base outputs to the base teacher's.

    Source: HeteroFedTTA, eq. 14, as a mean over images in place of the sum.

    Args:
        adapted: ``[N, M]``, logits of the model after its step of adaptation.
        base: ``[N, M]``, those before it.
        teacher_adapted: ``[N, M]``, the teacher's after its step.
        teacher_base: ``[N, M]``, the teacher's before it.
        lam: weight of the second term; 0 leaves the first alone.
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
