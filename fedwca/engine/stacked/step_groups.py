"""Which neighbouring clients of unequal size do equally many images in a step, so that they share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StepGroup:
    """Neighbouring clients of a batch that do the same number of images in a step."""

    first: int
    stop: int
    """First client behind it."""
    images: int
    """Of each client in this step."""


def step_groups(sizes: Sequence[int], step: int, batch: int, least: int = 2) -> list[StepGroup]:
    """Who does how many images in a step of ``batch`` images, for clients in order of falling size.

    Full batches come first, last ones are grouped by what is left; a single image is left out where BatchNorm needs
    two.

    >>> step_groups([9, 8, 6, 6, 3], 1, 4)
    [StepGroup(first=0, stop=2, images=4), StepGroup(first=2, stop=4, images=2)]
    """
    return group_neighbours([min(batch, size - step * batch) for size in sizes], least)


def group_neighbours(counts: Sequence[int], least: int = 0) -> list[StepGroup]:
    """Neighbours that do the same number of images, at least so many; others are left out.

    >>> group_neighbours([4, 2, 2, 0], 1)
    [StepGroup(first=0, stop=1, images=4), StepGroup(first=1, stop=3, images=2)]
    """
    found: list[StepGroup] = []
    for client, images in enumerate(counts):
        if images < least:
            continue
        if found and found[-1].images == images and found[-1].stop == client:
            found[-1] = StepGroup(found[-1].first, client + 1, images)
        else:
            found.append(StepGroup(client, client + 1, images))
    return found


def equal_size_groups(sizes: Sequence[int]) -> list[StepGroup]:
    """Neighbours with the same number of images, for clients in order of falling size; nobody is left out.

    >>> equal_size_groups([5, 5, 1])
    [StepGroup(first=0, stop=2, images=5), StepGroup(first=2, stop=3, images=1)]
    """
    return group_neighbours(sizes)
