"""What the scripts on the Digit-Five files share: one small federation of real digits, and how a result is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedwca.core.files import write_atomically

SIZES: dict[str, Any] = {"clients": 4, "samples": 400}
TRAINING: dict[str, Any] = {"epochs": 5, "lr": 3e-3}


def layer(data: str, source: str, **more: Any) -> dict[str, Any]:
    """A layer of a run's configuration: four clients per target domain with 400 images each; no baselines."""
    return {"dataset": "digit_five", "data": data, "source": source, **SIZES, "baselines": [], **more}


def keep(path: Path, result: dict[str, Any]) -> None:
    """Write a result file, whole or not at all."""
    write_atomically(path, lambda file: file.write_text(json.dumps(result, indent=2) + "\n") and None)
