"""Which pseudo-labels are trusted: of two models' labels the better one, and those that are sure enough."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.special import entr

from fedwca.errors import UsageError
from fedwca.functional._rows import class_columns, mean_of_rows, sample_mask, zero_rows


def select_labels(
    initial: tuple[Tensor, Tensor],
    cluster: tuple[Tensor, Tensor],
    p: Tensor,
    q: Tensor,
    rule: Literal["margin", "ratio"] = "margin",
) -> Tensor:
    """Take for each sample the label of the model whose normalised similarity is larger; ties go to the initial one.

    ``margin`` compares (d-p)/(1-p) with (d'-q)/(1-q): 0 at the level of different classes, 1 when perfect, and rising
    in d whatever the sign of p. ``ratio`` is the paper's letter, d/p and d'/q; where p is negative, it prefers the
    *less* similar label. Similarities are compared as they are, on both sides, where a normaliser cannot be used:
    ``ratio`` with p or q equal to 0, ``margin`` with p or q nearer to 1 than 1e-6 (all prototypes point one way).

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
    (labels, d), (others, e) = initial, cluster
    if rule == "margin":
        usable = (1 - p > 1e-6) & (1 - q > 1e-6)
        left, right = (d - p) / torch.where(usable, 1 - p, 1), (e - q) / torch.where(usable, 1 - q, 1)
    elif rule == "ratio":
        usable = (p != 0) & (q != 0)
        left, right = d / torch.where(usable, p, 1), e / torch.where(usable, q, 1)
    else:
        raise UsageError(f"no rule '{rule}'; there are 'margin' and 'ratio'")
    return torch.where(torch.where(usable, left >= right, d >= e), labels, others)


def confident_mask(probabilities: Tensor, confidence: float, share: float, mask: Tensor | None = None) -> Tensor:
    """Say which samples' predicted classes are sure enough: above a probability, or among the surest of their class.

    Source: LADD (Shenaj et al., WACV 2023), self-training: 0.9 and 0.66 in its code, there over the pixels of an image.

    Args:
        probabilities: ``[N, M]``, softmax outputs.
        confidence: a sample is kept when its largest probability is above this; from 0 to 1.
        share: and when it is among the floor(share · n) surest of the n samples that are predicted as its class.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[N]`` bool; False for padding. Of equally sure samples the earlier ones come first.

    >>> confident_mask(torch.tensor([[0.95, 0.05], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]), 0.9, 0.67)  # class 0 keeps two
    tensor([ True,  True, False, False])
    """
    keep = sample_mask(probabilities, mask)
    largest, labels = zero_rows(probabilities, keep).max(-1)
    members = class_columns(labels, probabilities.shape[-1]) & keep[:, None]
    order = largest.masked_fill(~keep, -1).argsort(descending=True, stable=True)
    place = order.argsort()
    earlier = (members[order].long().cumsum(0)[place] * members).sum(-1)
    allowed = (members * (share * members.sum(0).double() + 1e-9).floor()).sum(-1)
    return keep & ((largest > confidence) | (earlier <= allowed))


def adaptive_threshold(
    probabilities: Tensor, base: float = 0.8, low: float = -0.1, high: float = 0.15, mask: Tensor | None = None
) -> Tensor:
    """Move a threshold by the skewness of a client's entropies: base + clip(3·(mean - median)/std, low, high).

    A few unsure samples among sure ones (mean above median) raise it. The median of an even number is the lower of the
    two in the middle, the standard deviation has ddof 1.

    Source: FedSCAl (arXiv 2512.06738, WACV 2026), adaptive threshold; Pearson's second skewness, constants of its code.

    Args:
        probabilities: ``[N, M]``, softmax outputs on all of a client's images.
        base: threshold without skewness.
        low: least move.
        high: largest move.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]``; the base where entropies do not vary.

    >>> adaptive_threshold(torch.tensor([[0.5, 0.5], [1.0, 0.0], [1.0, 0.0]]))  # skewed far: 0.8 + 0.15
    tensor(0.9500)
    """
    keep = sample_mask(probabilities, mask)
    count = keep.sum()
    entropies = entr(zero_rows(probabilities, keep)).sum(-1)
    mean = mean_of_rows(entropies, keep)
    spread = ((entropies - mean).square().masked_fill(~keep, 0).sum() / (count - 1).clamp_min(1)).sqrt()
    ranked = entropies.masked_fill(~keep, torch.inf).sort().values
    median = ranked.gather(0, ((count - 1) // 2).clamp_min(0)[None])[0].nan_to_num(posinf=0.0)
    skewness = torch.where(spread > 1e-6, 3 * (mean - median) / torch.where(spread > 1e-6, spread, 1), 0)
    return base + skewness.clamp(low, high)
