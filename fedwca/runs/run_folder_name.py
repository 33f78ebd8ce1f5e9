"""The default run folder."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path


def new_run_path(name: str) -> Path:
    """Run folder in ``runs/`` if the user names none: the current time, then ``name``."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    # Replace characters of the method's name that are invalid in a path, on Windows too, or hard to type.
    return Path("runs") / f"{stamp}-{re.sub(r'[^a-zA-Z0-9.,=+()_-]+', '_', name)[:80]}"
