"""Clipping and noise for a client's update and its moments, applied before they are uploaded."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout
from fedwca.errors import FedwcaError


@dataclass(frozen=True)
class Privacy:
    """Clips a client's upload and adds Gaussian noise."""

    clip: float
    """Largest L2 norm; for an update it is over trained parameters and BatchNorm statistics together."""
    noise: float = 0.0
    """Standard deviation of the Gaussian noise in units of ``clip``."""

    def __call__(self, values: Tensor) -> Tensor:
        """Return the values ``[P]``, clipped to one L2 norm, plus noise that has no seed.

        Raises:
            FedwcaError: their norm is not finite, so that they cannot be clipped.
        """
        # In float32 the squares of a ResNet's values add up to too little, and what is uploaded would be too long.
        norm = float(torch.linalg.vector_norm(values, dtype=torch.float64))
        if not math.isfinite(norm):
            raise FedwcaError("values that are not finite cannot be clipped, so this client uploads nothing")
        clipped = values * min(1.0, self.clip / max(norm, 1e-12))
        return clipped + draw_secret_normal(values) * (self.noise * self.clip)


def draw_secret_normal(like: Tensor) -> Tensor:
    """Return standard normal numbers of a tensor's shape and type, each from 52 bits of the system's randomness.

    There is no seed: anyone who knew it, or could try all seeds, could subtract the noise.
    """
    bits = torch.frombuffer(bytearray(secrets.token_bytes(8 * like.numel())), dtype=torch.int64)
    uniform = (bits & (1 << 52) - 1).double().add_(0.5).mul_(2.0**-52)  # never 0 or 1, where the quantile is infinite
    normal: Tensor = torch.special.ndtri(uniform)
    return normal.reshape(like.shape).to(like)


def clamp_variances(row: Tensor, layout: Layout) -> None:
    """Clamp the running variances of a model ``[P]`` to positive values, in place.

    Noise may make a variance negative, and the model would then predict NaN.
    """
    for _, variance in layout.norms:
        variance.of(row).clamp_(min=math.sqrt(torch.finfo(row.dtype).tiny))
