"""All images of a data set under one number each, to be dealt to clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fedwca.data.dataset import Domain, FederatedDataset, Images, Integers
from fedwca.data.partition import cut_at_groups
from fedwca.functional.shard_partition import positions_by_value

Change = Callable[[Images], Images]
"""Images ``[n, H, W, 3]`` to as many that look otherwise."""


class ImagePool:
    """The images of all domains, published parts too, one domain behind the other; N of them.

    Args:
        dataset: holds them.
    """

    def __init__(self, dataset: FederatedDataset) -> None:
        domains = list(dataset.domains.values())
        self.name = dataset.name
        """Of the data set."""
        self._images: list[Any] = [domain.images for domain in domains]
        self._starts = np.cumsum([0, *map(len, domains)])
        self.labels = np.concatenate([domain.labels for domain in domains])
        """``[N]`` int64."""
        # A group is one in all domains: variants of one base may be in two of them.
        behind = max((int(domain.groups.max()) + 1 for domain in domains if domain.groups is not None), default=0)
        alone = np.arange(self._starts[-1]) + behind
        cuts = self._starts[:-1]
        self.groups = np.concatenate(
            [
                alone[start : start + len(domain)] if domain.groups is None else domain.groups
                for start, domain in zip(cuts, domains, strict=True)
            ]
        )
        """``[N]`` int64, see `Domain.groups`; an image without variants is a group of its own."""
        self.units = _of_all(domains, "units")
        """``[N]`` int64, see `Domain.units`; None unless all domains say them."""
        self.part = _of_all(domains, "part")
        """``[N]`` int64, see `Domain.part`; None unless all domains say it."""
        self._places = np.arange(len(self.labels))
        """Where each image is among those of all domains."""
        self._count_groups()

    def _count_groups(self) -> None:
        _, first, member = np.unique(self.groups, return_index=True, return_inverse=True)
        self._first: Integers = first
        self._member: Integers = member

    def __len__(self) -> int:
        return len(self.labels)

    def bases(self, among: Integers | None = None) -> Integers:
        """The first image of each group, of those among some images; None: of all."""
        return self._first if among is None else np.intersect1d(self._first, among)

    def with_variants(self, dealt: Sequence[Integers]) -> list[Integers]:
        """What clients have that were dealt first images of groups: these groups whole, ascending."""
        owner = np.full(len(self._first), -1)
        for client, own in enumerate(dealt):
            owner[self._member[own]] = client
        found = positions_by_value(owner[self._member])
        return [found.get(client, np.zeros(0, np.int64)) for client in range(len(dealt))]

    def cut(self, share: float, random: Generator) -> tuple[Integers, Integers]:
        """The published training and test part; where there are not both of them, a random cut, groups whole.

        Args:
            share: of the second, where it is cut.
            random: draws the cut.
        """
        if self.part is not None and len(np.unique(self.part)) == 2:
            return np.flatnonzero(self.part == 0), np.flatnonzero(self.part == 1)
        first, second = self.split(self.shuffled(np.arange(len(self)), random), share)
        return np.sort(first), np.sort(second)

    def draw_apart(self, share: float, random: Generator) -> tuple[Integers, ImagePool]:
        """Positions of a share of the images, groups whole, and the pool of the others, numbered anew."""
        rest, drawn = self.split(self.shuffled(np.arange(len(self)), random), share)
        rest = np.sort(rest)
        others = copy.copy(self)
        others._places, others.labels, others.groups = self._places[rest], self.labels[rest], self.groups[rest]
        others.units, others.part = (None if own is None else own[rest] for own in (self.units, self.part))
        others._count_groups()
        return drawn, others

    def shuffled(self, positions: Integers, random: Generator) -> Integers:
        """The positions in a drawn order, those of a group side by side."""
        _, member = np.unique(self.groups[positions], return_inverse=True)
        rank = random.permutation(int(member.max(initial=-1)) + 1)
        return positions[np.argsort(rank[member], kind="stable")]

    def split(self, positions: Integers, share: float) -> tuple[Integers, Integers]:
        """Images in two parts, the second of ``round(share · n)``, groups whole."""
        cut = np.array([len(positions) - round(share * len(positions))])
        first, second = cut_at_groups(positions, self.groups, cut)
        return first, second

    def truth(self, positions: Integers) -> Tensor:
        """Labels of some images."""
        return torch.from_numpy(self.labels[positions])

    def images(self, positions: Integers, change: Change | None = None) -> Tensor:
        """Some images ``[n, 3, H, W]`` uint8, channels last in memory; None: as they are."""
        found = np.empty((len(positions), *self._images[0].shape[1:]), np.uint8)
        places = self._places[positions]
        for start, stop, images in zip(self._starts, self._starts[1:], self._images, strict=False):
            here = (places >= start) & (places < stop)
            found[here] = images[places[here] - start]
        return torch.from_numpy(found if change is None else change(found)).permute(0, 3, 1, 2)


def _of_all(domains: Sequence[Domain], field: str) -> Integers | None:
    found = [getattr(domain, field) for domain in domains]
    return None if any(numbers is None for numbers in found) else np.concatenate(found)
