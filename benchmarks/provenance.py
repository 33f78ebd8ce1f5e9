"""What a measurement was made on and of: hardware, versions, and the commit of this checkout."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from fedwca.results.environment import describe_environment


def provenance(device: str) -> dict[str, Any]:
    """What `environment` says and the commit; None where this is no checkout, ``+`` where files differ."""
    return {**describe_environment(device), "commit": commit()}


def commit() -> str | None:
    """The commit that is checked out, short, with ``+`` behind it where code that is tracked was changed since."""
    here = Path(__file__).parent
    asked = [["git", "rev-parse", "--short=12", "HEAD"], ["git", "status", "--porcelain", "--untracked-files=no"]]
    try:
        head, changed = (
            subprocess.run(command, cwd=here.parent, capture_output=True, text=True, check=True).stdout
            for command in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.strip() + ("+" if any(".py" in line for line in changed.splitlines()) else "")
