"""Cache of trained models; a model is found again by a hash of everything that determined it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.core.tensor_files import checksum, fill_module, open_tensors, write_tensors
from fedwca.errors import CheckpointError

TORCH = torch.__version__.partition("+")[0]
"""Version of torch in hashes of models, without the kind of its build."""
CHECKSUM = "checksum"
"""Key of the tensors' checksum in the metadata of a cached file."""


def read_cached_model(network: Network, path: Path, model_name: str) -> dict[str, Tensor] | None:
    """Load a cached file into a network, which is in eval mode afterwards.

    Args:
        network: of the file's architecture.
        path: of the file.
        model_name: what the warning about a damaged file calls the model.

    Returns:
        All tensors of the file; None if there is no file or it cannot be used.
    """
    if not path.is_file():
        return None
    try:
        file = open_tensors(path)
        tensors = file.tensors()
        # Files that were written before checksums existed have none.
        if file.metadata.get(CHECKSUM) not in (None, str(checksum(tensors))):
            raise CheckpointError(f"{path}: damaged, its content does not fit its checksum")
        fill_module(network, {name: tensors[name] for name in network.state_dict() if name in tensors}, path)
    except CheckpointError as error:
        warnings.warn(f"{error}; {model_name} is trained again", stacklevel=3)
        return None
    network.eval()
    return tensors


def write_cached_model(path: Path, tensors: Mapping[str, Tensor], model_name: str) -> None:
    """Write tensors to the cache with their checksum; if that fails there is a warning.

    Args:
        path: of the file.
        tensors: of the model, and any others to store with it.
        model_name: what the warning calls the model.
    """
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    try:
        write_tensors(path, plain, {CHECKSUM: str(checksum(plain))})
    except OSError as error:
        # Only a later run is affected: it has to train the model again.
        warnings.warn(f"{model_name} could not be kept in {path.parent} ({error.strerror or error})", stacklevel=3)
