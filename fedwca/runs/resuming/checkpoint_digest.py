"""Hash of the file given by `--checkpoint`, which tells runs apart that started from different files."""

from __future__ import annotations

from fedwca.config.run_config import RunConfig
from fedwca.core.files import expand_home
from fedwca.core.tensor_files import file_digest


def digest_checkpoint(config: RunConfig) -> str | None:
    """Hash of the checkpoint's file; None if no checkpoint is given or the file is missing (reading it then fails)."""
    if config.checkpoint is None or not expand_home(config.checkpoint).is_file():
        return None
    return file_digest(expand_home(config.checkpoint))
