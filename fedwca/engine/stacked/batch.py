"""Clients that work at once: forward passes over all images of each, by models of their own or by one for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedwca.core.messages import Predictions
from fedwca.engine.device_copy import to_device
from fedwca.engine.precision import Phase
from fedwca.engine.stacked.images import PackedImages, equal_size_groups, step_groups
from fedwca.engine.stacked.network import StackedNetwork


class ClientBatch:
    """G clients in order of falling size.

    Args:
        network: runs their models.
        pile: their images.
        clients: their numbers.
    """

    def __init__(self, network: StackedNetwork, pile: PackedImages, clients: Sequence[int]) -> None:
        self.network, self.pile, self.layout = network, pile, network.layout
        self.clients = list(clients)
        self.sizes = [pile.sizes[client] for client in self.clients]
        self.device = pile.images.device
        self.numbers = to_device(self.clients, self.device)
        self.counts = to_device(self.sizes, self.device)
        self.alike = equal_size_groups(self.sizes)
        # About as many images a pass as one client alone would do at four passes at once, spread over the clients.
        passes = 4 if self.device.type == "cpu" else 16
        self.chunk = max(2, passes * network.network.chunk // max(1, len(self.clients)))

    def named(self, models: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Trained parameters and BatchNorm statistics of models ``[G, P]`` by name, as views."""
        layout = self.layout
        return {s.name: s.of(models) for s in layout.parameters}, {s.name: s.of(models) for s in layout.statistics}

    @torch.no_grad()
    def outputs(self, models: Tensor, phase: Phase | None = None) -> Predictions:
        """Predictions of each client's model ``[G, P]``: logits ``[G, N, M]``, features ``[G, N, q]``; see `_sweep`."""
        parameters, statistics = self.named(models)

        def forward(active: int, x: Tensor) -> tuple[Tensor, Tensor]:
            p, s = ({name: t[:active] for name, t in named.items()} for named in (parameters, statistics))
            logits, features, _ = self.network(p, s, x, phase=phase)
            return logits, features

        return self._sweep(forward)

    @torch.no_grad()
    def outputs_of_one(self, model: Tensor, phase: Phase | None = None) -> Predictions:
        """Predictions of one model ``[P]`` for everybody: an ordinary pass over all clients' images, end to end."""
        parameters, statistics = self.named(model[None])

        def forward(active: int, x: Tensor) -> tuple[Tensor, Tensor]:
            logits, features, _ = self.network(parameters, statistics, x.flatten(0, 1)[None], phase=phase)
            return logits[0].unflatten(0, x.shape[:2]), features[0].unflatten(0, x.shape[:2])

        return self._sweep(forward)

    def _sweep(self, forward: Callable[[int, Tensor], tuple[Tensor, Tensor]]) -> Predictions:
        """All images in eval mode, chunk by chunk; rows behind a client's last image mean nothing."""
        parts: list[tuple[Tensor, Tensor]] = []
        network, longest, clients = self.network.network, max(1, *self.sizes), len(self.clients)
        for first in range(0, longest, self.chunk):
            active = sum(size > first for size in self.sizes) or clients
            places = torch.arange(first, min(first + self.chunk, longest), device=self.device)
            places = places.minimum((self.counts[:active, None] - 1).clamp_min(0))
            x = network.prepare(self.pile.take(self.numbers[:active], places)).unflatten(0, places.shape)
            logits, features = forward(active, x)
            idle = clients - active
            parts.append((_padded(logits, idle), _padded(features, idle)))
        return Predictions(torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1))

    @torch.no_grad()
    def recalibrate(self, models: Tensor) -> None:
        """Replace the statistics of each model ``[G, P]`` by those of its client's images, as `Replica.recalibrate`."""
        network = self.network.network
        if not self.layout.statistics:
            return
        batch = network.chunk
        for step in range(-(-max(self.sizes) // batch)):
            for span in step_groups(self.sizes, step, batch):
                # Some clients at a time: a chunk is as large as that of a client alone.
                for first in range(span.first, span.stop, max(1, self.chunk * len(self.clients) // batch)):
                    stop = min(span.stop, first + max(1, self.chunk * len(self.clients) // batch))
                    places = (step * batch + torch.arange(span.images, device=self.device)).expand(stop - first, -1)
                    x = network.prepare(self.pile.take(self.numbers[first:stop], places)).unflatten(0, places.shape)
                    p, s = self.named(models[first:stop])
                    share = torch.full((stop - first,), span.images / (step * batch + span.images), device=self.device)
                    _, _, fresh = self.network(p, s, x, training=True, momentum=share.to(models.dtype))
                    for name, value in fresh.items():
                        s[name].copy_(value)


def _padded(values: Tensor, clients: int) -> Tensor:
    """``[G, …]`` with rows of zeros for further clients."""
    return torch.cat([values, values.new_zeros(clients, *values.shape[1:])]) if clients else values
