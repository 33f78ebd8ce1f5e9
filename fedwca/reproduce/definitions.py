"""The published tables and figures: what has to be run for each, and what was printed."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from fedwca.config.baselines import baseline_names, settings
from fedwca.config.method_spec import parse_method
from fedwca.config.presets import named_by_preset
from fedwca.config.run_config import Layer, RunConfig, lay_over, merge
from fedwca.describe_problems import describe_unknown
from fedwca.engine.parameter_layout import Layout
from fedwca.errors import UnknownComponent, UsageError
from fedwca.partitions import Partition, partitions
from fedwca.registry import canonical_name
from fedwca.runs.load_data import architecture

NOT_PRINTED = ""
"""Stands in published.toml where a row has nothing in a column."""


class Messages(BaseModel):
    """What counts of communications are made of; see `fedwca.reproduce.communications`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    epochs: tuple[int, ...]
    """The table's columns."""
    per_epoch: float
    """r, aggregations per epoch."""
    smallest: int
    """Training images of the smallest domain."""
    batch: int
    """Images of a step."""


class Definition(BaseModel):
    """One table or figure: its rows, its data, what varies, what is shown."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    title: str
    """What it is about."""
    shows: Literal["accuracy", "groups", "curves", "clusters", "domains", "weights", "images", "phases", "messages"] = (
        "accuracy"
    )
    """What of the runs it shows."""
    partition: str = RunConfig.model_fields["partition"].default
    """Who has labels; says too whether domains are sources or targets. Where the preset names this one, it says which
    one a data set has."""
    preset: str = "paper"
    """What holds where neither the table nor the user says anything."""
    datasets: tuple[str, ...]
    """Data sets it is published for."""
    domains: dict[str, tuple[str, ...]] = {}
    """Sources, or targets, by data set; where none are named: all."""
    rows: dict[str, str]
    """Rows as the paper calls them, and the method of each."""
    settings: Layer = {}
    """Put over the preset and over ``--quick``."""
    smaller: Layer = {}
    """Put over all these by ``--quick``."""
    signatures: dict[str, int | str] = {}
    """Layers by which the clients are clustered as well, as the paper calls them."""
    messages: Messages | None = None
    """Of a table that shows how often models travel."""

    @property
    def rules(self) -> type[Partition]:
        """The partition itself."""
        return partitions.get(self.partition)

    @property
    def named(self) -> str | None:
        """What its runs call the one domain that is unlike the others: source or target; None where there is none."""
        return self.rules.named

    def layer(self) -> Layer:
        """Methods, probes and settings as a layer of a run's configuration."""
        probes = [layer_clusterer(signature) for signature in self.signatures.values()]
        methods = {"baselines": list(self.rows.values()), "composed": False, "probes": probes}
        said = RunConfig.model_fields["partition"].default, named_by_preset(self.preset, "partition")
        usual = self.partition in said
        return {**self.settings, **({} if usual else {"partition": self.partition}), **methods}

    def under(self, preset: str, dataset: str) -> Definition:
        """The table for a data set under another preset than its own: with the partition that its own one says."""
        if preset == self.preset:
            return self
        said = self.partition
        if said == named_by_preset(self.preset, "partition"):
            said = named_by_preset(self.preset, "partition", dataset) or said
        return self.model_copy(update={"preset": preset, "partition": said})

    def chosen(self, rows: Sequence[str]) -> Definition:
        """Only some of the rows; none named: all.

        Raises:
            UsageError: it has no such row.
        """
        known = {canonical_name(name): name for name in self.rows}
        for row in rows:
            if canonical_name(row) not in known:
                raise UsageError(f"--row {row}: {describe_unknown('row', row, self.rows)}")
        kept = {known[canonical_name(row)] for row in rows} or set(self.rows)
        return self.model_copy(update={"rows": {name: word for name, word in self.rows.items() if name in kept}})

    def split_known(self) -> tuple[Definition, list[str]]:
        """The definition with the rows whose baselines this version has, and the names of the others."""
        known = baseline_names(self.rules.setting)
        there = {row: word for row, word in self.rows.items() if parse_method(word).head in known}
        return self.model_copy(update={"rows": there}), [row for row in self.rows if row not in there]

    def check(self, name: str) -> None:
        """See that every row's method exists.

        Raises:
            UnknownComponent: names the row and the baseline that is not there.
        """
        known = baseline_names(self.rules.setting)
        for row, word in self.rows.items():
            if (head := parse_method(word).head) not in known:
                others = " ".join(f"--row {other!r}" for other, w in self.rows.items() if parse_method(w).head in known)
                raise UnknownComponent(
                    f"{name}, row {row!r}: needs the baseline {head!r}, which this version does not have; "
                    f"the others run with {others}"
                )


def layer_clusterer(signature: int | str) -> str:
    """The clusterer that a layer of Tables 4 and 11 stands for."""
    return f"finch:signature={signature}"


@cache
def read_toml(name: str) -> dict[str, Any]:
    """A file of this folder: ``reproduce``, what is to be run, or ``published``, what was printed."""
    return tomllib.loads((resources.files("fedwca.reproduce") / f"{name}.toml").read_text(encoding="utf-8"))


def reproduction_names() -> list[str]:
    """Every table and figure that can be run."""
    return [name for name in read_toml("reproduce") if name not in ("quick", "speed")]


def definition(name: str) -> Definition:
    """A table or figure by name.

    Raises:
        UsageError: there is no such one, or nothing is to be run for it.
    """
    if canonical_name(name) not in reproduction_names():
        raise UsageError(describe_unknown("table or figure to run", name, reproduction_names()))
    return Definition(**read_toml("reproduce")[canonical_name(name)])


def quick_settings(dataset: str, setting: str) -> Layer:
    """What ``--quick`` puts over the preset in a setting; the setting's own values stand over the data set's."""
    found = read_toml("reproduce")["quick"]
    layer: Layer = dict(found.get(canonical_name(dataset), found["else"]))
    own = {name: layer.pop(name, {}) for name in settings()}
    return lay_over(layer, own[setting])


@dataclass(frozen=True)
class PublishedTable:
    """What a paper prints for one data set."""

    where: str
    """Paper and table."""
    values: dict[tuple[str, str], tuple[float, float | None]]
    """(row, column) to mean and standard deviation, accuracies in percent; columns are sources, targets, groups of
    clients or numbers of epochs, and ``average`` is over all."""
    clusters: dict[str, str]
    """Row to one letter a client."""


def published_table(name: str, dataset: str) -> PublishedTable | None:
    """The published values of a table for a data set; None where it has none."""
    table = read_toml("published").get(canonical_name(name), {})
    found = table.get(canonical_name(dataset))
    if found is None:
        return None
    spreads = found.get("std", {})
    columns = next((found[key] for key in ("sources", "targets", "groups", "epochs") if key in found), ())
    values = {
        (row, column): (mean, spreads[row][index] if row in spreads else None)
        for row, means in found.get("mean", {}).items()
        for index, (column, mean) in enumerate(zip(columns, means, strict=True))
        if mean != NOT_PRINTED
    }
    return PublishedTable(table["source"], values, found.get("clusters", {}))


def fitting_definitions(found: Definition, config: RunConfig) -> Definition:
    """The definition without the layers that a smaller model than the paper's does not have."""
    if not found.signatures:
        return found
    count = len(Layout.of(architecture(config).build(2, pretrained=False)).layers())
    kept = {name: layer for name, layer in found.signatures.items() if isinstance(layer, str) or layer <= count}
    return found.model_copy(update={"signatures": kept})


def layered_settings(found: Definition, dataset: str, small: bool, given: Layer) -> Layer:
    """The layer for one data set: the definition over ``--quick``, the command line over both."""
    quick = quick_settings(dataset, found.rules.setting) if small else {}
    if "methods" in quick:  # a table may have some rows alone
        quick["methods"] = {name: own for name, own in quick["methods"].items() if name in found.rows.values()}
    base = merge(quick, {**found.layer(), "dataset": dataset})
    return lay_over(lay_over(base, found.smaller) if small else base, given)
