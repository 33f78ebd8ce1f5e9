"""Deal all images of a data set to labelled clients that train and to new clients without labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.random import Generator

from fedwca.data.check_deal import check_deal, only_reads_arrays
from fedwca.data.dataset import FederatedDataset, Integers
from fedwca.data.federation import ClientImages, Federation, name_test_image_needs
from fedwca.data.image_pool import Change, ImagePool
from fedwca.data.metrics import Metrics
from fedwca.errors import DataError, UsageError

TRAINING, NEW = "training clients", "new clients"
"""Names of the two groups in records and tables."""
VALIDATION = 0.15
"""Share of a training client's images that is held out to measure it. Source: FedTTA, sec. 4.1 (85:15)."""
MOST_DRAWS = 100
"""Most deals that are tried for one in which every training client, and every group of new ones, has enough images."""


@dataclass(frozen=True, eq=False)
class DealtImages:
    """The images that one client is dealt."""

    positions: Integers
    """Positions in an `ImagePool`."""
    change: Change | None = None
    """Change of the client's images, such as a rotation; None: none."""


@dataclass(frozen=True, eq=False)
class Dealt:
    """The images that all clients are dealt; training clients and new ones share no image."""

    training: Sequence[DealtImages]
    """Clients that train."""
    new: Mapping[str, Sequence[DealtImages]]
    """New clients by the name of their group in tables; groups may share images."""


Deal = Callable[[ImagePool, int, int, Generator], Dealt]
"""Maps the pool of images, the numbers of training clients and of new clients, and a generator to a deal."""


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
    """Deal all images to labelled training clients and to new clients without labels.

    Public images are drawn first, groups whole, and are dealt to nobody.

    Each training client's images are split into training and validation images, ``round(share · n)`` of them, groups
    whole; the validation images are its ``test``, on which it is measured. A new client is measured on all its images.
    Labels of measured images are in the metrics alone, which count only new clients.

    Args:
        dataset: all its domains are pooled, training and test parts alike.
        deal: decides which images each client gets.
        clients: number of training clients, at least 1.
        new_clients: number of new clients that a deal has for each time it divides their images, at least 1; None: as
            many as train.
        samples: most images per client, before the split; None: as many as it is dealt.
        seed: 0 or more.
        validation: share of validation images, from 0 to below 1; None: `VALIDATION`.
        kept: shares of its images that a new client keeps, at least one image; each share makes groups of its own.
        public: share of the images that are public, from 0 to below 1; nobody gets their labels.

    Raises:
        UsageError: a number is out of its bounds, the images do not suffice for the deal, or see `check_deal` and
            `only_reads_arrays`.
        DataError: in every deal that was tried, a training client has fewer than 2 training images or a group of new
            clients has no image.
    """
    new = clients if new_clients is None else new_clients
    share = VALIDATION if validation is None else validation
    if clients < 1 or new < 1 or seed < 0 or (samples is not None and samples < 1) or not 0 <= share < 1:
        raise UsageError(
            "labelled clients need clients >= 1, new_clients >= 1, samples >= 1, seed >= 0 and 0 <= validation < 1, "
            f"not clients={clients}, new_clients={new}, samples={samples}, seed={seed}, validation={share}"
        )
    all_images, random = ImagePool(dataset), np.random.default_rng([seed])
    public_positions, pool = all_images.draw_apart(public, random) if public else (None, all_images)
    if public_positions is not None and (len(public_positions) < 2 or len(pool) < clients + new):
        raise UsageError(
            f"{dataset.name}: {len(public_positions)} of {len(all_images)} images are public, and {len(pool)} are left "
            f"for {clients + new} clients; two public ones and one a client are the least, so take another "
            "partition.public, or fewer --clients or --new-clients"
        )

    def draw_samples(client: DealtImages) -> DealtImages:
        return DealtImages(pool.shuffled(client.positions, random)[:samples], client.change)

    for _ in range(MOST_DRAWS):
        with only_reads_arrays(pool.name, pool.labels, pool.groups, pool.part, pool.units):
            dealt = deal(pool, clients, new, random)
        if not dealt.new:
            raise UsageError(f"the partition's deal of {pool.name!r} has no group of new clients")
        checked = {}
        for label, new_group in dealt.new.items():  # groups of new clients may share images with each other
            clients_dealt = [*dealt.training, *new_group]
            positions = check_deal(pool.name, len(pool), pool.groups, [client.positions for client in clients_dealt])
            checked[label] = [replace(c, positions=own) for c, own in zip(clients_dealt, positions, strict=True)]
        training = [draw_samples(client) for client in next(iter(checked.values()))[: len(dealt.training)]]
        splits = [pool.split(client.positions, share) for client in training]
        groups = {
            label: [draw_samples(client) for client in group[len(training) :]] for label, group in checked.items()
        }
        enough = all(len(train) > 1 for train, _ in splits)
        # Where classes are skewed a new client may have no images, but not a whole group: a column is its mean.
        if enough and all(any(len(client.positions) for client in group) for group in groups.values()):
            break
    else:
        too_few = "a client that trains would have fewer than 2 images to train on"
        problem = "new clients would have no image" if enough else too_few
        more_samples = "" if samples is None or enough else "more --samples, "
        raise DataError(
            f"{dataset.name}: {problem}, in {MOST_DRAWS} deals; take {more_samples}fewer --clients or --new-clients, "
            "or a partition that is less skewed"
        )
    images = [
        ClientImages(
            pool.images(train, client.change),
            pool.images(test, client.change),
            labels=pool.labels_at(train),
        )
        for client, (train, test) in zip(training, splits, strict=True)
    ]
    truths = [pool.labels_at(train) for train, _ in splits], [pool.labels_at(test) for _, test in splits]
    first_numbers = dict(zip(groups, itertools.accumulate(map(len, groups.values()), initial=0), strict=False))
    newcomers = tuple(
        _newcomers(pool, _name_group(label, kept_share, len(kept) > 1), group, kept_share, first_numbers[label])
        for label, group in groups.items()
        for kept_share in kept
    )
    metrics = Metrics((TRAINING,) * clients, *truths, counted=[False] * clients)
    least = math.floor(0.5 / share) + 1 if share else 1  # fewest images whose validation share rounds to 1
    needs = name_test_image_needs([len(train) for train, test in splits if not len(test)], least)
    public_images = None if public_positions is None else all_images.images(public_positions)
    return Federation(tuple(images), metrics, newcomers, test_image_needs=needs, public_images=public_images)


def _name_group(label: str, kept_share: float, several: bool) -> str:
    if not several:
        return label
    text = f"{100 * kept_share:g} % of images"
    return text if label == NEW else f"{label}, {text}"


def _newcomers(pool: ImagePool, label: str, group: Sequence[DealtImages], kept_share: float, first: int) -> Federation:
    no_images = pool.images(np.zeros(0, np.int64))
    kept_positions = [dealt.positions[: max(1, round(kept_share * len(dealt.positions)))] for dealt in group]
    images = tuple(
        ClientImages(no_images, pool.images(positions, dealt.change))
        for positions, dealt in zip(kept_positions, group, strict=True)
    )
    no_labels = [torch.zeros(0, dtype=torch.int64)] * len(group)
    return Federation(
        images,
        Metrics((label,) * len(group), no_labels, list(map(pool.labels_at, kept_positions))),
        label=label,
        first_number=first,
    )
