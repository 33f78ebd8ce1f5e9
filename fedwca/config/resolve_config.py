"""What a user asked for, as a checked configuration with the origin of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedwca.config.baselines import how_to_have
from fedwca.config.component_registries import registry_of
from fedwca.config.compose_methods import (
    USUAL_CLUSTERER,
    compose,
    describe_method,
    partition_of,
)
from fedwca.config.idle_settings import check_idle_table, check_trainings_are_used, idle_tables, without_table
from fedwca.config.method_spec import PARTS
from fedwca.config.partition_and_domain import (
    chosen_partition,
    default_domain,
    domain_of,
    fill_in_meanings,
    name_domain,
)
from fedwca.config.presets import named_by_preset, preset, without_idle_clusterer
from fedwca.config.read_config_file import read_file
from fedwca.config.run_config import KINDS, Components, Layer, RunConfig, merge, resolve
from fedwca.config.set_options import parse_set_options
from fedwca.config.spell_out import spell_out
from fedwca.config.unused_values import without_unused
from fedwca.core.dotted_keys import flatten_keys
from fedwca.errors import InvalidConfig, UsageError
from fedwca.federated.method import Method
from fedwca.registry import canonical_name

COMPOSED = {*PARTS, "name"}
"""Fields that are parts of the composed method: where there is none, a file may hold them, and nothing reads them."""


@dataclass(frozen=True)
class RunPlan:
    """A run that is decided but not begun."""

    config: RunConfig
    methods: list[tuple[Method, int]]
    """With their rounds; the composed one is last."""
    origins: dict[str, str]
    """Dotted key to the layer its value came from; what is not here is a field's default."""

    @property
    def named(self) -> str | None:
        """What the run calls the one domain that is unlike the others: the source, the target; None: there is none."""
        return partition_of(self.config).named

    @property
    def domain(self) -> str | None:
        """That domain; None where only the images can say it, or where there is none."""
        return domain_of(self.config)

    def at(self, domain: str | None) -> RunPlan:
        """The same run with that domain."""
        return replace(self, config=self.config.model_copy(update=name_domain(self.config, domain)))

    def described(self) -> dict[str, Any]:
        """Plain values: the configuration, what each method is made of, and where values came from."""
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
    """Layers put over one another: command line over file over preset over field defaults.

    Args:
        layer: values from the command line, as fields of `RunConfig`.
        pairs: ``("aggregator.ta", "0.05")`` …, part of the command line.
        preset_name: see `fedwca.config.presets.preset`.
        file: TOML or JSON.
        tried: like ``pairs``, and put over them: what a search tries.
        checked: whether the same values were found right for more methods, of which these are some: what none of these
            reads is left out then, and not refused.

    Raises:
        UsageError: unknown names, bad values, or parts that do not fit each other.
    """
    given = spell_out(layer)
    written = read_file(file) if file else {}
    fill_in_meanings(written, given)
    top = merge(written, given)
    usual = named_by_preset(preset_name, "dataset")
    asked_dataset = str(top.get("dataset") or usual or RunConfig.model_fields["dataset"].default)
    of_preset = named_by_preset(preset_name, "partition", asked_dataset)
    partition = chosen_partition(top, of_preset)
    if partition.name not in (RunConfig.model_fields["partition"].default, of_preset):
        (written if partition.named and given.get(partition.named) is None else given)["partition"] = partition.name

    def layers(domain: str | None) -> dict[str, Layer]:
        # Whatever a file holds is looked up as text here, and checked with the whole configuration.
        asked = (top.get(partition.named) if partition.named else None) or domain
        table = partition.table or partition.setting
        base = preset(preset_name, asked_dataset, None if asked is None else str(asked), table)
        base, file_values = without_idle_clusterer(base, written, given, partition)
        chosen = chosen_names(merge(base, merge(file_values, given)))
        own = merge(merge(given, parse_set_options(pairs, chosen)), parse_set_options(tried, chosen))
        base, file_values = without_idle_clusterer(base, file_values, own, partition)
        return {f"preset {preset_name}": base, "config": file_values, "CLI": own}

    found = layers(None)
    config, origins = resolve(found)
    if partition.named and domain_of(config) is None and (domain := default_domain(config)) is not None:
        found = layers(domain)
        config, origins = resolve(found)
        config = config.model_copy(update={partition.named: domain})
    base = found[f"preset {preset_name}"]
    for table in idle_tables(partition):
        why = f"with {how_to_have(partition)} nothing is trained so"
        check_idle_table(table, config, origins, base, why, repeats=("CLI", "config"))
        config, origins = without_table(table, config, origins)
    check_newcomer_fields(config)
    if config.checkpoint is not None:
        check_idle_table("source_training", config, origins, base, "with a checkpoint no source model is trained")
        config, origins = without_table("source_training", config, origins)
    check_clusterer_fields(config, origins.get("clusterer", ""))
    methods = compose(config)
    if not checked:
        check_trainings_are_used([key for key, _ in (*pairs, *tried)], [method for method, _ in methods], partition)
    config, origins = without_unused(config, origins, methods, f"preset {preset_name}", refuses=not checked)
    return RunPlan(type_components(config), methods, origins)


def check_clusterer_fields(config: RunConfig, named_by: str) -> None:
    """Refuse fields that the clusterer has not which a preset names; who gives them may not know that it does.

    Args:
        config: says the fields.
        named_by: the layer that names the clusterer.

    Raises:
        UsageError: names the field.
    """
    name = config.clusterer
    if name is None or not named_by.startswith("preset "):
        return
    known = registry_of("clusterer").get(name).model_fields
    for field in config.components.get("clusterer", {}).get(name, {}):
        if field not in known:
            raise InvalidConfig(
                f"clusterer {name}.{field}: there is no such field; {named_by} takes clusterer {name}, --clusterer "
                "another, such as finch"
            )


def check_newcomer_fields(config: RunConfig) -> None:
    """Refuse what somebody says of new clients where none come.

    Raises:
        UsageError: names the field.
    """
    partition = partition_of(config)
    for field in ("new_clients", "validation"):
        if not partition.newcomers and getattr(config, field) is not None:
            raise UsageError(
                f"{field} is given, but partition {partition.name} has no new clients; leave it out, or take a "
                "partition such as shards"
            )


def type_components(config: RunConfig) -> RunConfig:
    """The configuration with its components' fields in their types, whether a command line or a file gave them.

    >>> given = RunConfig(components={"model": {"lenet": {"bottleneck": "8"}}})
    >>> type_components(given).components
    {'model': {'lenet': {'bottleneck': 8}}}
    """
    methods = {
        name: values.model_copy(update={"components": _typed_components(values.components)})
        for name, values in config.methods.items()
    }
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
        # A field that a method's own file adds may be missing here, or a plugin: nothing is known of types then.
        return dict(fields)
    return {field: values[field] for field in fields}


def chosen_names(values: Layer) -> dict[str, list[str]]:
    """Names of the chosen components by kind, with the defaults filled in."""
    defaults = {k: f.default for k, f in RunConfig.model_fields.items() if k in KINDS}
    named = {kind: values.get(kind) or defaults.get(kind) or USUAL_CLUSTERER for kind in KINDS[:-1]}
    names = {kind: [canonical_name(str(name))] for kind, name in named.items()}
    objectives = values.get("objectives") or RunConfig.model_fields["objectives"].default
    names["central"] = []  # several methods of a run may have one each
    names["adaptation"] = [canonical_name(str(values["adaptation"]))] if values.get("adaptation") else []
    names["objective"] = [canonical_name(str(name)) for name in objectives]
    return names


def provenance(plan: RunPlan) -> dict[str, list[str]]:
    """``key = value`` of everything that was set, by the layer it came from, the strongest first."""
    values = dict(flatten_keys(plan.config.model_dump(mode="json")))
    defaults = dict(flatten_keys(RunConfig().model_dump(mode="json")))
    found: dict[str, list[str]] = {}
    for key, origin in plan.origins.items():
        if not plan.config.composed and key.split(".")[0] in COMPOSED:
            continue
        # A run's config.json says everything; what it repeats of the defaults is not news.
        if key in values and not (origin == "config" and key in defaults and values[key] == defaults[key]):
            found.setdefault(origin, []).append(f"{key.removeprefix('components.')} = {_shown(values[key])}")
    order = sorted(found, key=lambda origin: (origin != "CLI", origin != "config", origin.startswith("preset ")))
    return {origin: found[origin] for origin in order}


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
