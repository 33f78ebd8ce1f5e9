"""One pool of all images of a data set, from which partitions deal positions to clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fedwca.data.dataset import Domain, FederatedDataset, Images, Integers
from fedwca.data.split_domain import cut_at_groups
from fedwca.errors import DataError
from fedwca.functional.shard_partition import positions_by_value

Change = Callable[[Images], Images]
"""Maps images ``[n, H, W, 3]`` to as many changed ones, such as rotated ones."""


class ImagePool:
    """The N images of all domains, training and test parts alike, concatenated domain by domain.

    Args:
        dataset: the labelled data.

    Raises:
        DataError: domains have images of different sizes.
    """

    def __init__(self, dataset: FederatedDataset) -> None:
        domains = list(dataset.domains.values())
        if len({domain.images.shape[1:] for domain in domains}) > 1:
            sizes = ", ".join(
                f"{name} {' x '.join(map(str, d.images.shape[1:3]))}" for name, d in dataset.domains.items()
            )
            raise DataError(f"{dataset.name}: a pool needs images of one size, not {sizes}; resize them (resized)")
        self.name = dataset.name
        """Name of the data set."""
        self._images: list[Any] = [domain.images for domain in domains]
        self._starts = np.cumsum([0, *map(len, domains)])
        self.labels = np.concatenate([domain.labels for domain in domains])
        """``[N]`` int64."""
        # Group numbers hold across domains: variants of one base image may be in two domains.
        next_group = max((int(domain.groups.max()) + 1 for domain in domains if domain.groups is not None), default=0)
        single_groups = np.arange(self._starts[-1]) + next_group
        starts = self._starts[:-1]
        self.groups = np.concatenate(
            [
                single_groups[start : start + len(domain)] if domain.groups is None else domain.groups
                for start, domain in zip(starts, domains, strict=True)
            ]
        )
        """``[N]`` int64, see `Domain.groups`; each image of a domain without groups is a group of its own."""
        self.units = _of_all(domains, "units")
        """``[N]`` int64, see `Domain.units`; None unless all domains have them."""
        self.part = _of_all(domains, "part")
        """``[N]`` int64, see `Domain.part`; None unless all domains have it."""
        self._places = np.arange(len(self.labels))
        """Position of each image of the pool among the images of all domains."""
        self._count_groups()

    def _count_groups(self) -> None:
        _, first, member = np.unique(self.groups, return_index=True, return_inverse=True)
        self._first: Integers = first
        self._member: Integers = member

    def __len__(self) -> int:
        return len(self.labels)

    def base_positions(self, positions: Integers | None = None) -> Integers:
        """Positions of the first image of each group; with ``positions``, only those that are among them."""
        return self._first if positions is None else np.intersect1d(self._first, positions)

    def with_variants(self, dealt: Sequence[Integers]) -> list[Integers]:
        """Ascending positions of each client's images, given the first images of the groups that it was dealt."""
        owner = np.full(len(self._first), -1)
        for client, bases in enumerate(dealt):
            owner[self._member[bases]] = client
        positions = positions_by_value(owner[self._member])
        return [positions.get(client, np.zeros(0, np.int64)) for client in range(len(dealt))]

    def split_published(self, share: float, random: Generator) -> tuple[Integers, Integers]:
        """Positions of the published training and test part; without both parts, a random cut that keeps groups whole.

        Args:
            share: of the images that the second part of a random cut gets.
            random: draws the cut.
        """
        if self.part is not None and len(np.unique(self.part)) == 2:
            return np.flatnonzero(self.part == 0), np.flatnonzero(self.part == 1)
        first, second = self.split(self.shuffled(np.arange(len(self)), random), share)
        return np.sort(first), np.sort(second)

    def draw_apart(self, share: float, random: Generator) -> tuple[Integers, ImagePool]:
        """Draw a share of the images, groups whole: their positions, and a new pool of the remaining images."""
        remaining, drawn = self.split(self.shuffled(np.arange(len(self)), random), share)
        remaining = np.sort(remaining)
        pool = copy.copy(self)
        pool._places, pool.labels, pool.groups = self._places[remaining], self.labels[remaining], self.groups[remaining]
        pool.units, pool.part = (None if numbers is None else numbers[remaining] for numbers in (self.units, self.part))
        pool._count_groups()
        return drawn, pool

    def shuffled(self, positions: Integers, random: Generator) -> Integers:
        """The positions in random order, with the images of each group side by side."""
        _, member = np.unique(self.groups[positions], return_inverse=True)
        rank = random.permutation(int(member.max(initial=-1)) + 1)
        return positions[np.argsort(rank[member], kind="stable")]

    def split(self, positions: Integers, share: float) -> tuple[Integers, Integers]:
        """Cut positions ordered by group in two; the second has ``round(share · n)``, to the nearest group border."""
        cut = np.array([len(positions) - round(share * len(positions))])
        first, second = cut_at_groups(positions, self.groups, cut)
        return first, second

    def labels_at(self, positions: Integers) -> Tensor:
        """Labels of the images at ``positions`` ``[n]``."""
        return torch.from_numpy(self.labels[positions])

    def images(self, positions: Integers, change: Change | None = None) -> Tensor:
        """Images at ``positions`` ``[n, 3, H, W]`` uint8, channels last in memory, after ``change`` if it is given."""
        pixels = np.empty((len(positions), *self._images[0].shape[1:]), np.uint8)
        places = self._places[positions]
        for start, stop, images in zip(self._starts, self._starts[1:], self._images, strict=False):
            in_domain = (places >= start) & (places < stop)
            pixels[in_domain] = images[places[in_domain] - start]
        return torch.from_numpy(pixels if change is None else change(pixels)).permute(0, 3, 1, 2)


def _of_all(domains: Sequence[Domain], field: str) -> Integers | None:
    arrays = [getattr(domain, field) for domain in domains]
    return None if any(numbers is None for numbers in arrays) else np.concatenate(arrays)
