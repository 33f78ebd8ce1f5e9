"""Selection of pseudo-labels: the better of two models' labels, and labels that are confident enough."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.special import entr

from fedwca.errors import UsageError
from fedwca.functional._rows import class_columns, mean_of_rows, sample_mask, zero_rows

NEAR_ONE = 1e-6
"""Cosines that are nearer to 1 count as 1: with thousands of features, float32 errs by half of this."""


def select_labels(
    initial: tuple[Tensor, Tensor],
    cluster: tuple[Tensor, Tensor],
    p: Tensor,
    q: Tensor,
    rule: Literal["margin", "ratio"] = "margin",
) -> Tensor:
    """Take for each sample the label of the model whose normalised similarity is larger; ties go to the initial model.

    ``margin`` compares (d-p)/(1-p) with (d'-q)/(1-q): 0 at the mean similarity of different classes, 1 when perfect,
    and increasing in d whatever the sign of p. ``ratio`` compares d/p with d'/q, as the paper writes it; where p is
    negative, it prefers the *less* similar label. Plain similarities are compared, on both sides, where a normaliser
    cannot be used: ``ratio`` with p or q equal to 0, ``margin`` with p or q nearer to 1 than 1e-6 (all prototypes point
    in one direction). A similarity so near to 1 counts as 1: a sample that is alone in its class by both models has
    similarity 1 to both prototypes, which is a tie under ``margin``, and rounding must not decide it.

    Source: FedWCA, Algorithm 2, line 7 (``ratio``).

    Args:
        initial: labels ``[N]`` and cosines ``[N]`` under the initial model, as `prototype_labels` gives them.
        cluster: the same under the cluster model.
        p: ``[]``, `prototype_similarity` of the initial model.
        q: ``[]``, that of the cluster model.
        rule: how similarities are normalised.

    Returns:
        ``[N]`` labels; row by row, so padded rows do not matter.

    Raises:
        UsageError: there is no such rule.

    >>> one = (torch.tensor([0, 0]), torch.tensor([0.8, 0.6]))
    >>> two = (torch.tensor([1, 1]), torch.tensor([0.7, 0.7]))
    >>> select_labels(one, two, torch.tensor(0.5), torch.tensor(0.0))  # 0.6 and 0.2 against 0.7 and 0.7
    tensor([1, 1])
    """
    initial_labels, cluster_labels = initial[0], cluster[0]
    d, e = (similarities.masked_fill(1 - similarities <= NEAR_ONE, 1) for _, similarities in (initial, cluster))
    if rule == "margin":
        usable = (1 - p > NEAR_ONE) & (1 - q > NEAR_ONE)
        initial_score, cluster_score = (d - p) / torch.where(usable, 1 - p, 1), (e - q) / torch.where(usable, 1 - q, 1)
    elif rule == "ratio":
        usable = (p != 0) & (q != 0)
        initial_score, cluster_score = d / torch.where(usable, p, 1), e / torch.where(usable, q, 1)
    else:
        raise UsageError(f"no rule '{rule}'; there are 'margin' and 'ratio'")
    return torch.where(torch.where(usable, initial_score >= cluster_score, d >= e), initial_labels, cluster_labels)


def confident_mask(probabilities: Tensor, confidence: float, share: float, mask: Tensor | None = None) -> Tensor:
    """Find the samples whose prediction is confident: above a probability, or among the most confident of its class.

    Source: LADD (Shenaj et al., WACV 2023), self-training: 0.9 and 0.66 in its code, there over the pixels of an image.

    Args:
        probabilities: ``[N, M]``, softmax outputs.
        confidence: a sample is kept when its largest probability is above this; from 0 to 1.
        share: it is also kept when it is among the floor(share · n) most confident of the n samples predicted as its
            class.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[N]`` bool; False for padding. Of equally confident samples the earlier ones come first.

    >>> confident_mask(torch.tensor([[0.95, 0.05], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]), 0.9, 0.67)  # class 0 keeps two
    tensor([ True,  True, False, False])
    """
    keep = sample_mask(probabilities, mask)
    largest, labels = zero_rows(probabilities, keep).max(-1)
    members = class_columns(labels, probabilities.shape[-1]) & keep[:, None]
    order = largest.masked_fill(~keep, -1).argsort(descending=True, stable=True)
    rank = order.argsort()
    rank_in_class = (members[order].long().cumsum(0)[rank] * members).sum(-1)
    allowed = (members * (share * members.sum(0).double() + 1e-9).floor()).sum(-1)
    return keep & ((largest > confidence) | (rank_in_class <= allowed))


def adaptive_threshold(
    probabilities: Tensor, base: float = 0.8, low: float = -0.1, high: float = 0.15, mask: Tensor | None = None
) -> Tensor:
    """Shift a threshold by the skewness of a client's entropies: base + clip(3·(mean - median)/std, low, high).

    A few uncertain samples among confident ones (mean above median) raise it. The median of an even number of samples
    is the lower of the two in the middle; the standard deviation has ddof 1.

    Source: FedSCAl (arXiv 2512.06738, WACV 2026), adaptive threshold; Pearson's second skewness, constants of its code.

    Args:
        probabilities: ``[N, M]``, softmax outputs on all of a client's images.
        base: threshold without skewness.
        low: smallest shift.
        high: largest shift.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]``; the base where the standard deviation is at most 1e-6 nats, not far above float32's rounding.

    >>> adaptive_threshold(torch.tensor([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]))  # skewed far: 0.8 + 0.15
    tensor(0.9500)
    """
    keep = sample_mask(probabilities, mask)
    count = keep.sum()
    entropies = entr(zero_rows(probabilities, keep)).sum(-1)
    mean = mean_of_rows(entropies, keep)
    spread = ((entropies - mean).square().masked_fill(~keep, 0).sum() / (count - 1).clamp_min(1)).sqrt()
    ranked = entropies.masked_fill(~keep, torch.inf).sort().values
    ranked = torch.cat([ranked, ranked.new_full((1,), torch.inf)])  # without samples there is no median either
    median = ranked.gather(0, ((count - 1) // 2).clamp_min(0)[None])[0].nan_to_num(posinf=0.0)
    skewness = torch.where(spread > 1e-6, 3 * (mean - median) / torch.where(spread > 1e-6, spread, 1), 0)
    return base + skewness.clamp(low, high)
