"""A network in the form in which it is exported: pixels in, logits out, no preprocessing by the caller."""

from __future__ import annotations

import copy
from typing import cast

import torch
from torch import Tensor, nn

from fedwca.core.network import Network


class InferenceModel(nn.Module):
    """Maps uint8 images ``[N, 3, H, W]`` in 0…255 to logits ``[N, M]``; normalises inside and has no dropout.

    Holds a copy of the network on the CPU in eval mode, with contiguous tensors, as file formats expect.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).cpu().requires_grad_(False).to(memory_format=torch.contiguous_format)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits ``[N, M]``."""
        return cast(Tensor, self.network(self.network.prepare(images))[0])
