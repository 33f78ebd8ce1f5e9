"""Made-up parameter vectors of clients."""

import torch
from torch import Tensor


def collinear(groups: int, members: int, size: int, gap: float, seed: int) -> tuple[Tensor, Tensor]:
    """Clients around one source: 1-cos about gap²/2 between groups, a tenth of the angle within."""
    draw = torch.Generator().manual_seed(seed)
    source = torch.randn(size, generator=draw, dtype=torch.float64)
    shift = torch.randn(groups, size, generator=draw, dtype=torch.float64)
    own = torch.randn(groups, members, size, generator=draw, dtype=torch.float64)
    x = (source + gap * (shift[:, None] + 0.1 * own)).flatten(0, 1)
    truth = torch.arange(groups).repeat_interleave(members)
    order = torch.randperm(len(x), generator=draw)
    return x[order], truth[order]
