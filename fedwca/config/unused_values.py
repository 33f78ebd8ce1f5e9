"""Values that reach no method of a run: refused where somebody gives them, left out where a preset does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fedwca.config.compose_methods import method_parts
from fedwca.config.method_spec import parse_method
from fedwca.config.method_values import MethodValues, leave_out
from fedwca.config.run_config import RunConfig
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import UsageError
from fedwca.federated.method import Method
from fedwca.registry import Component, canonical_name

Methods = Sequence[tuple[Method, int]]
"""Composed, with their rounds."""
Key = tuple[str, str, str]
"""Kind, name and field of a component; a name may have dots, as timm's models do."""


def without_unused(
    config: RunConfig, origins: Mapping[str, str], methods: Methods, preset: str, refuses: bool = True
) -> tuple[RunConfig, dict[str, str]]:
    """A configuration, and where its values come from, less what a preset says of parts that no method has.

    Args:
        config: says the values.
        origins: of these.
        methods: of the run.
        preset: the origin of the preset's values.
        refuses: whether a value that somebody else gives is refused; otherwise it is left out, too.

    Raises:
        UsageError: somebody else gives such a value, or the command line one that every method overrules.
    """
    kept = dict(origins)
    idle = _unused_fields(config, methods)
    for kind, name, field in idle:
        key = f"{kind}.{name}.{field}"
        if kept.pop(f"components.{key}") != preset and refuses:
            raise UsageError(f"{key} is given, but no method of this run uses the {kind} {name!r}")
    if refuses:
        _check_overruled_fields(config, kept, methods)
    lost = _unused_values(config, methods)
    for key in lost:
        if kept.pop(f"methods.{key}") != preset and refuses:
            raise UsageError(f"methods.{key} is given, but no method of this run is called so and reads it")
    return _without_values(_without_fields(config, idle), lost), kept


def _check_overruled_fields(config: RunConfig, origins: Mapping[str, str], methods: Methods) -> None:
    """Refuse a field that the command line gives all methods, where none of them would have it.

    Args:
        config: says the values.
        origins: of these.
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
    """Fields given for components that no method of the run uses."""
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
    """Fields given for components of which every method that has one states another value itself."""
    parts: dict[tuple[str, str], list[Component]] = {}
    for method, _ in methods:
        for kind, part in method_parts(method):
            parts.setdefault((kind, part.name), []).append(part)
    return [
        (kind, name, field)
        for kind, names in config.components.items()
        for name, fields in names.items()
        for field, value in fields.items()
        if (found := parts.get((kind, name))) and all(_changes(part, field, value) for part in found)
    ]


def _changes(part: Component, field: str, value: Any) -> bool:
    """Whether a component with another value of a field, as text or in its type, would be another one."""
    try:
        return type(part)(**{**part.model_dump(), field: value}) != part
    except ValidationError:
        return False


def _unused_values(config: RunConfig, methods: Methods) -> list[str]:
    """Keys ``name.field`` of values given for a method alone that the run has not, or that has no such component."""
    heads = {spec.name: spec.head for spec in map(parse_method, config.baselines)}
    parts: dict[str, set[tuple[str, str]]] = {}
    played = set()
    """Those with rounds, or steps of an adaptation: how clients train in a round is said of them alone."""
    for method, rounds in methods:
        own = {(kind, part.name) for kind, part in method_parts(method)}
        head = heads.get(method.name, canonical_name(method.name))
        parts.setdefault(head, set()).update(own)
        if rounds > bool(method.finish) or method.adaptation is not None:
            played.add(head)
    return [
        f"{name}.{key}"
        for name, values in config.methods.items()
        for key, _ in flatten_keys(values.model_dump())
        if name not in parts
        or (key.startswith("components.") and tuple(key.split(".")[1:3]) not in parts[name])
        or (key.startswith("training.") and name not in played)
    ]


def _without_fields(config: RunConfig, keys: Sequence[Key]) -> RunConfig:
    """The configuration less some component fields: what a preset says of components that the run does not use."""
    components = {
        kind: {
            name: {field: value for field, value in fields.items() if (kind, name, field) not in keys}
            for name, fields in names.items()
        }
        for kind, names in config.components.items()
    }
    return config.model_copy(update={"components": components})


def _without_values(config: RunConfig, keys: Sequence[str]) -> RunConfig:
    """The configuration less some values of methods: what a preset says of those that the run has not."""
    if not keys:
        return config
    dumped = {"methods": {name: values.model_dump() for name, values in config.methods.items()}}
    left = leave_out(dumped, lambda name, key: f"{name}.{key}" in keys)["methods"]
    return config.model_copy(update={"methods": {name: MethodValues(**own) for name, own in left.items()}})
