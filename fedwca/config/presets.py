"""Presets: TOML files that ship with fedwca; the chosen one is a layer of a run's configuration."""

from __future__ import annotations

import copy
import tomllib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from fedwca.config.baselines import selecting_options, settings
from fedwca.config.component_registries import registry_of
from fedwca.config.config_layers import lay_over, merge
from fedwca.config.run_config import Layer, RunConfig
from fedwca.config.spell_out import spell_out
from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.files import toml_names
from fedwca.describe_problems import describe_unknown
from fedwca.errors import InvalidConfig
from fedwca.partitions import Partition, partitions
from fedwca.partitions.domains import Domains
from fedwca.registry import canonical_name


def preset_folder() -> Traversable:
    """The folder of the presets that ship with fedwca."""
    return resources.files("fedwca") / "presets"


def preset_names() -> list[str]:
    """Names of all presets, sorted."""
    return toml_names(preset_folder())


def setting_tables() -> list[str]:
    """Names of a preset's tables that belong to a setting or to a single partition, sorted."""
    tables_of_partitions = (partition.preset_table for partition in partitions.loadable())
    return sorted({*settings(), *(table for table in tables_of_partitions if table)})


def preset(name: str, dataset: str, domain: str | None, setting: str = Domains.setting) -> Layer:
    """A preset's layer for a data set: ``[all]``, then ``[<dataset>]``, then ``[<dataset>.from.<source>]``.

    ``[<setting>]`` and ``[<dataset>.<setting>]`` take precedence over these. Only the default setting, of unlabeled
    clients, needs no such table.

    Args:
        name: of the preset.
        dataset: name of the data set.
        domain: the source domain, or the target.
        setting: of the run's partition, or the partition's own table.

    Raises:
        InvalidConfig: there is no such preset, or it has no values for the setting.
    """
    _, tables = read_preset(name)
    dataset_table = dict(tables.get(canonical_name(dataset), {}))
    of_settings = setting_tables()
    by_source, by_setting = dataset_table.pop("from", {}), {key: dataset_table.pop(key, {}) for key in of_settings}
    layer: Layer = {}
    for part in (tables.get("all", {}), dataset_table, by_source.get(canonical_name(domain or ""), {})):
        layer = lay_over(layer, part)
    has_default_setting = any(key not in of_settings and set(table) - set(of_settings) for key, table in tables.items())
    covered = {key for key in of_settings if key in tables or (key == Domains.setting and has_default_setting)}
    if setting not in covered:
        meant = " or ".join(f"{key} ({selecting_options(key)})" for key in sorted(covered))
        raise InvalidConfig(
            f"preset {name} is for the setting {meant}, and this run has {setting} ({selecting_options(setting)}); "
            "change its options, or take --preset default"
        )
    return spell_out(lay_over(lay_over(layer, tables.get(setting, {})), by_setting.get(setting, {})))


def without_idle_clusterer(
    layer: Layer, file_values: Layer, option_values: Layer, partition: type[Partition]
) -> tuple[Layer, Layer]:
    """A preset's layer and a file's, without the clusterer that the preset names if the run cannot use it.

    A clusterer that the user names stays and is refused later; a run's own file only repeats the preset's.

    Args:
        layer: the preset's.
        file_values: values of a file, which take precedence over it.
        option_values: values that take precedence over both.
        partition: of the run.

    Raises:
        UsageError: no such aggregator or model.
    """
    named_clusterer = layer.get("clusterer")
    if named_clusterer is None or _reads_clusterer(
        merge(merge(layer, file_values), option_values), named_clusterer, partition
    ):
        return layer, file_values
    is_repeated = file_values.get("clusterer") == named_clusterer
    remaining = {key: value for key, value in file_values.items() if not (is_repeated and key == "clusterer")}
    return {key: value for key, value in layer.items() if key != "clusterer"}, remaining


def _reads_clusterer(values: Layer, clusterer: str, partition: type[Partition]) -> bool:
    """Whether a run with these values, which are not validated yet, can use a clusterer."""
    fields = RunConfig.model_fields
    aggregator, model = (values.get(name, fields[name].default) for name in ("aggregator", "model"))
    if not isinstance(aggregator, str) or not isinstance(model, str):
        return True  # refused when values are validated
    head = dict(flatten_keys(values)).get(f"components.model.{canonical_name(model)}.head")
    head = head or registry_of("model").get(model).model_fields["head"].default
    reads = registry_of("clusterer").build({"name": clusterer}).norm_layers
    return bool(
        values.get("composed", fields["composed"].default)
        and not partition.trains_classifier  # else clients start from untrained weights
        and registry_of("aggregator").get(aggregator).grouping.needs_clusterer
        and (reads is None or head == "bottleneck")
    )


def named_by_preset(name: str, field: str, dataset: str | None = None) -> str | None:
    """The data set or partition that a preset's setting tables name; None if they name none.

    Args:
        name: of the preset.
        field: ``dataset`` or ``partition``.
        dataset: data set whose own tables take precedence; None: the one that the preset names.

    Raises:
        InvalidConfig: there is no such preset.
    """
    _, tables = read_preset(name)
    values = []
    for setting in setting_tables():
        general_table = tables.get(setting, {})
        dataset_table = tables.get(canonical_name(dataset or general_table.get("dataset", "")), {}).get(setting, {})
        values += [table[field] for table in (dataset_table, general_table) if field in table]
    return str(values[0]) if values else None


def read_preset(name: str) -> tuple[str, Layer]:
    """A preset's text and its tables, merged over those of the preset that it names as its ``base``.

    Raises:
        InvalidConfig: there is no such preset.
    """
    name = canonical_name(name)
    if name not in preset_names():
        raise InvalidConfig(describe_unknown("preset", name, preset_names()))
    text, kept_tables = _read_file(name)
    tables = copy.deepcopy(kept_tables)
    base = tables.pop("base", None)
    return text, tables if base is None else merge(read_preset(base)[1], tables)


@cache
def _read_file(name: str) -> tuple[str, Layer]:
    """A preset's text and its own tables."""
    text = (preset_folder() / f"{name}.toml").read_text(encoding="utf-8")
    return text, tomllib.loads(text)
