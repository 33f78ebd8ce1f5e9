"""Plain JSON values of what components and runs hold, and their hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def to_plain(value: Any) -> Any:
    """Convert tensors and paths to JSON values; a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return to_plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def digest_plain_values(values: Mapping[str, Any]) -> str:
    """Hash of JSON values, 16 hex digits; the order of names does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
