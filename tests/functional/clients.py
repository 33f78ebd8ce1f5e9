"""Random parameter vectors of clients."""

import torch
from torch import Tensor


def collinear(groups: int, members: int, size: int, gap: float, seed: int) -> tuple[Tensor, Tensor]:
    """Clients' vectors ``[K, P]`` near one source vector, and the group of each client ``[K]``, in random order.

    1 - cos is about gap²/2 between groups; within a group the angle is a tenth of that between groups.
    """
    draw = torch.Generator().manual_seed(seed)
    source = torch.randn(size, generator=draw, dtype=torch.float64)
    shift = torch.randn(groups, size, generator=draw, dtype=torch.float64)
    individual = torch.randn(groups, members, size, generator=draw, dtype=torch.float64)
    x = (source + gap * (shift[:, None] + 0.1 * individual)).flatten(0, 1)
    truth = torch.arange(groups).repeat_interleave(members)
    order = torch.randperm(len(x), generator=draw)
    return x[order], truth[order]
