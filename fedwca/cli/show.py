"""`fedwca show`: what components, baselines, presets and tables of the configuration hold, and what it means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fedwca.cli.shared_options import PlainJson
from fedwca.cli.terminal import make_console, say
from fedwca.config.component_registries import KINDS, PLURALS, registry_of
from fedwca.describe_problems import describe_unknown
from fedwca.errors import UsageError
from fedwca.registry import canonical_name


def show_command(
    kind: Annotated[
        str,
        typer.Argument(
            help="A kind, such as aggregator; also baseline or preset. Without a name: training, source-training, "
            "central-training, finish-training, or run for what is in none of these."
        ),
    ],
    name: Annotated[str | None, typer.Argument(help="A name, such as wca.")] = None,
    as_json: PlainJson = False,
) -> None:
    """Show a component's fields, bounds, defaults and paper, or those of a table of the configuration.

    For example: fedwca show aggregator wca, or fedwca show training
    """
    from fedwca.config.run_config import TABLES

    table = canonical_name(kind)
    if table in ("run", *TABLES):
        if name is not None:
            raise UsageError(f"fedwca show {kind} takes no name, but {name!r} was given")
        _show_table(table, as_json)
        return
    if name is None:
        if table not in ("baseline", "baselines", "preset", "presets"):
            _check_is_kind(kind)
        raise UsageError(f"fedwca show {kind} needs a name; fedwca list {kind} names all")
    if canonical_name(kind) in ("baseline", "baselines"):
        _show_baseline(name, as_json)
        return
    if canonical_name(kind) in ("preset", "presets"):
        _show_preset(name, as_json)
        return
    _show_component(kind, name, as_json)


def _check_is_kind(kind: str) -> None:
    """Check that there are components of a kind.

    Raises:
        UsageError: there are none; the message has the commands that show what has this name.
    """
    from fedwca.config.baselines import settings_with
    from fedwca.config.presets import preset_names

    name = canonical_name(kind)
    if name in KINDS or name in PLURALS.values():
        return
    places = [place for place in KINDS if name in registry_of(place).names()]
    places += ["baseline"] if settings_with(name) else []
    places += ["preset"] if name in preset_names() else []
    if places:
        commands = " or ".join(f"fedwca show {place.replace('_', '-')} {kind}" for place in places)
        raise UsageError(f"fedwca show {kind} lacks the kind: {commands}")
    registry_of(kind)


def _show_component(kind: str, name: str, as_json: bool) -> None:
    registry = registry_of(kind)
    cls = registry.get(name)
    fields = cls.model_json_schema().get("properties", {})
    if as_json:
        component = {"kind": registry.kind, "name": cls.name, "paper": cls.paper, "about": cls.__doc__}
        say(json.dumps({**component, "fields": fields}, indent=2))
        return
    from fedwca.config.run_config import RUN_KINDS

    _print_head(f"{registry.kind} {cls.name}" + (f"  {cls.label}" if cls.label else ""), cls.__doc__)
    console = make_console()
    if cls.paper:
        console.print(f"Paper: {cls.paper}")
    if not fields:
        console.print("It has no fields.")
        return
    _print_fields(fields)
    kind = registry.kind.replace("-", "_")
    usage = f"--{kind} {cls.name}:FIELD=VALUE"
    if kind == "central":
        usage = f"--set central.{cls.name}.FIELD=VALUE or METHOD/central={cls.name}:FIELD=VALUE"
    elif kind in RUN_KINDS:
        usage = f"--set {kind}.FIELD=VALUE or {cls.name}:FIELD=VALUE"
    console.print(f"Set one with {usage}")


def _show_table(name: str, as_json: bool) -> None:
    """Show the fields of a table of the configuration; of ``run``, those that are in no table."""
    from fedwca.config.run_config import TABLES, RunConfig

    cls = TABLES.get(name, RunConfig)
    fields = {
        field: info
        for field, info in cls.model_json_schema().get("properties", {}).items()
        if cls is not RunConfig or field not in (*TABLES, "components", "methods")
    }
    if as_json:
        say(json.dumps({"name": name, "about": cls.__doc__, "fields": fields}, indent=2))
        return
    _print_head(name, cls.__doc__)
    _print_fields(fields)
    where = (
        "with an option of fedwca bench, where it has one, or in a file for --config"
        if cls is RunConfig
        else f"with --set {name}.FIELD=VALUE"
    )
    make_console().print(f"Set one {where}")


def _print_head(title: str, about: str | None) -> None:
    console = make_console()
    console.print(title, style="bold")
    console.print((about or "").strip().replace("\n    ", "\n"))


def _print_fields(fields: Mapping[str, dict[str, Any]]) -> None:
    """Print a row per field: its default, its values and its meaning."""
    from rich.table import Column, Table

    # A field's name is meant to be copied.
    table = Table(
        Column("field", no_wrap=True), *(Column(name, overflow="fold") for name in ("default", "values", "meaning"))
    )
    for field, info in fields.items():
        table.add_row(field, _text(info.get("default")), _values(info), info.get("description", "").replace("\n", " "))
    make_console().print(table)


def _values(info: dict[str, Any]) -> str:
    """A field's type and bounds in a few words."""
    if "anyOf" in info:
        return " or ".join(_values(option) for option in info["anyOf"])
    if "enum" in info:
        return ", ".join(map(str, info["enum"]))
    if "const" in info:
        return str(info["const"])
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = " ".join(f"{sign} {info[key]:g}" for key, sign in signs.items() if key in info)
    names = {
        **{"number": "number", "integer": "integer", "boolean": "true, false", "string": "text", "null": "nothing"},
        "array": "list",
    }
    return f"{names.get(info.get('type', ''), info.get('type', ''))} {bounds}".strip()


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _show_baseline(name: str, as_json: bool) -> None:
    from fedwca.config.baselines import baseline, baseline_names, every_baseline_name, settings, settings_with

    setting, _, bare_name = name.rpartition("/")
    known_settings = settings_with(bare_name)
    setting = canonical_name(setting)
    if setting and known_settings and setting not in known_settings:
        raise UsageError(f"{name}: {describe_unknown('setting with this baseline', setting, known_settings)}")
    if not known_settings:
        names = baseline_names(setting) if setting in settings() else every_baseline_name()
        raise UsageError(describe_unknown("baseline", canonical_name(bare_name), names))
    entry = baseline(bare_name, *([setting] if setting in known_settings else known_settings[:1]))
    if as_json:
        say(json.dumps(entry.model_dump(mode="json"), indent=2))
        return
    from fedwca.core.dotted_keys import flatten_keys

    for field, value in entry.model_dump(exclude_none=True).items():
        if isinstance(value, dict):
            text = ", ".join(f"{key} = {field_value}" for key, field_value in flatten_keys(value))
        else:
            text = ", ".join(value) if isinstance(value, tuple | list) else str(value).strip()
        if text:
            say(f"{field}: {text}")
    for other_setting in known_settings[1:] if not setting else ():
        say(f"Another method of that name: fedwca show baseline {other_setting}/{bare_name}")


def _show_preset(name: str, as_json: bool) -> None:
    from fedwca.config.presets import read_preset

    text, tables = read_preset(canonical_name(name))
    say(json.dumps(tables, indent=2) if as_json else text.rstrip())
