"""Runs on disk: found by name or path, read whatever version wrote them, listed by looking into folders.

This is the one place that reads a run folder; `fedwca.results.reading` makes of it what pictures and reports need.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fedwca.errors import FedwcaError, UsageError
from fedwca.results.lock import is_locked
from fedwca.results.run_folder import SCHEMA, read_records, to_plain
from fedwca.results.summary import Row, table_rows

ROOT = Path("runs")
"""Where runs go that are given no folder."""


@dataclass(frozen=True)
class RunSummary:
    """A run folder, read without its rounds."""

    path: Path
    about: Mapping[str, Any]
    """What ``config.json`` holds."""
    summary: Mapping[str, Any]
    """What ``summary.json`` holds; empty where there is none yet."""
    environment: Mapping[str, Any]
    """What ``environment.json`` holds; empty where there is none."""
    state: Literal["done", "stopped", "running"]
    time: datetime
    """When it began."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration."""
        return self.about["config"]  # type: ignore[no-any-return]

    @property
    def methods(self) -> Mapping[str, Mapping[str, Any]]:
        """By name: label, rounds, components; the composed method is last."""
        return self.about["methods"]  # type: ignore[no-any-return]

    @property
    def complete(self) -> bool:
        """Whether it ran to its end."""
        return self.summary.get("complete") is True

    @property
    def domains(self) -> tuple[str, ...]:
        """True domain of each client, K names; empty where nothing says them."""
        if self.about.get("domains"):
            return tuple(self.about["domains"])
        # An older run: clients come domain after domain, equally many of each.
        named = next(iter(self.summary.get("methods", {}).values()), {"domains": ()})["domains"]
        return tuple(name for name in named for _ in range(int(self.config["clients"])))

    def records(self) -> list[dict[str, Any]]:
        """Lines of ``rounds.jsonl``; none where the file is not kept."""
        return read_records(self.path)

    def table(self, domains: Sequence[str] | None = None) -> list[Row]:
        """A row per method, from the records; ``domains`` stands in for those that nothing says."""
        labels = {name: str(about["label"]) for name, about in self.methods.items()}
        return table_rows(self.records(), labels, self.domains if domains is None else domains)

    @property
    def own(self) -> str:
        """Name of the composed method."""
        return list(self.methods)[-1]

    @property
    def accuracy(self) -> float | None:
        """Percent, of the composed method; None before it has any."""
        value = self.summary.get("methods", {}).get(self.own, {}).get("mean")
        return None if value is None else float(value)


def find_run(given: str | Path, root: Path = ROOT) -> Path:
    """The folder of a run, given as a path or as the name of a folder in ``root``.

    Raises:
        UsageError: there is no such run; says which one comes near.
    """
    for path in (Path(given), root / given):
        if (path / "config.json").is_file():
            return path
    if Path(given).is_dir():
        raise UsageError(f"{given}: holds no run (no config.json)")
    close = difflib.get_close_matches(str(given), [path.name for path in run_folders(root)], 1)
    hint = f"did you mean {close[0]!r}?" if close else f"runs are looked for as a path and in {root}/"
    raise UsageError(f"{given}: no such run; {hint}")


def run_folders(root: Path) -> list[Path]:
    """Folders in ``root`` that hold a run, wherever they came from."""
    return sorted(file.parent for file in root.glob("*/config.json")) if root.is_dir() else []


def read_about(run: Path) -> dict[str, Any]:
    """What ``config.json`` says: the configuration, the methods, and where values came from.

    Raises:
        FedwcaError: it is damaged, or of a later version.
    """
    about = _read(run / "config.json")
    if not isinstance(about.get("config"), dict) or not about.get("methods"):
        raise FedwcaError(f"{run / 'config.json'}: is not the configuration of a run")
    if about.get("schema", 1) > SCHEMA:
        raise FedwcaError(f"{run}: was written by a later fedwca (schema {about['schema']}; this one reads {SCHEMA})")
    return about


def read_run(run: Path) -> RunSummary:
    """A run of any version up to this one.

    Raises:
        FedwcaError: a file of it is damaged.
    """
    about = read_about(run)
    summary = _read(run / "summary.json") if (run / "summary.json").exists() else {}
    done = "done" if summary.get("complete") else "stopped"
    environment = _read(run / "environment.json") if (run / "environment.json").exists() else {}
    written = environment.get("time")
    modified = datetime.fromtimestamp((run / "config.json").stat().st_mtime).astimezone()
    time = datetime.fromisoformat(written) if written else modified
    return RunSummary(run, about, summary, environment, "running" if is_locked(run) else done, time)  # type: ignore[arg-type]


def read_if_run(run: Path) -> RunSummary | None:
    """A run, or None where the folder holds none or it cannot be read."""
    try:
        return read_run(run) if (run / "config.json").is_file() else None
    except FedwcaError:
        return None


def remove_run(run: Path) -> None:
    """Remove a run folder; ``config.json`` goes first, so that what an interruption leaves is no run.

    Raises:
        FedwcaError: a file of it cannot be removed.
    """
    try:
        (run / "config.json").unlink()
        shutil.rmtree(run)
    except OSError as error:
        raise FedwcaError(f"{run}: cannot be removed ({error.strerror or error})") from None


def run_identity(about: Mapping[str, Any]) -> str:
    """Hash of what decides a run's numbers: its configuration less what changes none, and every method's components.

    Checkpoints carry it, so a folder says itself what its hash leaves out; the older ones left out ``workers`` alone.
    """
    left_out = about.get("identity_without", ("workers",))
    config = {key: value for key, value in about["config"].items() if key not in left_out}
    text = json.dumps(to_plain({"config": config, "methods": about["methods"]}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise FedwcaError(f"{file}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise FedwcaError(f"{file}: is not a table of values")
    return value
