"""What the file of `--checkpoint` holds, so that runs that began from another one are told apart."""

from __future__ import annotations

from fedwca.config.run_config import RunConfig
from fedwca.core.files import expand_home
from fedwca.core.tensor_files import file_digest


def digest_checkpoint(config: RunConfig) -> str | None:
    """Hash of the checkpoint's file; None where none is given, or it is not there, which is said when it is read."""
    if config.checkpoint is None or not expand_home(config.checkpoint).is_file():
        return None
    return file_digest(expand_home(config.checkpoint))
