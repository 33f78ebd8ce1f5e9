"""Clients that work at once: passes over all images of each, and the clients of several trials in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedwca.core.messages import Predictions
from fedwca.engine.batch_norm import recalibration_order
from fedwca.engine.client_task import Task
from fedwca.engine.device_copy import to_device
from fedwca.engine.precision import Phase
from fedwca.engine.randomness import keys_tensor
from fedwca.engine.stacked.network import StackedClassifiers, StackedInput, StackedNetwork
from fedwca.engine.stacked.packed_images import PackedImages
from fedwca.engine.stacked.split_leaves import split_leaves
from fedwca.engine.stacked.step_groups import group_neighbours, step_groups
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.vmap import Tree, UnequalTensors, join_trees, map_tree, name_two
from fedwca.errors import FedwcaError


class ClientBatch:
    """G clients in order of decreasing size.

    Args:
        network: runs their models.
        images: of all clients.
        clients: numbers of the G clients.
        labels: of all clients' images; None for clients without labels.
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
        """Labels of each client's images ``[N]``; None for a client without labels."""
        self.sizes = [images.sizes[client] for client in self.clients]
        self.device = images.images.device
        self.numbers = to_device(self.clients, self.device)
        self.counts = to_device(self.sizes, self.device)
        self.alike = group_neighbours(self.sizes)
        # Images per client in a pass: all clients together have about as many as ``passes`` passes of a single client,
        # and each has no more than one, which is what estimates of memory count.
        passes = min(4 if self.device.type == "cpu" else 16, len(self.clients))
        self.chunk = max(2, passes * network.network.eval_batch_size // max(1, len(self.clients)))

    def padded_labels(self) -> Tensor | None:
        """Labels ``[G, N]``, padded with 0 after a client's last image; None if no client has labels.

        Raises:
            FedwcaError: some clients have labels and others have none, so they cannot be trained together.
        """
        labels = [client_labels for client_labels in self.labels if client_labels is not None]
        if not labels:
            return None
        if len(labels) < len(self.labels):
            raise FedwcaError("clients with labels and clients without are not trained in one step")
        return pad_sequence(labels, batch_first=True)

    def named(self, models: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Trained parameters and BatchNorm statistics of models ``[G, P]`` by name, as views."""
        layout = self.layout
        return {s.name: s.of(models) for s in layout.parameters}, {s.name: s.of(models) for s in layout.statistics}

    @torch.no_grad()
    def outputs(self, models: Tensor, phase: Phase | None = None) -> Predictions:
        """Predictions of each client's model ``[G, P]``: logits ``[G, N, M]``, features ``[G, N, q]``."""
        parameters, statistics = self.named(models)

        def forward(active: int, x: Tensor) -> tuple[Tensor, Tensor]:
            p, s = ({name: t[:active] for name, t in tensors.items()} for tensors in (parameters, statistics))
            logits, features, _ = self.network(p, s, StackedInput(x), phase=phase)
            return logits, features

        return self._pass_over_images(forward)

    @torch.no_grad()
    def outputs_of_one(self, model: Tensor, phase: Phase | None) -> Predictions:
        """Predictions of one model ``[P]`` for all clients: an ordinary pass over all clients' images, concatenated."""
        parameters, statistics = self.named(model[None])

        def forward(active: int, x: Tensor) -> tuple[Tensor, Tensor]:
            logits, features, _ = self.network(parameters, statistics, StackedInput(x.flatten(0, 1)[None]), phase=phase)
            return logits[0].unflatten(0, x.shape[:2]), features[0].unflatten(0, x.shape[:2])

        return self._pass_over_images(forward)

    def pull_back(self, models: Tensor, slopes: Tensor) -> Tensor:
        """Gradient of each model's base network ``[G, base]`` in eval mode, computed chunk by chunk.

        Args:
            models: of the clients ``[G, P]``.
            slopes: derivatives of the losses with respect to the logits ``[G, N, M]``; 0 after a client's last image.
        """
        base = self.layout.base
        total = torch.zeros_like(models[:, base])
        for first, active, x in self._chunks():
            leaf, parameters, statistics = split_leaves(self.layout, models[:active], base)
            logits, _, _ = self.network(parameters, statistics, StackedInput(x))
            chunk_slopes = slopes[:active, first : first + x.shape[1]]
            total[:active] += torch.autograd.grad(logits, leaf, chunk_slopes)[0]
        return total

    def _chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        """Iterate over all images in chunks.

        Yields the place of a chunk's first image, the number of clients that have an image there, and these clients'
        images as `Network.extract` reads them ``[active, n, …]``; a client with fewer has its last image repeated.
        """
        network, longest, clients = self.network.network, max(1, *self.sizes), len(self.clients)
        for first in range(0, longest, self.chunk):
            active = sum(size > first for size in self.sizes) or clients
            places = torch.arange(first, min(first + self.chunk, longest), device=self.device)
            places = places.minimum((self.counts[:active, None] - 1).clamp_min(0))
            yield first, active, self.images.shown(network, self.numbers[:active], places)

    def _pass_over_images(self, forward: Callable[[int, Tensor], tuple[Tensor, Tensor]]) -> Predictions:
        """Predictions of all images in eval mode, chunk by chunk; rows after a client's last image are undefined."""
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
        size = max(2, network.eval_batch_size)
        orders = pad_sequence([recalibration_order(count, size) for count in self.sizes], batch_first=True)
        orders = to_device(orders, self.device)
        for step in range(-(-max(self.sizes) // size)):
            for group in step_groups(self.sizes, step, size):
                # A few clients at a time, since each has a chunk as large as in `Replica.recalibrate`.
                for first in range(group.first, group.stop, max(1, self.chunk * len(self.clients) // size)):
                    stop = min(group.stop, first + max(1, self.chunk * len(self.clients) // size))
                    places = orders[first:stop, step * size : step * size + group.images]
                    x = self.images.shown(network, self.numbers[first:stop], places)
                    p, s = self.named(models[first:stop])
                    share = models.new_full((stop - first,), group.images / (step * size + group.images))
                    _, _, new_statistics = self.network(p, s, StackedInput(x), True, share)
                    for name, value in new_statistics.items():
                        s[name].copy_(value)


class TrialBatch:
    """G clients that are trained in one step, in order of decreasing size; they are of one trial or of several.

    Args:
        batches: one for each trial, with images in one tensor; for a single trial nothing is copied or reordered.
        tasks: of the clients of each trial; all of one method and with the same training.
    """

    def __init__(self, batches: Sequence[ClientBatch], tasks: Sequence[Sequence[Task]]) -> None:
        first = batches[0]
        self.network, self.layout, self.device, self._images = first.network, first.layout, first.device, first.images
        self.task = tasks[0][0]
        """The first client's task, for what is the same for all of them."""
        self._counts = [len(batch.sizes) for batch in batches]
        sizes = [size for batch in batches for size in batch.sizes]
        # The position of each client in the concatenated trials, and the inverse permutation.
        places = sorted(range(len(sizes)), key=lambda client: -sizes[client])
        self.sizes = [sizes[client] for client in places]
        self._order = to_device(places if self.several else [], self.device)
        self._back = self._order.argsort() if self.several else self._order
        all_tasks = [task for trial_tasks in tasks for task in trial_tasks]
        self._tasks = [all_tasks[place] for place in places]
        self._keys: dict[str, Tensor] = {}
        self.counts: Tensor = self.join([batch.counts for batch in batches])
        """Images of each client ``[G]``."""
        self._starts: Tensor = self.join([batch.images.starts[batch.numbers] for batch in batches])
        networks = [batch.network.origin for batch in batches]
        shared_classifier = first.network.network.trains_classifier or all(
            n.classifier is networks[0].classifier for n in networks
        )
        self.classifiers = None if shared_classifier else StackedClassifiers.of(networks, self._counts)[self._order]
        """Each client's frozen classifier; None: all have the same one, or classifiers are trained."""

    @property
    def several(self) -> bool:
        """Whether there is more than one trial."""
        return len(self._counts) > 1

    def join(self, parts: Sequence[Tree]) -> Tree:
        """Join trees of tensors ``[G_t, …]``, one per trial, to one of ``[G, …]``; shorter tensors are padded."""
        return map_tree(lambda values: values[self._order], join_trees(parts)) if self.several else parts[0]

    def split(self, tree: Tree) -> list[Tree]:
        """Split a tree of all clients into those of each trial, the inverse of `join`."""
        if not self.several:
            return [tree]
        pieces = map_tree(lambda values: list(values[self._back].split(self._counts)), tree)
        return [map_tree(lambda values, i=i: values[i], pieces) for i in range(len(self._counts))]  # type: ignore[misc]

    def join_named(self, kind: str, parts: Sequence[Mapping[str, Tensor | UnequalTensors]]) -> Mapping[str, Tensor]:
        """As `join`, for values by name that must have the same shape at all clients.

        Raises:
            FedwcaError: clients have values of different shapes; ``kind`` names them in the message.
        """
        for name in parts[0]:
            shapes = {tuple(value.shape) for part in parts for value in part[name].unbind()}
            if len(shapes) > 1 and self.several:
                raise FedwcaError(
                    f"{kind} {name!r} have shapes such as {name_two(shapes)} in trials that go through a round "
                    "together; take --trials-at-once 1"
                )
        joined: Mapping[str, Tensor] = self.join(parts)
        return joined

    def join_targets(self, parts: Sequence[Mapping[str, Tree]]) -> dict[str, Tree]:
        """As `join`, for targets, whose notes are not padded.

        Raises:
            FedwcaError: clients have notes of different shapes.
        """
        if not self.several:
            return dict(parts[0])
        joined = self.join([{name: value for name, value in part.items() if name != "notes"} for part in parts])
        return {**joined, "notes": self.join_named("notes", [part["notes"] for part in parts])}

    def context(self, parts: Sequence[StackedContext]) -> StackedContext:
        """The contexts of all trials as one; values shared in a trial are repeated for each of its clients."""
        if not self.several:
            return parts[0]
        shared = [
            {name: value.expand(count, *value.shape) for name, value in part.shared.items()}
            for part, count in zip(parts, self._counts, strict=True)
        ]
        return StackedContext(
            self.join_targets([part.targets for part in parts]),
            self.join([part.taught for part in parts]),
            self.join_named("anchors", [part.anchors for part in parts]),
            self.join_named("observations", [part.observed for part in parts]),
            self.join_named("shared values", shared),
        )

    def keys(self, purpose: str) -> Tensor:
        """Each client's key for a purpose ``[G]`` int64; computed and copied to the device once."""
        if purpose not in self._keys:
            self._keys[purpose] = keys_tensor((task.keys(purpose) for task in self._tasks), self.device)
        return self._keys[purpose]

    def take(self, rows: slice, places: Tensor) -> Tensor:
        """Images at ``places [g, B]`` of the clients in ``rows``, concatenated: ``[g·B, 3, H, W]``."""
        return self._images.at(self._starts[rows], places)

    def take_embedded(self, rows: slice, places: Tensor) -> Tensor:
        """A frozen backbone's embeddings ``[g, B, out_features]`` of images at ``places [g, B]`` of ``rows``."""
        return self._images.embedded_at(self._starts[rows], places)


def _padded(values: Tensor, clients: int) -> Tensor:
    """Values ``[G, …]``, with rows of zeros for ``clients`` further clients."""
    return torch.cat([values, values.new_zeros(clients, *values.shape[1:])]) if clients else values
