"""The device that a run computes on: the CPU, a GPU, or one GPU for each rank."""

from __future__ import annotations

import torch

from fedwca.core.count_of import count_of
from fedwca.core.environment_variables import count_ranks, is_distributed, number_in_environment
from fedwca.errors import UsageError


def resolve_device(name: str) -> str:
    """Resolve ``auto`` to a GPU if there is one, else the CPU; under ``torchrun``, pick the GPU of this rank.

    Raises:
        UsageError: the device does not exist, or several ranks would share one GPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: no such device; take auto, cpu, cuda or cuda:1") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name}: only cpu and cuda are supported")
    if device.type == "cpu" and device.index is not None:
        raise UsageError(f"--device {name}: there is one CPU; take --device cpu")
    # torch wraps large indices around to negative ones.
    if device.type == "cuda" and not 0 <= (device.index or 0) < torch.cuda.device_count():
        devices = count_of(torch.cuda.device_count(), "CUDA device")
        raise UsageError(f"--device {name}: this machine has {devices}; take --device cpu")
    return _own_device(device) if device.type == "cuda" and is_distributed() else name


def has_device(name: str) -> bool:
    """Whether a device is available; a run made on a GPU may be opened on a machine without one."""
    try:
        resolve_device(name)
    except UsageError:
        return False
    return True


def _own_device(device: torch.device) -> str:
    """The GPU of this rank."""
    ranks, devices = number_in_environment("LOCAL_WORLD_SIZE", count_ranks()), torch.cuda.device_count()
    if device.index is not None and ranks > 1:
        raise UsageError(f"--device {device}: {ranks} ranks cannot share it; take --device cuda, one device a rank")
    if ranks > devices:
        raise UsageError(
            f"{ranks} ranks need {ranks} CUDA devices, and this machine has {devices}; take --nproc-per-node "
            f"{devices} or --device cpu"
        )
    local_rank = number_in_environment("LOCAL_RANK", number_in_environment("RANK", 0))
    return str(device) if device.index is not None else f"cuda:{local_rank}"
