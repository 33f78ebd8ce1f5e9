"""Images of many clients in one tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from fedwca.core.network import Network
from fedwca.engine.embeddings import embed_images


class PackedImages:
    """Images of all clients, concatenated on the device: nothing is padded, and any selection is one gather.

    Images that several clients share are stored once.

    Args:
        images: of each client ``[N, 3, H, W]`` uint8.
        device: where they are kept.
        network: if its backbone is frozen, the images' embeddings are stored too.
        trials: number of trials that the clients belong to, in equal parts.
    """

    def __init__(self, images: Sequence[Tensor], device: torch.device, network: Network, trials: int = 1) -> None:
        self.sizes = [len(x) for x in images]
        unique = {id(x): x for x in images}  # clients with the same image tensor share it
        lengths = [len(x) for x in unique.values()]
        places = dict(zip(unique, torch.tensor([0, *lengths]).cumsum(0).tolist(), strict=False))
        size, layout = (sum(lengths), *images[0].shape[1:]), torch.channels_last
        # Filled piece by piece, since there may be no memory for two copies of all images.
        self.images = torch.empty(size, dtype=images[0].dtype, device=device, memory_format=layout)
        for target, x in zip(self.images.split(lengths), unique.values(), strict=True):
            target.copy_(x)
        self._places = [places[id(x)] for x in images]
        self.starts = torch.tensor(self._places).to(device)
        self._embedded = embed_images(network, [self.images], trials)[0] if network.backbone.frozen else None

    @classmethod
    def several(cls, trials: Sequence[Sequence[Tensor]], device: torch.device, network: Network) -> list[PackedImages]:
        """The packed images of each trial's clients, all in the same tensor."""
        packed, parts = cls([x for images in trials for x in images], device, network, len(trials)), []
        client = 0
        for images in trials:
            part, members = copy.copy(packed), slice(client, client + len(images))
            part.sizes, part.starts, part._places = (
                packed.sizes[members],
                packed.starts[members],
                packed._places[members],
            )
            client += len(images)
            parts.append(part)
        return parts

    def each(self) -> list[Tensor]:
        """The images of each client, as views."""
        return [self.images[start : start + size] for start, size in zip(self._places, self.sizes, strict=True)]

    def shown(self, network: Network, clients: Tensor, places: Tensor) -> Tensor:
        """Plain images at ``places [G, B]`` of clients ``[G]`` as `Network.extract` reads them ``[G, B, …]``."""
        starts = self.starts[clients]
        if self._embedded is not None:
            return self.embedded_at(starts, places)
        return torch.unflatten(network.plain_inputs(self.at(starts, places)), 0, places.shape)

    def embedded_at(self, starts: Tensor, places: Tensor) -> Tensor:
        """A frozen backbone's embeddings ``[G, B, out_features]`` of images at ``places [G, B]`` after ``starts``."""
        assert self._embedded is not None
        return self._embedded[(starts[:, None] + places).to(self._embedded.device)].to(starts.device)

    def at(self, starts: Tensor, places: Tensor) -> Tensor:
        """Images at ``places [G, B]`` after ``starts [G]``, concatenated: ``[G·B, 3, H, W]``."""
        return self.images[(starts[:, None] + places).flatten()]
