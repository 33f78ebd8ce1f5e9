"""Helpers that the equations share: padded rows, unit rows and one-hot classes; all of them are vmap-safe."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.linalg import vector_norm

from fedwca.errors import UsageError


def check_matrix(name: str, rows: Tensor) -> None:
    """Check that an argument is a tensor with two axes, of which the first counts samples.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(rows, Tensor):
        raise UsageError(f"{name} must be a tensor, not {type(rows).__name__}")
    if rows.ndim != 2:
        raise UsageError(f"{name} must have two axes, the first of samples, not the shape {list(rows.shape)}")


def sample_mask(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Find which of the N rows are samples, not padding ``[N]`` bool; without a mask all are.

    Raises:
        UsageError: the mask has another shape than ``[N]``.
    """
    if mask is not None and mask.shape != rows.shape[:1]:
        raise UsageError(f"the mask must have the shape {list(rows.shape[:1])}, one for a row, not {list(mask.shape)}")
    if mask is None:
        return torch.ones(rows.shape[:1], dtype=torch.bool, device=rows.device)
    return mask != 0


def zero_rows(rows: Tensor, keep: Tensor | None) -> Tensor:
    """Set the rows ``[N, q]`` that ``keep [N]`` excludes to zero, whatever they hold; None excludes none."""
    return rows if keep is None else rows.masked_fill(~keep[:, None], 0)


def count_rows(rows: Tensor, keep: Tensor | None) -> Tensor | int:
    """Count the rows that ``keep [N]`` includes, all for None; at least 1."""
    return max(1, len(rows)) if keep is None else keep.sum().clamp_min(1)


def mean_of_rows(values: Tensor, keep: Tensor | None) -> Tensor:
    """Average the values that ``keep [N]`` includes, all for None: ``[N] -> []``; 0 if it includes none."""
    return (values if keep is None else values.masked_fill(~keep, 0)).sum() / count_rows(values, keep)


def mean_row(rows: Tensor, keep: Tensor | None) -> Tensor:
    """Average the rows that ``keep [N]`` includes, all for None: ``[N, q] -> [q]``; zeros if it includes none."""
    return zero_rows(rows, keep).sum(0) / count_rows(rows, keep)


def normalize_rows(rows: Tensor) -> Tensor:
    """Scale rows ``[N, q]`` to length 1; a zero row stays zero, so that its cosine with anything is 0."""
    length = vector_norm(rows, dim=-1, keepdim=True)
    return rows / torch.where(length > 0, length, 1)


def class_columns(labels: Tensor, classes: int) -> Tensor:
    """Turn labels ``[N]`` into one-hot rows ``[N, M]`` bool; a label outside 0…M-1 gives a row of zeros."""
    return labels[:, None] == torch.arange(classes, device=labels.device)


def entropy_of_rows(probabilities: Tensor, eps: float = 0.0) -> Tensor:
    """Compute the entropy of each distribution along the last axis, in nats; gradients at probability 0 are finite.

    ``eps`` is added inside the logarithm.
    """
    tiny = torch.finfo(probabilities.dtype).tiny
    shifted = probabilities + eps
    return -(probabilities * (shifted if eps >= tiny else shifted.clamp_min(tiny)).log()).sum(-1)


def length_of_rows(rows: Tensor) -> Tensor:
    """Compute the Euclidean length of each vector along the last axis; gradients at length 0 are 0."""
    squares = rows.square().sum(-1)
    positive = squares > 0
    return torch.where(positive, squares.where(positive, 1).sqrt(), 0)
