"""Split the images of one domain among clients, and each client's for training, validation and test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.random import Generator

from fedwca.data.check_deal import check_deal, check_enough_images, only_reads_arrays
from fedwca.data.dataset import Domain, Integers
from fedwca.errors import DataError, UsageError


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of one client's images in their domain."""

    train: Integers
    validation: Integers
    test: Integers


DealDomain = Callable[[Domain, int, Generator], Sequence[Integers]]
"""Maps a domain, its number of clients and a generator to the positions of each client's images, groups whole."""


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
