"""The published tables and figures: what is to be run for each, and the printed numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedwca.config.baselines import settings
from fedwca.config.build_component import architecture
from fedwca.config.config_layers import lay_over, merge
from fedwca.config.method_values import drop_overridden_values
from fedwca.config.presets import named_by_preset, preset
from fedwca.config.run_config import Layer, RunConfig
from fedwca.config.spell_out import spell_out
from fedwca.describe_problems import describe_unknown
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import UsageError
from fedwca.partitions import Partition, partitions
from fedwca.registry import canonical_name

NOT_PRINTED = ""
"""Value in published.toml where a row has no number in a column."""


class Messages(BaseModel):
    """What numbers of communications are computed from; see `fedwca.reproduce.communications`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    epochs: tuple[int, ...]
    """The table's columns."""
    per_epoch: float
    """r, aggregations per epoch."""
    smallest: int
    """Training images of the smallest domain."""
    batch: int
    """Images per step."""


class Definition(BaseModel):
    """One table or figure: its rows, its data sets, its settings and what it shows."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    title: str
    """What the table or figure is about."""
    shows: Literal["accuracy", "groups", "curves", "clusters", "domains", "weights", "images", "phases", "messages"] = (
        "accuracy"
    )
    """Which results of the runs it shows."""
    partition: str = RunConfig.model_fields["partition"].default
    """Who has labels, and so whether domains are sources or targets. Where it is the preset's own partition, the preset
    may name another one for a data set."""
    preset: str = "paper"
    """Preset of the settings that neither the table nor the user sets."""
    datasets: tuple[str, ...]
    """Data sets that it is published for."""
    domains: dict[str, tuple[str, ...]] = {}
    """Sources, or targets, by data set; a data set that is not in it: all."""
    rows: dict[str, str]
    """Name of each row, as in the paper, to its method."""
    settings: Layer = {}
    """Settings that override the preset and ``--quick``."""
    smaller: Layer = {}
    """Settings with which ``--quick`` overrides all of these."""
    signatures: dict[str, int | str] = {}
    """Name of a row, as in the paper, to a layer by which the clients are clustered as well."""
    messages: Messages | None = None
    """For a table of communications."""

    @property
    def rules(self) -> type[Partition]:
        """The class of the partition."""
        return partitions.get(self.partition)

    @property
    def domain_role(self) -> str | None:
        """What its runs call the one domain that is set apart: source or target; None where there is none."""
        return self.rules.domain_role

    def layer(self) -> Layer:
        """Methods, probes and settings as a layer of a run's configuration."""
        probes = [layer_clusterer(signature) for signature in self.signatures.values()]
        methods = {"baselines": list(self.rows.values()), "composed": False, "probes": probes}
        default_partition = named_by_preset(self.preset, "partition") or RunConfig.model_fields["partition"].default
        is_default = self.partition == default_partition
        return {**self.settings, **({} if is_default else {"partition": self.partition}), **methods}

    def under(self, preset: str, dataset: str) -> Definition:
        """The definition under another preset, with the partition that its own preset names for a data set."""
        if preset == self.preset:
            return self
        partition = self.partition
        if partition == named_by_preset(self.preset, "partition"):
            partition = named_by_preset(self.preset, "partition", dataset) or partition
        return self.model_copy(update={"preset": preset, "partition": partition})

    def chosen(self, rows: Sequence[str]) -> Definition:
        """The definition with only some of its rows, or with all where none are named.

        Raises:
            UsageError: it has no such row.
        """
        names = {canonical_name(name): name for name in self.rows}
        for row in rows:
            if canonical_name(row) not in names:
                raise UsageError(f"--row {row}: {describe_unknown('row', row, self.rows)}")
        chosen_names = {names[canonical_name(row)] for row in rows} or set(self.rows)
        return self.model_copy(
            update={"rows": {name: method for name, method in self.rows.items() if name in chosen_names}}
        )


def layer_clusterer(signature: int | str) -> str:
    """The clusterer that a layer of Tables 4 and 11 stands for."""
    return f"finch:signature={signature}"


@cache
def read_toml(name: str) -> dict[str, Any]:
    """A TOML file of this folder: ``reproduce``, what is to be run, or ``published``, the printed numbers."""
    return tomllib.loads((resources.files("fedwca.reproduce") / f"{name}.toml").read_text(encoding="utf-8"))


def reproduction_names() -> list[str]:
    """Every table and figure that can be run."""
    return [name for name in read_toml("reproduce") if name not in ("quick", "speed")]


def definition(name: str) -> Definition:
    """A table or figure by name.

    Raises:
        UsageError: there is none of that name, or nothing is to be run for it.
    """
    if canonical_name(name) not in reproduction_names():
        raise UsageError(describe_unknown("table or figure to run", name, reproduction_names()))
    return Definition(**read_toml("reproduce")[canonical_name(name)])


def quick_settings(dataset: str, setting: str) -> Layer:
    """Settings with which ``--quick`` overrides the preset; values for the setting override those for the data set."""
    quick = read_toml("reproduce")["quick"]
    own = quick.get(canonical_name(dataset), {})
    layer: Layer = dict(own if {*own} - {*settings()} or setting in own else quick["else"])
    by_setting = {name: layer.pop(name, {}) for name in settings()}
    return lay_over(layer, by_setting[setting])


@dataclass(frozen=True)
class PublishedTable:
    """What a paper prints for one data set."""

    where: str
    """Paper and table that the numbers are from."""
    values: dict[tuple[str, str], tuple[float, float | None]]
    """(row, column) to mean and standard deviation, accuracies in percent; columns are sources, targets, groups of
    clients or numbers of epochs, and ``average`` is over all."""
    clusters: dict[str, str]
    """Row to its clusters, as one letter for each client."""


def published_table(name: str, dataset: str) -> PublishedTable | None:
    """The published values of a table for a data set; None if there are none."""
    table = read_toml("published").get(canonical_name(name), {})
    published = table.get(canonical_name(dataset))
    if published is None:
        return None
    spreads = published.get("std", {})
    columns = next((published[key] for key in ("sources", "targets", "groups", "epochs") if key in published), ())
    values = {
        (row, column): (mean, spreads[row][index] if row in spreads else None)
        for row, means in published.get("mean", {}).items()
        for index, (column, mean) in enumerate(zip(columns, means, strict=True))
        if mean != NOT_PRINTED
    }
    return PublishedTable(table["source"], values, published.get("clusters", {}))


def without_missing_layers(table_definition: Definition, config: RunConfig) -> Definition:
    """The definition without layers that the configured model does not have, as when it is smaller than the paper's."""
    if not table_definition.signatures:
        return table_definition
    count = len(Layout.of(architecture(config).build(2, pretrained=False)).layers())
    signatures = {
        name: layer for name, layer in table_definition.signatures.items() if isinstance(layer, str) or layer <= count
    }
    return table_definition.model_copy(update={"signatures": signatures})


def layered_settings(
    table_definition: Definition, dataset: str, is_quick: bool, user_layer: Layer, file_layer: Layer | None = None
) -> Layer:
    """The settings for one data set: the definition's override those of ``--quick``, the user's override both.

    Args:
        table_definition: with its preset.
        dataset: name of the data set.
        is_quick: whether ``--quick`` is given.
        user_layer: values of the command line.
        file_layer: values of the user's file, which the result overrides; they may name the model.
    """
    quick = quick_settings(dataset, table_definition.rules.setting) if is_quick else {}
    if models := quick.get("components", {}).get("model"):  # sizes of a model that another preset does not have
        of_preset = preset(table_definition.preset, canonical_name(dataset), None, table_definition.rules.setting)
        layers = (user_layer, quick, file_layer or {}, of_preset)
        named = next(
            (layer["model"] for layer in layers if layer.get("model")), RunConfig.model_fields["model"].default
        )
        chosen = canonical_name(spell_out({"model": named})["model"])
        quick["components"] = {
            **quick["components"],
            "model": {model: fields for model, fields in models.items() if model == chosen},
        }
    if "methods" in quick:  # a table may have only some of these methods
        quick["methods"] = {
            name: values for name, values in quick["methods"].items() if name in table_definition.rows.values()
        }
    base = merge(quick, {**table_definition.layer(), "dataset": dataset})
    base = lay_over(base, table_definition.smaller) if is_quick else base
    return lay_over(drop_overridden_values(base, user_layer), user_layer)
