"""Loss terms of local objectives: weighted and smoothed cross-entropy, LADD's distillation, FedPCL's contrast."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import mean_of_rows, sample_mask, zero_rows


def weighted_cross_entropy(logits: Tensor, labels: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the cross-entropy by weights: sum of weight times loss over the sum of weights; differentiable.

    Source: FedWCA, app. B.4, L_CE of eq. 9, over the samples that have a label to be trained towards (weight > 0).

    Args:
        logits: ``[N, M]``.
        labels: ``[N]`` int64 in 0…M-1; any number, also -1, where the weight is 0.
        weights: ``[N]``, at least 0.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats, at least 0; exactly 0, with zero gradients, when no sample has a weight.

    >>> logits = torch.tensor([[0.0, 0.0], [9.0, 0.0]])
    >>> weighted_cross_entropy(logits, torch.tensor([1, -1]), torch.tensor([1.0, 0.0]))  # log 2
    tensor(0.6931)
    """
    return smoothed_cross_entropy(logits, labels, 0.0, weights, mask)


def smoothed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    smoothing: float = 0.1,
    weights: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Average the cross-entropy towards smoothed labels, (1 - s)·one-hot + s/M, by weights; differentiable.

    Source: SFDA, eqs. 14-16; Szegedy et al., CVPR 2016.

    Args:
        logits: ``[N, M]``.
        labels: ``[N]`` int64 in 0…M-1; any number, also -1, where the weight or the mask is 0.
        smoothing: s, from 0 (plain cross-entropy) to 1.
        weights: ``[N]``, at least 0; None: 1 each.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats: sum of weight times loss over the sum of weights; exactly 0, with zero gradients, when no sample
        has a weight.

    Raises:
        UsageError: the smoothing is not from 0 to 1.

    >>> logits = torch.tensor([[3.0, 0.0]]).log_softmax(-1)  # minus log outputs: 0.0486 and 3.0486
    >>> smoothed_cross_entropy(logits, torch.tensor([0]), smoothing=0.5)  # 0.75 and 0.25 of them
    tensor(0.7986)
    """
    if not 0 <= smoothing <= 1:
        raise UsageError(f"the smoothing must be from 0 to 1, not {smoothing}")
    if weights is None:
        weights = torch.ones_like(labels, dtype=logits.dtype)
    # Not `weights <= 0`, so that a NaN weight leaves its sample out as well.
    ignored = ~(weights > 0) if mask is None else ~((mask != 0) & (weights > 0))
    weights = weights.masked_fill(ignored, 0).to(logits.dtype)
    targets = labels.masked_fill(ignored, 0)[:, None]
    log_probabilities = logits.masked_fill(ignored[:, None], 0).log_softmax(-1)
    losses = log_probabilities.gather(-1, targets)[:, 0]
    if smoothing:
        losses = (1 - smoothing) * losses + smoothing * log_probabilities.mean(-1)
    total = weights.sum()
    return -(weights * losses).sum() / (total + (total == 0))


def distillation(
    logits: Tensor, teacher: Tensor, alpha: float = 0.5, weights: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Average -(teacher's output · log output) over samples and classes; differentiable in ``logits``.

    The mean over classes makes it M times smaller than a cross-entropy; alpha multiplies the teacher's logits, so that
    below 1 its outputs are flatter.

    Source: LADD (Shenaj et al., WACV 2023), knowledge distillation as in its code.

    Args:
        logits: ``[N, M]``.
        teacher: ``[N, M]``, logits of the teacher.
        alpha: factor of the teacher's logits.
        weights: ``[N]``; samples at 0 add nothing to the sum but count in the mean.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats, at least 0; 0 without samples.

    >>> zeros = torch.zeros(1, 2)
    >>> distillation(zeros, zeros)  # (1/2 log 2 + 1/2 log 2) / 2
    tensor(0.3466)
    """
    keep = sample_mask(logits, mask)
    targets = (alpha * zero_rows(teacher, keep)).softmax(-1)
    losses = -(targets * zero_rows(logits, keep).log_softmax(-1)).mean(-1)
    return mean_of_rows(losses if weights is None else losses * weights.masked_fill(~keep, 0).to(losses.dtype), keep)


def prototype_contrast(
    features: Tensor,
    labels: Tensor,
    prototypes: Tensor,
    tau: float,
    base_tau: float = 0.07,
    mask: Tensor | None = None,
) -> Tensor:
    """Draw samples to the prototype of their label, in contrast to all others of the batch; differentiable in features.

    For sample i the anchor is the prototype a of its label. With logits a·z_j / tau over the other samples j ≠ i, its
    loss is -tau/base_tau times the mean log softmax over the j of the same label. A sample that is alone with its label
    has no loss. The factor keeps the size of the gradient: a larger tau only flattens the softmax.

    Source: `ConLoss` of FedPCL's published code (Tan et al., NeurIPS 2022), base_tau = 0.07; the publication's loss
    contrasts each sample with the prototypes of the other classes instead.

    Args:
        features: ``[N, q]``, unit length in the publication.
        labels: ``[N]`` int64 in 0…M-1; any number in padded rows.
        prototypes: ``[..., M, q]``; the loss is the mean over the leading axes (clients).
        tau: temperature, above 0.
        base_tau: above 0.
        mask: ``[N]``, 1 for a sample that takes part.

    Returns:
        ``[]``, at least 0; 0, with zero gradients, where no label occurs twice.

    Raises:
        UsageError: a temperature is not positive.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> prototype_contrast(features, torch.tensor([0, 0, 1]), torch.eye(2), 1.0, 1.0)  # log(1 + 1/e), twice
    tensor(0.3133)
    """
    if not (tau > 0 and base_tau > 0):
        raise UsageError(f"temperatures must be above 0, not {tau} and {base_tau}")
    keep = sample_mask(features, mask)
    classes = prototypes.shape[-2]
    targets = labels.masked_fill(~keep, 0).clamp(0, classes - 1)
    diagonal = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    compared = keep & ~diagonal
    same_label = compared & keep[:, None] & (targets[:, None] == targets)
    z = zero_rows(features, keep)
    logits = (prototypes[..., targets, :] @ z.mT / tau).masked_fill(~compared, torch.finfo(z.dtype).min)
    log_likelihoods = logits.log_softmax(-1).masked_fill(~same_label, 0).sum(-1) / same_label.sum(-1).clamp_min(1)
    paired = same_label.any(-1)
    return -tau / base_tau * (log_likelihoods * paired).sum(-1).mean() / paired.sum().clamp_min(1)
