"""Zero-padding of small parameter tensors, so that networks of several widths have one layout."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import pad

from fedwca.errors import UsageError


def pad_to_shape(value: Tensor, shape: Sequence[int]) -> Tensor:
    """Put a tensor into the leading corner of a larger one, with zeros elsewhere.

    A channel with zero weights in and out has zero gradients after a ReLU, so training keeps a small net small.

    Source: FedTTA's heterogeneous nets, as this library lays them out.

    Args:
        value: any shape.
        shape: of the same number of axes, none shorter.

    Returns:
        A tensor of that shape; differentiable.

    Raises:
        UsageError: the shape has another number of axes, or a shorter axis.

    >>> import torch
    >>> pad_to_shape(torch.tensor([[1.0, 2.0]]), (2, 3))
    tensor([[1., 2., 0.],
            [0., 0., 0.]])
    """
    if len(shape) != value.ndim or any(new < old for new, old in zip(shape, value.shape, strict=True)):
        raise UsageError(f"a tensor of shape {list(value.shape)} does not fit into the corner of {list(shape)}")
    padding = [new - old for new, old in zip(shape, value.shape, strict=True)]
    return pad(value, [size for count in reversed(padding) for size in (0, count)])
