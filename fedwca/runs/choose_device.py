"""The device that a run computes on: a CPU, a GPU, or a GPU of each rank's own."""

from __future__ import annotations

import torch

from fedwca.core.environment_variables import count_ranks, is_distributed, number_in_environment
from fedwca.errors import UsageError


def resolve_device(name: str) -> str:
    """``auto`` as a GPU where there is one; under ``torchrun`` a GPU of each rank's own.

    Raises:
        UsageError: a device is asked for that is not there, or by several ranks.
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
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices; take --device cpu"
        )
    return _own_device(device) if device.type == "cuda" and is_distributed() else name


def has_device(name: str) -> bool:
    """Whether a device is there: a run that was made on a GPU may be opened without one."""
    try:
        resolve_device(name)
    except UsageError:
        return False
    return True


def _own_device(device: torch.device) -> str:
    """The GPU of this rank."""
    beside, there = number_in_environment("LOCAL_WORLD_SIZE", count_ranks()), torch.cuda.device_count()
    if device.index is not None and beside > 1:
        raise UsageError(f"--device {device}: {beside} ranks cannot share it; take --device cuda, one device a rank")
    if beside > there:
        raise UsageError(
            f"{beside} ranks need {beside} CUDA devices, and this machine has {there}; take --nproc-per-node {there} "
            "or --device cpu"
        )
    own = number_in_environment("LOCAL_RANK", number_in_environment("RANK", 0))
    return str(device) if device.index is not None else f"cuda:{own}"
