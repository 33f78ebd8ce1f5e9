"""Similarity of domains by the class means of their features, and mixing weights from it (MDMGB)."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import normalize_rows
from fedwca.functional.cluster_weights import tempered_softmax
from fedwca.functional.prototypes import prototype_labels


def class_centroids(
    features: Tensor, probabilities: Tensor, mask: Tensor | None = None, *, refine: int = 1, append_one: bool = True
) -> Tensor:
    """Average a domain's features by class, with classes estimated without labels.

    Source: SFDA, eqs. 5-9; after SHOT (Liang et al., ICML 2020), eqs. 4-6, whose features have a 1 appended.

    Args:
        features: ``[N, q]``, raw.
        probabilities: ``[N, M]``, softmax outputs.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        refine: 0: means weighted by the outputs, c(0); 1: c(1), means of the samples nearest to each c(0); more:
            repeated.
        append_one: append a constant 1 to each feature.

    Returns:
        ``[M, q + 1]``, without the 1 ``[M, q]``, in units of the features; a class without samples has a zero row.

    Raises:
        UsageError: ``refine`` is negative.

    >>> features = torch.tensor([[2.0, 0.0], [4.0, 1.0], [0.0, 3.0]])
    >>> class_centroids(features, torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]]), append_one=False)
    tensor([[3.0000, 0.5000],
            [0.0000, 3.0000]])
    """
    return prototype_labels(features, probabilities, mask, refine=refine, append_one=append_one)[2]


def centroid_similarity(sources: Tensor, target: Tensor) -> Tensor:
    """Sum over classes the cosines between each source's centroids and the target's.

    Source: SFDA, eq. 11.

    Args:
        sources: ``[K, M, q]``, as `class_centroids` gives them for each source.
        target: ``[M, q]``, those of the target.

    Returns:
        ``[K]`` float64 from -M to M, no unit; a class that is absent on either side (a zero row) adds 0.

    Raises:
        UsageError: shapes do not fit.

    >>> target = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> centroid_similarity(torch.stack([3 * target, -target, torch.ones(2, 2)]), target)
    tensor([ 2.0000, -2.0000,  1.4142], dtype=torch.float64)
    """
    if sources.ndim != 3 or sources.shape[1:] != target.shape:
        raise UsageError(
            f"expected centroids [K, M, q] and [M, q] of the target, got {list(sources.shape)} and {list(target.shape)}"
        )
    return (normalize_rows(sources.double()) * normalize_rows(target.double())).sum((-1, -2))


def centroid_weights(sources: Tensor, target: Tensor, temperature: float | None = None) -> Tensor:
    """Turn similarities to the target into mixing weights: alpha_k = (s_k + M) / sum over j of (s_j + M).

    With a temperature, alpha = softmax(s / (M·temperature)): this library's form of MDMGB+ (arXiv 2510.08150), which
    puts a temperature on this weighting; its published formula is not known here.

    Source: SFDA, eqs. 12 and 13.

    Args:
        sources: ``[K, M, q]``, as `class_centroids` gives them for each source.
        target: ``[M, q]``, those of the target.
        temperature: None: as published; above 0: towards 0 the most similar source takes all, towards infinity all
            are equal.

    Returns:
        ``[K]`` float64, at least 0, sum 1; uniform where all sources are opposite to the target.

    Raises:
        UsageError: shapes do not fit, or the temperature is not positive.

    >>> target = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    >>> centroid_weights(torch.stack([3 * target, -target, target.flip(0)]), target)  # 4, 0 and 2 of 6
    tensor([0.6667, 0.0000, 0.3333], dtype=torch.float64)
    """
    classes = len(target)
    similarity = centroid_similarity(sources, target)
    if temperature is not None:
        return tempered_softmax(similarity / classes, temperature)
    # Rounding may make a cosine less than -1.
    shifted = (similarity + classes).clamp_min(0)
    total = shifted.sum()
    uniform = torch.full_like(shifted, 1 / len(sources))
    return torch.where(total < 1e-9, uniform, shifted / torch.where(total < 1e-9, 1, total))
