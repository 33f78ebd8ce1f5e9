"""Half precision on the wire: which tensors travel in it, and that the first layer travels in full."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout

Transport = Literal["full", "half"]


DTYPES: dict[Transport, torch.dtype] = {"full": torch.float32, "half": torch.float16}


def wire_types(layout: Layout, transport: Transport) -> dict[str, torch.dtype]:
    """Type of each tensor on the wire: the first layer keeps its precision, because clients are clustered by it.

    First layers of clients that began as one model are nearly collinear; rounded to half precision, other clusters
    were found (docs/internals/measured-federations.md).
    """
    first = {slot.name for slot in layout.layers()[0]}
    return {slot.name: DTYPES["full" if slot.name in first else transport] for slot in layout.slots}


def cast_in_range(values: Tensor, kind: torch.dtype) -> Tensor:
    """Values in another type; those beyond its range at the range's end."""
    limit = torch.finfo(kind).max
    return (values if values.dtype == kind else values.clamp(-limit, limit)).to(kind)
