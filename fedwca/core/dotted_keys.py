"""Dotted keys of nested tables such as configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten_keys(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested tables as dotted keys.

    >>> dict(flatten_keys({"a": {"x": 1}, "b": 2}))
    {'a.x': 1, 'b': 2}
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_keys(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
