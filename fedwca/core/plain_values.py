"""Values as JSON has them, of what components and runs hold."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def to_plain(value: Any) -> Any:
    """Tensors and paths as JSON values; a number that is not finite becomes null, which JSON can hold."""
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
    """Hash of values that JSON can hold, 16 hex digits; the order of names does not count."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
