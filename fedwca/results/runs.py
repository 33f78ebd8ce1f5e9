"""Runs on disk: found by name or path, read whatever version wrote them, listed by looking into folders."""

from __future__ import annotations

import difflib
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from fedwca.errors import FedwcaError, UsageError
from fedwca.results.lock import held
from fedwca.results.store import SCHEMA, plain

ROOT = Path("runs")
"""Where runs go that are given no folder."""


@dataclass(frozen=True)
class Run:
    """A run folder, read without its rounds."""

    path: Path
    about: Mapping[str, Any]
    """What ``config.json`` holds."""
    summary: Mapping[str, Any]
    """What ``summary.json`` holds; empty where there is none yet."""
    state: Literal["done", "stopped", "running"]
    time: datetime
    """When it began."""

    @property
    def own(self) -> str:
        """Name of the composed method."""
        return str(list(self.about["methods"])[-1])

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


def read_run(run: Path) -> Run:
    """A run of any version up to this one.

    Raises:
        FedwcaError: a file of it is damaged.
    """
    about = read_about(run)
    summary = _read(run / "summary.json") if (run / "summary.json").exists() else {}
    done = "done" if summary.get("complete") else "stopped"
    environment = run / "environment.json"
    written = _read(environment).get("time") if environment.exists() else None
    modified = datetime.fromtimestamp((run / "config.json").stat().st_mtime).astimezone()
    time = datetime.fromisoformat(written) if written else modified
    return Run(run, about, summary, "running" if held(run) else done, time)  # type: ignore[arg-type]


def remove(run: Path) -> None:
    """Remove a run folder; ``config.json`` goes first, so that what an interruption leaves is no run.

    Raises:
        FedwcaError: a file of it cannot be removed.
    """
    try:
        (run / "config.json").unlink()
        shutil.rmtree(run)
    except OSError as error:
        raise FedwcaError(f"{run}: cannot be removed ({error.strerror or error})") from None


def identity(about: Mapping[str, Any]) -> str:
    """Hash of what decides a run's numbers: its configuration without ``workers``, and every method's components."""
    config = {key: value for key, value in about["config"].items() if key != "workers"}
    text = json.dumps(plain({"config": config, "methods": about["methods"]}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise FedwcaError(f"{file}: cannot be read ({error})") from None
    if not isinstance(value, dict):
        raise FedwcaError(f"{file}: is not a table of values")
    return value


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted keys in which two runs' configurations or methods differ, with both values; ``workers`` does not count.

    Args:
        one: what ``config.json`` of a run holds.
        other: the same of another.
    """
    first, second = _leaves(one), _leaves(other)
    return {
        key: (first.get(key), second.get(key))
        for key in dict.fromkeys([*first, *second])
        if _typed(first.get(key)) != _typed(second.get(key))
    }


def _leaves(about: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration and components as dotted keys; those of a method as ``method.kind.name.field``."""
    found = dict(_flat(plain(about["config"])))
    found.pop("workers", None)
    for name, method in about["methods"].items():
        found[f"{name}.rounds"] = method["rounds"]
        for part in plain(method["components"]):
            fields = {key: value for key, value in part.items() if key not in ("kind", "name")}
            found |= dict(_flat(fields, f"{name}.{part['kind']}.{part['name']}."))
            found[f"{name}.{part['kind']}.{part['name']}"] = True
    return found


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _typed(value: Any) -> Any:
    """Values as a command line may have given them: ``"8"`` and 8 are the same."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return {"true": True, "false": False}.get(value, value)
    return value
