"""Dotted keys of nested tables such as configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def map_leaves(values: Any, change: Callable[[str, Any], Any], prefix: str = "") -> Any:
    """Nested tables with each leaf changed, given its dotted key and its value.

    >>> map_leaves({"a": {"x": 1}, "b": 2}, lambda key, value: f"{key} {value}")
    {'a': {'x': 'a.x 1'}, 'b': 'b 2'}
    """
    if not isinstance(values, Mapping):
        return values

    def map_one(key: str, value: Any) -> Any:
        return map_leaves(value, change, f"{key}.") if isinstance(value, Mapping) else change(key, value)

    return {key: map_one(f"{prefix}{key}", value) for key, value in values.items()}
