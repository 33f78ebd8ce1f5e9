"""Checks of list arguments from Python callers: a single string would be iterated letter by letter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from fedwca.describe_problems import describe_missing_list
from fedwca.errors import UsageError

T = TypeVar("T")


def check_list(name: str, value: Iterable[T]) -> list[T]:
    """An argument as a list, which may be empty.

    Args:
        name: the argument's name, for the error message.
        value: its value.

    Raises:
        UsageError: it is a single string or path, or nothing that can be gone through.

    >>> check_list("sources", ())
    []
    """
    if not isinstance(value, Iterable):
        raise UsageError(f"{name} needs a list, which may be empty, not {value!r}")
    if isinstance(value, str | Path):
        raise UsageError(f"{name} {describe_missing_list(str(value))}, not {str(value)!r}")
    return list(value)


def check_several(name: str, value: Iterable[T]) -> list[T]:
    """An argument as a list of at least one item.

    Args:
        name: the argument's name, for the error message.
        value: its value.

    Raises:
        UsageError: it is a single string or path, or empty.

    >>> check_several("methods", ("fedavg", "local"))
    ['fedavg', 'local']
    """
    if not (values := check_list(name, value)):
        raise UsageError(f"{name} is empty; name at least one")
    return values
