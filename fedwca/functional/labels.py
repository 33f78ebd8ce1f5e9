"""Pseudo-labels: prototypes, the choice between two models' labels, and partners for mixup."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedwca.errors import UsageError
from fedwca.functional._rows import blank, columns, real, unit


def prototypes(features: Tensor, weights: Tensor, mask: Tensor | None = None) -> Tensor:
    """Average the features with each class's weights.

    Source: FedWCA, eq. 4, left (raw features, weights h(x)); SHOT, eq. 4 and 6.

    Args:
        features: ``[N, q]``.
        weights: ``[N, M]``, at least 0: softmax outputs, or one-hot labels.
        mask: ``[N]``, 1 for a sample, 0 for padding.

    Returns:
        ``[M, q]`` in units of the features; a class without weight gets a zero row, never NaN.

    >>> prototypes(torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    tensor([[0.5000, 3.0000],
            [0.0000, 0.0000]])
    """
    keep = real(features, mask)
    weights = blank(weights, keep).to(features.dtype)
    total = weights.sum(0)
    return weights.mT @ blank(features, keep) / torch.where(total > 0, total, 1)[:, None]


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

    A class whose prototype is zero (nobody in it) is never assigned; ties go to the lowest class.

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
        min_count: samples that must be predicted as a class (by the outputs, then by the labels of the pass before) for
            it to be assigned; where no class has so many, all may be.

    Returns:
        Labels ``[N]`` int64; cosines ``[N]`` in [-1, 1] with the assigned prototype; prototypes ``[M, q]`` (q + 1 with
        ``append_one``). All belong to the last pass: the prototypes are those the labels were read from. A padded row
        has some label in range and cosine 0. Where no class has a prototype, label and cosine are 0.

    Raises:
        UsageError: ``refine`` is negative.

    >>> features = torch.tensor([[1.0, 0.1], [0.9, 0.0], [0.2, 1.0]])
    >>> labels, similarities, _ = prototype_labels(features, torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]))
    >>> labels.tolist(), similarities
    ([0, 0, 1], tensor([0.9989, 0.9986, 1.0000]))
    """
    if refine < 0:
        raise UsageError(f"refine must be at least 0, not {refine}")
    keep = real(features, mask)
    if append_one:
        features = torch.cat([features, torch.ones_like(features[:, :1])], 1)
    if normalize_first:
        features = unit(blank(features, keep))
    directions = unit(blank(features, keep))
    weights, predicted = probabilities, columns(blank(probabilities, keep).argmax(-1), probabilities.shape[-1])
    for _ in range(refine + 1):
        means = prototypes(features, weights, keep)
        present = (means != 0).any(-1)
        common = (predicted & keep[:, None]).sum(0) >= min_count
        present = present & (common | ~(present & common).any())
        cosines = (directions @ unit(means).mT).masked_fill(~present, -torch.inf)
        similarities, labels = cosines.max(-1)
        weights = predicted = columns(labels, probabilities.shape[-1])
    return labels, torch.where(present.any() & keep, similarities, 0), means


def prototype_similarity(prototypes: Tensor) -> Tensor:
    """Average the cosine over ordered pairs of different prototypes: the normaliser p (or q) of Algorithm 2.

    Source: FedWCA, Algorithm 2, line 6, over the classes present only (a zero row is an absent class).

    Args:
        prototypes: ``[M, q]``.

    Returns:
        ``[]`` in [-1, 1]. With fewer than two classes present it is 0, which `select_labels` reads as "do not
        normalise". Below 0 is normal: behind a BatchNorm bottleneck it tends to -1/(M-1).

    >>> prototype_similarity(torch.tensor([[1.0, 0.0], [3.0, 4.0], [0.0, 0.0]]))  # the third class is absent
    tensor(0.6000)
    """
    present = (prototypes != 0).any(-1)
    rows = unit(prototypes)
    itself = torch.eye(prototypes.shape[0], dtype=torch.bool, device=prototypes.device)
    pairs = present.sum() * (present.sum() - 1)
    return (rows @ rows.mT).masked_fill(itself, 0).sum() / pairs.clamp_min(1)


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


def mixup_partners(
    labels: Tensor, matched: Tensor, uniform: Tensor, mask: Tensor | None = None, *, classes: int
) -> Tensor:
    """Draw for each sample a partner among the matched samples of its label, each with the same chance.

    A matched sample may draw itself. The numbers come from outside, so that a draw depends on nothing else.

    Source: FedWCA, Algorithm 2, line 9 (the choice of x').

    Args:
        labels: ``[N]`` int64 in 0…M-1.
        matched: ``[N]`` bool: whether both models gave this label.
        uniform: ``[N]`` in [0, 1).
        mask: ``[N]``, 1 for a sample, 0 for padding.
        classes: M.

    Returns:
        ``[N]`` int64: index of the partner; -1 where the label has no matched sample, and for padded rows.

    >>> labels, matched = torch.tensor([0, 0, 0, 1]), torch.tensor([True, True, False, False])
    >>> mixup_partners(labels, matched, torch.tensor([0.0, 0.4, 0.9, 0.5]), classes=2)
    tensor([ 0,  0,  1, -1])
    """
    keep = real(labels, mask)
    group = torch.where(matched & keep, labels, classes)
    order = group.argsort(stable=True)
    counts = columns(group, classes).sum(0)
    own = labels.clamp(0, classes - 1)
    count, first = counts[own], (counts.cumsum(0) - counts)[own]
    step = torch.minimum((uniform * count).long(), count - 1).clamp_min(0)
    partners = order[(first + step).clamp_max(labels.shape[0] - 1)]
    return torch.where((count > 0) & keep, partners, -1)


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
    keep = real(probabilities, mask)
    largest, labels = blank(probabilities, keep).max(-1)
    members = columns(labels, probabilities.shape[-1]) & keep[:, None]
    order = largest.masked_fill(~keep, -1).argsort(descending=True, stable=True)
    place = order.argsort()
    earlier = (members[order].long().cumsum(0)[place] * members).sum(-1)
    allowed = (members * (share * members.sum(0) + 1e-9).floor()).sum(-1)
    return keep & ((largest > confidence) | (earlier <= allowed))
