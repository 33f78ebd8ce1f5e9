"""Measures of a model that need no labels: alignment, neighborhood density, and collapse of its predictions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.special import entr

from fedwca.errors import UsageError
from fedwca.functional._rows import check_matrix, class_columns, mean_of_rows, normalize_rows, sample_mask, zero_rows


def alignment(features: Tensor, classifier: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average over samples the cosine between a feature and its nearest classifier vector (I of eq. 1).

    Source: FedWCA, sec. 4.2, the score I of eq. 1.

    Args:
        features: ``[N, q]``, input of the classifier.
        classifier: ``[M, q]``, the weight rows that are in effect (after weight normalisation, if there is any).
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in [-1, 1], no unit; higher is better. A zero vector has cosine 0 with anything; no sample gives 0.

    Raises:
        UsageError: ``features`` or the mask has another shape.

    >>> features = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    >>> alignment(features, torch.tensor([[1.0, 0.0], [0.0, 5.0]]))  # (0.8 + 1) / 2
    tensor(0.9000)
    """
    check_matrix("features", features)
    keep = sample_mask(features, mask)
    cosines = normalize_rows(zero_rows(features, keep)) @ normalize_rows(classifier).mT
    return mean_of_rows(cosines.amax(-1), keep)


def soft_neighborhood_density(
    probabilities: Tensor, temperature: float = 0.05, mask: Tensor | None = None, chunk: int = 1024
) -> Tensor:
    """Average the entropies of the samples' neighbourhoods in output space: soft neighborhood density (SND).

    Each sample's cosines with all *other* samples, divided by the temperature, become a distribution; SND is the mean
    entropy of these distributions. Exact, without an epsilon, and computed ``chunk`` rows at a time, so that memory
    grows with chunk·N. Compare models on the same samples only: the value grows with log N. A collapsed model (all
    outputs equal) reaches the maximum log(N-1), so read `class_entropy` beside it.

    Source: FedWCA, app. B.2, eqs. 5-6; after Saito et al., "Tune it the right way", ICCV 2021.

    Args:
        probabilities: ``[N, M]``, softmax outputs.
        temperature: above 0, in units of a cosine.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        chunk: rows at a time, at least 1; changes memory, not the result.

    Returns:
        ``[]`` in nats, from 0 to log(N-1); 0 for fewer than two samples.

    Raises:
        UsageError: the temperature or the chunk is not positive, or shapes do not fit.

    >>> soft_neighborhood_density(torch.tensor([[0.9, 0.1]] * 4))  # all equal: log 3
    tensor(1.0986)
    """
    if not temperature > 0:
        raise UsageError(f"the temperature must be above 0, not {temperature}")
    if chunk < 1:
        raise UsageError(f"the chunk must be at least 1 row, not {chunk}")
    check_matrix("probabilities", probabilities)
    keep = sample_mask(probabilities, mask)
    rows = normalize_rows(zero_rows(probabilities, keep))
    if rows.shape[0] == 0:
        return rows.sum()
    index = torch.arange(rows.shape[0], device=rows.device)
    entropies = []
    for chunk_indices in torch.split(index, chunk):
        scores = rows[chunk_indices] @ rows.mT / temperature
        is_self = chunk_indices[:, None] == index
        lowest = torch.finfo(scores.dtype).min / 2  # half of it, so that a difference does not overflow in float16
        scores = scores.masked_fill(is_self | ~keep, lowest)
        scores = scores - scores.amax(-1, keepdim=True)
        parts = scores.exp()
        total = parts.sum(-1)
        entropies.append(total.log() - (parts * scores).sum(-1) / total)
    density = mean_of_rows(torch.cat(entropies), keep)
    return torch.where(keep.sum() > 1, density, 0)


def class_entropy(probabilities: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the entropy of the histogram of predicted classes; 0 if a model has collapsed to one class.

    Source: diagnostic of this library, to be read beside `soft_neighborhood_density`, which rewards collapse.

    Args:
        probabilities: ``[N, M]``, softmax outputs or logits; only their argmax is used.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[]`` in nats, from 0 to log M; 0 without samples.

    >>> class_entropy(torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.3, 0.7]]))  # half and half: log 2
    tensor(0.6931)
    """
    keep = sample_mask(probabilities, mask)
    predicted = class_columns(zero_rows(probabilities, keep).argmax(-1), probabilities.shape[-1]) & keep[:, None]
    counts = predicted.sum(0).to(probabilities.dtype)
    parts: Tensor = entr(counts / counts.sum().clamp_min(1))
    return parts.sum()
