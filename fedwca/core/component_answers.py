"""What a component gave, looked at: as it is, or in a few words of the sentence that refuses it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.errors import FedwcaError

ROUNDING = 1e-4
"""How far weights, their sums and lengths may be from what they should be."""


def describe_value(value: object) -> str:
    """A tensor by its kind of numbers and its shape, whatever else it is by its type.

    >>> import torch
    >>> describe_value(torch.zeros(2, 3)), describe_value(None), describe_value([1])
    ('torch.float32 of shape (2, 3)', 'nothing', 'a list')
    """
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def check_tensors(given: object, what: str) -> Mapping[str, Tensor]:
    """Tensors by name, as a component is to give them.

    Args:
        given: what it gave.
        what: the component and its method, such as ``aggregator 'wca': learn``.

    Raises:
        FedwcaError: it is something else.
    """
    if not isinstance(given, Mapping) or not all(isinstance(value, Tensor) for value in given.values()):
        raise FedwcaError(f"{what} gave {describe_value(given)}; right is a mapping of names to tensors")
    return given


def check_number(given: object, what: str) -> Tensor:
    """A loss ``[]``, as a component is to give it.

    Args:
        given: what it gave.
        what: the component, and its method where it is not called itself.

    Raises:
        FedwcaError: it is no single number, but for example one for each image.
    """
    if not isinstance(given, Tensor) or given.numel() != 1:
        raise FedwcaError(f"{what} gave {describe_value(given)}; right is one number")
    return given.reshape(())
