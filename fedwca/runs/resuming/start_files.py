"""Files of weights that a run starts from, and their hashes, which tell apart runs that started from different ones."""

from __future__ import annotations

from pathlib import Path

from fedwca.config.build_component import architecture
from fedwca.config.run_config import RunConfig
from fedwca.core.files import expand_home
from fedwca.core.tensor_files import file_digest


def start_files(config: RunConfig) -> dict[str, Path]:
    """The file given by `--checkpoint`, or else the model's file of pre-trained weights, by the key of its hash."""
    if config.checkpoint is not None:
        return {"checkpoint_digest": expand_home(config.checkpoint)}
    weights = getattr(architecture(config), "weights", None)
    return {"weights_digest": expand_home(weights)} if isinstance(weights, Path) else {}


def digest_start_files(config: RunConfig) -> dict[str, str]:
    """Hashes of these files, without those that are missing (reading them then fails)."""
    return {key: file_digest(file) for key, file in start_files(config).items() if file.is_file()}
