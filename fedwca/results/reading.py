"""A run folder as a value: what pictures and reports are made from."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedwca.errors import FedwcaError
from fedwca.results.runs import find_run, read_about
from fedwca.results.store import read_records
from fedwca.results.summary import rows, summarise

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Results:
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
            f"{c['dataset']}, source {c['source']}, {counted(c['clients'], 'client')} per target domain, "
            f"{counted(c['rounds'], 'round')}, seed {c['seed']}"
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


def counted(number: int, what: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def read_results(path: Path) -> Results:
    """What a run left behind, finished or not.

    Args:
        path: run folder, or its name in ``runs/``.

    Raises:
        UsageError: there is no such run.
        FedwcaError: one of its files is damaged.
    """
    path = find_run(path)
    decided, left = read_about(path), _json(path / "summary.json")
    records, methods = read_records(path), decided["methods"]
    clients = max((len(record["accuracy"]) for record in records), default=0)
    domains = _domains(left, decided["config"], clients)
    summary = left.get("methods", {})
    if records and domains:
        found = summarise(rows(records, {name: m["label"] for name, m in methods.items()}, domains))
        summary = {name: _finite(entry) for name, entry in found.items()}
    return Results(
        path=path,
        config=decided["config"],
        methods=methods,
        records=records,
        domains=domains,
        summary=summary,
        origins=decided.get("origins", {}),
        environment=_json(path / "environment.json"),
        timing=left.get("timing", {}),
        complete=bool(left.get("complete", False)),
    )


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except ValueError as error:
        raise FedwcaError(f"{file}: not valid JSON ({error})") from None
    return found


def _domains(left: Mapping[str, Any], config: Mapping[str, Any], clients: int) -> list[str]:
    """Clients come domain after domain, equally many of each; a run that was killed has no names for them."""
    each = int(config["clients"])
    for entry in left.get("methods", {}).values():
        return [name for name in entry["domains"] for _ in range(each)]
    return [f"target {client // each + 1}" for client in range(clients)]


def _finite(value: Any) -> Any:
    """NaN as None, as it would come back from ``summary.json``."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
