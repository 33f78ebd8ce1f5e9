"""Checks of values that components return, and short descriptions of them for error messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import TypeVar

from torch import Tensor

from fedwca.errors import FedwcaError

T = TypeVar("T")
ROUNDING = 1e-4
"""Tolerance for weights, their sums and vector lengths."""


def describe_value(value: object) -> str:
    """Describe a value in a few words: a tensor by its dtype and shape, a class by its name, others by their type.

    >>> import torch
    >>> describe_value(torch.zeros(2, 3)), describe_value(None), describe_value([1]), describe_value(int)
    ('torch.float32 of shape (2, 3)', 'nothing', 'a list', 'the class int')
    """
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return "nothing" if value is None else f"a {type(value).__name__}"


def check_tensors(values: object, component: str) -> Mapping[str, Tensor]:
    """The value a component returned, if it is a mapping of names to tensors.

    Args:
        values: what the component returned.
        component: the component and its method, such as ``aggregator 'wca': next_state``.

    Raises:
        FedwcaError: it is something else.
    """
    return check_mapping(values, Tensor, "tensors", component)


def check_mapping(values: object, kind: type[T], plural: str, component: str) -> Mapping[str, T]:
    """The value a component returned, if it is a mapping of names to values of a kind.

    Args:
        values: what the component returned.
        kind: class of the values.
        plural: how messages call them.
        component: the component and its method.

    Raises:
        FedwcaError: it is something else.
    """
    if not isinstance(values, Mapping):
        raise FedwcaError(f"{component} gave {describe_value(values)}; right is a mapping of names to {plural}")
    for name, value in values.items():
        if not isinstance(value, kind):
            raise FedwcaError(
                f"{component} gave {name!r} as {describe_value(value)}; right is a mapping of names to {plural}"
            )
    return values


def join_named(present: Mapping[str, Tensor], added: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Values of several objectives together.

    Raises:
        FedwcaError: another objective gave a value of the same name, which it would read in place of its own.
    """
    if repeated := sorted(present.keys() & added.keys()):
        raise FedwcaError(f"{part} gave {repeated[0]!r}, as another objective does; give it another name")
    return {**present, **added}


@contextmanager
def only_reads(component: str, *given: object) -> Iterator[None]:
    """Check that what a component does in the body leaves the tensors it is given unchanged.

    Args:
        component: the component and its method.
        given: tensors, or mappings, tuples and data classes of such; other values are not checked.

    Raises:
        FedwcaError: it changed one in place.
    """
    tensors = [x for x in _tensors_in(given) if not x.is_inference()]  # those count no changes
    versions = [x._version for x in tensors]
    yield
    if versions != [x._version for x in tensors]:
        raise FedwcaError(f"{component} changed what it was given in place; it may only read that")


def _tensors_in(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        parts: Iterable[object] = value.values()
    elif isinstance(value, tuple):
        parts = value
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    else:
        return []
    return [tensor for part in parts for tensor in _tensors_in(part)]


def check_client_weights(value: object, clients: int, component: str) -> Tensor:
    """The weights of clients in a mean that an aggregator returned ``[K]``, as float64.

    Args:
        value: what the aggregator returned.
        clients: K.
        component: the aggregator and its method.

    Raises:
        FedwcaError: they are no such weights; a mean would silently be another, or be that of nobody.
    """
    if not isinstance(value, Tensor) or value.shape != (clients,):
        given = describe_value(value)
    else:
        weights = value.double()
        if bool((weights.isfinite() & (weights >= 0)).all()) and bool(weights.any()):
            return weights
        lowest, highest = weights.aminmax()
        given = f"weights from {lowest:g} to {highest:g}"
    raise FedwcaError(f"{component} gave {given}; right is a tensor [{clients}], finite, at least 0, not all 0")


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
