"""How the training steps of a crowd are carried out: the same sums in another order in memory, or recorded."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fedwca.core.network import Network

Kernels = Literal["eager", "channels-last", "graphs"]
"""eager: call by call; channels-last: images ``[B, H, W, G·3]`` in memory, in all passes, so that grouped convolutions
that begin with them are in channels-last order; graphs: eager's calls, recorded once a round and played again as one
CUDA graph."""
DROPPED = {"products", "compile"}
"""Kernels of earlier releases, slower in all that was measured."""


def default_kernels(network: Network, device: torch.device) -> Kernels:
    """What is taken where nothing is measured: on a CPU channels-last halves the time of backbones batched by hand."""
    return "channels-last" if device.type == "cpu" and network.backbone.by_hand else "eager"


def channels_last_batch(x: Tensor) -> Tensor:
    """Images ``[G, B, C, H, W]`` that lie in memory as ``[B, H, W, G, C]``: one channels-last batch of G·C channels."""
    return x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)


def needs_mixed_counts(kernels: Kernels) -> bool:
    """Whether steps are as large as what they mix, which the device has to be asked for; else they have room for all.

    A recorded step is played again for other images, so it cannot depend on how many of them are mixed.
    """
    return kernels != "graphs"


def mixed_places(kernels: Kernels, mixed: int, images: int) -> int:
    """Places for mixed images in a step of so many images.

    Args:
        kernels: how the step is carried out.
        mixed: the most that a client mixes in it.
        images: of each client.

    >>> [mixed_places(kernels, 17, 64) for kernels in ("eager", "graphs")]
    [17, 64]
    """
    return mixed if needs_mixed_counts(kernels) else images
