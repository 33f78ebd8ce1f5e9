"""Privacy of a client's update and of its moments: they are clipped and get noise before anything leaves the client."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

from fedwca.engine.parameter_layout import Layout


@dataclass(frozen=True)
class Privacy:
    """Clipping and noise, added by the client before anything leaves it."""

    clip: float
    """Largest L2 norm; of an update, trained parameters and BatchNorm statistics together."""
    noise: float = 0.0
    """Standard deviation of the Gaussian noise in units of ``clip``."""

    def __call__(self, values: Tensor) -> Tensor:
        """Numbers ``[P]`` clipped together, with noise that nobody else can draw again."""
        shrunk = values * min(1.0, self.clip / max(float(values.norm()), 1e-12))
        return shrunk + draw_secret_normal(values) * (self.noise * self.clip)


def draw_secret_normal(like: Tensor) -> Tensor:
    """Standard normal numbers of a tensor's shape and type, each from 52 bits of the operating system's randomness.

    There is no seed: whoever knows one, or can try them all, could take the noise away again.
    """
    bits = torch.frombuffer(bytearray(secrets.token_bytes(8 * like.numel())), dtype=torch.int64)
    uniform = (bits & (1 << 52) - 1).double().add_(0.5).mul_(2.0**-52)  # never 0 or 1, where the quantile is infinite
    normal: Tensor = torch.special.ndtri(uniform)
    return normal.reshape(like.shape).to(like)


def clamp_variances(row: Tensor, layout: Layout) -> None:
    """Make the running variances of a model ``[P]`` positive in place.

    Noise may make one negative: the model would be useless to everybody.
    """
    for _, variance in layout.norms:
        variance.of(row).clamp_(min=math.sqrt(torch.finfo(row.dtype).tiny))
