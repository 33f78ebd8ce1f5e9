"""Deal the domains of a labelled data set to clients, and split each client for training, validation and test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from fedwca.data.check_deal import check_deal, check_enough_images, only_reads_arrays
from fedwca.data.dataset import Domain, FederatedDataset, Integers
from fedwca.data.federation import ClientImages, Federation
from fedwca.data.metrics import Metrics
from fedwca.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of one client's images in their domain."""

    train: Integers
    validation: Integers
    test: Integers


DealDomain = Callable[[Domain, int, Generator], Sequence[Integers]]
"""Maps a domain, its number of clients and a generator to the positions of each client's images, groups whole."""


def partition(
    dataset: FederatedDataset,
    source: str,
    *,
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool = False,
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
        published_split: take the published training and test parts in place of 64/16/20.
        deal: decides which images of a domain each client gets; None: i.i.d. It may use labels; clients get none.

    Raises:
        UsageError: no such domain, a number out of bounds, no domain left, or more clients than a domain has images
            (groups, where it has groups), or a domain without published parts.
        DataError: ``deal`` leaves a client without images.
    """
    source = dataset.domain(source).name
    if len(dataset.domains) == 1:
        raise UsageError(f"data set {dataset.name!r} has only the source domain {source!r}; no client would be left")
    targets = [name for name in dataset.domains if name != source]
    return _federation(dataset, targets, clients, samples, seed, published_split, deal=deal)


def leave_one_out(
    dataset: FederatedDataset,
    target: str,
    *,
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool = False,
) -> Federation:
    """Spread every domain over ``clients`` clients each, split 64/16/20; all have labels but those of the target.

    Domains are drawn and split as `partition` does it, so a domain's clients are the same whatever its role.

    Args:
        dataset: the labelled data; its images are copied.
        target: the domain whose clients are unlabeled; its labels are in the metrics, which count only its clients.
        clients: clients per domain, at least 1.
        samples: most images per client, before the split; None: as many as there are.
        seed: 0 or more.
        published_split: take the published training and test parts in place of 64/16/20.

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
    federation = _with_labelled(dataset, sources, clients, samples, seed, published_split)
    for client, name in zip(federation.clients, federation.metrics.domains, strict=True):
        if name == target and not len(client.test):
            raise DataError(f"a client of target domain {name!r} has no test image; it needs 3 images or more")
    return federation


def label_all(
    dataset: FederatedDataset, *, clients: int, samples: int | None, seed: int, published_split: bool = False
) -> Federation:
    """Spread every domain over ``clients`` clients each, split 64/16/20; all have labels, and all are counted.

    Args: as for `leave_one_out`.

    Raises:
        UsageError: a number out of bounds, more clients than a domain has images, or a domain without published parts.
        DataError: a source has no image of a class, or a client of it too few to train on.
    """
    return _with_labelled(dataset, list(dataset.domains), clients, samples, seed, published_split)


def _with_labelled(
    dataset: FederatedDataset,
    sources: Sequence[str],
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool,
) -> Federation:
    """A federation of all domains, in which the clients of ``sources`` have labels.

    Raises:
        DataError: a source has no image of a class, or a client of it too few to train on.
    """
    for name in sources:
        counts = dataset.domains[name].class_counts(len(dataset.classes))
        if missing := [label for label, count in zip(dataset.classes, counts, strict=True) if not count]:
            raise DataError(
                f"source domain {name!r} has no image of class {missing[0]!r}, and a labelled source needs some "
                "of each; leave the domain out, or the class"
            )
    federation = _federation(dataset, list(dataset.domains), clients, samples, seed, published_split, labelled=sources)
    for client, name in zip(federation.clients, federation.metrics.domains, strict=True):
        if name in sources and len(client.train) < 2:
            raise DataError(f"a client of source domain {name!r} has 1 training image; it needs 2 to train on")
    return federation


def _federation(
    dataset: FederatedDataset,
    names: Sequence[str],
    clients: int,
    samples: int | None,
    seed: int,
    published_split: bool,
    labelled: Sequence[str] = (),
    deal: DealDomain | None = None,
) -> Federation:
    """A federation of the domains ``names``; if only some of these are ``labelled``, tables count the others."""
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
        for split in split_domain(domain, clients, samples, random, published_split, deal):
            train_images, validation_images, test_images = (
                _tensor(domain, part) for part in (split.train, split.validation, split.test)
            )
            owners.append(domain.name)
            train.append(torch.from_numpy(domain.labels[split.train]))
            test.append(torch.from_numpy(domain.labels[split.test]))
            labels = train[-1] if domain.name in labelled else None
            images.append(ClientImages(train_images, validation_images, test_images, labels))
    counted = [name not in labelled for name in owners]
    return Federation(
        tuple(images), Metrics(tuple(owners), tuple(train), tuple(test), counted if any(counted) else None)
    )


def split_domain(
    domain: Domain,
    clients: int,
    samples: int | None,
    random: Generator,
    published_split: bool = False,
    deal: DealDomain | None = None,
) -> list[Split]:
    """Deal one domain to clients, i.i.d. or by ``deal``, and split each client; positions are those in the domain.

    The images in random order are cut into ``clients`` runs as by `numpy.array_split`; with ``deal``, each client's run
    is what it is dealt, in that random order. The first ``samples`` of a run are used.
    Of n images, ``round(.2 n)`` are for test, ``round(.16 n)`` for validation and the rest, at least one, for training.
    If the domain has groups, whole groups are put in random order and each cut moves to the nearest border between
    two groups, so that no group is in two clients or two splits; the last group within ``samples`` may lose images.
    With ``published_split``, the images of a run are split by `Domain.part` instead, without validation images.

    Raises:
        UsageError: more clients than images (or groups), or with ``published_split`` no parts or a client without an
            image to train on; or see `check_deal` and `only_reads_arrays`.
        DataError: ``deal`` leaves a client without images, or with ``published_split`` a group is in both parts.
    """
    groups = np.arange(len(domain)) if domain.groups is None else domain.groups
    _, member = np.unique(groups, return_inverse=True)
    total = int(member.max()) + 1
    if published_split and domain.part is not None:
        in_both = np.intersect1d(groups[domain.part == 0], groups[domain.part == 1])
        if len(in_both):
            raise DataError(
                f"--split published: domain {domain.name!r} has images of group {in_both[0]} in its training and in "
                "its test part, and no split separates a group; give it one part, or take --split random"
            )
    rank = random.permutation(total)
    order = np.argsort(rank[member], kind="stable")
    if deal is None:
        check_enough_images(domain, clients)
        sizes = [len(run) for run in np.array_split(order, clients)]
        runs = cut_at_groups(order, rank[member], np.cumsum(sizes)[:-1], least=1)
    else:
        place_in_order = np.argsort(order)
        with only_reads_arrays(domain.name, domain.labels, domain.groups, domain.part, domain.units):
            dealt = deal(domain, clients, random)
        runs = [
            order[np.unique(place_in_order[positions])]
            for positions in check_deal(domain.name, len(domain), domain.groups, dealt)
        ]
    if empty_clients := [number for number, run in enumerate(runs) if not len(run)]:
        raise DataError(f"domain {domain.name!r}: client {empty_clients[0]} of {len(runs)} would have no image")
    splits = []
    for run in runs:
        used = run[:samples]
        if published_split:
            splits.append(_published_split(domain, used))
            continue
        test, validation = round(0.2 * len(used)), round(0.16 * len(used))
        cuts = np.array([len(used) - validation - test, len(used) - test])
        splits.append(Split(*cut_at_groups(used, rank[member], cuts)))
    return splits


def _published_split(domain: Domain, positions: Integers) -> Split:
    part = domain.part
    if part is None:
        raise UsageError(
            f"domain {domain.name!r} does not say which images are its published test part (key 'part' of an archive); "
            "--split random takes 64/16/20"
        )
    train, test = positions[part[positions] == 0], positions[part[positions] == 1]
    if not len(train):
        raise UsageError(
            f"domain {domain.name!r}: a client would have no image of the published training part; take fewer "
            "--clients or more --samples"
        )
    return Split(train, positions[:0], test)


def cut_at_groups(order: Integers, group_of: Integers, cuts: Integers, least: int = 0) -> list[Integers]:
    """Cut ``order`` into ``len(cuts) + 1`` parts at the group borders nearest to ``cuts``.

    The first part has at least one group, each other part at least ``least`` groups.
    """
    borders = np.r_[0, np.flatnonzero(np.diff(group_of[order])) + 1, len(order)]
    border_indices = [0]
    for number, cut in enumerate(cuts):
        low = border_indices[-1] + (1 if number == 0 else least)
        high = len(borders) - 1 - least * (len(cuts) - number)
        nearest = int(np.argmin(np.abs(borders - cut)))
        border_indices.append(min(max(nearest, low), high))
    edges = [*borders[border_indices], len(order)]
    return [order[start:stop] for start, stop in pairwise(edges)]


def _tensor(domain: Domain, positions: Integers) -> Tensor:
    """A copy of the images ``[n, 3, H, W]`` uint8, channels last in memory."""
    return torch.from_numpy(np.asarray(domain.images[positions])).permute(0, 3, 1, 2)
