"""Settings in which two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.plain_values import to_plain
from fedwca.results.settings_without_effect import SAME_NUMBERS


def differing_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys in which the configurations or methods of two runs differ, with both values.

    How many clients and trials run in parallel is ignored: it changes the last digits at most.

    Args:
        first: content of ``config.json`` of one run.
        second: content of ``config.json`` of the other.
    """
    first_settings, second_settings = _leaves(first), _leaves(second)
    return {
        key: (first_settings.get(key), second_settings.get(key))
        for key in dict.fromkeys([*first_settings, *second_settings])
        if not _are_equal(first_settings.get(key), second_settings.get(key))
    }


def describe_values(first: Any, second: Any) -> tuple[str, str]:
    """Two values of a setting in words; a component that only one of two runs has is True in that one, else None.

    >>> describe_values(None, 80), describe_values(True, None), describe_values(True, False)
    (('not set', '80'), ('set', 'not set'), ('true', 'false'))
    """
    words = {None: "not set", True: "set" if None in (first, second) else "true", False: "false"}
    values = [words[value] if value is None or isinstance(value, bool) else str(value) for value in (first, second)]
    return values[0], values[1]


def _leaves(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration and methods as dotted keys; fields of a component are ``method.kind.name.field``."""
    settings = dict(flatten_keys(to_plain(configuration["config"])))
    for name in SAME_NUMBERS:
        settings.pop(name, None)
    for name, method in configuration["methods"].items():
        settings[f"{name}.rounds"] = method["rounds"]
        names = ("finish", "objectives", "training", "finish_training")
        values = {key: method[key] for key in names if key in method}
        settings |= dict(flatten_keys(to_plain(values), f"{name}."))
        for part in to_plain(method["components"]):
            fields = {key: value for key, value in part.items() if key not in ("kind", "name")}
            settings |= dict(flatten_keys(fields, f"{name}.{part['kind']}.{part['name']}."))
            settings[f"{name}.{part['kind']}.{part['name']}"] = True
    return settings


def _are_equal(first: Any, second: Any) -> bool:
    """Whether two values of a setting are the same; one may be text, as of a command line, and the other a number.

    >>> _are_equal("8", 8), _are_equal("true", True), _are_equal("01", "1")
    (True, True, False)
    """
    both_texts = isinstance(first, str) and isinstance(second, str)
    return bool(first == second or (not both_texts and _typed(first) == _typed(second)))


def _typed(value: Any) -> Any:
    """A value with numbers and booleans in text converted: ``"8"`` equals 8."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return {"true": True, "false": False}.get(value, value)
    return value
