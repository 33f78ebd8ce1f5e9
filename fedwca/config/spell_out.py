"""Expand the short forms of a layer: canonical component names, and their fields in ``components`` tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedwca.config.component_registries import registry_of
from fedwca.config.config_layers import merge
from fedwca.config.run_config import SPECS, Components, Layer
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import InvalidConfig
from fedwca.registry import canonical_name


def spell_out(layer: Layer) -> Layer:
    """Split component specs such as ``aggregator = "wca:ta=0.05"`` into a name and fields under ``components``.

    Raises:
        InvalidConfig: a field is given twice, a name is spelled in two ways, a field is called ``name``, or
            ``components`` is no table.
    """
    layer = dict(layer)
    fields_from_specs: Components = {}
    for key, kind in SPECS.items():
        if layer.get(key) is None:
            continue
        specs = list(layer[key]) if kind == "objective" and isinstance(layer[key], list | tuple) else [layer[key]]
        names = []
        for spec in specs:
            name, fields = registry_of(kind).parse(spec)
            names.append(name)
            component_fields = fields_from_specs.setdefault(kind, {}).setdefault(name, {}) if fields else {}
            if repeated_fields := [field for field in fields if field in component_fields]:
                raise InvalidConfig(f"{kind} {name}: {repeated_fields[0]!r} is given twice")
            for field, value in fields.items():
                check_is_no_name(kind, name, field, value)
            component_fields.update(fields)
        layer[key] = names if kind == "objective" else names[0]
    if isinstance(layer.get("methods"), Mapping):
        layer["methods"] = {
            name: {**values, "components": _canonical_components(values["components"], f"methods.{name}.components")}
            if isinstance(values, Mapping) and isinstance(values.get("components"), Mapping)
            else values
            for name, values in _with_canonical_keys(layer["methods"], "methods").items()
        }
    fields_from_tables = layer.get("components", {})
    if not isinstance(fields_from_tables, Mapping):
        raise InvalidConfig(f"components: needs tables kind.name.field, not {fields_from_tables!r}")
    fields_from_tables = _canonical_components(fields_from_tables, "components")
    for key in dict(flatten_keys(fields_from_specs)).keys() & dict(flatten_keys(fields_from_tables)).keys():
        raise InvalidConfig(f"{key} is given twice: beside the component's name, and under components")
    if fields_from_specs or fields_from_tables:
        layer["components"] = merge(fields_from_tables, fields_from_specs)
    return layer


def _canonical_components(components: Mapping[str, Any], location: str) -> Components:
    canonical = {
        kind: _with_canonical_keys(by_name, f"{location}.{kind}") if isinstance(by_name, Mapping) else by_name
        for kind, by_name in _with_canonical_keys(components, location).items()
    }
    for kind, by_name in canonical.items():
        for name, fields in by_name.items() if isinstance(by_name, Mapping) else ():
            if isinstance(fields, Mapping) and "name" in fields:
                check_is_no_name(kind, name, "name", fields["name"])
    return canonical


def check_is_no_name(kind: str, name: str, field: str, value: Any) -> None:
    """Refuse a field ``name``, which would put another component in the place of the one that it is given for.

    Raises:
        InvalidConfig: the field is called so; says how a component is named.
    """
    if field == "name":
        how = f"METHOD/central={value}" if kind == "central" else f"--{kind.replace('_', '-')} {value}"
        raise InvalidConfig(f"{kind}.{name}.name: there is no such field; another {kind} is named by itself, as {how}")


def _with_canonical_keys(table: Mapping[Any, Any], location: str) -> dict[str, Any]:
    canonical: dict[str, Any] = {}
    for key, value in table.items():
        name = canonical_name(str(key))
        if name in canonical:
            raise InvalidConfig(f"{location}: {name!r} is given twice, spelled in two ways")
        canonical[name] = value
    return canonical
