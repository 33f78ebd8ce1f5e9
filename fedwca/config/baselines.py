"""Baselines: the published methods that files in ``baselines/`` describe, and variants of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedwca.config.component_registries import registry_of
from fedwca.config.method_spec import NOTHING, SEVERAL, MethodSpec
from fedwca.config.method_values import MethodValues
from fedwca.config.run_config import SPECS, Components, merge
from fedwca.config.spell_out import spell_out
from fedwca.core.files import toml_names
from fedwca.describe_problems import describe_problems, describe_unknown
from fedwca.errors import InvalidConfig, UnknownComponent, UsageError
from fedwca.partitions import Partition, partitions
from fedwca.partitions.domains import Domains
from fedwca.registry import canonical_name


def baseline_folder() -> Traversable:
    """``baselines/``: inside an installed package, or beside the package in a checkout."""
    packaged = resources.files("fedwca") / "_baselines"
    return packaged if packaged.is_dir() else Path(__file__).resolve().parents[2] / "baselines"


def settings() -> list[str]:
    """Settings that have baselines of their own, sorted; each is a folder, and what a partition's ``setting`` says."""
    return sorted(folder.name for folder in baseline_folder().iterdir() if folder.is_dir())


def baseline_names(setting: str = Domains.setting) -> list[str]:
    """Names of a setting's baselines, sorted."""
    return toml_names(baseline_folder() / setting)


def every_baseline_name() -> list[str]:
    """Names of the baselines of all settings, sorted."""
    return sorted({name for setting in settings() for name in baseline_names(setting)})


def settings_with(name: str) -> list[str]:
    """Settings that have a baseline of a name."""
    return [setting for setting in settings() if canonical_name(name) in baseline_names(setting)]


class Baseline(BaseModel):
    """One published method: its exact composition, and what in it is our reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    label: str
    """How tables call it."""
    paper: str
    """Where it is published."""
    reading: str
    """What the publication leaves open and how it is decided here."""
    aggregator: str
    pseudo_labeler: str
    objectives: tuple[str, ...]
    clusterer: str | None = None
    adaptation: str | None = None
    """Steps that models take on the images they predict."""
    start: str | None = None
    """Central method whose model stands in for the one that everybody starts from."""
    finish: tuple[str, ...] = ()
    """Objectives of a last phase, for clients without labels."""
    components: Components = {}
    """Fields that belong to the method; every other field is the run's."""
    training: dict[str, Any] = {}
    """How its clients train in a round, where that is not the run's to say."""
    finish_training: dict[str, Any] = {}
    """The same of the last phase."""
    rounds: NonNegativeInt | None = None
    """At most so many; 0: the source model as it is; None: the run's."""


def baseline(name: str, setting: str = Domains.setting) -> Baseline:
    """A setting's baseline by name.

    Raises:
        UnknownComponent: there is no such file.
    """
    name = canonical_name(name)
    if name not in baseline_names(setting):
        raise UnknownComponent(describe_unknown("baseline", name, baseline_names(setting)))
    try:
        return Baseline(
            **spell_out(tomllib.loads((baseline_folder() / setting / f"{name}.toml").read_text(encoding="utf-8")))
        )
    except ValidationError as error:
        raise InvalidConfig(describe_problems(error, f"baseline {name}: ")) from error


def baseline_for(
    spec: MethodSpec, partition: type[Partition] = Domains, values: MethodValues | None = None
) -> Baseline:
    """The baseline that a method's word stands for: its head with the changes, or default parts around an aggregator.

    Args:
        spec: of a method.
        partition: of the run; a bare name is that of its setting's baseline.
        values: what the run says of the head alone; they stand over its file's.

    Raises:
        UnknownComponent: the head is neither a baseline nor an aggregator.
        UsageError: the head is a baseline of other settings alone.
    """
    names, aggregators = baseline_names(partition.setting), registry_of("aggregator")
    if spec.head in names:
        head = baseline(spec.head, partition.setting)
    elif elsewhere := settings_with(spec.head):
        theirs = f"{elsewhere[0]} ({_how_to_have_setting(elsewhere[0])})"
        raise UsageError(
            f"baseline {spec.head!r} belongs to the setting {theirs}; this run is {partition.setting}, which has "
            f"{', '.join(names)}"
        )
    elif spec.head in aggregators.names():
        usual = baseline(partition.usual, partition.setting)
        label = aggregators.get(spec.head).label or spec.head
        kept: dict[str, Any] = {name: getattr(usual, name) for name in ("pseudo_labeler", "objectives", "adaptation")}
        fields = {kind: given for kind, given in usual.components.items() if kind != "aggregator"}
        head = Baseline(label=label, paper="", reading="", aggregator=spec.head, components=fields, **kept)
    elif spec.plain:
        return baseline(spec.head, partition.setting)
    else:
        raise UnknownComponent(describe_unknown("method", spec.head, [*names, *aggregators.names()]))
    head = _lay_values_over(head, values or MethodValues())
    if spec.plain:
        return head
    changes: dict[str, Any] = {
        part: specs if part in SEVERAL else next(iter(specs), None) for part, specs in spec.changes.items()
    }
    changes |= _place_fields(spec, head, changes)
    given = spell_out(changes)
    # A component that stands in for the head's comes without the fields that the head's file states.
    staying = {named for part in SPECS if part not in spec.changes for named in _named_in(head, part)}
    stated: Components = {}
    for kind, named in head.components.items():
        if left := {name: given_fields for name, given_fields in named.items() if (kind, name) in staying}:
            stated[kind] = left
    fields = merge(stated, given.pop("components", {}))
    shown = [spec.fields, *(f"{part}={'+'.join(specs) or NOTHING}" for part, specs in spec.changes.items())]
    label = spec.label or f"{head.label} ({'; '.join(part for part in shown if part)})"
    return head.model_copy(update={**given, "components": fields, "label": label})


def _place_fields(spec: MethodSpec, found: Baseline, changes: Mapping[str, Any]) -> dict[str, str]:
    """The fields behind the head's name, with the component that they belong to."""
    if not spec.fields:
        return {}
    if found.start:
        return {"start": f"{found.start}:{spec.fields}"}
    if "aggregator" in changes:
        raise UsageError(
            f"method {spec.text!r}: {spec.fields!r} are fields of an aggregator that another takes the place of; write "
            f"aggregator={changes['aggregator']}:{spec.fields}"
        )
    return {"aggregator": f"{found.aggregator}:{spec.fields}"}


def _lay_values_over(found: Baseline, values: MethodValues) -> Baseline:
    own = {name: merge(getattr(found, name), getattr(values, name)) for name in MethodValues.model_fields}
    return found.model_copy(update=own)


def _named_in(found: Baseline, part: str) -> list[tuple[str, str]]:
    """Kinds and names of the components in a part of a baseline."""
    names = getattr(found, part, None) or ()
    return [(SPECS[part], name) for name in ((names,) if isinstance(names, str) else names)]


def how_to_have(partition: type[Partition]) -> str:
    """Which option gives a run a partition."""
    return f"--{partition.named}" if partition.named else f"--partition {partition.name}"


def _how_to_have_setting(setting: str) -> str:
    """Which option gives a run a setting."""
    found = [kind for name in partitions.names() if (kind := partitions.get(name)).setting == setting]
    if not found:
        return "a plugin's partition"
    found.sort(key=lambda kind: kind.named is None)
    return how_to_have(found[0]) + (" DOMAIN" if found[0].named else ", or another one of labelled clients")
