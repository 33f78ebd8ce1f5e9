"""Partners for mixup."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.functional._rows import class_columns, sample_mask


def mixup_partners(
    labels: Tensor, matched: Tensor, uniform: Tensor, mask: Tensor | None = None, *, classes: int
) -> Tensor:
    """Draw for each sample a partner among the matched samples of its label, all equally likely.

    A matched sample may draw itself. The caller passes the random numbers, so that a draw depends on nothing else.

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
    keep = sample_mask(labels, mask)
    group = torch.where(matched & keep, labels, classes)
    order = group.argsort(stable=True)
    counts = class_columns(group, classes).sum(0)
    label = labels.clamp(0, classes - 1)
    count, first = counts[label], (counts.cumsum(0) - counts)[label]
    step = torch.minimum((uniform * count).long(), count - 1).clamp_min(0)
    partners = order[(first + step).clamp_max(labels.shape[0] - 1)]
    return torch.where((count > 0) & keep, partners, -1)
