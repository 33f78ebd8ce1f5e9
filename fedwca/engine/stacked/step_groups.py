"""Groups of neighbouring clients with equally many images in a step, which can then share the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepGroup:
    """Neighbouring clients of a batch with the same number of images in a step."""

    first: int
    stop: int
    """First client after the group."""
    images: int
    """Images of each client in this step."""


def step_groups(sizes: Sequence[int], step: int, batch: int, least: int = 2) -> list[StepGroup]:
    """Groups of clients with the same number of images in a step, for clients in order of decreasing size.

    Clients with a full batch of ``batch`` images come first; those with a smaller last batch are grouped by its size.
    Batches of fewer than ``least`` images are left out, since BatchNorm needs two.

    >>> step_groups([9, 8, 6, 6, 3], 1, 4)
    [StepGroup(first=0, stop=2, images=4), StepGroup(first=2, stop=4, images=2)]
    """
    return group_neighbours([min(batch, size - step * batch) for size in sizes], least)


def group_neighbours(counts: Sequence[int], least: int = 0) -> list[StepGroup]:
    """Groups of neighbours with the same number of images; those with fewer than ``least`` are left out.

    >>> group_neighbours([4, 2, 2, 0], 1)
    [StepGroup(first=0, stop=1, images=4), StepGroup(first=1, stop=3, images=2)]
    """
    groups: list[StepGroup] = []
    for client, images in enumerate(counts):
        if images < least:
            continue
        if groups and groups[-1].images == images and groups[-1].stop == client:
            groups[-1] = StepGroup(groups[-1].first, client + 1, images)
        else:
            groups.append(StepGroup(client, client + 1, images))
    return groups
