"""Values that no method of a run reads: an error if the user gives them, removed if a preset does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fedwca.component import Component
from fedwca.config.describe_method import method_parts
from fedwca.config.method_spec import parse_method
from fedwca.config.method_values import MethodValues, leave_out
from fedwca.config.run_config import RunConfig
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.registry import canonical_name

Methods = Sequence[tuple[Method, int]]
"""(composed method, rounds)."""
Key = tuple[str, str, str]
"""(kind, name, field) of a component; a name may have dots, as timm's models do."""


def without_unused(
    config: RunConfig, origins: Mapping[str, str], methods: Methods, preset: str, refuses: bool
) -> tuple[RunConfig, dict[str, str]]:
    """The configuration and its origins without the preset's values that no method of the run reads.

    Args:
        config: holds the values.
        origins: dotted key → layer that its value came from.
        methods: of the run.
        preset: the origin of the preset's values.
        refuses: whether an unread value that does not come from the preset is an error; otherwise it is left out too.

    Raises:
        UsageError: another layer gives an unread value, or the command line gives one that every method overrides.
    """
    remaining_origins = dict(origins)
    idle_fields = _unused_fields(config, methods)
    for kind, name, field in idle_fields:
        key = f"{kind}.{name}.{field}"
        # A value that is a table, which is no right one, has an origin for each of its leaves, and none if it is empty.
        leaves = [k for k in remaining_origins if f"{k}.".startswith(f"components.{key}.")]
        origin = next((remaining_origins[leaf] for leaf in leaves), "")
        remaining_origins = {k: layer for k, layer in remaining_origins.items() if k not in leaves}
        if origin != preset and refuses:
            given = "given in the configuration's file" if origin == "config" else "given"
            raise UsageError(f"{key} is {given}, but no method of this run uses the {kind} {name!r}")
    if refuses:
        _check_overruled_fields(config, remaining_origins, methods)
    idle_values = _unused_values(config, methods)
    for key in idle_values:
        origin = remaining_origins.pop(f"methods.{key}")
        # Where a value for all methods took its place, as it may have taken that of a preset, that one is looked at.
        is_for_all = remaining_origins.get(key.partition(".")[2]) == origin
        if origin != preset and refuses and not is_for_all:
            raise UsageError(f"methods.{key} is given, but no method of this run is called so and reads it")
    return _without_values(_without_fields(config, idle_fields), idle_values), remaining_origins


def check_training_is_not_overruled(keys: Sequence[str], config: RunConfig, methods: Methods) -> None:
    """Refuse a value of a training if every method's file states another one.

    Args:
        keys: canonical dotted keys of values set singly by the user; files and presets hold values for all methods of
            a setting.
        config: of the run.
        methods: of the run, with their rounds.

    Raises:
        UsageError: names the key.
    """
    remedies = {
        "training": "give it under [methods.{}] in a file for --config, or leave it out",
        "finish_training": "leave it out",
    }
    for key in keys:
        table, _, field = key.partition(".")
        if table not in remedies:
            continue
        given, own = getattr(getattr(config, table), field), [getattr(method, table) for method, _ in methods]
        set_by_run = table == "training" and any(field in values.training for values in config.methods.values())
        if not set_by_run and all(training is not None and getattr(training, field) != given for training in own):
            method = methods[0][0]
            raise UsageError(
                f"{key} is given, but each method of this run has its own, {method.label} {getattr(own[0], field)}; "
                f"{remedies[table].format(_find_head(config)(method))}"
            )


def _check_overruled_fields(config: RunConfig, origins: Mapping[str, str], methods: Methods) -> None:
    """Refuse a component field on the command line that every method with the component overrides.

    Args:
        config: holds the values.
        origins: dotted key → layer that its value came from.
        methods: composed, with their rounds.

    Raises:
        UsageError: names the field.
    """
    for kind, name, field in _overruled_fields(config, methods):
        key = f"{kind}.{name}.{field}"
        if origins.get(f"components.{key}") == "CLI":
            raise UsageError(
                f"{key} is given, but each method of this run that has the {kind} {name!r} states {field} itself; a "
                f"method named with its part, as METHOD/{kind}={name}, leaves the part's fields open"
            )


def _unused_fields(config: RunConfig, methods: Methods) -> list[Key]:
    """Fields given for components that the run does not use."""
    used = {("dataset", config.dataset), ("model", config.model), ("partition", config.partition)}
    for method, _ in methods:
        used |= {(kind, part.name) for kind, part in method_parts(method)}
    return [
        (kind, name, field)
        for kind, names in config.components.items()
        for name, fields in names.items()
        for field in fields
        if (kind, name) not in used
    ]


def _overruled_fields(config: RunConfig, methods: Methods) -> list[Key]:
    """Component fields for which every method with the component has another value."""
    parts: dict[tuple[str, str], list[Component]] = {}
    for method, _ in methods:
        for kind, part in method_parts(method):
            parts.setdefault((kind, part.name), []).append(part)
    return [
        (kind, name, field)
        for kind, names in config.components.items()
        for name, fields in names.items()
        for field, value in fields.items()
        if (components := parts.get((kind, name))) and all(_changes(part, field, value) for part in components)
    ]


def _changes(part: Component, field: str, value: Any) -> bool:
    """Whether setting a field to a value, which may be text, would change a component."""
    try:
        return type(part)(**{**part.model_dump(), field: value}) != part
    except ValidationError:
        return False


def _unused_values(config: RunConfig, methods: Methods) -> list[str]:
    """Keys ``method.field`` of values for single methods that the run lacks or that do not read them."""
    find_head = _find_head(config)
    parts: dict[str, set[tuple[str, str]]] = {}
    trained_heads = set()
    """Heads of methods with training rounds or adaptation steps; only these read training values."""
    for method, rounds in methods:
        method_keys = {(kind, part.name) for kind, part in method_parts(method)}
        head = find_head(method)
        parts.setdefault(head, set()).update(method_keys)
        if rounds > bool(method.finish) or method.adaptation is not None:
            trained_heads.add(head)
    return [
        f"{name}.{key}"
        for name, values in config.methods.items()
        for key, _ in flatten_keys(values.model_dump())
        if name not in parts
        or (key.startswith("components.") and tuple(key.split(".")[1:3]) not in parts[name])
        or (key.startswith("training.") and name not in trained_heads)
    ]


def _find_head(config: RunConfig) -> Callable[[Method], str]:
    """Maps a method of a run to the name by which its own values are found under ``methods``."""
    heads = {spec.name: spec.head for spec in map(parse_method, config.baselines)}
    return lambda method: heads.get(method.name, canonical_name(method.name))


def _without_fields(config: RunConfig, keys: Sequence[Key]) -> RunConfig:
    """The configuration without some component fields."""
    components = {
        kind: {
            name: {field: value for field, value in fields.items() if (kind, name, field) not in keys}
            for name, fields in names.items()
        }
        for kind, names in config.components.items()
    }
    return config.model_copy(update={"components": components})


def _without_values(config: RunConfig, keys: Sequence[str]) -> RunConfig:
    """The configuration without some values of single methods, by keys ``method.field``."""
    if not keys:
        return config
    dumped = {"methods": {name: values.model_dump() for name, values in config.methods.items()}}
    remaining = leave_out(dumped, lambda name, key: f"{name}.{key}" in keys)["methods"]
    return config.model_copy(update={"methods": {name: MethodValues(**values) for name, values in remaining.items()}})
