"""The client's secret, by which the server knows it again."""

from __future__ import annotations

import secrets
from pathlib import Path

from fedwca.core.files import write_secret


def identity(state: Path) -> str:
    """A secret by which the server knows a client again, whatever number Flower gives its node; kept in its folder."""
    path = state / "identity"
    if not path.exists():
        write_secret(path, secrets.token_hex(16).encode())
    return path.read_text()
