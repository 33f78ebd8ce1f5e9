"""Labelled clients that train, and new ones with images alone, from all images of a data set pooled."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator

from fedwca.data.dataset import FederatedDataset, Integers
from fedwca.data.federation import ClientImages, Federation
from fedwca.data.image_pool import Change, ImagePool
from fedwca.data.metrics import Metrics
from fedwca.errors import DataError, UsageError

TRAINING, NEW = "training clients", "new clients"
"""What records and tables call the two groups."""
VALIDATION = 0.15
"""Share of a training client's images that are kept aside to measure it. Source: FedTTA, sec. 4.1 (85:15)."""
MOST_DRAWS = 100
"""Deals of which one has to leave no training client without images."""


@dataclass(frozen=True, eq=False)
class DealtImages:
    """What a client is dealt."""

    positions: Integers
    """In an `ImagePool`."""
    change: Change | None = None
    """What makes its images look otherwise; None: nothing."""


@dataclass(frozen=True, eq=False)
class Dealt:
    """What all clients are dealt; no training image is a new client's."""

    training: Sequence[DealtImages]
    """Clients that train."""
    new: Mapping[str, Sequence[DealtImages]]
    """New clients in groups, by what tables call these; groups may share images."""


Deal = Callable[[ImagePool, int, int, Generator], Dealt]
"""All images, how many clients train, how many are new in each group, and where draws come from."""


def labelled_clients(
    dataset: FederatedDataset,
    deal: Deal,
    *,
    clients: int,
    new_clients: int | None = None,
    samples: int | None = None,
    seed: int,
    validation: float | None = None,
    kept: Sequence[float] = (1.0,),
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
        kept: shares of a new client's images that it keeps, one image at least; several: a group each.
        public: share of the images that everybody has, from 0 to below 1; their labels are nobody's.

    Raises:
        UsageError: a number is out of its bounds, or the images do not suffice for the deal.
        DataError: a client that trains has fewer than 2 images to train on, or a group of new ones none, in every deal
            that was tried.
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
    whole, random = ImagePool(dataset), np.random.default_rng([seed])
    shown, pool = whole.draw_apart(public, random) if public else (None, whole)
    if shown is not None and (len(shown) < 2 or len(pool) < clients + new):
        raise UsageError(
            f"{dataset.name}: {len(shown)} of {len(whole)} images are public, and {len(pool)} are left for "
            f"{clients + new} clients; two public ones and one a client are the least, so take another partition.public"
        )

    def drawn(client: DealtImages) -> DealtImages:
        return DealtImages(pool.shuffled(client.positions, random)[:samples], client.change)

    for _ in range(MOST_DRAWS):
        dealt = deal(pool, clients, new, random)
        training = [drawn(client) for client in dealt.training]
        splits = [pool.split(client.positions, share) for client in training]
        groups = {label: [drawn(client) for client in group] for label, group in dealt.new.items()}
        enough = all(len(kept) > 1 for kept, _ in splits)
        # One new client may be left without images, where classes are skewed, but not all that a column is the mean of.
        if enough and all(any(len(client.positions) for client in group) for group in groups.values()):
            break
    else:
        few = "a client that trains would have fewer than 2 images to train on"
        who = "new clients would have no image" if enough else few
        raise DataError(
            f"{dataset.name}: {who}, in {MOST_DRAWS} deals; take fewer --clients or --new-clients, or a partition that "
            "is less skewed"
        )
    images = [
        ClientImages(pool.images(a, client.change), pool.images(a[:0]), pool.images(b, client.change), pool.truth(a))
        for client, (a, b) in zip(training, splits, strict=True)
    ]
    truths = [pool.truth(a) for a, _ in splits], [pool.truth(b) for _, b in splits]
    before = dict(zip(groups, itertools.accumulate(map(len, groups.values()), initial=0), strict=False))
    newcomers = tuple(
        _newcomers(pool, _name_group(label, part, len(kept) > 1), group, part, before[label])
        for label, group in groups.items()
        for part in kept
    )
    metrics = Metrics((TRAINING,) * clients, *truths, counted=[False] * clients)
    least = math.floor(0.5 / share) + 1 if share else 1  # images of which the share is not rounded to none
    everybodys = None if shown is None else whole.images(shown)
    return Federation(tuple(images), metrics, newcomers, least_measured=least, public=everybodys)


def _name_group(label: str, part: float, several: bool) -> str:
    if not several:
        return label
    share = f"{100 * part:g} % of images"
    return share if label == NEW else f"{label}, {share}"


def _newcomers(pool: ImagePool, label: str, group: Sequence[DealtImages], part: float, first: int) -> Federation:
    nothing = pool.images(np.zeros(0, np.int64))
    own = [dealt.positions[: max(1, round(part * len(dealt.positions)))] for dealt in group]
    images = tuple(
        ClientImages(nothing, nothing, pool.images(positions, dealt.change))
        for positions, dealt in zip(own, group, strict=True)
    )
    none = [torch.zeros(0, dtype=torch.int64)] * len(group)
    return Federation(
        images, Metrics((label,) * len(group), none, list(map(pool.truth, own))), label=label, first=first
    )
