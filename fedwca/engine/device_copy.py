"""Values on their way to a device and back, without waiting: the host goes on while they travel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(values: Tensor | Sequence[int], device: torch.device) -> Tensor:
    """Values of the host on a device; whole numbers become int64.

    A copy from ordinary memory would wait until the device has done everything that was asked of it before.
    """
    here = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.int64)
    if device.type != "cuda" or here.is_cuda:
        return here.to(device)
    return here.pin_memory().to(device, non_blocking=True)


def to_host_async(values: Tensor) -> Tensor:
    """Values on their way to the host: they may be handed on at once, and read after `synchronize`."""
    return values.to("cpu", non_blocking=values.is_cuda)


def synchronize(device: torch.device) -> None:
    """Wait for what was fetched from a device."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
