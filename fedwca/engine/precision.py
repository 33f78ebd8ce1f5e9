"""In which numbers clients compute. Models rest, travel and are averaged in the network's own type all the same."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from fedwca.errors import UsageError

Precision = Literal["fp32", "bf16", "bf16-all"]
"""fp32; bf16: steps of training in bfloat16 where that is safe; bf16-all: evidence and labels too."""
Phase = Literal["train", "evidence"]


def check(precision: Precision, dtype: torch.dtype, device: torch.device) -> None:
    """Whether clients can compute in a precision.

    Args:
        precision: what is asked for.
        dtype: of the network's weights.
        device: where it computes.

    Raises:
        UsageError: they cannot.
    """
    if precision == "fp32":
        return
    if dtype != torch.float32:
        kind = str(dtype).removeprefix("torch.")
        raise UsageError(f"precision {precision} needs a network of float32 weights, not {kind}; take precision fp32")
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise UsageError(f"precision {precision}: {name} has no bfloat16; take precision fp32")


def computing(precision: Precision, phase: Phase, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast for a network's backbone and bottleneck; for fp32, and for what stays in it, nothing.

    Inside, convolutions and matrix products are in bfloat16 and read weights that are rounded for the while. BatchNorm
    keeps its statistics and parameters in float32. What comes behind the bottleneck, and losses, belong outside.
    """
    lowered = precision == "bf16-all" or (precision == "bf16" and phase == "train")
    return torch.autocast(device.type, torch.bfloat16) if lowered else nullcontext()
