"""The environment a run was made in: versions and hardware, the command that began it, and the code around it."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fedwca.core.dotted_keys import flatten_keys
from fedwca.core.printable import printable

GIT_SECONDS = 5.0
"""After so many, nothing is said of the commit: a run does not wait for a slow disk."""

MAKE_NUMBERS = ("cpu", "instructions", "device")
"""What of an environment last digits depend on, beside versions of libraries."""


def describe_environment(device: str) -> dict[str, Any]:
    """Versions and hardware that a result should be read with."""
    names = ("fedwca", "torch", "torchvision", "numpy", "faiss-cpu", "pydantic", "scikit-learn")
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "versions": versions,
    }


def describe_start() -> dict[str, Any]:
    """How this process was begun, and on which commit of the code in the working directory."""
    return {"command": command_line(), "commit": commit_of(Path.cwd())}


def changed_values(began: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """What is not as it was when a run began, by dotted keys.

    Args:
        began: an environment.
        here: that of the process that goes on with the run.

    >>> changed_values({"cpu": "A", "versions": {"torch": "2.11"}}, {"cpu": "A", "versions": {"torch": "2.13"}})
    {'versions.torch': '2.13'}
    """
    before = dict(flatten_keys(began))
    return {key: value for key, value in flatten_keys(here) if before.get(key) != value}


def describe_move(began: Mapping[str, Any], changed: Mapping[str, Any]) -> str | None:
    """What to know where a run goes on with other hardware or libraries than it began with; None where it does not.

    Args:
        began: the environment of its first process.
        changed: as from `changed_values`.

    >>> describe_move({"cpu": "A", "versions": {"torch": "2.11"}}, {"time": "…", "cpu": "B", "versions.torch": "2.13"})
    'begun with cpu A, torch 2.11, going on with cpu B, torch 2.13: last digits may differ'
    """
    before = dict(flatten_keys(began))
    # An earlier release noted less.
    names = [key for key in changed if key in before and (key in MAKE_NUMBERS or key.startswith("versions."))]
    if not names:
        return None
    then, now = (
        printable(", ".join(f"{name.removeprefix('versions.')} {values[name]}" for name in names))
        for values in (before, changed)
    )
    return f"begun with {then}, going on with {now}: last digits may differ"


def command_line() -> str | None:
    """The command that this process was started by, to be pasted; None in a shell of Python, which has none."""
    program, *arguments = sys.argv or [""]
    if program in ("", "-c"):
        return None
    file = Path(program)
    words = ["python", "-m", file.parent.name] if file.name == "__main__.py" else [file.name]
    return printable(shlex.join([*words, *arguments]))


def commit_of(folder: Path) -> str | None:
    """The commit that is checked out in a folder, with ``+`` where tracked files differ; None where git knows none."""
    asked = ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    env = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # else git may write into the user's folder
    try:
        done = subprocess.run(
            asked, cwd=folder, env=env, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
