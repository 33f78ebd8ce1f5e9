"""Files of tensors: read without running code, and checked against the module they are meant for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from fedwca.errors import CheckpointError


def read_tensors(path: Path, taker: str) -> dict[str, Tensor]:
    """Tensors by name from a ``.safetensors`` file, or from a ``.pt`` or ``.pth`` state dict without pickled objects.

    Args:
        path: the file.
        taker: what takes such a file, for messages, for example ``--checkpoint takes``.

    Raises:
        CheckpointError: the file is missing or damaged, or holds something else.
    """
    try:
        return load_file(path) if path.suffix == ".safetensors" else _read_torch(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; {taker} a .safetensors or .pth state dict") from None
    except Exception as error:
        why = str(error).partition("\n")[0]
        raise CheckpointError(f"{path}: not a readable checkpoint ({why})") from error


def _read_torch(path: Path) -> dict[str, Tensor]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    state = state.get("state_dict", state)
    tensors = {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}


def fill_module(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into a module, cast to its types; tensors it has no place for are left alone.

    Counters of BatchNorm (``num_batches_tracked``) may be absent.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or is not finite; names ``path`` and the tensor.
    """
    wanted = module.state_dict()
    missing = [name for name in wanted if name not in tensors and not name.endswith("num_batches_tracked")]
    if missing:
        needs = ", ".join(wanted) if len(wanted) < 30 else f"{len(wanted)} tensors such as {next(iter(wanted))!r}"
        raise CheckpointError(f"{path}: lacks {missing[0]!r} ({len(missing)} tensors missing); the model needs {needs}")
    for name, tensor in wanted.items():
        if name in tensors and tensors[name].shape != tensor.shape:
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}; this model needs {tuple(tensor.shape)}"
            )
        if name in tensors and not bool(torch.isfinite(tensors[name]).all()):
            raise CheckpointError(f"{path}: {name} has values that are not finite")
    module.load_state_dict({name: tensors[name] for name in wanted if name in tensors}, strict=False)


def refuse_others(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse tensors that a module has no place for.

    Raises:
        CheckpointError: names the first of them.
    """
    others = [name for name in tensors if name not in module.state_dict()]
    if others:
        raise CheckpointError(
            f"{path}: has {others[0]!r} ({len(others)} tensors) that this model has no place for; is it another model?"
        )


def file_digest(path: Path) -> str:
    """Hash of a file's content, 16 hex digits.

    Raises:
        CheckpointError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
