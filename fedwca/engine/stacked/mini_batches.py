"""Mini-batches: which images come in which step, known for all steps between two labellings before the first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedwca.engine.client_task import ORDER
from fedwca.engine.device_copy import to_device
from fedwca.engine.randomness import uniform
from fedwca.engine.stacked.client_batch import TrialBatch
from fedwca.engine.stacked.step_groups import StepGroup, step_groups


class StepSchedule:
    """Which images come in which step of some epochs, and how many of them are mixed.

    How many there are is asked of the device once, if labels mix images at all.

    Args:
        batch: who is trained.
        mix: how much of each of their images is another's ``[G, N]``.
        epochs: those between two labellings.
        counted: False: nothing is asked, and steps have a place for each image to be mixed.
    """

    def __init__(self, batch: TrialBatch, mix: Tensor, epochs: range, counted: bool = True) -> None:
        images, parts = batch.task.training.batch_size, [batch.task.cut(size) for size in batch.sizes]
        sizes = [part.stop - part.start for part in parts]
        self.epochs, self.steps = epochs, -(-max(sizes) // images)
        """Steps of the largest client."""
        self.groups = [step_groups(sizes, step, images) for step in range(self.steps)]
        """Who does how many images, by step."""
        self.kinds: Counter[Hashable] = Counter(group for _ in epochs for some in self.groups for group in some)
        """How often the same clients do as many images."""
        self._batch = images
        self.each = -(-batch.counts // images)
        """Steps of every client in an epoch ``[G]``."""
        every = torch.arange(-(-max(batch.sizes) // images) * images, device=batch.device)
        behind = every >= batch.counts[:, None]
        order = torch.stack([_order(batch.keys(f"{ORDER}{epoch}"), every, behind) for epoch in epochs])
        if batch.task.training.cuts > 1:
            order = _take_parts(order, parts, self.steps * images, nowhere=max(batch.sizes))
        self.order = order
        """Images in the order they come ``[E, G, steps·batch]``; what stands behind the last one means nothing."""
        self._mixes = batch.task.labeler.mixes
        self._mixed = self._count(mix) if self._mixes and counted else []

    def _count(self, mix: Tensor) -> list[Any]:
        """Mixed images by epoch, step and client; the host waits for them."""
        clients, images = mix.shape
        places = max(images, int(self.order.shape[-1])) + 1
        mixed = torch.cat([mix > 0, mix.new_zeros(clients, places - images, dtype=torch.bool)], 1)
        chosen = mixed.gather(1, self.order.transpose(0, 1).flatten(1))
        found: list[Any] = chosen.unflatten(1, (len(self.epochs), self.steps, self._batch)).sum(-1).tolist()
        return found

    def places(self, epoch: int, step: int, group: StepGroup) -> int:
        """Places for mixed images that each client of a group has in a step."""
        if not self._mixes:
            return 0
        at = epoch - self.epochs.start
        return max(own[at][step] for own in self._mixed[group.first : group.stop]) if self._mixed else group.images

    def values(self, epoch: int, step: int, group: StepGroup) -> tuple[Tensor, Tensor]:
        """What tells a step from others like it: its images ``[g, B]``, and how many each client has behind it."""
        rows, at = slice(group.first, group.stop), step * self._batch
        return self.order[epoch - self.epochs.start, rows, at : at + group.images], epoch * self.each[rows] + step


def _order(keys: Tensor, places: Tensor, behind: Tensor) -> Tensor:
    """`fedwca.engine.randomness.permutation` of each client's images ``[G, n]``, those behind the last one after it."""
    return uniform(keys[:, None], places[None]).masked_fill(behind, 2.0).argsort(dim=1, stable=True)


def _take_parts(order: Tensor, parts: Sequence[slice], width: int, nowhere: int) -> Tensor:
    """Of each client's order ``[E, G, n]`` its part, from the first place on ``[E, G, width]``.

    Args:
        order: of all images.
        parts: of each client.
        width: of the longest part, in full batches.
        nowhere: what stands behind the end of a part: the number of no image, so that nobody counts it as mixed.
    """
    starts, stops = (to_device([getattr(part, end) for part in parts], order.device) for end in ("start", "stop"))
    places = starts[:, None] + torch.arange(width, device=order.device)
    taken = order.gather(2, places.clamp_max(order.shape[2] - 1).expand(len(order), -1, -1))
    return taken.masked_fill(places >= stops[:, None], nowhere)
