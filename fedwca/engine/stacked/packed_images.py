"""Images of many clients in one tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor


class PackedImages:
    """Images of all clients end to end on the device: nothing is padded, any choice of them is one gather. What several
    clients have is there once.

    Args:
        images: of each client ``[N, 3, H, W]`` uint8.
        device: where they are kept.
    """

    def __init__(self, images: Sequence[Tensor], device: torch.device) -> None:
        self.sizes = [len(own) for own in images]
        every = {id(own): own for own in images}  # clients that have the very same images share them
        lengths = [len(own) for own in every.values()]
        places = dict(zip(every, torch.tensor([0, *lengths]).cumsum(0).tolist(), strict=False))
        size, layout = (sum(lengths), *images[0].shape[1:]), torch.channels_last
        # Filled piece by piece: images are many, and there is no room for them twice.
        self.images = torch.empty(size, dtype=images[0].dtype, device=device, memory_format=layout)
        for here, own in zip(self.images.split(lengths), every.values(), strict=True):
            here.copy_(own)
        self._places = [places[id(own)] for own in images]
        self.starts = torch.tensor(self._places).to(device)

    @classmethod
    def several(cls, trials: Sequence[Sequence[Tensor]], device: torch.device) -> list[PackedImages]:
        """One pile for each trial's clients, all of them lying in the same tensor."""
        whole, found, client = cls([own for images in trials for own in images], device), [], 0
        for images in trials:
            own, here = copy.copy(whole), slice(client, client + len(images))
            own.sizes, own.starts, own._places = whole.sizes[here], whole.starts[here], whole._places[here]
            client += len(images)
            found.append(own)
        return found

    def each(self) -> list[Tensor]:
        """The images of each client, as views."""
        return [self.images[start : start + size] for start, size in zip(self._places, self.sizes, strict=True)]

    def take(self, clients: Tensor, places: Tensor) -> Tensor:
        """Images at ``places [G, B]`` of clients ``[G]``, end to end: ``[G·B, 3, H, W]``."""
        return self.at(self.starts[clients], places)

    def at(self, starts: Tensor, places: Tensor) -> Tensor:
        """Images at ``places [G, B]`` behind ``starts [G]``, end to end: ``[G·B, 3, H, W]``."""
        return self.images[(starts[:, None] + places).flatten()]
