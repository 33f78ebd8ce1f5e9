"""Convolutions of many models as one batched matrix product, where grouped convolutions are slow."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedwca.core.network import Network


class ProductConv(nn.Module):
    """A convolution that can be a matrix product over unfolded patches (im2col): under vmap one product for all models.

    The sums are those of `torch.nn.Conv2d`, in another order.

    Args:
        convolution: with one group and zeros beyond the border, see `fits`; its weights are taken over.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias = convolution.weight, convolution.bias
        self.kernel, self.stride = convolution.kernel_size, convolution.stride
        self.padding: tuple[int, ...] = tuple(map(int, convolution.padding))
        self.dilation = convolution.dilation
        self.products = True
        """Whether it is one now; else it is torch's own convolution."""

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether a module is a convolution that this can stand in for."""
        return (
            isinstance(module, nn.Conv2d)
            and module.groups == 1
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        )

    def forward(self, x: Tensor) -> Tensor:
        """``[B, c, H, W]`` to ``[B, o, H', W']``."""
        if not self.products:
            return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation)
        sides = zip(x.shape[-2:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = ((n + 2 * pad - gap * (k - 1) - 1) // step + 1 for n, k, step, pad, gap in sides)
        if self.kernel == (1, 1) and self.stride == (1, 1) and self.padding == (0, 0):
            patches = x.flatten(2)
        else:
            patches = F.unfold(x, self.kernel, self.dilation, self.padding, self.stride)
        out: Tensor = self.weight.flatten(1) @ patches
        out = out if self.bias is None else out + self.bias[:, None]
        return torch.unflatten(out, -1, (height, width))


def as_products(network: Network) -> list[ProductConv]:
    """Put a `ProductConv` for every convolution that is not frozen and that one fits; the new modules."""
    found: list[ProductConv] = []
    kept = set(network.backbone.modules()) if network.backbone.frozen else set()
    for name, module in list(network.named_modules()):
        if ProductConv.fits(module) and module not in kept:
            owner, _, own = name.rpartition(".")
            assert isinstance(module, nn.Conv2d)
            found.append(ProductConv(module))
            setattr(network.get_submodule(owner), own, found[-1])
    return found
