"""Sparse updates: only the largest entries are sent."""

from __future__ import annotations

import torch
from torch import Tensor

from fedwca.errors import UsageError


def largest_entries(update: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the ``count`` entries of an update that are largest by absolute value, in the order of their positions.

    Source: Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, NeurIPS 2018, sec. 2 (top_k).

    Args:
        update: ``[P]``
        count: k, 0 to P; of equal entries those at the first positions are taken.

    Returns:
        Positions ``[k]`` int64, ascending, and values ``[k]``.

    Raises:
        UsageError: ``count`` is not from 0 to P.

    >>> largest_entries(torch.tensor([0.5, -3.0, 0.0, 2.0]), 2)
    (tensor([1, 3]), tensor([-3.,  2.]))
    """
    if not 0 <= count <= len(update):
        raise UsageError(f"count must be from 0 to {len(update)}, the entries of the update, not {count}")
    positions = update.abs().sort(descending=True, stable=True).indices[:count].sort().values
    return positions, update[positions]


def scatter_entries(positions: Tensor, values: Tensor, width: int) -> Tensor:
    """Make an update ``[P]`` with the values ``[k]`` at the positions ``[k]`` and 0 elsewhere.

    >>> scatter_entries(torch.tensor([1, 3]), torch.tensor([-3.0, 2.0]), 4)
    tensor([ 0., -3.,  0.,  2.])
    """
    update = torch.zeros(width, dtype=values.dtype, device=values.device)
    return update.index_put((positions.long(),), values)
