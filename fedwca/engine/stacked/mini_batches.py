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
from fedwca.engine.stacked.step_groups import StepGroup, group_neighbours, step_groups


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
        task, images = batch.task, batch.task.training.batch_size
        parts, least = [task.cut(size) for size in batch.sizes], batch.layout.least_images
        sizes = [part.stop - part.start for part in parts]
        counted_steps = task.training.steps
        self.epochs = epochs if counted_steps is None else range(1)
        """Those that are gone through; one where a round counts its steps, with all of them in it."""
        self.steps = counted_steps or -(-max(sizes) // images)
        """Steps of the client that has the most."""
        self._batch = images
        every = torch.arange(-(-max(batch.sizes) // images) * images, device=batch.device)
        behind = every >= batch.counts[:, None]
        if counted_steps is None:
            self.groups = [step_groups(sizes, step, images, least) for step in range(self.steps)]
            """Who does how many images, by step."""
            passes = epochs
            self.each = -(-batch.counts // images)
            """Steps of every client in an epoch ``[G]``."""
        else:
            each = [max(1, task.steps_of_pass(size, least)) for size in sizes]
            self.groups = [
                group_neighbours(
                    [min(images, size - step % own * images) for size, own in zip(sizes, each, strict=True)], least
                )
                for step in range(counted_steps)
            ]
            passes = range(-(-counted_steps // min(each)))
            self.each = to_device(each, batch.device)
        self.kinds: Counter[Hashable] = Counter(group for _ in self.epochs for some in self.groups for group in some)
        """How often the same clients do as many images."""
        order = torch.stack([_order(batch.keys(f"{ORDER}{number}"), every, behind) for number in passes])
        if task.training.cuts > 1:
            order = _take_parts(order, parts, self.steps * images, nowhere=max(batch.sizes))
        if counted_steps is not None:
            order = _join_passes(order, self.each, counted_steps, images)
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


def _join_passes(order: Tensor, each: Tensor, steps: int, images: int) -> Tensor:
    """Passes ``[E, G, n]`` in batches, one behind the other, as one of so many steps ``[1, G, steps·images]``.

    Args:
        order: of the images of each pass.
        each: steps of a pass of every client ``[G]``.
        steps: of the round.
        images: of a batch.
    """
    number = torch.arange(steps, device=order.device)
    first = number // each[:, None] * order.shape[2] + number % each[:, None] * images
    places = (first[..., None] + torch.arange(images, device=order.device)).flatten(1)
    return order.transpose(0, 1).flatten(1).gather(1, places)[None]
