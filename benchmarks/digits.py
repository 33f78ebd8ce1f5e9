"""Settings that the scripts on the Digit-Five files share: one small federation of real digits."""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {"clients": 4, "samples": 400}
TRAINING: dict[str, Any] = {"epochs": 5, "lr": 3e-3}


def layer(data: str, source: str, **settings: Any) -> dict[str, Any]:
    """A layer of a run's configuration: four clients per target domain with 400 images each; no baselines."""
    return {"dataset": "digit_five", "data": data, "source": source, **SIZES, "baselines": [], **settings}
