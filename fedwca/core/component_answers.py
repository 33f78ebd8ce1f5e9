"""Checks of values that components return, and short descriptions of them for error messages."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from fedwca.errors import FedwcaError

ROUNDING = 1e-4
"""Tolerance for weights, their sums and vector lengths."""


def describe_value(value: object) -> str:
    """Describe a value in a few words: a tensor by its dtype and shape, anything else by its type.

    >>> import torch
    >>> describe_value(torch.zeros(2, 3)), describe_value(None), describe_value([1])
    ('torch.float32 of shape (2, 3)', 'nothing', 'a list')
    """
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def check_tensors(values: object, component: str) -> Mapping[str, Tensor]:
    """The value a component returned, if it is a mapping of names to tensors.

    Args:
        values: what the component returned.
        component: the component and its method, such as ``aggregator 'wca': next_state``.

    Raises:
        FedwcaError: it is something else.
    """
    if not isinstance(values, Mapping) or not all(isinstance(value, Tensor) for value in values.values()):
        raise FedwcaError(f"{component} gave {describe_value(values)}; right is a mapping of names to tensors")
    return values


def check_number(value: object, component: str) -> Tensor:
    """The loss a component returned, as ``[]``, if it is a single number.

    Args:
        value: what the component returned.
        component: the component, with its method unless that is ``__call__``.

    Raises:
        FedwcaError: it is not a single number, but for example one for each image.
    """
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise FedwcaError(f"{component} gave {describe_value(value)}; right is one number")
    return value.reshape(())
