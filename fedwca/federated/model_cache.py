"""Models that were trained once and are found again by a hash of everything that determined them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fedwca.core.network import Network
from fedwca.core.tensor_files import checksum, fill_module, open_tensors, write_tensors
from fedwca.errors import CheckpointError

CHECKSUM = "checksum"
"""How the metadata of a file in the cache calls the checksum of its tensors."""


def read_cached_model(network: Network, path: Path, what: str) -> dict[str, Tensor] | None:
    """Fill a network from a file of the cache; it is in eval mode afterwards.

    Args:
        network: of the architecture that the file's name speaks for.
        path: of the file.
        what: how a warning calls the model; a file that is damaged gives one.

    Returns:
        All tensors of the file; None where there is none that can be used.
    """
    if not path.is_file():
        return None
    try:
        file = open_tensors(path)
        tensors = file.tensors()
        # Files that were kept before there were checksums have none.
        if file.metadata.get(CHECKSUM) not in (None, str(checksum(tensors))):
            raise CheckpointError(f"{path}: damaged, its content does not fit its checksum")
        fill_module(network, tensors, path)
    except CheckpointError as error:
        warnings.warn(f"{error}; {what} is trained again", stacklevel=3)
        return None
    network.eval()
    return tensors


def write_cached_model(path: Path, tensors: Mapping[str, Tensor], what: str) -> None:
    """Keep tensors in the cache with their checksum; where that fails there is a warning.

    Args:
        path: of the file.
        tensors: of the model, and others beside it.
        what: how the warning calls the model.
    """
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    try:
        write_tensors(path, plain, {CHECKSUM: str(checksum(plain))})
    except OSError as error:
        # It costs the next run its time, not this one its result.
        warnings.warn(f"{what} could not be kept in {path.parent} ({error})", stacklevel=3)
