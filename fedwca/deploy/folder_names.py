"""What the files of a deployment are called; imports nothing, for processes that only wait."""

from __future__ import annotations

from pathlib import Path

CONFIG_NAME, SOURCE, CHECKPOINT = "federation.json", "source.safetensors", "server.safetensors"
"""In the server's folder: what is played, the model it begins with, and where it stands."""


def is_deployment(folder: Path) -> bool:
    """Whether a folder is one that `fedwca deploy init` wrote."""
    return (folder / "server" / CONFIG_NAME).is_file()
