"""Cache of trained models; a model is found again by a hash of everything that determined it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.core.tensor_files import checksum, fill_module, open_tensors, write_tensors
from fedwca.engine.cpu_cores import limit_to_one_thread
from fedwca.engine.precision import deterministic_convolutions, matmul_precision
from fedwca.errors import CheckpointError
from fedwca.warn_caller import warn_caller

TORCH = torch.__version__.partition("+")[0]
"""Version of torch in hashes of models, without the kind of its build."""
CHECKSUM = "checksum"
"""Key of the tensors' checksum in the metadata of a cached file."""


def train_cached(
    network: Network, path: Path, model_name: str, device: str, train: Callable[[], Mapping[str, Tensor]]
) -> Mapping[str, Tensor]:
    """Load a model from the cache into a network, or train it and write it there; the file that is there first stays.

    Args:
        network: of the model's architecture; has its values and is in eval mode afterwards.
        path: of the file in the cache.
        model_name: what warnings call the model.
        device: where the model is trained.
        train: trains the model, if it has to be; returns its tensors by name, and any others to store with it.

    Returns:
        All tensors of the file, or what ``train`` returned.

    Warns:
        UserWarning: the file is damaged, or cannot be written.
    """
    if path.is_file():
        try:
            return _load(network, path)
        except CheckpointError as error:
            warn_caller(f"{error}; {model_name} is trained again")
    # Sums have one order, so the model does not depend on the machine's cores, nor on a GPU's choice of algorithms.
    # In fp32 whatever the run's precision: runs of any precision share the cached model.
    with limit_to_one_thread(), deterministic_convolutions(device), matmul_precision("fp32", device):
        trained = train()
    # Another kind of processor may have trained other weights meanwhile; runs that began from these need them again.
    if path.is_file():
        with suppress(CheckpointError):
            return _load(network, path)
    network.load_state_dict({name: trained[name] for name in network.state_dict()})
    network.eval()
    _write(path, trained, model_name)
    return trained


def _load(network: Network, path: Path) -> dict[str, Tensor]:
    """Load a cached file into a network, which is in eval mode afterwards; returns all tensors of the file.

    Raises:
        CheckpointError: the file is damaged.
    """
    file = open_tensors(path)
    tensors = file.tensors()
    # Files that were written before checksums existed have none.
    if file.metadata.get(CHECKSUM) not in (None, str(checksum(tensors))):
        raise CheckpointError(f"{path}: damaged, its content does not fit its checksum")
    fill_module(network, {name: tensors[name] for name in network.state_dict() if name in tensors}, path)
    network.eval()
    return tensors


def _write(path: Path, tensors: Mapping[str, Tensor], model_name: str) -> None:
    """Write tensors to the cache with their checksum; if that fails there is a warning."""
    plain = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
    try:
        write_tensors(path, plain, {CHECKSUM: str(checksum(plain))})
    except OSError as error:
        # Only a later run is affected: it has to train the model again.
        warn_caller(f"{model_name} could not be kept in {path.parent} ({error.strerror or error})")
