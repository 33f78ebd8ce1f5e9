"""A layer as it is written, with short forms and any spelling, brought to names and ``components`` tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import SPECS, Components, Layer, merge
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import InvalidConfig
from fedwca.registry import canonical_name


def spell_out(layer: Layer) -> Layer:
    """Component specs such as ``aggregator = "wca:ta=0.05"`` taken apart into a name and ``components`` fields."""
    layer = dict(layer)
    found: Components = {}
    for key, kind in SPECS.items():
        if layer.get(key) is None:
            continue
        specs = list(layer[key]) if kind == "objective" and isinstance(layer[key], list | tuple) else [layer[key]]
        names = []
        for spec in specs:
            name, fields = registry_of(kind).parse(spec)
            names.append(name)
            known = found.setdefault(kind, {}).setdefault(name, {}) if fields else {}
            if twice := [field for field in fields if field in known]:
                raise InvalidConfig(f"{kind} {name}: {twice[0]!r} is given twice")
            known.update(fields)
        layer[key] = names if kind == "objective" else names[0]
    if isinstance(layer.get("methods"), Mapping):
        layer["methods"] = {
            name: {**own, "components": _canonical_components(own["components"], f"methods.{name}.components")}
            if isinstance(own, Mapping) and isinstance(own.get("components"), Mapping)
            else own
            for name, own in _with_canonical_keys(layer["methods"], "methods").items()
        }
    given = layer.get("components", {})
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"components: needs tables kind.name.field, not {given!r}")
    given = _canonical_components(given, "components")
    for key in dict(flatten_keys(found)).keys() & dict(flatten_keys(given)).keys():
        raise InvalidConfig(f"{key} is given twice: beside the component's name, and under components")
    if found or given:
        layer["components"] = merge(given, found)
    return layer


def _canonical_components(given: Mapping[str, Any], what: str) -> Components:
    return {
        kind: _with_canonical_keys(own, f"{what}.{kind}") if isinstance(own, Mapping) else own
        for kind, own in _with_canonical_keys(given, what).items()
    }


def _with_canonical_keys(table: Mapping[Any, Any], what: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = canonical_name(str(key))
        if name in found:
            raise InvalidConfig(f"{what}: {name!r} is given twice, spelled in two ways")
        found[name] = value
    return found
