"""Clients that work at once: forward passes over all images of each, and those of several trials in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedwca.core.messages import Predictions
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_device
from fedwca.engine.precision import Phase
from fedwca.engine.randomness import keys_tensor
from fedwca.engine.stacked.network import StackedClassifiers, StackedInput, StackedNetwork
from fedwca.engine.stacked.packed_images import PackedImages
from fedwca.engine.stacked.split_leaves import split_leaves
from fedwca.engine.stacked.step_groups import equal_size_groups, step_groups
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.vmap import Tree, join_trees, map_tree
from fedwca.errors import FedwcaError


class ClientBatch:
    """G clients in order of falling size.

    Args:
        network: runs their models.
        images: of all clients.
        clients: their numbers.
        labels: of all clients' images, as far as they have any.
    """

    def __init__(
        self,
        network: StackedNetwork,
        images: PackedImages,
        clients: Sequence[int],
        labels: Sequence[Tensor | None] = (),
    ) -> None:
        self.network, self.images, self.layout = network, images, network.layout
        self.clients = list(clients)
        self.labels = [labels[client] for client in clients] if labels else [None] * len(clients)
        """Of each client's images ``[N]``; None of one that has none."""
        self.sizes = [images.sizes[client] for client in self.clients]
        self.device = images.images.device
        self.numbers = to_device(self.clients, self.device)
        self.counts = to_device(self.sizes, self.device)
        self.alike = equal_size_groups(self.sizes)
        # About as many images a pass as one client alone would do at four passes at once, spread over the clients.
        passes = 4 if self.device.type == "cpu" else 16
        self.chunk = max(2, passes * network.network.chunk // max(1, len(self.clients)))

    def padded_labels(self) -> Tensor | None:
        """Labels side by side ``[G, N]``, what stands behind a client's last image being 0; None where nobody has any.

        Raises:
            FedwcaError: some have labels and others have none, so they are not trained alike.
        """
        known = [own for own in self.labels if own is not None]
        if not known:
            return None
        if len(known) < len(self.labels):
            raise FedwcaError("clients with labels and clients without are not trained in one step")
        return pad_sequence(known, batch_first=True)

    def named(self, models: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Trained parameters and BatchNorm statistics of models ``[G, P]`` by name, as views."""
        layout = self.layout
        return {s.name: s.of(models) for s in layout.parameters}, {s.name: s.of(models) for s in layout.statistics}

    @torch.no_grad()
    def outputs(self, models: Tensor, phase: Phase | None = None) -> Predictions:
        """Predictions of each client's model ``[G, P]``: logits ``[G, N, M]``, features ``[G, N, q]``."""
        parameters, statistics = self.named(models)

        def forward(active: int, x: Tensor) -> tuple[Tensor, Tensor]:
            p, s = ({name: t[:active] for name, t in named.items()} for named in (parameters, statistics))
            logits, features, _ = self.network(p, s, StackedInput(x), phase=phase)
            return logits, features

        return self._pass_over_images(forward)

    @torch.no_grad()
    def outputs_of_one(self, model: Tensor, phase: Phase | None = None) -> Predictions:
        """Predictions of one model ``[P]`` for everybody: an ordinary pass over all clients' images, end to end."""
        parameters, statistics = self.named(model[None])

        def forward(active: int, x: Tensor) -> tuple[Tensor, Tensor]:
            logits, features, _ = self.network(parameters, statistics, StackedInput(x.flatten(0, 1)[None]), phase=phase)
            return logits[0].unflatten(0, x.shape[:2]), features[0].unflatten(0, x.shape[:2])

        return self._pass_over_images(forward)

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """Gradient of each model's base network ``[G, base]`` in eval mode, chunk by chunk.

        Args:
            models: the clients' ``[G, P]``.
            slopes: derivatives of what is descended in the logits of their images ``[G, N, M]``; 0 behind a client's
                last one.
        """
        base = self.layout.base
        total = torch.zeros_like(models[:, base])
        for first, active, x in self._chunks():
            leaf, parameters, statistics = split_leaves(self.layout, models[:active], base)
            logits, _, _ = self.network(parameters, statistics, StackedInput(x))
            own = slopes[:active, first : first + x.shape[1]]
            total[:active] += torch.autograd.grad(logits, leaf, own)[0]
        return total

    def _chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        """All images in some at a time: the first one's place, how many clients have that, and their images as
        `Network.extract` reads them ``[active, n, …]``, where a client has fewer its last one again.
        """
        network, longest, clients = self.network.network, max(1, *self.sizes), len(self.clients)
        for first in range(0, longest, self.chunk):
            active = sum(size > first for size in self.sizes) or clients
            places = torch.arange(first, min(first + self.chunk, longest), device=self.device)
            places = places.minimum((self.counts[:active, None] - 1).clamp_min(0))
            yield first, active, self.images.shown(network, self.numbers[:active], places)

    def _pass_over_images(self, forward: Callable[[int, Tensor], tuple[Tensor, Tensor]]) -> Predictions:
        """All images in eval mode, chunk by chunk; rows behind a client's last image mean nothing."""
        parts: list[tuple[Tensor, Tensor]] = []
        for _, active, x in self._chunks():
            logits, features = forward(active, x)
            idle = len(self.clients) - active
            parts.append((_padded(logits, idle), _padded(features, idle)))
        return Predictions(torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1))

    @torch.no_grad()
    def recalibrate(self, models: Tensor) -> None:
        """Replace the statistics of each model ``[G, P]`` by those of its client's images, as `Replica.recalibrate`."""
        network = self.network.network
        if not self.layout.statistics:
            return
        batch = max(2, network.chunk)
        for step in range(-(-max(self.sizes) // batch)):
            for group in step_groups(self.sizes, step, batch):
                # Some clients at a time: a chunk is as large as that of a client alone.
                for first in range(group.first, group.stop, max(1, self.chunk * len(self.clients) // batch)):
                    stop = min(group.stop, first + max(1, self.chunk * len(self.clients) // batch))
                    places = (step * batch + torch.arange(group.images, device=self.device)).expand(stop - first, -1)
                    x = self.images.shown(network, self.numbers[first:stop], places)
                    p, s = self.named(models[first:stop])
                    share = torch.full(
                        (stop - first,), group.images / (step * batch + group.images), device=self.device
                    )
                    _, _, fresh = self.network(p, s, StackedInput(x), True, share.to(models.dtype))
                    for name, value in fresh.items():
                        s[name].copy_(value)


class TrialBatch:
    """G clients that are trained in one step, in order of falling size: those of one trial, or of several side by side.

    Args:
        batches: of each trial; with images in one tensor. Of one alone nothing is copied or reordered.
        tasks: what each of their clients is to do; of one method, and one way of training.
    """

    def __init__(self, batches: Sequence[ClientBatch], tasks: Sequence[Sequence[Task]]) -> None:
        first = batches[0]
        self.network, self.layout, self.device, self._images = first.network, first.layout, first.device, first.images
        self.task = tasks[0][0]
        """What is the same for all of them."""
        self._counts = [len(batch.sizes) for batch in batches]
        sizes = [size for batch in batches for size in batch.sizes]
        # Where each client is among those of the trials, one trial behind the other, and the way back.
        places = sorted(range(len(sizes)), key=lambda client: -sizes[client])
        self.sizes = [sizes[client] for client in places]
        self._order = to_device(places if self.several else [], self.device)
        self._back = self._order.argsort() if self.several else self._order
        every = [task for some in tasks for task in some]
        self._tasks = [every[place] for place in places]
        self._keys: dict[str, Tensor] = {}
        self.counts: Tensor = self.join([batch.counts for batch in batches])
        """Images of each client ``[G]``."""
        self._starts: Tensor = self.join([batch.images.starts[batch.numbers] for batch in batches])
        networks = [batch.network.origin for batch in batches]
        alike = first.network.network.whole or all(one.classifier is networks[0].classifier for one in networks)
        self.heads = None if alike else StackedClassifiers.of(networks, self._counts)[self._order]
        """Their frozen classifiers; None: one for all, or each model has its own among its parameters."""

    @property
    def several(self) -> bool:
        """Whether there is more than one trial."""
        return len(self._counts) > 1

    def join(self, parts: Sequence[Tree]) -> Tree:
        """Trees of tensors ``[G_t, …]`` of each trial's clients as one of ``[G, …]``, shorter tensors filled up."""
        return map_tree(lambda values: values[self._order], join_trees(parts)) if self.several else parts[0]

    def split(self, tree: Tree) -> list[Tree]:
        """The opposite of `join`."""
        if not self.several:
            return [tree]
        pieces = map_tree(lambda values: list(values[self._back].split(self._counts)), tree)
        return [map_tree(lambda own, i=i: own[i], pieces) for i in range(len(self._counts))]  # type: ignore[misc]

    def join_named(self, what: str, parts: Sequence[Mapping[str, Tensor]]) -> Mapping[str, Tensor]:
        """As `join`, for values by name that have one shape at all clients.

        Raises:
            FedwcaError: trials have values of different shapes; ``what`` says which.
        """
        for name in parts[0]:
            shapes = {tuple(part[name].shape[1:]) for part in parts}
            if len(shapes) > 1 and self.several:
                raise FedwcaError(
                    f"{what} {name!r} have shapes {', '.join(map(str, sorted(shapes)))} in trials that go through a "
                    "round together; take --trials-at-once 1"
                )
        found: Mapping[str, Tensor] = self.join(parts)
        return found

    def context(self, parts: Sequence[StackedContext]) -> StackedContext:
        """What the trials' clients are trained towards, as one; what a trial's clients shared becomes each's."""
        if not self.several:
            return parts[0]
        shared = [
            {name: value.expand(count, *value.shape) for name, value in part.shared.items()}
            for part, count in zip(parts, self._counts, strict=True)
        ]
        return StackedContext(
            self.join([part.targets for part in parts]),
            self.join([part.taught for part in parts]),
            self.join_named("anchors", [part.anchors for part in parts]),
            self.join_named("observations", [part.observed for part in parts]),
            self.join_named("shared values", shared),
        )

    def keys(self, purpose: str) -> Tensor:
        """Each client's key of its draws ``[G]`` int64; made and sent to the device once."""
        if purpose not in self._keys:
            self._keys[purpose] = keys_tensor((task.keys(purpose) for task in self._tasks), self.device)
        return self._keys[purpose]

    def take(self, rows: slice, places: Tensor) -> Tensor:
        """Images at ``places [g, B]`` of some clients, end to end: ``[g·B, 3, H, W]``."""
        return self._images.at(self._starts[rows], places)

    def take_embedded(self, rows: slice, places: Tensor) -> Tensor:
        """What a frozen backbone made of images at ``places [g, B]`` of some clients ``[g, B, width]``."""
        return self._images.embedded_at(self._starts[rows], places)


def _padded(values: Tensor, clients: int) -> Tensor:
    """``[G, …]`` with rows of zeros for further clients."""
    return torch.cat([values, values.new_zeros(clients, *values.shape[1:])]) if clients else values
