"""What a measurement was made on and of: hardware, versions, and the commit of this checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from fedwca.results.environment import describe_environment


def provenance(device: str) -> dict[str, Any]:
    """Hardware and versions of `describe_environment`, and under ``commit`` the result of `commit`."""
    return {**describe_environment(device), "commit": commit()}


def measured_on(environment: dict[str, Any], first: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The environment of a results file, and what an entry measured now has to hold beside its numbers.

    Args:
        environment: what is measured on now.
        first: what the entries of the file that stay were measured on; None: there are none.

    >>> measured_on({"cpu": "a"}, None)
    ({'cpu': 'a'}, {})
    >>> measured_on({"cpu": "a"}, {"cpu": "b"})
    ({'cpu': 'b'}, {'environment': {'cpu': 'a'}})
    """
    return (environment, {}) if first is None else (first, {"environment": environment})


def commit() -> str | None:
    """Short hash of the commit that is checked out, followed by ``+`` if a tracked Python file has changed since.

    None outside a Git checkout.
    """
    folder = Path(__file__).parent
    commands = [["git", "rev-parse", "--short=12", "HEAD"], ["git", "status", "--porcelain", "--untracked-files=no"]]
    try:
        head, changed = (
            subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=True).stdout
            for command in commands
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.strip() + ("+" if any(".py" in line for line in changed.splitlines()) else "")
