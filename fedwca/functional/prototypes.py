"""Class prototypes, and pseudo-labels by the nearest prototype."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import check_matrix, class_columns, normalize_rows, sample_mask, zero_rows


def prototypes(features: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the features with each class's weights.

    Source: FedWCA, eq. 4, left (raw features, weights h(x)); SHOT, eq. 4 and 6.

    Args:
        features: ``[N, q]``.
        weights: ``[N, M]``, at least 0: softmax outputs, or one-hot labels.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[M, q]`` in units of the features; a class without weight gets a zero row, never NaN.

    Raises:
        UsageError: ``features`` or ``weights`` has not two axes, or the mask another shape.

    >>> prototypes(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    tensor([[0.5000, 3.0000],
            [0.0000, 0.0000]])
    """
    check_matrix("features", features)
    check_matrix("weights", weights)
    keep = sample_mask(features, mask)
    weights = zero_rows(weights, keep).to(features.dtype)
    total = weights.sum(0)
    return weights.mT @ zero_rows(features, keep) / torch.where(total > 0, total, 1)[:, None]


def fill_prototypes(prototypes: Tensor) -> Tensor:
    """Fill in a class that a client lacks (a zero row) with the mean prototype of the clients that have it.

    Source: FedPCL (Tan et al., NeurIPS 2022), global prototypes.

    Args:
        prototypes: ``[K, M, q]``, as `prototypes` gives them for each client.

    Returns:
        ``[K, M, q]``; a class that no client has stays zero.

    >>> fill_prototypes(torch.tensor([[[2.0], [4.0]], [[0.0], [6.0]]])).flatten().tolist()
    [2.0, 4.0, 2.0, 6.0]
    """
    present = (prototypes != 0).any(-1, keepdim=True)
    return torch.where(present, prototypes, prototypes.sum(0) / present.sum(0).clamp_min(1))


def prototype_labels(
    features: Tensor,
    probabilities: Tensor,
    mask: Tensor | None = None,
    *,
    refine: int = 1,
    normalize_first: bool = False,
    append_one: bool = False,
    min_count: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Label each sample with the prototype of largest cosine: soft prototypes first, then one-hot ones.

    A class whose prototype is zero (no samples) is never assigned; ties go to the lowest class. A single sample gets
    the class of its largest probability, because all soft prototypes are then equal. (So they are for several samples
    of equal features, where rounding decides.)

    Source: FedWCA, eq. 4 and the sentence after it; SHOT (Liang et al., ICML 2020), eqs. 4-6. SHOT's own features have
    a 1 appended and unit length: ``append_one=True, normalize_first=True``. Its code for objects assigns only classes
    that the model predicts: ``min_count=1``.

    Args:
        features: ``[N, q]``.
        probabilities: ``[N, M]``, softmax outputs.
        mask: ``[N]``, 1 for a sample, 0 for padding.
        refine: passes with one-hot labels after the soft one, at least 0.
        normalize_first: give features length 1 before they are averaged.
        append_one: append a constant 1 to each feature, before that.
        min_count: number of samples that must be predicted as a class (by the outputs, then by the labels of the
            previous pass) for it to be assigned; where no class has so many, all may be.

    Returns:
        Labels ``[N]`` int64; cosines ``[N]`` in [-1, 1] with the assigned prototype; prototypes ``[M, q]`` (q + 1 with
        ``append_one``). All belong to the last pass: the prototypes are those the labels were read from. A padded row
        has some label in range and cosine 0. Where no class has a prototype, label and cosine are 0.

    Raises:
        UsageError: ``refine`` is negative, or shapes do not fit.

    >>> features = torch.tensor([[1.0, 0.1], [0.9, 0.0], [0.2, 1.0]])
    >>> labels, similarities, _ = prototype_labels(features, torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]))
    >>> labels.tolist(), similarities
    ([0, 0, 1], tensor([0.9989, 0.9986, 1.0000]))
    """
    if refine < 0:
        raise UsageError(f"refine must be at least 0, not {refine}")
    check_matrix("features", features)
    check_matrix("probabilities", probabilities)
    keep = sample_mask(features, mask)
    if append_one:
        features = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    if normalize_first:
        features = normalize_rows(zero_rows(features, keep))
    directions = normalize_rows(zero_rows(features, keep))
    classes, weights = probabilities.shape[-1], probabilities
    predicted = class_columns(zero_rows(probabilities, keep).argmax(-1), classes)
    for _ in range(refine + 1):
        means = prototypes(features, weights, keep)
        present = (means != 0).any(-1)
        frequent = (predicted & keep[:, None]).sum(0) >= min_count
        present = present & (frequent | ~(present & frequent).any())
        cosines = (directions @ normalize_rows(means).mT).masked_fill(~present, -torch.inf)
        similarities, labels = cosines.max(-1)
        if mask is not None or len(features) == 1:  # with one sample, all soft prototypes equal it, up to rounding
            labels = torch.where((keep.sum() == 1) & present.any(), probabilities.argmax(-1), labels)
        weights = predicted = class_columns(labels, classes)
    return labels, torch.where(present.any() & keep, similarities, 0), means


def prototype_similarity(prototypes: Tensor) -> Tensor:
    """Average the cosine over ordered pairs of different prototypes: the normaliser p (or q) of Algorithm 2.

    Source: FedWCA, Algorithm 2, line 6, over the classes present only (a zero row is an absent class).

    Args:
        prototypes: ``[M, q]``.

    Returns:
        ``[]`` in [-1, 1]. With fewer than two classes present it is 0: then ``margin`` of `select_labels` takes that
        model's similarities as they are, and ``ratio`` those of both models. Below 0 is normal: behind a BatchNorm
        bottleneck it tends to -1/(M-1).

    >>> prototype_similarity(torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]]))  # the third class is absent
    tensor(0.6000)
    """
    present = (prototypes != 0).any(-1)
    rows = normalize_rows(prototypes)
    diagonal = torch.eye(prototypes.shape[0], dtype=torch.bool, device=prototypes.device)
    pairs = present.sum() * (present.sum() - 1)
    return (rows @ rows.mT).masked_fill(diagonal, 0).sum() / pairs.clamp_min(1)
