"""Images of many clients in one tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor


class PackedImages:
    """Images of all clients end to end on the device: nothing is padded, any choice of them is one gather.

    Args:
        images: of each client ``[N, 3, H, W]`` uint8.
        device: where they are kept.
    """

    def __init__(self, images: Sequence[Tensor], device: torch.device) -> None:
        self.sizes = [len(own) for own in images]
        size, layout = (sum(self.sizes), *images[0].shape[1:]), torch.channels_last
        # Filled piece by piece: images are many, and there is no room for them twice.
        self.images = torch.empty(size, dtype=images[0].dtype, device=device, memory_format=layout)
        for here, own in zip(self.images.split(self.sizes), images, strict=True):
            here.copy_(own)
        self.starts = torch.tensor([0, *self.sizes]).cumsum(0)[:-1].to(device)
        self.first = 0
        """Where the first client's images begin; other trials' may lie before and behind."""

    @classmethod
    def several(cls, trials: Sequence[Sequence[Tensor]], device: torch.device) -> list[PackedImages]:
        """One pile for each trial's clients, all of them lying in the same tensor."""
        whole, found, client = cls([own for images in trials for own in images], device), [], 0
        first = 0
        for images in trials:
            own = copy.copy(whole)
            own.sizes = whole.sizes[client : client + len(images)]
            own.starts, own.first = whole.starts[client : client + len(images)], first
            client, first = client + len(images), first + sum(own.sizes)
            found.append(own)
        return found

    def each(self) -> list[Tensor]:
        """The images of each client, as views."""
        return list(self.images[self.first : self.first + sum(self.sizes)].split(self.sizes))

    def take(self, clients: Tensor, places: Tensor) -> Tensor:
        """Images at ``places [G, B]`` of clients ``[G]``, end to end: ``[G·B, 3, H, W]``."""
        return self.at(self.starts[clients], places)

    def at(self, starts: Tensor, places: Tensor) -> Tensor:
        """Images at ``places [G, B]`` behind ``starts [G]``, end to end: ``[G·B, 3, H, W]``."""
        return self.images[(starts[:, None] + places).flatten()]
