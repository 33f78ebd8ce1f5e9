"""BatchNorm for many models at once: over places of a batch that hold an image, its statistics as values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedwca.core.network import Network


class CountedRows(NamedTuple):
    """Which rows of a batch count, for all BatchNorm layers of a model."""

    share: Tensor
    """What each is of those that count ``[B, 1]``."""
    number: Tensor
    """How many do ``[]``."""

    @classmethod
    def of(cls, rows: Tensor, dtype: torch.dtype = torch.float32) -> CountedRows:
        """Of ``rows`` ``[B]`` bool, for statistics of a type."""
        real = rows.to(dtype)
        number = real.sum()
        return cls((real / number)[:, None], number)


class MaskedBatchNorm(nn.Module):
    """BatchNorm over the rows of a batch that are real; new running statistics are left in ``fresh``.

    Torch's own module updates its statistics in place, which cannot be done for many models at once, and has no masks.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.running_mean: Tensor
        self.running_var: Tensor
        self.eps = norm.eps
        self.standard = 0.1 if norm.momentum is None else norm.momentum
        self.rows: CountedRows | None = None
        """Which rows count; None: all."""
        self.momentum: Tensor | float = self.standard
        """Share of the batch in the new running statistics."""
        self.fresh: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``[B, c, …]`` in the same shape."""
        shape = (1, -1, *(1,) * (x.ndim - 2))
        mean, var = self.running_mean, self.running_var
        wide = x.to(mean.dtype)
        if self.training:
            mean, var = self._measure(wide)
        # Two factors a channel, so that activations are passed over once.
        scale = self.weight * torch.rsqrt(var + self.eps)
        shift = self.bias - mean * scale
        return torch.addcmul(shift.view(shape), wide, scale.view(shape)).to(x.dtype)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        over = [d for d in range(x.ndim) if d != 1]
        places = x[0, 0].numel()
        if self.rows is None:
            n: Tensor | int = len(x) * places
            var, mean = torch.var_mean(x, over, correction=0)
        else:
            # Moments of each row first: activations are passed over once, and nothing else of their size is kept.
            inside, share = list(range(2, x.ndim)), self.rows.share
            own, each = torch.var_mean(x, inside, correction=0) if inside else (torch.zeros_like(x), x)
            mean = (each * share).sum(0)
            apart = each - mean
            var = (torch.addcmul(own, apart, apart) * share).sum(0)
            n = self.rows.number * places
        with torch.no_grad():
            unbiased = var * (n / (n - 1))
            # A number stays one: made a tensor, it would be waited for on its way to the device in every step.
            new = self.running_mean.lerp(mean, self.momentum), self.running_var.lerp(unbiased, self.momentum)
        self.fresh = new[0].detach(), new[1].detach()
        return mean, var


def replace_batch_norm(network: Network) -> dict[str, MaskedBatchNorm]:
    """Put a `MaskedBatchNorm` for each BatchNorm that is not frozen; the new modules by name."""
    kept = set(network.backbone.modules()) if network.backbone.frozen else set()
    found = {}
    for name, module in list(network.named_modules()):
        if isinstance(module, _BatchNorm) and module not in kept:
            owner, _, own = name.rpartition(".")
            found[name] = MaskedBatchNorm(module)
            setattr(network.get_submodule(owner), own, found[name])
    return found
