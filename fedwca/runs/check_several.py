"""Lists that callers from Python give: a single text would be read letter by letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from fedwca.errors import UsageError

T = TypeVar("T")


def check_several(name: str, given: Sequence[T]) -> Sequence[T]:
    """A list that is one and holds something.

    Args:
        name: of the argument.
        given: its value.

    Raises:
        UsageError: it is a single value, or empty.

    >>> check_several("methods", ["fedavg"])
    ['fedavg']
    """
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"{name} needs a list, such as [{str(given)!r}], not {str(given)!r}")
    if not given:
        raise UsageError(f"{name} is empty; name at least one")
    return given
