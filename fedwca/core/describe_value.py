"""What a component gave where something else was due, in a few words of a sentence."""

from __future__ import annotations

from torch import Tensor


def describe_value(value: object) -> str:
    """A tensor by its kind of numbers and its shape, whatever else it is by its type.

    >>> import torch
    >>> describe_value(torch.zeros(2, 3)), describe_value(None), describe_value([1])
    ('torch.float32 of shape (2, 3)', 'nothing', 'a list')
    """
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return "nothing" if value is None else f"a {type(value).__name__}"
