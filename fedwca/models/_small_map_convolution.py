"""Convolutions of many channels over few pixels, as one matrix product on a CPU."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS, CHANNELS_A_PIXEL = 256, 32
"""Fewest output channels, and fewest of them for each output pixel, with which the matrix product is used. Chosen by
timing single layers; the effect on a whole ResNet-18 is in docs/internals/performance.md."""


class SmallMapConvolution(nn.Conv2d):
    """A convolution that is computed as a matrix product if its output has few pixels of many channels, on a CPU.

    Torch's CPU kernels are slow for such outputs. Results differ from theirs in the last digits, as between any two
    kernels. In all other cases it is torch's convolution.
    """

    for_many: ClassVar[type[nn.Module]] = nn.Conv2d
    """Class to use instead when many models run at once: there products take longer than convolutions."""

    def forward(self, input: Tensor) -> Tensor:
        """``[B, C, H, W] -> [B, O, H', W']``."""
        height, width = (self._outputs(side, axis) for axis, side in enumerate(input.shape[-2:]))
        on_cpu = input.is_cpu or input.is_meta  # meta tensors stand for a CPU's in estimates of memory
        if not on_cpu or torch.compiler.is_compiling() or not self._is_small(height * width):
            return super().forward(input)
        return self._multiply(input, height, width)

    def _outputs(self, side: int, axis: int) -> int:
        """Output pixels along an axis."""
        padding = int(self.padding[axis])
        return (side + 2 * padding - self.kernel_size[axis]) // self.stride[axis] + 1

    def _is_small(self, pixels: int) -> bool:
        return self.out_channels >= max(CHANNELS, CHANNELS_A_PIXEL * pixels)

    def _multiply(self, x: Tensor, height: int, width: int) -> Tensor:
        (down, across), (above, left) = self.stride, (int(side) for side in self.padding)
        rows, columns = self.kernel_size
        last_row, last_column = down * (height - 1) + 1, across * (width - 1) + 1
        # Channels last, so that each position of the kernel copies whole pixels.
        x = F.pad(x.permute(0, 2, 3, 1), (0, 0, left, left, above, above))
        patches = [
            x[:, row : row + last_row : down, column : column + last_column : across]
            for row in range(rows)
            for column in range(columns)
        ]
        weight = self.weight.permute(0, 2, 3, 1).flatten(1)
        return F.linear(torch.cat(patches, dim=-1), weight, self.bias).permute(0, 3, 1, 2)


def use_small_map_convolutions(network: nn.Module) -> None:
    """Turn convolutions of many channels, but not those of 1×1, into `SmallMapConvolution`; their weights stay."""
    for part in network.modules():
        if type(part) is nn.Conv2d and _suits(part):
            part.__class__ = SmallMapConvolution  # a copy would draw initial weights again


def _suits(part: nn.Conv2d) -> bool:
    plain = part.groups == 1 and part.dilation == (1, 1) and part.padding_mode == "zeros" and part.kernel_size != (1, 1)
    return plain and not isinstance(part.padding, str) and part.out_channels >= CHANNELS
