"""The precision in which clients compute; models are stored, sent and averaged in the network's own dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch

from fedwca.core.training_settings import Precision
from fedwca.errors import UsageError

Phase = Literal["train", "evidence"]


def check_precision(precision: Precision, dtype: torch.dtype, device: torch.device | None) -> None:
    """Check that clients can compute in a precision.

    Args:
        precision: to check.
        dtype: of the network's weights.
        device: where clients compute; None: on other machines, which check their own.

    Raises:
        UsageError: they cannot.
    """
    if precision == "fp32":
        return
    if dtype != torch.float32:
        kind = str(dtype).removeprefix("torch.")
        raise UsageError(f"precision {precision} needs a network of float32 weights, not {kind}; take precision fp32")
    if device is None:
        return
    if precision == "tf32":
        if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
            raise UsageError(f"precision tf32: only GPUs since Ampere have TensorFloat-32, not {device}; take fp32")
        return
    if device.type == "cuda":
        with torch.cuda.device(device):  # torch asks the current device
            supported = torch.cuda.is_bf16_supported(including_emulation=False)
        if not supported:
            name = torch.cuda.get_device_name(device)
            raise UsageError(f"precision {precision}: {name} has no bfloat16; take precision fp32")


def check_workers(precision: Precision, workers: int | None) -> None:
    """Check that the loop engine's clients can compute in a precision, several at the same time if that is asked for.

    Raises:
        UsageError: they cannot.
    """
    # TensorFloat-32 is a switch of the whole process, and mixtures of models must not be rounded.
    if precision == "tf32" and (workers or 1) > 1:
        raise UsageError("precision tf32: engine loop then trains one client at a time; leave out --workers")


def compute_precision(precision: Precision, phase: Phase, device: torch.device) -> AbstractContextManager[Any]:
    """Context for a network's backbone and bottleneck: autocast to bfloat16, or nothing if the phase is in float32.

    With autocast, convolutions and matrix products are in bfloat16, with temporarily rounded weights; BatchNorm keeps
    its statistics and parameters in float32. Whatever follows the bottleneck, and losses, must be computed outside.
    """
    lowered = precision == "bf16-all" or (precision == "bf16" and phase == "train")
    return torch.autocast(device.type, torch.bfloat16) if lowered else nullcontext()


@contextmanager
def matmul_precision(precision: Precision, device: str | torch.device) -> Iterator[None]:
    """Context in which a GPU rounds the factors of float32 products to TensorFloat-32 only if precision is ``tf32``.

    Torch allows this for convolutions by default. Its settings are global to the process and are restored at the end.

    Raises:
        UsageError: the process has set it in torch's other way.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    try:
        convolutions, matrices = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    except RuntimeError as error:  # torch does not let its two ways to say this be mixed
        raise UsageError(
            "torch's fp32_precision is set in this process, but fedwca sets torch.backends.cuda.matmul.allow_tf32 and "
            "torch.backends.cudnn.allow_tf32; leave it at its default, and take --precision fp32 or tf32"
        ) from error
    try:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, matrices


@contextmanager
def deterministic_convolutions(device: str | torch.device) -> Iterator[None]:
    """Context in which a GPU's convolutions add their terms in one order, so that they give the same bits each time.

    Without it cuDNN may choose algorithms whose sums end in any order. Training turns such last digits into points of
    accuracy. The setting is global to the process and is restored at the end.
    """
    if torch.device(device).type != "cuda":
        yield
        return
    original = torch.backends.cudnn.deterministic
    try:
        torch.backends.cudnn.deterministic = True
        yield
    finally:
        torch.backends.cudnn.deterministic = original
