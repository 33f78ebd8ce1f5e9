"""BatchNorm for many models at once: over only the rows of a batch that count, with running statistics as values."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedwca.core.network import Network


class CountedRows(NamedTuple):
    """Which rows of a batch count in the statistics, for all BatchNorm layers of a model."""

    share: Tensor
    """Weight of each row in a mean ``[B, 1]``: 1 / ``number`` if it counts, else 0."""
    number: Tensor
    """Number of rows that count ``[]``."""

    @classmethod
    def of(cls, rows: Tensor, dtype: torch.dtype = torch.float32) -> CountedRows:
        """From a mask ``rows [B]`` bool, for statistics of type ``dtype``."""
        mask = rows.to(dtype)
        number = mask.sum()
        return cls((mask / number)[:, None], number)


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
        """Weight of the batch in the new running statistics."""
        self.fresh: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[B, c, …]``; the shape stays the same."""
        shape = (1, -1, *(1,) * (x.ndim - 2))
        mean, var = self.running_mean, self.running_var
        wide = x.to(mean.dtype)
        if self.training:
            mean, var = self._measure(wide)
        # One scale and one shift per channel, for a single pass over the activations.
        scale = self.weight * torch.rsqrt(var + self.eps)
        shift = self.bias - mean * scale
        return torch.addcmul(shift.view(shape), wide, scale.view(shape)).to(x.dtype)

    def _measure(self, x: Tensor) -> tuple[Tensor, Tensor]:
        dims = [d for d in range(x.ndim) if d != 1]
        positions = x[0, 0].numel()
        if self.rows is None:
            n: Tensor | int = len(x) * positions
            var, mean = torch.var_mean(x, dims, correction=0)
        else:
            # Moments of each row first, for a single pass over the activations and no other tensor of their size.
            spatial, share = list(range(2, x.ndim)), self.rows.share
            row_vars, row_means = torch.var_mean(x, spatial, correction=0) if spatial else (torch.zeros_like(x), x)
            mean = (row_means * share).sum(0)
            deviation = row_means - mean
            var = (torch.addcmul(row_vars, deviation, deviation) * share).sum(0)
            n = self.rows.number * positions
        with torch.no_grad():
            unbiased = var * (n / (n - 1))
            # A layer that is used twice in a pass updates its statistics twice, as torch's does.
            running_mean, running_var = self.fresh or (self.running_mean, self.running_var)
            # A Python number as momentum stays one: the host would wait for its copy to the device in every step.
            running = running_mean.lerp(mean, self.momentum), running_var.lerp(unbiased, self.momentum)
        self.fresh = running[0].detach(), running[1].detach()
        return mean, var


def replace_batch_norm(network: Network) -> dict[str, MaskedBatchNorm]:
    """Replace each BatchNorm that is not frozen by a `MaskedBatchNorm`, and return the new modules by name.

    A module that has several names is returned by the first, which is that of its tensors.
    """
    first_names = {module: name for name, module in network.trained_modules() if isinstance(module, _BatchNorm)}
    replacements = {module: MaskedBatchNorm(module) for module in first_names}
    for name, module in list(network.named_modules(remove_duplicate=False)):
        if module in replacements:
            parent, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(parent), attribute, replacements[module])
    return {name: replacements[module] for module, name in first_names.items()}
