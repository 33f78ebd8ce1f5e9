"""A network as users want it: pixels in, class scores out, nothing to prepare and nothing to switch."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from fedwca.core.network import Network


class InferenceModel(nn.Module):
    """uint8 images ``[N, 3, H, W]`` in 0…255 to logits ``[N, M]``; normalisation is inside, dropout is not.

    A private copy on the CPU in eval mode, its tensors laid out as file formats expect them.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().requires_grad_(False).to(memory_format=torch.contiguous_format)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return cast(Tensor, self.network(self.network.prepare(images))[0])
