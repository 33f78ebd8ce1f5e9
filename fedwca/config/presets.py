"""Presets: the TOML files that ship with fedwca, and the one that is chosen as a layer of a run's configuration."""

from __future__ import annotations

import tomllib
from importlib import resources
from importlib.resources.abc import Traversable

from fedwca.config.baselines import settings
from fedwca.config.component_registries import registry_of
from fedwca.config.run_config import Layer, RunConfig, lay_over, merge
from fedwca.config.spell_out import spell_out
from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.files import toml_names
from fedwca.describe_problems import describe_unknown
from fedwca.errors import InvalidConfig
from fedwca.partitions import Partition, partitions
from fedwca.partitions.domains import Domains
from fedwca.registry import canonical_name


def preset_folder() -> Traversable:
    """The presets that ship with fedwca."""
    return resources.files("fedwca") / "presets"


def preset_names() -> list[str]:
    """Names of all presets, sorted."""
    return toml_names(preset_folder())


def setting_tables() -> list[str]:
    """Tables of a preset that belong to a setting, or to one partition of it, sorted."""
    own = (partitions.get(name).table for name in partitions.names())
    return sorted({*settings(), *(table for table in own if table)})


def preset(name: str, dataset: str, domain: str | None, setting: str = Domains.setting) -> Layer:
    """A preset's layer for a data set: ``[all]``, then ``[<dataset>]``, then ``[<dataset>.from.<source>]``.

    ``[<setting>]`` and ``[<dataset>.<setting>]`` stand over the rest; only the setting of unlabeled clients needs none.

    Args:
        name: of the preset.
        dataset: its name.
        domain: the source domain, or the target.
        setting: of the run's partition, or the table that this has for itself.

    Raises:
        InvalidConfig: no preset has that name, or it says nothing for the setting.
    """
    _, tables = read_preset(name)
    own = dict(tables.get(canonical_name(dataset), {}))
    by_source, by_setting = own.pop("from", {}), {key: own.pop(key, {}) for key in setting_tables()}
    layer: Layer = {}
    for part in (tables.get("all", {}), own, by_source.get(canonical_name(domain or ""), {})):
        layer = lay_over(layer, part)
    usual = any(key not in setting_tables() and set(table) - set(setting_tables()) for key, table in tables.items())
    if setting not in tables and not (setting == Domains.setting and usual):
        raise InvalidConfig(f"preset {name} is for another setting than {setting}; take --preset default")
    return spell_out(lay_over(lay_over(layer, tables.get(setting, {})), by_setting.get(setting, {})))


def without_idle_clusterer(
    layer: Layer, written: Layer, given: Layer, partition: type[Partition]
) -> tuple[Layer, Layer]:
    """A preset's layer and a file's, less the clusterer that the preset names, where a run cannot use it.

    What a user names is refused there; a run's file repeats what its preset named.

    Args:
        layer: the preset's.
        written: values of a file, which stand over it.
        given: values that stand over both.
        partition: of the run.

    Raises:
        UsageError: no such aggregator or model.
    """
    usual = layer.get("clusterer")
    if usual is None or _reads_clusterer(merge(merge(layer, written), given), usual, partition):
        return layer, written
    repeated = written.get("clusterer") == usual
    kept = {key: value for key, value in written.items() if not (repeated and key == "clusterer")}
    return {key: value for key, value in layer.items() if key != "clusterer"}, kept


def _reads_clusterer(values: Layer, clusterer: str, partition: type[Partition]) -> bool:
    """Whether a run with these values, which nobody has checked yet, can use a clusterer."""
    fields = RunConfig.model_fields
    aggregator, model = (values.get(name, fields[name].default) for name in ("aggregator", "model"))
    if not isinstance(aggregator, str) or not isinstance(model, str):
        return True  # refused where values are checked
    head = dict(flatten_keys(values)).get(f"components.model.{canonical_name(model)}.head")
    head = head or registry_of("model").get(model).model_fields["head"].default
    reads = registry_of("clusterer").build({"name": clusterer}).norm_layers
    return bool(
        values.get("composed", fields["composed"].default)
        and not partition.whole  # there nobody has trained the weights that clients start from
        and registry_of("aggregator").get(aggregator).grouping.needs_clusterer
        and (reads is None or head == "bottleneck")
    )


def named_by_preset(name: str, field: str, dataset: str | None = None) -> str | None:
    """What a preset says of the data set or the partition, which have tables of their own in it; None: nothing.

    Args:
        name: of the preset.
        field: ``dataset`` or ``partition``.
        dataset: whose own partition stands over that of all; None: the one that the preset names.

    Raises:
        InvalidConfig: no preset has that name.
    """
    _, tables = read_preset(name)
    found = []
    for setting in setting_tables():
        of_all = tables.get(setting, {})
        own = tables.get(canonical_name(dataset or of_all.get("dataset", "")), {}).get(setting, {})
        found += [place[field] for place in (own, of_all) if field in place]
    return str(found[0]) if found else None


def read_preset(name: str) -> tuple[str, Layer]:
    """A preset's text and its tables, over those of the preset that it names as its ``base``.

    Raises:
        InvalidConfig: no preset has that name.
    """
    name = canonical_name(name)
    if name not in preset_names():
        raise InvalidConfig(describe_unknown("preset", name, preset_names()))
    text = (preset_folder() / f"{name}.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    base = tables.pop("base", None)
    return text, tables if base is None else merge(read_preset(base)[1], tables)
