"""Half precision for transport: which tensors are sent in float16; the first layer is always sent in float32."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout

Transport = Literal["full", "half"]


DTYPES: dict[Transport, torch.dtype] = {"full": torch.float32, "half": torch.float16}


def wire_types(layout: Layout, transport: Transport) -> dict[str, torch.dtype]:
    """Return the type of each tensor on the wire; the first layer stays float32, because clients are clustered by it.

    The clients start from one model, so their first layers are nearly collinear; rounding them to half precision
    changed the clusters (docs/internals/measured-federations.md).
    """
    first_layer = {slot.name for slot in layout.layers()[0]}
    return {slot.name: DTYPES["full" if slot.name in first_layer else transport] for slot in layout.slots}


def cast_in_range(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast values to another floating-point type; values beyond its range are clamped to its limits."""
    limit = torch.finfo(dtype).max
    return (values if values.dtype == dtype else values.clamp(-limit, limit)).to(dtype)
