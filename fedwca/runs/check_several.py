"""Lists that callers from Python give: a single text would be read letter by letter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from fedwca.describe_problems import describe_missing_list
from fedwca.errors import UsageError

T = TypeVar("T")


def check_list(name: str, given: Iterable[T]) -> list[T]:
    """What is given, as a list, which may be empty.

    Args:
        name: of the argument.
        given: its value.

    Raises:
        UsageError: it is a single text or path.

    >>> check_list("sources", ())
    []
    """
    if isinstance(given, str | Path):
        raise UsageError(f"{name} {describe_missing_list(str(given))}, not {str(given)!r}")
    return list(given)


def check_several(name: str, given: Iterable[T]) -> list[T]:
    """What is given, as a list that holds something.

    Args:
        name: of the argument.
        given: its value.

    Raises:
        UsageError: it is a single text or path, or empty.

    >>> check_several("methods", ("fedavg", "local"))
    ['fedavg', 'local']
    """
    if not (found := check_list(name, given)):
        raise UsageError(f"{name} is empty; name at least one")
    return found
