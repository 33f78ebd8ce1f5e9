"""Lists that callers from Python give: a single text would be read letter by letter."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from fedwca.errors import UsageError

T = TypeVar("T")


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
    if isinstance(given, str | Path):
        raise UsageError(f"{name} needs a list, such as [{str(given)!r}], not {str(given)!r}")
    if not (found := list(given)):
        raise UsageError(f"{name} is empty; name at least one")
    return found
