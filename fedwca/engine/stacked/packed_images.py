"""Images of many clients in one tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.engine.embeddings import embed_images


class PackedImages:
    """Images of all clients end to end on the device: nothing is padded, any choice of them is one gather. What several
    clients have is there once.

    Args:
        images: of each client ``[N, 3, H, W]`` uint8.
        device: where they are kept.
        network: what a frozen backbone of it makes of them is kept beside them.
    """

    def __init__(self, images: Sequence[Tensor], device: torch.device, network: Network) -> None:
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
        self._embedded = embed_images(network, [self.images])[0] if network.backbone.frozen else None

    @classmethod
    def several(cls, trials: Sequence[Sequence[Tensor]], device: torch.device, network: Network) -> list[PackedImages]:
        """One pile for each trial's clients, all of them lying in the same tensor."""
        whole, found, client = cls([own for images in trials for own in images], device, network), [], 0
        for images in trials:
            own, here = copy.copy(whole), slice(client, client + len(images))
            own.sizes, own.starts, own._places = whole.sizes[here], whole.starts[here], whole._places[here]
            client += len(images)
            found.append(own)
        return found

    def each(self) -> list[Tensor]:
        """The images of each client, as views."""
        return [self.images[start : start + size] for start, size in zip(self._places, self.sizes, strict=True)]

    def shown(self, network: Network, clients: Tensor, places: Tensor) -> Tensor:
        """Plain images at ``places [G, B]`` of clients ``[G]`` as `Network.extract` reads them ``[G, B, …]``."""
        starts = self.starts[clients]
        if self._embedded is not None:
            return self.embedded_at(starts, places)
        return torch.unflatten(network.show(self.at(starts, places)), 0, places.shape)

    def embedded_at(self, starts: Tensor, places: Tensor) -> Tensor:
        """What a frozen backbone made of images at ``places [G, B]`` behind ``starts [G]``: ``[G, B, width]``."""
        assert self._embedded is not None
        return self._embedded[(starts[:, None] + places).to(self._embedded.device)].to(starts.device)

    def at(self, starts: Tensor, places: Tensor) -> Tensor:
        """Images at ``places [G, B]`` behind ``starts [G]``, end to end: ``[G·B, 3, H, W]``."""
        return self.images[(starts[:, None] + places).flatten()]
