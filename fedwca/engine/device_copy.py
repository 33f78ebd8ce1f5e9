"""Copies between host and device that the host does not wait for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(values: Tensor | Sequence[int], device: torch.device) -> Tensor:
    """Copy values of the host to a device; a sequence of integers becomes int64.

    The copy is made from pinned memory: one from pageable memory would wait until the device has finished all work
    queued before.
    """
    tensor = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.int64)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host_async(values: Tensor) -> Tensor:
    """Start a copy of values to the host; it may be passed on at once, but read only after `synchronize`."""
    return values.to("cpu", non_blocking=values.is_cuda)


def synchronize(device: torch.device) -> None:
    """Wait until copies from a device to the host are complete."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
