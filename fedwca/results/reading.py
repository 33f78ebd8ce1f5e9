"""A run folder as a value: what pictures and reports are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedwca.results.runs import find_run, read_run
from fedwca.results.summary import summarise

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    path: Path
    """The run folder."""
    config: Mapping[str, Any]
    """As in ``config.json`` under ``config``."""
    methods: Mapping[str, Mapping[str, Any]]
    """By name: label, rounds, components; the composed method is last."""
    records: Sequence[Record]
    """Lines of ``rounds.jsonl``; none where the file is not kept."""
    domains: Sequence[str]
    """True domain of each client, K names; none where nothing says them."""
    summary: Mapping[str, Any]
    """As ``methods`` in ``summary.json``; made anew from the records where there are any."""
    origins: Mapping[str, str]
    environment: Mapping[str, Any]
    timing: Mapping[str, Any]
    complete: bool

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.path.resolve().name

    @property
    def title(self) -> str:
        """What was run, in a line."""
        c = self.config
        return (
            f"{c['dataset']}, source {c['source']}, {count_of(c['clients'], 'client')} per target domain, "
            f"{count_of(c['rounds'], 'round')}, seed {c['seed']}"
        )

    @property
    def labels(self) -> dict[str, str]:
        """Display label of each method that left something, in the order of the table."""
        return {name: str(entry["label"]) for name, entry in self.summary.items()}

    @cached_property
    def runs(self) -> list[tuple[int, int]]:
        """Every (source model, trial) that left a record."""
        return sorted({(record["source_model"], record["trial"]) for record in self.records})

    def rounds(self, method: str, run: tuple[int, int] | None = None) -> list[Record]:
        """A method's records in order, the source model's (round -1) first; of one run, or of all."""
        return [
            record
            for record in self.records
            if record["method"] == method and run in (None, (record["source_model"], record["trial"]))
        ]


def count_of(number: int, what: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def read_results(path: Path) -> Run:
    """What a run left behind, finished or not.

    Args:
        path: run folder, or its name in ``runs/``.

    Raises:
        UsageError: there is no such run.
        FedwcaError: one of its files is damaged.
    """
    run = read_run(find_run(path))
    records = run.records()
    domains = run.domains or _unnamed(run.config, records)
    summary = run.summary.get("methods", {})
    if records and domains:
        summary = {name: _finite(entry) for name, entry in summarise(run.table(domains)).items()}
    return Run(
        path=run.path,
        config=run.config,
        methods=run.methods,
        records=records,
        domains=domains,
        summary=summary,
        origins=run.about.get("origins", {}),
        environment=run.environment,
        timing=run.summary.get("timing", {}),
        complete=run.complete,
    )


def _unnamed(config: Mapping[str, Any], records: Sequence[Record]) -> list[str]:
    """Names for the domains of a run that was killed before it could say them."""
    clients = max((len(record["accuracy"]) for record in records), default=0)
    return [f"target {client // int(config['clients']) + 1}" for client in range(clients)]


def _finite(value: Any) -> Any:
    """NaN as None, as it would come back from ``summary.json``."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
