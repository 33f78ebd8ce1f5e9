"""The client's secret, by which the server knows it again."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from fedwca.core.files import write_secret


def identity(state: Path) -> str:
    """A secret by which the server knows a client again, whatever number Flower gives its node; kept in its folder."""
    path = state / "identity"
    if not path.exists():
        write_secret(path, secrets.token_hex(16).encode())
    return path.read_text()


def name_of(secret: str) -> str:
    """What the server calls a client in its log: a hash, which does not let anybody else be this client."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]
