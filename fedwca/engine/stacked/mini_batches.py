"""Mini-batches: which images come in which step, computed in advance for all steps between two labellings."""

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

    The numbers of mixed images are read from the device once, and only if the labeler mixes images.

    Args:
        batch: the clients that are trained.
        mix: weight of the partner in each of their images ``[G, N]``.
        epochs: those between two labellings.
        counted: False: nothing is read, and steps have a place to mix each of their images.
    """

    def __init__(self, batch: TrialBatch, mix: Tensor, epochs: range, counted: bool = True) -> None:
        task, images = batch.task, batch.task.training.batch_size
        parts, least = [task.cut(size) for size in batch.sizes], batch.layout.least_images
        sizes = [part.stop - part.start for part in parts]
        counted_steps = task.training.steps
        self.epochs = epochs if counted_steps is None else range(1)
        """The epochs of the schedule; with `Training.steps` a single one with all steps of the round."""
        self.steps = counted_steps or -(-max(sizes) // images)
        """Number of steps of the client that has the most."""
        self._batch = images
        places = torch.arange(-(-max(batch.sizes) // images) * images, device=batch.device)
        is_padding = places >= batch.counts[:, None]
        if counted_steps is None:
            self.groups = [step_groups(sizes, step, images, least) for step in range(self.steps)]
            """Who does how many images, by step."""
            self.each = -(-batch.counts // images)
            """Steps of every client in an epoch ``[G]``."""
            order = torch.stack([_order(batch.keys(f"{ORDER}{number}"), places, is_padding) for number in epochs])
            if task.training.rounds_per_epoch > 1:
                order = _take_parts(order, parts, self.steps * images, nowhere=max(batch.sizes))
        else:
            steps_per_pass = [max(1, task.steps_of_pass(size, least)) for size in sizes]
            self.groups = [
                group_neighbours(
                    [min(images, size - step % n * images) for size, n in zip(sizes, steps_per_pass, strict=True)],
                    least,
                )
                for step in range(counted_steps)
            ]
            self.each = to_device(steps_per_pass, batch.device)
            order = batch.counts.new_zeros(len(sizes), counted_steps * images + 1)
            for number in range(-(-counted_steps // min(steps_per_pass))):
                # Later passes are those of the smallest clients, which come last.
                first = next(i for i, n in enumerate(steps_per_pass) if number * n < counted_steps)
                width = -(-sizes[first] // images) * images
                drawn = _order(batch.keys(f"{ORDER}{number}")[first:], places[:width], is_padding[first:, :width])
                _append_pass(order[first:], drawn, number, self.each[first:] * images)
            order = order[None, :, :-1]
        self.kinds: Counter[Hashable] = Counter(
            group for _ in self.epochs for groups in self.groups for group in groups
        )
        """How often each group occurs in all steps."""
        self.order = order
        """Images in the order they come ``[E, G, steps·batch]``; values after a client's last image are undefined."""
        self._mixes = batch.task.labeler.mixes
        self._mixed = self._count(mix) if self._mixes and counted else []

    def _count(self, mix: Tensor) -> list[Any]:
        """Numbers of mixed images by client, epoch and step, which the host waits for."""
        clients, images = mix.shape
        width = max(images, int(self.order.shape[-1])) + 1
        mixed = torch.cat([mix > 0, mix.new_zeros(clients, width - images, dtype=torch.bool)], 1)
        in_order = mixed.gather(1, self.order.transpose(0, 1).flatten(1))
        counts: list[Any] = in_order.unflatten(1, (len(self.epochs), self.steps, self._batch)).sum(-1).tolist()
        return counts

    def places(self, epoch: int, step: int, group: StepGroup) -> int:
        """Number of places for mixed images that each client of a group has in a step."""
        if not self._mixes:
            return 0
        index = epoch - self.epochs.start
        return (
            max(counts[index][step] for counts in self._mixed[group.first : group.stop])
            if self._mixed
            else group.images
        )

    def values(self, epoch: int, step: int, group: StepGroup) -> tuple[Tensor, Tensor]:
        """What differs between steps of a kind: images ``[g, B]`` and each client's number of earlier steps ``[g]``."""
        rows, start = slice(group.first, group.stop), step * self._batch
        return self.order[epoch - self.epochs.start, rows, start : start + group.images], epoch * self.each[rows] + step


def _order(keys: Tensor, places: Tensor, is_padding: Tensor) -> Tensor:
    """`fedwca.engine.randomness.permutation` of each client's images ``[G, n]``, followed by padding."""
    return uniform(keys[:, None], places[None]).masked_fill(is_padding, 2.0).argsort(dim=1, stable=True)


def _take_parts(order: Tensor, parts: Sequence[slice], width: int, nowhere: int) -> Tensor:
    """Each client's part of its order ``[E, G, n]``, moved to the front ``[E, G, width]``.

    Args:
        order: of all images.
        parts: of each client.
        width: that of the longest part, in full batches.
        nowhere: value after the end of a part: an index of no image, so that it never counts as mixed.
    """
    starts, stops = (to_device([getattr(part, end) for part in parts], order.device) for end in ("start", "stop"))
    places = starts[:, None] + torch.arange(width, device=order.device)
    taken = order.gather(2, places.clamp_max(order.shape[2] - 1).expand(len(order), -1, -1))
    return taken.masked_fill(places >= stops[:, None], nowhere)


def _append_pass(order: Tensor, drawn: Tensor, number: int, width: Tensor) -> None:
    """Write one pass over each client's images to its place among the images of all steps, in place.

    Args:
        order: images of all steps, and a last column for what has no place ``[g, steps·batch + 1]``.
        drawn: of the pass ``[g, n]``.
        number: of the pass, from 0.
        width: images of each client's pass, in full batches ``[g]``.
    """
    columns = torch.arange(drawn.shape[1], device=order.device)
    places = number * width[:, None] + columns
    places.masked_fill_((columns >= width[:, None]) | (places >= order.shape[1] - 1), order.shape[1] - 1)
    order.scatter_(1, places, drawn)
