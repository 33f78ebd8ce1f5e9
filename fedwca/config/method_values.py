"""Values of a run's configuration for one method alone, and how values for all methods override them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import field_validator

from fedwca.core.dotted_keys import flatten_keys, map_leaves
from fedwca.user_values import UserValues

LENGTHS = {"steps", "epochs"}
"""Fields of a training that both set the length of a round; only one of them applies."""


class MethodValues(UserValues):
    """Values of one method, with the keys of a baseline's file; they take precedence over the file's values."""

    training: dict[str, Any] = {}
    """How its clients train in a round."""
    components: dict[str, dict[str, dict[str, Any]]] = {}
    """Fields of its components as kind → name → field."""

    @field_validator("components")
    @classmethod
    def _less_what_is_empty(cls, value: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
        nonempty = {kind: {name: fields for name, fields in names.items() if fields} for kind, names in value.items()}
        return {kind: names for kind, names in nonempty.items() if names}


def drop_overridden_values(
    values: Mapping[str, Any],
    layer: Mapping[str, Any],
    is_stated: Callable[[str, str], bool] = lambda method, key: False,
) -> dict[str, Any]:
    """A lower layer without its values for single methods that an upper layer sets for all methods.

    Args:
        values: the lower layer.
        layer: the upper one.
        is_stated: whether a method's own file states a dotted key. There a value for all methods does not reach the
            method, so the upper layer's value takes the place of the lower one's.

    >>> low = {"methods": {"tent": {"training": {"lr": 0.1, "clip": 1}}}}
    >>> drop_overridden_values(low, {"training": {"lr": 0.3}})
    {'methods': {'tent': {'training': {'clip': 1}}}}
    """
    upper = dict(flatten_keys({name: layer.get(name, {}) for name in ("training", "components")}))
    overridden = set(upper)
    if any(f"training.{name}" in overridden for name in LENGTHS):
        overridden |= {f"training.{name}" for name in LENGTHS}

    def is_replaced(method: str, key: str) -> bool:
        return key in upper and is_stated(method, key)

    remaining = leave_out(values, lambda method, key: key in overridden and not is_replaced(method, key))
    if not isinstance(methods := remaining.get("methods"), Mapping):
        return remaining

    def replace(method: str, values: Any) -> Any:
        return map_leaves(values, lambda key, value: upper[key] if is_replaced(method, key) else value)

    return {**remaining, "methods": {name: replace(name, of_method) for name, of_method in methods.items()}}


def leave_out(values: Mapping[str, Any], is_left_out: Callable[[str, str], bool]) -> dict[str, Any]:
    """A layer without some of its values for single methods.

    Args:
        values: the layer.
        is_left_out: whether a value is removed, given the method's name and the value's dotted key.
    """
    methods = values.get("methods")
    if not isinstance(methods, Mapping):
        return dict(values)
    remaining = {name: _less(method_values, name, is_left_out) for name, method_values in methods.items()}
    return {**values, "methods": {name: method_values for name, method_values in remaining.items() if method_values}}


def _less(values: Any, name: str, is_left_out: Callable[[str, str], bool], prefix: str = "") -> Any:
    if not isinstance(values, Mapping):
        return values
    remaining = {}
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if inner := _less(value, name, is_left_out, f"{dotted}."):
                remaining[key] = inner
        elif not is_left_out(name, dotted):
            remaining[key] = value
    return remaining
