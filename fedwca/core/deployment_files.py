"""Names of a deployment's files; imports only the standard library, for processes that must not load torch."""

from __future__ import annotations

from pathlib import Path

CONFIG_NAME, SOURCE, CHECKPOINT = "federation.json", "source.safetensors", "server.safetensors"
"""Files in the server's folder: the configuration, the source model, and the checkpoint."""


def is_deployment(folder: Path) -> bool:
    """Return whether `fedwca deploy init` wrote this folder."""
    return (folder / "server" / CONFIG_NAME).is_file()
