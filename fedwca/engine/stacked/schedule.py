"""What is known of the steps between two labellings before the first of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor

from fedwca.engine.randomness import uniform
from fedwca.engine.stacked.images import StepGroup, step_groups
from fedwca.engine.stacked.targets import StackedContext
from fedwca.engine.stacked.trial_batch import TrialBatch


class StepSchedule:
    """Which images come in which step of some epochs, and how many of them are mixed.

    How many there are is asked of the device once, if labels mix images at all.

    Args:
        cohort: who is trained.
        lesson: what they are trained towards.
        epochs: those between two labellings.
        counted: False: nothing is asked, and steps have a place for each image to be mixed.
    """

    def __init__(self, cohort: TrialBatch, lesson: StackedContext, epochs: range, counted: bool = True) -> None:
        sizes, batch = cohort.sizes, cohort.task.training.batch_size
        self.epochs, self.steps = epochs, -(-max(sizes) // batch)
        """Steps of the largest client."""
        self.spans = [step_groups(sizes, step, batch) for step in range(self.steps)]
        """Who does how many images, by step."""
        self.kinds: Counter[Hashable] = Counter(span for _ in epochs for some in self.spans for span in some)
        """How often the same clients do as many images."""
        self._batch = batch
        self.each = -(-cohort.counts // batch)
        """Steps of every client ``[G]``."""
        every = torch.arange(self.steps * batch, device=cohort.device)
        behind = every >= cohort.counts[:, None]
        self.order = torch.stack([_order(cohort.keys(f"order {epoch}"), every, behind) for epoch in epochs])
        """Images in the order they come ``[E, G, steps·batch]``; what stands behind the last one means nothing."""
        self._mixes = cohort.task.labeler.mixes
        self._mixed = self._count(lesson.targets.mix) if self._mixes and counted else []

    def _count(self, mix: Tensor) -> list[Any]:
        """Mixed images by epoch, step and client; the host waits for them."""
        clients, images = mix.shape
        mixed = torch.cat([mix > 0, mix.new_zeros(clients, self.order.shape[-1] - images, dtype=torch.bool)], 1)
        chosen = mixed.gather(1, self.order.transpose(0, 1).flatten(1))
        found: list[Any] = chosen.unflatten(1, (len(self.epochs), self.steps, self._batch)).sum(-1).tolist()
        return found

    def places(self, epoch: int, step: int, span: StepGroup) -> int:
        """Places for mixed images that each client of a span has in a step."""
        if not self._mixes:
            return 0
        at = epoch - self.epochs.start
        return max(own[at][step] for own in self._mixed[span.first : span.stop]) if self._mixed else span.images

    def values(self, epoch: int, step: int, span: StepGroup) -> tuple[Tensor, Tensor]:
        """What tells a step from others like it: its images ``[g, B]``, and how many each client has behind it."""
        rows, at = slice(span.first, span.stop), step * self._batch
        return self.order[epoch - self.epochs.start, rows, at : at + span.images], epoch * self.each[rows] + step


def _order(keys: Tensor, places: Tensor, behind: Tensor) -> Tensor:
    """`fedwca.engine.randomness.permutation` of each client's images ``[G, n]``, those behind the last one after it."""
    return uniform(keys[:, None], places[None]).masked_fill(behind, 2.0).argsort(dim=1, stable=True)
