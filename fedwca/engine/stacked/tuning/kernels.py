"""How training steps of a batch of clients are carried out: with another memory layout, or recorded."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedwca.core.network import Network

Kernels = Literal["eager", "channels-last", "graphs"]
"""eager: call by call; channels-last: images ``[B, H, W, G·3]`` in memory, in all passes, so that grouped convolutions
that begin with them are in channels-last order; graphs: eager's calls, recorded once a round and played again as one
CUDA graph."""


def default_kernels(network: Network, device: torch.device) -> Kernels:
    """Kernels to use without a measurement; channels-last halves the time of backbones batched by hand on a CPU."""
    return "channels-last" if device.type == "cpu" and network.backbone.has_forward_stacked else "eager"


def channels_last_batch(x: Tensor) -> Tensor:
    """Images ``[G, B, C, H, W]`` stored in memory as ``[B, H, W, G, C]``: one channels-last batch of G·C channels."""
    return x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)
