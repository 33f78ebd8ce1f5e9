"""Labelled clients that train, and new ones with images alone, from all images of a data set pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fedwca.data.dataset import FederatedDataset, Integers
from fedwca.data.metrics import Metrics
from fedwca.data.partition import ClientImages, Federation, cut_at_groups
from fedwca.errors import DataError, UsageError

TRAINING, NEW = "training clients", "new clients"
"""What records and tables call the two groups."""
VALIDATION = 0.15
"""Share of a training client's images that are kept aside to measure it. Source: FedTTA, sec. 5.1 (85:15)."""
MOST_DRAWS = 100
"""Deals of which one has to leave no training client without images."""

Deal = Callable[[Integers, int, Generator, Integers], Sequence[Integers]]
"""Labels ``[N]``, a number of clients, where draws come from, and groups ``[N]`` (see `Domain.groups`), to positions of
each client's images."""


def labelled_clients(
    dataset: FederatedDataset,
    deal: Deal,
    *,
    clients: int,
    new_clients: int | None = None,
    samples: int | None = None,
    seed: int,
    validation: float | None = None,
    public: float = 0.0,
) -> Federation:
    """Deal all images to clients, of which some train, drawn at random, and the others are new ones.

    Public images are drawn before that, groups whole, and are dealt to nobody.

    A training client's images are split in training and validation images, ``round(share · n)`` of them, groups whole;
    the latter are what it is measured on, its ``test``. A new client is measured on all its images. Labels of both are
    in the metrics alone, which count the new clients.

    Args:
        dataset: all its domains are pooled, published parts too.
        deal: gives images to clients.
        clients: that train, at least 1.
        new_clients: at least 1; None: as many as train.
        samples: most images per client, before the split; None: as many as it is dealt.
        seed: 0 or more.
        validation: share of the images, from 0 to below 1; None: `VALIDATION`.
        public: share of the images that everybody has, from 0 to below 1; their labels are nobody's.

    Raises:
        UsageError: a number is out of its bounds, or the images do not suffice for the deal.
        DataError: a client that trains has fewer than 2 images in every deal that was tried.
    """
    new = clients if new_clients is None else new_clients
    share = VALIDATION if validation is None else validation
    if not 0 <= public < 1:
        raise UsageError(
            f"{dataset.name}: a public part of {public:g} of the images leaves none for clients; it is a share from 0 "
            "to below 1, such as 0.1"
        )
    if clients < 1 or new < 1 or seed < 0 or (samples is not None and samples < 1) or not 0 <= share < 1:
        raise UsageError(
            "labelled clients need clients >= 1, new_clients >= 1, samples >= 1, seed >= 0 and 0 <= validation < 1, "
            f"not clients={clients}, new_clients={new}, samples={samples}, seed={seed}, validation={share}"
        )
    pool, random = _Pool(dataset), np.random.default_rng([seed])
    everybodys, left = pool.draw(public, random)
    if public and (len(everybodys) < 2 or len(left) < clients + new):
        raise UsageError(
            f"{dataset.name}: {len(everybodys)} of {len(pool.labels)} images are public, and {len(left)} are left for "
            f"{clients + new} clients; two public ones and one a client are the least, so take another partition.public"
        )
    for _ in range(MOST_DRAWS):
        dealt = deal(pool.labels[left], clients + new, random, pool.groups[left])
        order = random.permutation(clients + new)
        shuffled = [pool.shuffled(left[dealt[place]], random)[:samples] for place in order]
        training = shuffled[:clients]
        if all(len(own) > 1 for own in training):
            break
    else:
        raise DataError(
            f"{dataset.name}: a client that trains would have fewer than 2 images, in {MOST_DRAWS} deals; take fewer "
            "--clients or --new-clients, or a partition that is less skewed"
        )
    splits = [pool.split(own, share) for own in training]
    images = [ClientImages(pool.images(a), pool.images(a[:0]), pool.images(b), pool.truth(a)) for a, b in splits]
    truths = [pool.truth(a) for a, _ in splits], [pool.truth(b) for _, b in splits]
    newcomers = _newcomers(pool, shuffled[clients:])
    metrics = Metrics((TRAINING,) * clients, *truths, counted=[False] * clients)
    least = next(number for number in count(1) if round(share * number) or not share)
    shown = pool.images(everybodys) if len(everybodys) else None
    return Federation(tuple(images), metrics, (newcomers,), least_measured=least, public=shown)


def _newcomers(pool: _Pool, dealt: Sequence[Integers]) -> Federation:
    nothing = pool.images(np.zeros(0, np.int64))
    images = tuple(ClientImages(nothing, nothing, pool.images(own)) for own in dealt)
    none = [torch.zeros(0, dtype=torch.int64)] * len(dealt)
    return Federation(images, Metrics((NEW,) * len(dealt), none, [pool.truth(own) for own in dealt]), label=NEW)


class _Pool:
    """All images of a data set, by one number each."""

    def __init__(self, dataset: FederatedDataset) -> None:
        domains = list(dataset.domains.values())
        self._images: list[Any] = [domain.images for domain in domains]
        self._starts = np.cumsum([0, *map(len, domains)])
        self.labels = np.concatenate([domain.labels for domain in domains])
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

    def draw(self, share: float, random: Generator) -> tuple[Integers, Integers]:
        """About a share of all positions, groups whole, and the rest in their order; draws nothing for none."""
        every = np.arange(len(self.labels))
        if not share:
            return every[:0], every
        order = self.shuffled(every, random)
        rest, drawn = self.split(order, share)
        return drawn, np.sort(rest)

    def shuffled(self, positions: Integers, random: Generator) -> Integers:
        """The positions in a drawn order, those of a group side by side."""
        _, member = np.unique(self.groups[positions], return_inverse=True)
        rank = random.permutation(int(member.max(initial=-1)) + 1)
        return positions[np.argsort(rank[member], kind="stable")]

    def split(self, positions: Integers, share: float) -> tuple[Integers, Integers]:
        """Training and validation images, groups whole."""
        cut = np.array([len(positions) - round(share * len(positions))])
        first, second = cut_at_groups(positions, self.groups, cut)
        return first, second

    def truth(self, positions: Integers) -> Tensor:
        """Labels of some images."""
        return torch.from_numpy(self.labels[positions])

    def images(self, positions: Integers) -> Tensor:
        """``[n, 3, H, W]`` uint8, channels last in memory."""
        found = np.empty((len(positions), *self._images[0].shape[1:]), np.uint8)
        for start, stop, images in zip(self._starts, self._starts[1:], self._images, strict=False):
            here = (positions >= start) & (positions < stop)
            found[here] = images[positions[here] - start]
        return torch.from_numpy(found).permute(0, 3, 1, 2)
