"""How the training steps of a crowd are carried out: the same sums in another order in memory, or compiled."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

Kernels = Literal["eager", "channels-last", "products", "compile"]
"""eager: call by call; channels-last: images ``[B, H, W, G·3]`` in memory, so that grouped convolutions that begin
with them are in channels-last order; products: convolutions as one batched matrix product; compile: by torch.compile,
once for each shape of a step."""


def across(x: Tensor) -> Tensor:
    """Images ``[G, B, C, H, W]`` that lie in memory as ``[B, H, W, G, C]``: one channels-last batch of G·C channels."""
    return x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)
