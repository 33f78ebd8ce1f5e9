"""Runs that are there already: what a folder holds, and its table read back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedwca.results.store import read_records
from fedwca.results.summary import Row, rows


@dataclass(frozen=True)
class Stored:
    """A run folder's own account of itself."""

    path: Path
    config: Mapping[str, Any]
    methods: Mapping[str, Mapping[str, Any]]
    """By name: label, rounds, components."""
    domains: tuple[str, ...]
    """True domain of each client, K names; empty where no table is there yet."""
    complete: bool
    """Whether it ran to its end."""

    def records(self) -> list[dict[str, Any]]:
        """Lines of ``rounds.jsonl``."""
        return read_records(self.path)

    def table(self) -> list[Row]:
        """A row per method."""
        return rows(self.records(), {name: about["label"] for name, about in self.methods.items()}, self.domains)


def read_run(path: Path) -> Stored | None:
    """What a folder holds; None where it is not a run folder or cannot be read."""
    try:
        about = json.loads((path / "config.json").read_text())
        config, methods = about["config"], about["methods"]
    except (OSError, ValueError, KeyError):
        return None
    try:
        summary = json.loads((path / "summary.json").read_text())
        names = list(next(iter(summary["methods"].values()))["domains"])
        complete = summary["complete"] is True
    except (OSError, ValueError, KeyError, StopIteration):
        names, complete = [], False
    domains = about.get("domains") or [name for name in names for _ in range(config["clients"])]
    return Stored(path, config, methods, tuple(domains), complete)


def runs_in(folder: Path) -> Iterator[Stored]:
    """All runs directly below a folder, by name."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        found = read_run(path) if path.is_dir() else None
        if found:
            yield found
