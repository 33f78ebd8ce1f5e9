"""Small tensors in the corner of wide ones, so that nets of several widths have one layout."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import pad

from fedwca.errors import UsageError


def padded(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Put a tensor into the leading corner of a larger one, with zeros elsewhere.

    A channel with zero weights in and out has zero gradients behind a ReLU, so a small net stays the small net.

    Source: FedTTA's heterogeneous nets, as this library lays them out.

    Args:
        value: any shape.
        shape: as many axes, none shorter.

    Returns:
        In that shape; differentiable.

    Raises:
        UsageError: the shape has other axes, or a shorter one.

    >>> import torch
    >>> padded(torch.tensor([[1.0, 2.0]]), (2, 3))
    tensor([[1., 2., 0.],
            [0., 0., 0.]])
    """
    if len(shape) != value.ndim or any(new < old for new, old in zip(shape, value.shape, strict=True)):
        raise UsageError(f"a tensor of shape {list(value.shape)} does not fit into the corner of {list(shape)}")
    behind = [new - old for new, old in zip(shape, value.shape, strict=True)]
    return pad(value, [size for missing in reversed(behind) for size in (0, missing)])
