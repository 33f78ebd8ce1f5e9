"""The environment of a run: library versions, hardware, the command that started it, and the git commit."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.printable import printable
from fedwca.core.process_limits import available_cores
from fedwca.registry import canonical_name

GIT_SECONDS = 5.0
"""Time limit for git; after it no commit is recorded, so that a run does not wait for a slow disk."""

MAKE_NUMBERS = ("cpu", "instructions", "device")
"""Keys of an environment that, besides library versions, can change the last digits of results."""

LIBRARIES = ("fedwca", "torch", "torchvision", "numpy", "faiss-cpu", "pydantic", "scikit-learn")
"""Packages whose versions are recorded, beside those of plugins."""


def describe_environment(device: str) -> dict[str, Any]:
    """Time, library versions and hardware of this process, to be kept with its results."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": available_cores(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "versions": {**{name: _version(name) or "not installed" for name in LIBRARIES}, **plugin_versions()},
    }


def describe_start() -> dict[str, Any]:
    """The command that started this process, and the git commit of the working directory."""
    return {"command": command_line(), "commit": commit_of(Path.cwd())}


def changed_values(start: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Values that differ from those at the start of a run, by dotted keys.

    Args:
        start: environment of the process that started the run.
        current: environment of the process that continues it.

    >>> changed_values({"cpu": "A", "versions": {"torch": "2.11"}}, {"cpu": "A", "versions": {"torch": "2.13"}})
    {'versions.torch': '2.13'}
    """
    start_values = dict(flatten_keys(start))
    return {key: value for key, value in flatten_keys(current) if start_values.get(key) != value}


def describe_move(start: Mapping[str, Any], changed: Mapping[str, Any]) -> str | None:
    """A note if a run continues with other hardware or libraries than it started with; None if it does not.

    Args:
        start: environment of the process that started the run.
        changed: result of `changed_values`.

    >>> describe_move({"cpu": "A", "versions": {"torch": "2.11"}}, {"time": "…", "cpu": "B", "versions.torch": "2.13"})
    'begun with cpu A, torch 2.11, going on with cpu B, torch 2.13: last digits may differ'
    >>> describe_move({"versions": {"my-plugin": "1"}}, {"versions.my-plugin": "2"})
    'begun with my-plugin 1, going on with my-plugin 2: results may differ'
    >>> describe_move({"versions": {"fedwca": "0.1.0"}}, {"versions.fedwca": "0.2.0"})
    'begun with fedwca 0.1.0, going on with fedwca 0.2.0: results may differ'
    >>> describe_move({"plugin_code": {"my-plugin": "11aa"}}, {"plugin_code.my-plugin": "22bb"})
    'begun with plugin code my-plugin 11aa, going on with plugin code my-plugin 22bb: results may differ'
    """
    if (differences := _name_differences(start, changed)) is None:
        return None
    then, now, what = differences
    return f"begun with {then}, going on with {now}: {what} may differ"


def describe_other_environment(first: Mapping[str, Any], other: Mapping[str, Any]) -> str | None:
    """What sets the hardware and libraries of two runs apart, the other one's first; None if nothing does.

    >>> describe_other_environment({"cpu": "A", "cores": 1}, {"cpu": "B", "cores": 2})
    'with cpu B, not cpu A: last digits may differ'
    """
    if (differences := _name_differences(first, changed_values(first, other))) is None:
        return None
    then, now, what = differences
    return f"with {now}, not {then}: {what} may differ"


def _name_differences(start: Mapping[str, Any], changed: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What can change results, at the start and now, and what may differ; None if nothing can."""
    start_values = dict(flatten_keys(start))
    # Earlier releases recorded fewer keys.
    may_matter = [key for key in changed if key in MAKE_NUMBERS or key.startswith(("versions.", "plugin_code."))]
    names = [key for key in may_matter if key in start_values]
    if not names:
        return None
    then, now = (
        printable(", ".join(f"{_read_key(name)} {values[name]}" for name in names))
        for values in (start_values, changed)
    )
    # Another version of fedwca, or of a plugin, may compute something else; other libraries round otherwise.
    rounding = {*MAKE_NUMBERS, *(f"versions.{name}" for name in LIBRARIES if name != "fedwca")}
    return then, now, "last digits" if rounding.issuperset(names) else "results"


def _read_key(key: str) -> str:
    """What a dotted key is called in a sentence."""
    return key.removeprefix("versions.").replace("plugin_code.", "plugin code ", 1)


def missing_plugins(start: Mapping[str, Any]) -> list[str]:
    """Plugins of an environment that are not installed here, each with its version there.

    Args:
        start: environment of the process that started a run.
    """
    recorded = start.get("versions", {}).items()
    return [printable(f"{name} {number}") for name, number in recorded if name not in LIBRARIES and not _version(name)]


def command_line() -> str | None:
    """The command that started this process, quoted for a shell; None in interactive Python or ``python -c``."""
    program, *arguments = sys.argv or [""]
    if program in ("", "-c"):
        return None
    file = Path(program)
    words = ["python", "-m", file.parent.name] if file.name == "__main__.py" else [file.name]
    return printable(shlex.join([*words, *arguments]))


def commit_of(folder: Path) -> str | None:
    """The commit checked out in a folder, with ``+`` if tracked files differ; None if git finds none."""
    command = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # otherwise git may write into the user's folder
    try:
        result = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def _version(package: str) -> str | None:
    """The version of an installed package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def plugin_versions() -> dict[str, str]:
    """Versions of the installed packages that add components, by name."""
    return dict(sorted((point.dist.name, point.dist.version) for point in _plugin_points() if point.dist))


def plugin_code(about: Mapping[str, Any]) -> dict[str, str]:
    """Checksums of the Python files of the installed packages that a run's components are from, by package.

    In an editable installation only they change, not the version.

    Args:
        about: ``config.json`` of the run.
    """
    names = {part["name"] for method in about["methods"].values() for part in method.get("components", ())}
    names |= {str(value).partition(":")[0] for value in about["config"].values()}  # data set, model, partition …
    names = set(map(canonical_name, names))
    modules: dict[str, set[str]] = {}
    for point in _plugin_points():
        if point.dist and canonical_name(point.name) in names:
            modules.setdefault(point.dist.name, set()).add(point.module.partition(".")[0])
    return {name: _checksum_modules(sorted(found)) for name, found in sorted(modules.items())}


def _plugin_points() -> list[EntryPoint]:
    found = entry_points()
    return [point for group in found.groups if group.startswith("fedwca.") for point in found.select(group=group)]


def _checksum_modules(names: Sequence[str]) -> str:
    """First 8 hexadecimal digits of the SHA-256 of the Python files of top-level modules, which are not imported."""
    digest = hashlib.sha256()
    for name in names:
        spec = find_spec(name)
        if spec is None:  # the package is not complete; a run that uses it says so
            continue
        files = [
            file for folder in spec.submodule_search_locations or () for file in sorted(Path(folder).rglob("*.py"))
        ]
        if spec.origin and not files:
            files = [Path(spec.origin)]
        for file in files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    # Linux on ARM gives numbers in place of a name.
    parts = [f"{key} {facts[key]}" for key in ("CPU implementer", "CPU part", "CPU variant") if key in facts]
    return facts.get("model name") or ", ".join(parts) or platform.processor() or platform.machine()
