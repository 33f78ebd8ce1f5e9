"""The folder of a run for which the user names none."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path


def new_run_path(name: str) -> Path:
    """Where a run goes that is given no folder: named after the time and what is run."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")[:-3]
    # Whatever a method is called, its run is a folder in runs/, with a name that can be typed.
    return Path("runs") / f"{stamp}-{re.sub(r'[^a-zA-Z0-9.,:=+()_-]+', '_', name)[:80]}"
