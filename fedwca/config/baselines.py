"""Baselines: published methods as described by files in ``baselines/``, and variants of them."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedwca.config.component_registries import registry_of
from fedwca.config.config_layers import merge
from fedwca.config.method_spec import NOTHING, SEVERAL, MethodSpec
from fedwca.config.method_values import MethodValues
from fedwca.config.run_config import SPECS, Components
from fedwca.config.spell_out import spell_out
from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.files import toml_names
from fedwca.describe_problems import describe_problems, describe_unknown
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.partitions import Partition, partitions
from fedwca.partitions.domains import Domains
from fedwca.registry import canonical_name


def baseline_folder() -> Traversable:
    """The folder ``baselines/``: inside an installed package, or beside the package in a checkout."""
    packaged = resources.files("fedwca") / "_baselines"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "baselines"


@cache
def _names_by_setting() -> dict[str, list[str]]:
    """Names of baselines by setting; the files come with fedwca, and so do not change while it runs."""
    return {folder.name: toml_names(folder) for folder in baseline_folder().iterdir() if folder.is_dir()}


def settings() -> list[str]:
    """Settings that have baselines, sorted; each is a folder's name and the ``setting`` of some partitions."""
    return sorted(_names_by_setting())


def baseline_names(setting: str = Domains.setting) -> list[str]:
    """Names of a setting's baselines, sorted."""
    return list(_names_by_setting().get(setting, ()))


def every_baseline_name() -> list[str]:
    """Names of the baselines of all settings, sorted."""
    return sorted({name for setting in settings() for name in baseline_names(setting)})


def settings_with(name: str) -> list[str]:
    """Settings that have a baseline with this name."""
    return [setting for setting in settings() if canonical_name(name) in baseline_names(setting)]


class Baseline(BaseModel):
    """One published method: its exact composition, and how open points of the publication are decided."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    label: str
    """Its name in tables."""
    paper: str
    """Where it is published."""
    reading: str
    """What the publication leaves open and how it is decided here."""
    aggregator: str
    pseudo_labeler: str
    objectives: tuple[str, ...]
    clusterer: str | None = None
    adaptation: str | None = None
    """Adaptation whose steps models take on the images that they predict."""
    central: str | None = None
    """Central method whose model replaces the common start model."""
    finish: tuple[str, ...] = ()
    """Objectives of the last phase, in which clients without labels train."""
    components: Components = {}
    """Component fields that the method fixes; all other fields are taken from the run."""
    training: dict[str, Any] = {}
    """Training values of a round that the method fixes; the others are taken from the run."""
    finish_training: dict[str, Any] = {}
    """Likewise for the last phase."""
    rounds: NonNegativeInt | None = None
    """Maximum number of rounds; 0: the source model as it is; None: the run's number."""


def baseline(name: str, setting: str = Domains.setting) -> Baseline:
    """A setting's baseline by name.

    Raises:
        UnknownComponent: there is no such file.
        InvalidConfig: the file has an unknown field or a wrong value.
    """
    name = canonical_name(name)
    if name not in baseline_names(setting):
        raise UnknownComponent(describe_unknown("baseline", name, baseline_names(setting)))
    return _read_baseline(name, setting).model_copy(deep=True)


@cache
def _read_baseline(name: str, setting: str) -> Baseline:
    """A baseline from its file."""
    values = tomllib.loads((baseline_folder() / setting / f"{name}.toml").read_text(encoding="utf-8"))
    try:
        return Baseline(**spell_out(values))
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, f"baseline {name}: ")) from error


def is_stated(name: str, key: str, setting: str = Domains.setting) -> bool:
    """Whether the file of a setting's baseline states a value, by its dotted key; False if there is no such file.

    >>> is_stated("fedtta_prox", "training.lr", "upfl"), is_stated("fedtta_prox", "training.clip", "upfl")
    (False, True)
    """
    if name not in baseline_names(setting):
        return False
    own = _read_baseline(name, setting)
    return key in dict(flatten_keys({"training": own.training, "components": own.components}))


def baseline_for(
    spec: MethodSpec, partition: type[Partition] = Domains, values: MethodValues | None = None
) -> Baseline:
    """The baseline that a method spec denotes: its head with the changes, or default parts around an aggregator.

    Args:
        spec: of a method.
        partition: of the run; names are looked up among the baselines of its setting.
        values: the run's values for the head alone; they take precedence over those in its file.

    Raises:
        UnknownComponent: the head is neither a baseline nor an aggregator.
        UsageError: the head is another setting's baseline, or fields are given for an aggregator that is replaced.
    """
    names, aggregators = baseline_names(partition.setting), registry_of("aggregator")
    if spec.head in names:
        head = baseline(spec.head, partition.setting)
    elif other_settings := settings_with(spec.head):
        owner = f"{other_settings[0]} ({selecting_options(other_settings[0])})"
        raise UsageError(
            f"baseline {spec.head!r} belongs to the setting {owner}; this run is {partition.setting}, which has "
            f"{', '.join(names)}"
        )
    elif spec.head in aggregators.names():
        default_head = baseline(partition.default_baseline, partition.setting)
        label = aggregators.get(spec.head).label or spec.head
        parts: dict[str, Any] = {
            name: getattr(default_head, name) for name in ("pseudo_labeler", "objectives", "adaptation")
        }
        fields = {kind: by_name for kind, by_name in default_head.components.items() if kind != "aggregator"}
        head = Baseline(label=label, paper="", reading="", aggregator=spec.head, components=fields, **parts)
    elif spec.plain:
        raise UnknownComponent(describe_unknown("baseline", spec.head, names))
    else:
        raise UnknownComponent(describe_unknown("method", spec.head, [*names, *aggregators.names()]))
    values, file_fields = values or MethodValues(), head.components
    own_values = {name: merge(getattr(head, name), getattr(values, name)) for name in MethodValues.model_fields}
    head = head.model_copy(update=own_values)
    if spec.plain:
        return head
    changes: dict[str, Any] = {
        part: specs if part in SEVERAL else next(iter(specs), None) for part, specs in spec.changes.items()
    }
    changes |= _place_fields(spec, head, changes)
    update = spell_out(changes)
    changed_fields = update.pop("components", {})
    changed = head.model_copy(update=update)
    # A component that is named again does not take over the fields in the head's file, but the run's values for it.
    unchanged = {key for part in SPECS if part not in spec.changes for key in _named_in(changed, part)}
    named = {key for part in SPECS for key in _named_in(changed, part)}
    fields = merge(_fields_of(unchanged, file_fields), _fields_of(named, values.components))
    fields = merge(fields, changed_fields)
    change_texts = [spec.fields, *(f"{part}={'+'.join(specs) or NOTHING}" for part, specs in spec.changes.items())]
    label = spec.label or f"{head.label} ({'; '.join(part for part in change_texts if part)})"
    return changed.model_copy(update={"components": fields, "label": label})


def _fields_of(components: Collection[tuple[str, str]], fields: Components) -> Components:
    """Those fields that belong to some components, given by kind and name."""
    kept = {
        kind: {name: values for name, values in by_name.items() if (kind, name) in components}
        for kind, by_name in fields.items()
    }
    return {kind: by_name for kind, by_name in kept.items() if by_name}


def _place_fields(spec: MethodSpec, head: Baseline, changes: Mapping[str, Any]) -> dict[str, str]:
    """The fields written after the head's name, as a spec of the component that they belong to."""
    if not spec.fields:
        return {}
    kind, name = ("central", head.central) if head.central else ("aggregator", head.aggregator)
    if kind in changes:
        raise UsageError(
            f"method {spec.text!r}: {spec.fields!r} are fields of the {kind} that another takes the place of; write "
            f"{kind}={changes[kind]}:{spec.fields}"
        )
    return {kind: f"{name}:{spec.fields}"}


def _named_in(head: Baseline, part: str) -> list[tuple[str, str]]:
    """(kind, name) of each component in a part of a baseline."""
    names = getattr(head, part, None) or ()
    return [(SPECS[part], name) for name in ((names,) if isinstance(names, str) else names)]


def selecting_options(setting: str) -> str:
    """The options that select a setting, for messages."""
    known = partitions.loadable()
    matching = [partition for partition in known if setting in (partition.setting, partition.preset_table)]
    if not matching:
        return "a plugin's partition"
    first = min(matching, key=lambda partition: partition.domain_role is None)
    if first.domain_role:
        return f"--{first.domain_role} DOMAIN"
    return f"--partition {first.name}, or another one of labelled clients"
