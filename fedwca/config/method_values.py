"""What a run's configuration says of one method alone, and how it gives way to what a user says of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import field_validator

from fedwca.core.dotted_keys import flatten_keys
from fedwca.user_values import UserValues

LENGTHS = {"steps", "epochs"}
"""Fields of a training of which one says how long a round is."""


class MethodValues(UserValues):
    """Values of one method, with the keys of a baseline's file, over which they stand."""

    training: dict[str, Any] = {}
    """How its clients train in a round."""
    components: dict[str, dict[str, dict[str, Any]]] = {}
    """Fields of its components as kind → name → field."""

    @field_validator("components")
    @classmethod
    def _less_what_is_empty(cls, value: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, dict[str, Any]]]:
        kept = {kind: {name: fields for name, fields in names.items() if fields} for kind, names in value.items()}
        return {kind: names for kind, names in kept.items() if names}


def yield_to(values: Mapping[str, Any], layer: Mapping[str, Any]) -> dict[str, Any]:
    """A lower layer without the methods' own values of fields that an upper one gives all methods.

    >>> low = {"methods": {"tent": {"training": {"lr": 0.1, "clip": 1}}}}
    >>> yield_to(low, {"training": {"lr": 0.3}})
    {'methods': {'tent': {'training': {'clip': 1}}}}
    """
    said = {key for key, _ in flatten_keys({name: layer.get(name, {}) for name in ("training", "components")})}
    if any(f"training.{name}" in said for name in LENGTHS):
        said |= {f"training.{name}" for name in LENGTHS}
    return leave_out(values, lambda _, key: key in said)


def leave_out(values: Mapping[str, Any], left_out: Callable[[str, str], bool]) -> dict[str, Any]:
    """A layer without some of the methods' own values.

    Args:
        values: the layer.
        left_out: whether a method's value goes, by the method's name and the value's dotted key.
    """
    methods = values.get("methods")
    if not isinstance(methods, Mapping):
        return dict(values)
    kept = {name: _less(own, name, left_out) for name, own in methods.items()}
    return {**values, "methods": {name: own for name, own in kept.items() if own}}


def _less(own: Any, name: str, left_out: Callable[[str, str], bool], prefix: str = "") -> Any:
    if not isinstance(own, Mapping):
        return own
    found = {}
    for key, value in own.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if inner := _less(value, name, left_out, f"{dotted}."):
                found[key] = inner
        elif not left_out(name, dotted):
            found[key] = value
    return found
