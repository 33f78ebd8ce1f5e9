"""The secret by which the server recognises a client that reconnects."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

from fedwca.core.files import write_secret


def identity(state: Path) -> str:
    """Return the secret in a client's folder, made on first use; Flower's node numbers change on reconnection."""
    path = state / "identity"
    if not path.exists():
        write_secret(path, secrets.token_hex(16).encode())
    return path.read_text()


def name_of(secret: str) -> str:
    """Return the name of a client in the server's log: a hash of its secret, which does not reveal the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]
