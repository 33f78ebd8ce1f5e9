"""What the equations share: padded rows, unit rows, and classes as columns; all of it vmap-safe."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import vector_norm


def sample_mask(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Say which of the N rows are samples ``[N]`` bool; without a mask all are."""
    if mask is None:
        return torch.ones(rows.shape[:1], dtype=torch.bool, device=rows.device)
    return mask != 0


def zero_rows(rows: Tensor, keep: Tensor | None) -> Tensor:
    """Put zeros into the rows ``[N, q]`` that ``keep [N]`` leaves out, whatever they hold; None leaves out nothing."""
    return rows if keep is None else rows.masked_fill(~keep[:, None], 0)


def count_rows(rows: Tensor, keep: Tensor | None) -> Tensor | int:
    """Count the kept ones of N rows, None for all of them; at least 1."""
    return max(1, len(rows)) if keep is None else keep.sum().clamp_min(1)


def mean_of_rows(values: Tensor, keep: Tensor | None) -> Tensor:
    """Average the kept ones of ``values [N] -> []``, None for all of them; 0 when none is kept."""
    return (values if keep is None else values.masked_fill(~keep, 0)).sum() / count_rows(values, keep)


def mean_row(rows: Tensor, keep: Tensor | None) -> Tensor:
    """Average the kept ones of ``rows [N, q] -> [q]``, None for all of them; zeros when none is kept."""
    return zero_rows(rows, keep).sum(0) / count_rows(rows, keep)


def normalize_rows(rows: Tensor) -> Tensor:
    """Scale rows ``[N, q]`` to length 1; a zero row stays zero, so that its cosine with anything is 0."""
    length = vector_norm(rows, dim=-1, keepdim=True)
    return rows / torch.where(length > 0, length, 1)


def class_columns(labels: Tensor, classes: int) -> Tensor:
    """Turn labels ``[N]`` into one-hot rows ``[N, M]`` bool; a label outside 0…M-1 gives a row of zeros."""
    return labels[:, None] == torch.arange(classes, device=labels.device)


def entropy_of_rows(chances: Tensor, eps: float = 0.0) -> Tensor:
    """Take the entropies of the distributions in the last axis, in nats; the gradient at a chance of 0 is finite."""
    tiny = torch.finfo(chances.dtype).tiny
    shifted = chances + eps
    return -(chances * (shifted if eps >= tiny else shifted.clamp_min(tiny)).log()).sum(-1)


def length_of_rows(rows: Tensor) -> Tensor:
    """Take the lengths of the vectors in the last axis; all gradients at length 0 are 0."""
    squares = rows.square().sum(-1)
    positive = squares > 0
    return torch.where(positive, squares.where(positive, 1).sqrt(), 0)
