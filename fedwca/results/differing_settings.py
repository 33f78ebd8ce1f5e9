"""In what two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.plain_values import to_plain
from fedwca.results.settings_without_effect import SAME_NUMBERS


def differing_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys in which two runs' configurations or methods differ, with both values.

    How many clients and trials are at work at a time does not count: it moves last digits at most.

    Args:
        one: what ``config.json`` of a run holds.
        other: the same of another.
    """
    first, second = _leaves(one), _leaves(other)
    return {
        key: (first.get(key), second.get(key))
        for key in dict.fromkeys([*first, *second])
        if _typed(first.get(key)) != _typed(second.get(key))
    }


def _leaves(about: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration and components as dotted keys; those of a method as ``method.kind.name.field``."""
    found = dict(flatten_keys(to_plain(about["config"])))
    for name in SAME_NUMBERS:
        found.pop(name, None)
    for name, method in about["methods"].items():
        found[f"{name}.rounds"] = method["rounds"]
        more = {key: method[key] for key in ("finish", "training", "finish_training") if key in method}
        found |= dict(flatten_keys(to_plain(more), f"{name}."))
        for part in to_plain(method["components"]):
            fields = {key: value for key, value in part.items() if key not in ("kind", "name")}
            found |= dict(flatten_keys(fields, f"{name}.{part['kind']}.{part['name']}."))
            found[f"{name}.{part['kind']}.{part['name']}"] = True
    return found


def _typed(value: Any) -> Any:
    """Values as a command line may have given them: ``"8"`` and 8 are the same."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return {"true": True, "false": False}.get(value, value)
    return value
