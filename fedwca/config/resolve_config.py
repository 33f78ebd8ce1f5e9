"""Resolve a user's values to a checked configuration with the origin of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fedwca.config.assemble_method import USUAL_CLUSTERER
from fedwca.config.baselines import is_stated
from fedwca.config.build_component import partition_of
from fedwca.config.component_registries import registry_of
from fedwca.config.compose_methods import changed_training, compose
from fedwca.config.config_layers import merge, resolve
from fedwca.config.describe_method import describe_method
from fedwca.config.idle_settings import check_trainings_are_used, drop_idle_table, explain_idle, idle_tables
from fedwca.config.method_spec import PARTS
from fedwca.config.partition_and_domain import (
    add_implied_values,
    chosen_partition,
    default_domain,
    domain_of,
    name_domain,
)
from fedwca.config.presets import named_by_preset, preset, without_idle_clusterer
from fedwca.config.read_config_file import read_file
from fedwca.config.run_config import SINGLE_KINDS, Components, Layer, RunConfig
from fedwca.config.set_options import parse_set_options
from fedwca.config.spell_out import spell_out
from fedwca.config.unused_values import check_training_is_not_overruled, without_unused
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.method import Method
from fedwca.partitions import Partition
from fedwca.registry import canonical_name

COMPOSED = {*PARTS, "name"}
"""Fields of the composed method; if there is none, a file may still hold them, but nothing reads them."""


@dataclass(frozen=True)
class RunPlan:
    """A run that is fully configured but not started."""

    config: RunConfig
    methods: list[tuple[Method, int]]
    """(method, rounds); the composed method is last."""
    origins: dict[str, str]
    """Dotted key → layer that its value came from; other keys have their field's default."""

    @property
    def domain_role(self) -> str | None:
        """Role of the run's special domain, ``source`` or ``target``; None: it has none."""
        return partition_of(self.config).domain_role

    @property
    def domain(self) -> str | None:
        """The special domain; None if only the images can tell it, or if there is none."""
        return domain_of(self.config)

    def at(self, domain: str | None) -> RunPlan:
        """The same run with this special domain."""
        return replace(self, config=self.config.model_copy(update=name_domain(self.config, domain)))

    def described(self) -> dict[str, Any]:
        """The plan as plain values: the configuration, each method's parts, and the origins of values."""
        methods = {
            method.name: {"label": method.label, "rounds": rounds, **describe_method(method)}
            for method, rounds in self.methods
        }
        return {"config": self.config.model_dump(mode="json"), "methods": methods, "origins": self.origins}


def resolve_plan(
    layer: Layer,
    pairs: Sequence[tuple[str, str]] = (),
    preset_name: str = "default",
    file: Path | None = None,
    tried: Sequence[tuple[str, str]] = (),
    checked: bool = False,
) -> RunPlan:
    """Merge the layers (command line over file over preset over field defaults) and compose the methods.

    Args:
        layer: values from the command line, as fields of `RunConfig`.
        pairs: ``("aggregator.ta", "0.05")`` …, part of the command line.
        preset_name: see `fedwca.config.presets.preset`.
        file: TOML or JSON.
        tried: like ``pairs``, taking precedence over them: the values that a search tries.
        checked: whether the same values have passed the checks for a larger set of methods; then values that none of
            this run's methods reads are left out instead of refused.

    Raises:
        UsageError: unknown names, bad values, or parts that do not fit each other.
    """
    cli, file_layer, dataset, partition = read_user_layers(layer, preset_name, file)
    merged = merge(file_layer, cli)

    def build_layers(domain: str | None) -> dict[str, Layer]:
        # A file's value may have any type: it is looked up as text here and validated with the whole configuration.
        named_domain = (merged.get(partition.domain_role) if partition.domain_role else None) or domain
        table = partition.preset_table or partition.setting
        base = preset(preset_name, dataset, None if named_domain is None else str(named_domain), table)
        base, usable_file_layer = without_idle_clusterer(base, file_layer, cli, partition)
        names = component_names_by_kind(merge(base, merge(usable_file_layer, cli)))
        cli_with_set = merge(merge(cli, parse_set_options(pairs, names)), parse_set_options(tried, names))
        base, usable_file_layer = without_idle_clusterer(base, usable_file_layer, cli_with_set, partition)
        return {f"preset {preset_name}": base, "config": usable_file_layer, "CLI": cli_with_set}

    is_stated_here = partial(is_stated, setting=partition.setting)
    layers = build_layers(None)
    config, origins = resolve(layers, is_stated_here)
    if partition.domain_role and domain_of(config) is None and (domain := default_domain(config)) is not None:
        layers = build_layers(domain)
        config, origins = resolve(layers, is_stated_here)
        config = config.model_copy(update={partition.domain_role: domain})
    if not config.composed and (unread := sorted(cli.keys() & COMPOSED)):
        raise UsageError(
            f"{unread[0]} is given, but this run has baselines alone, as composed = false says; leave {unread[0]} out, "
            "or give composed = true"
        )
    base = layers[f"preset {preset_name}"]
    for table in idle_tables(partition):
        reason = explain_idle(table, partition)
        config, origins = drop_idle_table(table, config, origins, base, reason, repeats=("CLI", "config"))
    check_newcomer_fields(config)
    if config.checkpoint is not None:
        reason = "with a checkpoint no source model is trained; leave out one of both"
        config, origins = drop_idle_table("source_training", config, origins, base, reason)
    check_clusterer_fields(config, origins.get("clusterer", ""))
    methods = compose(config)
    if not checked:
        keys = [".".join(map(canonical_name, key.split("."))) for key, _ in (*pairs, *tried)]
        check_trainings_are_used(keys, [method for method, _ in methods], partition)
        check_training_is_not_overruled(keys, config, methods)
    config, origins = without_unused(config, origins, methods, f"preset {preset_name}", refuses=not checked)
    return RunPlan(type_components(config), methods, origins)


def read_user_layers(layer: Layer, preset_name: str, file: Path | None) -> tuple[Layer, Layer, str, type[Partition]]:
    """The command line's and the file's layer with what they imply, and the data set and the partition that they mean.

    Arguments and errors are those of `resolve_plan`.
    """
    cli = spell_out(layer)
    file_layer = read_file(file) if file else {}
    add_implied_values(file_layer, cli)
    merged = merge(file_layer, cli)
    preset_dataset = named_by_preset(preset_name, "dataset")
    dataset = str(merged.get("dataset") or preset_dataset or RunConfig.model_fields["dataset"].default)
    preset_partition = named_by_preset(preset_name, "partition", dataset)
    partition = chosen_partition(merged, preset_partition)
    if partition.name not in (RunConfig.model_fields["partition"].default, preset_partition):
        role = partition.domain_role
        if merged.get("partition") is None:
            (file_layer if role and cli.get(role) is None else cli)["partition"] = partition.name
    return cli, file_layer, dataset, partition


def check_clusterer_fields(config: RunConfig, named_by: str) -> None:
    """Refuse unknown fields of a clusterer that a preset names, as the user may not know of that clusterer.

    Args:
        config: holds the fields.
        named_by: the layer that names the clusterer.

    Raises:
        UsageError: names the field.
    """
    name = config.clusterer
    if name is None or not named_by.startswith("preset "):
        return
    known_fields = registry_of("clusterer").get(name).model_fields
    for field in config.components.get("clusterer", {}).get(name, {}):
        if field not in known_fields:
            raise InvalidConfig(
                f"clusterer {name}.{field}: there is no such field; {named_by} takes clusterer {name}, --clusterer "
                "another, such as finch"
            )


def check_newcomer_fields(config: RunConfig) -> None:
    """Refuse values for new clients if the partition has none.

    Raises:
        UsageError: names the field.
    """
    partition = partition_of(config)
    for field in ("new_clients", "validation"):
        if not partition.has_newcomers and getattr(config, field) is not None:
            raise UsageError(
                f"{field} is given, but partition {partition.name} has no new clients; leave it out, or take a "
                "partition such as shards"
            )


def type_components(config: RunConfig) -> RunConfig:
    """The configuration with fields of components and methods' own training values converted to their types.

    A command line gives the former as text.

    >>> given = RunConfig(components={"model": {"lenet": {"bottleneck": "8"}}})
    >>> type_components(given).components
    {'model': {'lenet': {'bottleneck': 8}}}

    Raises:
        InvalidConfig: a method's training value is out of its bounds.
    """
    methods = {}
    for name, values in config.methods.items():
        training = changed_training(config.training, values.training, name)
        typed = {
            "components": _typed_components(values.components),
            "training": {field: getattr(training, field) for field in values.training},
        }
        methods[name] = values.model_copy(update=typed)
    return config.model_copy(update={"components": _typed_components(config.components), "methods": methods})


def _typed_components(components: Components) -> Components:
    return {
        kind: {name: _typed_fields(kind, name, fields) for name, fields in names.items()}
        for kind, names in components.items()
    }


def _typed_fields(kind: str, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    try:
        values = registry_of(kind).build({"name": name, **fields}).model_dump(mode="json")
    except UsageError:
        # A field that only a method's file sets, or a plugin, may be missing here: the types are unknown then.
        return dict(fields)
    return {field: values[field] for field in fields}


def component_names_by_kind(values: Layer) -> dict[str, list[str]]:
    """Kind → names of the chosen components, with the defaults filled in."""
    defaults = {kind: field.default for kind, field in RunConfig.model_fields.items() if kind in SINGLE_KINDS}
    name_by_kind = {kind: values.get(kind) or defaults.get(kind) or USUAL_CLUSTERER for kind in SINGLE_KINDS}
    names = {kind: [canonical_name(str(name))] for kind, name in name_by_kind.items()}
    objectives = values.get("objectives") or RunConfig.model_fields["objectives"].default
    names["central"] = []  # several methods of a run may each have their own
    names["adaptation"] = [canonical_name(str(values["adaptation"]))] if values.get("adaptation") else []
    names["objective"] = [canonical_name(str(name)) for name in objectives]
    return names


def provenance(plan: RunPlan) -> dict[str, list[str]]:
    """Layer → ``key = value`` of everything that was set in it, in decreasing precedence."""
    values = dict(flatten_keys(plan.config.model_dump(mode="json")))
    defaults = dict(flatten_keys(RunConfig().model_dump(mode="json")))
    by_origin: dict[str, list[str]] = {}
    for key, origin in plan.origins.items():
        if not plan.config.composed and key.split(".")[0] in COMPOSED:
            continue
        # A run's config.json holds all values; those equal to the defaults are not listed.
        if key in values and not (origin == "config" and key in defaults and values[key] == defaults[key]):
            by_origin.setdefault(origin, []).append(f"{key.removeprefix('components.')} = {_shown(values[key])}")
    order = sorted(by_origin, key=lambda origin: (origin != "CLI", origin != "config", origin.startswith("preset ")))
    return {origin: by_origin[origin] for origin in order}


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
