"""In which numbers clients compute. Models rest, travel and are averaged in the network's own type all the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch

from fedwca.core.training_settings import Precision
from fedwca.errors import UsageError

Phase = Literal["train", "evidence"]


def check_precision(precision: Precision, dtype: torch.dtype, device: torch.device) -> None:
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
    if precision == "tf32":
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
            raise UsageError(f"precision tf32: only GPUs since Ampere have TensorFloat-32, not {device}; take fp32")
        return
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise UsageError(f"precision {precision}: {name} has no bfloat16; take precision fp32")


def compute_precision(precision: Precision, phase: Phase, device: torch.device) -> AbstractContextManager[Any]:
    """Autocast for a network's backbone and bottleneck; for fp32, and for what stays in it, nothing.

    Inside, convolutions and matrix products are in bfloat16 and read weights that are rounded for the while. BatchNorm
    keeps its statistics and parameters in float32. What comes behind the bottleneck, and losses, belong outside.
    """
    lowered = precision == "bf16-all" or (precision == "bf16" and phase == "train")
    return torch.autocast(device.type, torch.bfloat16) if lowered else nullcontext()


@contextmanager
def matmul_precision(precision: Precision, device: str | torch.device) -> Iterator[None]:
    """Whether a GPU may round the factors of float32 products to TensorFloat-32: with ``tf32`` only.

    Torch lets convolutions do so unless told otherwise. Its settings are the process's; they are put back at the end.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    convolutions, matrices = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, matrices
