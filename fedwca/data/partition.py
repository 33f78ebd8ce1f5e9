"""From a labelled data set to a federation: whose images are whose, split for training, validation and test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fedwca.data.dataset import Domain, FederatedDataset, Integers
from fedwca.data.federation import ClientImages, Federation
from fedwca.data.metrics import Metrics
from fedwca.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class Split:
    """Where the images of one client are in their domain."""

    train: Integers
    validation: Integers
    test: Integers


DealDomain = Callable[[Domain, int, Generator], Sequence[Integers]]
"""A domain, how many clients it is dealt to and where draws come from, to the positions of each client's images, groups
whole."""


def partition(
    dataset: FederatedDataset,
    source: str,
    *,
    clients: int,
    samples: int | None,
    seed: int,
    published: bool = False,
    deal: DealDomain | None = None,
) -> Federation:
    """Spread every domain but ``source`` over ``clients`` clients each, and split each client 64/16/20.

    Domain d (its position in the data set, whatever the source) draws from ``numpy.random.default_rng([seed, d])``; see
    `split_domain`. Clients come in the order of the data set's domains.

    Args:
        dataset: the labelled data; its images are copied.
        source: the domain that is left out, because the server's model was trained on it.
        clients: clients per domain, at least 1.
        samples: most images per client, before the split; None: as many as there are.
        seed: 0 or more.
        published: take the published training and test parts in place of 64/16/20.
        deal: who has which images of a domain; None: all alike. It may look at labels; clients get none of them.

    Raises:
        UsageError: no such domain, a number out of bounds, no domain left, or more clients than a domain has images
            (groups, where it has groups), or a domain without published parts.
        DataError: a client that ``deal`` leaves without images.
    """
    source = dataset.domain(source).name
    if len(dataset.domains) == 1:
        raise UsageError(f"data set {dataset.name!r} has only the source domain {source!r}; no client would be left")
    targets = [name for name in dataset.domains if name != source]
    return _federation(dataset, targets, clients, samples, seed, published, deal=deal)


def leave_one_out(
    dataset: FederatedDataset, target: str, *, clients: int, samples: int | None, seed: int, published: bool = False
) -> Federation:
    """Spread every domain over ``clients`` clients each, split 64/16/20; all have labels but those of the target.

    Domains are drawn and split as `partition` does it, so a domain's clients are the same whatever its role.

    Args:
        dataset: the labelled data; its images are copied.
        target: the domain whose clients have images alone; its labels go to the metrics, which count it alone.
        clients: clients per domain, at least 1.
        samples: most images per client, before the split; None: as many as there are.
        seed: 0 or more.
        published: take the published training and test parts in place of 64/16/20.

    Raises:
        UsageError: no such domain, a number out of bounds, no domain left, more clients than a domain has images, or a
            domain without published parts.
        DataError: a source has no image of a class or a client of it too few to train on, or the target has none to
            test.
    """
    target = dataset.domain(target).name
    sources = [name for name in dataset.domains if name != target]
    if not sources:
        raise UsageError(f"data set {dataset.name!r} has only the target domain {target!r}; no labelled one is left")
    found = _with_labelled(dataset, sources, clients, samples, seed, published)
    for client, name in zip(found.clients, found.metrics.domains, strict=True):
        if name == target and not len(client.test):
            raise DataError(f"a client of target domain {name!r} has no test image; it needs 3 images or more")
    return found


def label_all(
    dataset: FederatedDataset, *, clients: int, samples: int | None, seed: int, published: bool = False
) -> Federation:
    """Spread every domain over ``clients`` clients each, split 64/16/20; all have labels, and all are counted.

    Args: as of `leave_one_out`.

    Raises:
        UsageError: a number out of bounds, more clients than a domain has images, or a domain without published parts.
        DataError: a source has no image of a class, or a client of it too few to train on.
    """
    return _with_labelled(dataset, list(dataset.domains), clients, samples, seed, published)


def _with_labelled(
    dataset: FederatedDataset, sources: Sequence[str], clients: int, samples: int | None, seed: int, published: bool
) -> Federation:
    """Clients of all domains, of which those of ``sources`` have labels.

    Raises:
        DataError: a source has no image of a class, or a client of it too few to train on.
    """
    for name in sources:
        counts = dataset.domains[name].counts(len(dataset.classes))
        if lacking := [label for label, count in zip(dataset.classes, counts, strict=True) if not count]:
            raise DataError(
                f"source domain {name!r} has no image of class {lacking[0]!r}, and a labelled source needs some of "
                "each; leave the domain out, or the class"
            )
    found = _federation(dataset, list(dataset.domains), clients, samples, seed, published, labelled=sources)
    for client, name in zip(found.clients, found.metrics.domains, strict=True):
        if name in sources and len(client.train) < 2:
            raise DataError(f"a client of source domain {name!r} has 1 training image; it needs 2 to train on")
    return found


def _federation(
    dataset: FederatedDataset,
    names: Sequence[str],
    clients: int,
    samples: int | None,
    seed: int,
    published: bool,
    labelled: Sequence[str] = (),
    deal: DealDomain | None = None,
) -> Federation:
    """Clients of the domains called ``names``; where some of these alone are ``labelled``, tables count the others."""
    if clients < 1 or seed < 0 or (samples is not None and samples < 1):
        raise UsageError(
            f"a partition needs clients >= 1, samples >= 1 and seed >= 0, not clients={clients}, samples={samples}, "
            f"seed={seed}"
        )
    images, owners, train, test = [], [], [], []
    for index, domain in enumerate(dataset.domains.values()):
        if domain.name not in names:
            continue
        random = np.random.default_rng([seed, index])
        for split in split_domain(domain, clients, samples, random, published, deal):
            shown, kept, tested = (_tensor(domain, part) for part in (split.train, split.validation, split.test))
            owners.append(domain.name)
            train.append(torch.from_numpy(domain.labels[split.train]))
            test.append(torch.from_numpy(domain.labels[split.test]))
            labels = train[-1] if domain.name in labelled else None
            images.append(ClientImages(shown, kept, tested, labels))
    counted = [name not in labelled for name in owners]
    return Federation(
        tuple(images), Metrics(tuple(owners), tuple(train), tuple(test), counted if any(counted) else None)
    )


def split_domain(
    domain: Domain,
    clients: int,
    samples: int | None,
    random: Generator,
    published: bool = False,
    deal: DealDomain | None = None,
) -> list[Split]:
    """Images of each client of one domain, drawn alike for all classes (i.i.d.), as positions in the domain.

    A random order is cut into ``clients`` runs as `numpy.array_split` would, or each client's run is what it is dealt,
    in that order; the first ``samples`` of a run are kept.
    Of n images, ``round(.2 n)`` are for test, ``round(.16 n)`` for validation and the rest, at least one, for training.
    Where the domain has groups, whole groups are put in random order and each cut goes to the nearest border between
    two groups, so that no group is in two clients or two splits; the last group within ``samples`` may lose images.
    With ``published``, what is kept of a run is split by `Domain.part` instead, and nothing is for validation.

    Raises:
        UsageError: more clients than images (or groups), or with ``published`` no parts or a client without an image to
            train on.
        DataError: a client that ``deal`` leaves without images, or with ``published`` a group that is in both parts.
    """
    groups = np.arange(len(domain)) if domain.groups is None else domain.groups
    _, member = np.unique(groups, return_inverse=True)
    total = int(member.max()) + 1
    if published and domain.part is not None:
        both = np.intersect1d(groups[domain.part == 0], groups[domain.part == 1])
        if len(both):
            raise DataError(
                f"--split published: domain {domain.name!r} has images of group {both[0]} in its training and in its "
                "test part, and no split separates a group; give it one part, or take --split random"
            )
    rank = random.permutation(total)
    order = np.argsort(rank[member], kind="stable")
    if deal is None:
        check_enough_images(domain, clients)
        sizes = [len(run) for run in np.array_split(order, clients)]
        runs = cut_at_groups(order, rank[member], np.cumsum(sizes)[:-1], least=1)
    else:
        place = np.argsort(order)
        runs = [order[np.unique(place[own])] for own in check_deal(domain, deal(domain, clients, random))]
    if without := [number for number, run in enumerate(runs) if not len(run)]:
        raise DataError(f"domain {domain.name!r}: client {without[0]} of {len(runs)} would have no image")
    splits = []
    for run in runs:
        kept = run[:samples]
        if published:
            splits.append(_published_split(domain, kept))
            continue
        test, validation = round(0.2 * len(kept)), round(0.16 * len(kept))
        cuts = np.array([len(kept) - validation - test, len(kept) - test])
        splits.append(Split(*cut_at_groups(kept, rank[member], cuts)))
    return splits


def check_enough_images(domain: Domain, clients: int) -> None:
    """Refuse more clients than a domain has images, or groups of images that stay together.

    Raises:
        UsageError: says how many are the most.
    """
    total = len(domain) if domain.groups is None else len(np.unique(domain.groups))
    if clients > total:
        what = "images" if domain.groups is None else "groups of images"
        raise UsageError(
            f"domain {domain.name!r} has {total} {what}, too few for {clients} clients; --clients {total} is the most"
        )


def check_deal(domain: Domain, dealt: Sequence[Integers]) -> list[Integers]:
    """The positions of each client's images in a domain, if they are that.

    Raises:
        UsageError: they are no whole numbers, not of the domain, or one is there twice.
    """
    arrays = [np.asarray(positions) for positions in dealt]
    for client, positions in enumerate(arrays):
        if positions.ndim != 1 or (len(positions) and positions.dtype.kind not in "iu"):
            raise UsageError(
                f"the partition's deal of {domain.name!r} gave client {client} {positions.dtype} of shape "
                f"{positions.shape}; right are positions of images, whole numbers [n]"
            )
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(domain):
            raise UsageError(
                f"the partition's deal of {domain.name!r} gave client {client} positions from {positions.min()} to "
                f"{positions.max()}; there are images 0 to {len(domain) - 1}"
            )
    all_positions = (
        np.concatenate([positions.astype(np.int64) for positions in arrays]) if arrays else np.zeros(0, np.int64)
    )
    seen, often = np.unique(all_positions, return_counts=True)
    if len(seen) < len(all_positions):
        raise UsageError(f"the partition's deal of {domain.name!r} gave image {seen[often > 1][0]} twice")
    return [positions.astype(np.int64) for positions in arrays]


def _published_split(domain: Domain, kept: Integers) -> Split:
    part = domain.part
    if part is None:
        raise UsageError(
            f"domain {domain.name!r} does not say which images are its published test part (key 'part' of an archive); "
            "--split random takes 64/16/20"
        )
    train, test = kept[part[kept] == 0], kept[part[kept] == 1]
    if not len(train):
        raise UsageError(
            f"domain {domain.name!r}: a client would have no image of the published training part; take fewer "
            "--clients or more --samples"
        )
    return Split(train, kept[:0], test)


def cut_at_groups(order: Integers, group_of: Integers, cuts: Integers, least: int = 0) -> list[Integers]:
    """``order`` in ``len(cuts) + 1`` parts, cut at the group border nearest to each of ``cuts``.

    The first part has at least one group; the others ``least``.
    """
    borders = np.r_[0, np.flatnonzero(np.diff(group_of[order])) + 1, len(order)]
    chosen = [0]
    for number, cut in enumerate(cuts):
        low = chosen[-1] + (1 if number == 0 else least)
        high = len(borders) - 1 - least * (len(cuts) - number)
        nearest = int(np.argmin(np.abs(borders - cut)))
        chosen.append(min(max(nearest, low), high))
    edges = [*borders[chosen], len(order)]
    return [order[start:stop] for start, stop in pairwise(edges)]


def _tensor(domain: Domain, positions: Integers) -> Tensor:
    """``[n, 3, H, W]`` uint8, channels last in memory, sharing none of it with the domain."""
    return torch.from_numpy(np.asarray(domain.images[positions])).permute(0, 3, 1, 2)
