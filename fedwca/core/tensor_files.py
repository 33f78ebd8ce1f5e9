"""Tensor files: written whole or not at all, read without running code, checked against the module they are for."""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import threading
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fedwca.core.component_answers import describe_value
from fedwca.core.count_of import count_of
from fedwca.core.files import write_atomically
from fedwca.core.input_files import check_not_special
from fedwca.errors import CheckpointError, first_line


@dataclass(frozen=True)
class TensorFile:
    """A ``.safetensors`` file whose size is what its header declares; its tensors are read on demand."""

    path: Path
    metadata: Mapping[str, str]

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by name, copied to the CPU, so that the file may be removed afterwards.

        Raises:
            CheckpointError: the file cannot be read any more.
        """
        try:
            with safe_open(str(self.path), "pt") as file:
                return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118  # no mapping
        except (SafetensorError, OSError) as error:
            raise _unreadable(self.path, error) from error

    def checksum(self) -> int:
        """`checksum` of its tensors, read one after another.

        Raises:
            CheckpointError: the file cannot be read any more.
        """
        crc = 0
        try:
            with safe_open(str(self.path), "pt") as file:
                for name in sorted(file.keys()):
                    crc = _crc(name, file.get_tensor(name), crc)
        except (SafetensorError, OSError) as error:
            raise _unreadable(self.path, error) from error
        return crc


def open_tensors(path: Path) -> TensorFile:
    """Open a ``.safetensors`` file and check its header; no tensor is read.

    The names, types, shapes and offsets in the header must fill the file exactly, so reading never takes more memory
    than the file has bytes.

    Raises:
        CheckpointError: the file is missing, truncated or damaged.
    """
    try:
        check_not_special(path)
        with safe_open(str(path), "pt") as file:
            return TensorFile(path, file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from error


def save_tensors(
    file: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, private: bool = False
) -> None:
    """Write a ``.safetensors`` file in place.

    Args:
        file: the file; an existing one is overwritten.
        tensors: by name, on any device; some may share memory.
        metadata: text by name.
        private: whether only the user can read it; else the process's umask decides.

    Raises:
        OSError: the file cannot be written.
    """
    file.touch()
    mode = 0o600 if private else file.stat().st_mode
    try:
        save_file(_unshared(tensors), str(file), None if metadata is None else dict(metadata))
    except SafetensorError as error:
        # safetensors gives the system's error as text.
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise OSError(f"{file}: {error}") from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(file)) from error
    file.chmod(mode)


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, private: bool = False
) -> None:
    """As `save_tensors`, but so that others see the old file, the whole new one, or none; makes its folder.

    Raises:
        OSError: the file cannot be written; an existing one is unchanged.
    """
    write_atomically(path, lambda file: save_tensors(file, tensors, metadata, private), private)


def checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 over names and values on the CPU, one tensor after another in the order of their names."""
    crc = 0
    for name in sorted(tensors):
        crc = _crc(name, tensors[name], crc)
    return crc


def _crc(name: str, tensor: Tensor, crc: int) -> int:
    values = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return zlib.crc32(values.data, zlib.crc32(name.encode(), crc))


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none sharing memory with another, as the format requires."""
    unshared: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        on_cpu = tensor.detach().cpu().contiguous()
        address = on_cpu.untyped_storage().data_ptr()
        unshared[name] = on_cpu.clone() if address in seen else on_cpu
        seen.add(address)
    return unshared


def _unreadable(path: Path, error: Exception) -> CheckpointError:
    reason = first_line(error).partition(". This is an internal")[0]  # torch goes on with advice for its developers
    return CheckpointError(f"{path}: not a readable checkpoint ({reason})")


def read_tensors(path: Path, taker: str) -> dict[str, Tensor]:
    """Tensors by name from a ``.safetensors`` file, or from a ``.pt`` or ``.pth`` state dict without pickled objects.

    Args:
        path: the file.
        taker: what takes such a file, for messages, for example ``--checkpoint takes``.

    Raises:
        CheckpointError: the file is missing or damaged, or holds something else.
    """
    if not path.exists():
        raise CheckpointError(f"{path}: no such file; {taker} a .safetensors, .pt or .pth state dict")
    if path.suffix in (".onnx", ".pt2"):
        raise CheckpointError(f"{path}: holds a program; {taker} a .safetensors, .pt or .pth state dict")
    if path.suffix == ".safetensors":
        return open_tensors(path).tensors()
    try:
        check_not_special(path)
        return _read_torch(path)
    except pickle.UnpicklingError as error:  # torch's own message advises to run the code in it
        raise CheckpointError(
            f"{path}: holds pickled objects beside tensors, which could run code, or is damaged; {taker} a "
            ".safetensors, .pt or .pth state dict of tensors alone"
        ) from error
    except Exception as error:  # torch raises whatever a damaged file leads it to
        raise _unreadable(path, error) from error


_IGNORING_WARNINGS = threading.Lock()
"""Held while warnings are ignored: the filters are the process's, and threads that end in another order than they began
would leave them changed."""


def _read_torch(path: Path) -> dict[str, Tensor]:
    with _IGNORING_WARNINGS, warnings.catch_warnings(action="ignore"):  # about pickles, which are refused
        state = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(state, dict):
        state = state.get("state_dict", state)
    if not isinstance(state, dict):
        raise TypeError(f"it holds {describe_value(state)}, not tensors by name")
    tensors = {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}
    return {name.removeprefix("module."): tensor for name, tensor in tensors.items()}


def fill_module(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into a module, cast to its types; counters of BatchNorm (``num_batches_tracked``) may be absent.

    Raises:
        CheckpointError: a tensor is not finite in the module's type, or not the module's, or as `check_fits`; names
            ``path`` and the tensor.
    """
    check_fits(module, tensors, path)
    state = module.state_dict()
    if others := [name for name in tensors if name not in state]:
        raise CheckpointError(
            f"{path}: has {others[0]!r} ({count_of(len(others), 'tensor')}) that this model has no place for; is it "
            "another model?"
        )
    cast = {name: tensor.to(state[name].dtype) for name, tensor in tensors.items()}
    for name, tensor in cast.items():
        if not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(f"{path}: {name} has values that are not finite")
    module.load_state_dict(cast, strict=False)


def check_fits(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Check that tensors fit a module, which may be on the ``meta`` device.

    Raises:
        CheckpointError: a tensor is missing, or has another shape or kind of values; names ``path`` and the tensor.
    """
    state = module.state_dict()
    missing = [name for name in state if name not in tensors and not name.endswith("num_batches_tracked")]
    if missing:
        needs = ", ".join(state) if len(state) < 30 else f"{len(state)} tensors such as {next(iter(state))!r}"
        lacking = f"{missing[0]!r} ({count_of(len(missing), 'tensor')} missing)"
        others = [name for name in tensors if name not in state]
        has = f"; the file has {others[0]!r}" if others else ""
        raise CheckpointError(f"{path}: lacks {lacking}{has}; the model needs {needs}")
    for name, tensor in state.items():
        if name in tensors and tensors[name].shape != tensor.shape:
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}; this model needs {tuple(tensor.shape)}"
            )
        # A counter may have been cast to floating point with the weights.
        is_counter = not tensor.is_floating_point() and name in tensors and not tensors[name].is_complex()
        if name in tensors and not is_counter and tensors[name].is_floating_point() != tensor.is_floating_point():
            raise CheckpointError(f"{path}: {name} holds {_kind(tensors[name])}; this model needs {_kind(tensor)}")


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def file_digest(path: Path) -> str:
    """Hash of a file's content, 16 hex digits.

    Raises:
        CheckpointError: the file cannot be read.
    """
    try:
        check_not_special(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from None
