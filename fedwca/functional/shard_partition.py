"""Partitions of images over clients: by shards of one class, or by units such as writers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedwca.errors import UsageError

Positions = NDArray[np.int64]


def shard_partition(
    labels: NDArray[Any],
    clients: int,
    per_client: int,
    random: Generator,
    distinct: bool = False,
    groups: NDArray[Any] | None = None,
) -> list[Positions]:
    """Cut the images into shards of one class each, and deal the same number of shards to each client.

    All classes have equally many shards if the number of shards is a multiple of that of classes; else the numbers are
    proportional to class counts, at least one each, by largest remainder. A class is cut evenly, at borders of groups.

    Source: McMahan et al. (FedAvg), AISTATS 2017, sec. 3; FedTTA, sec. 4.1.

    Args:
        labels: ``[N]`` int64.
        clients: number of clients, at least 1.
        per_client: number of shards per client, at least 1.
        random: draws the order of images and of shards.
        distinct: whether a client's shards are of different classes; else they are dealt at random.
        groups: ``[N]`` int64: images of one group and one class stay in one shard; None: each image is a group.

    Returns:
        Ascending positions of each client's images; together all N, each once.

    Raises:
        UsageError: there are no labels, a number is below 1, there are fewer shards than classes, a class has fewer
            groups than shards, or one class has too many shards to be dealt to different clients.

    >>> labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    >>> [sorted(set(labels[own].tolist())) for own in shard_partition(labels, 2, 2, np.random.default_rng(0), True)]
    [[0, 1], [0, 1]]
    """
    check_counts(clients=clients, per_client=per_client, labels=len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    shard_counts = _count_shards(counts, clients * per_client)
    shards: list[Positions] = []
    for label, count in zip(classes, shard_counts, strict=True):
        positions = np.flatnonzero(labels == label)
        shards += _cut_class(
            positions, positions if groups is None else groups[positions], int(count), f"class {label}", random
        )
    shard_classes = np.repeat(np.arange(len(classes)), shard_counts)
    order = (
        _deal_distinct(shard_classes, clients, per_client, random)
        if distinct
        else random.permutation(len(shard_classes))
    )
    return [np.sort(np.concatenate([shards[i] for i in indices])) for indices in order.reshape(clients, per_client)]


def unit_partition(units: NDArray[Any], per_unit: int, random: Generator) -> list[Positions]:
    """Deal the images of each unit (a writer, a superclass) at random to clients of its own.

    Source: FedTTA, sec. 4.1: five clients for each superclass of CIFAR-100.

    Args:
        units: ``[N]`` int64.
        per_unit: number of clients per unit, at least 1.
        random: draws which client gets which image.

    Returns:
        Ascending positions of each client's images, unit after unit in ascending order; sizes within a unit differ by
        1 at most.

    Raises:
        UsageError: ``per_unit`` is below 1.

    >>> [len(own) for own in unit_partition(np.array([7, 7, 7, 3, 3]), 2, np.random.default_rng(0))]
    [1, 1, 2, 1]
    """
    check_counts(per_unit=per_unit)
    return [
        np.sort(part)
        for positions in positions_by_value(units).values()
        for part in np.array_split(random.permutation(positions), per_unit)
    ]


def positions_by_value(values: NDArray[Any]) -> dict[Any, Positions]:
    """Find the ascending positions of each value in ``values [N]``, in one pass; keys are in ascending order.

    >>> {int(value): own.tolist() for value, own in positions_by_value(np.array([7, 3, 7])).items()}
    {3: [1], 7: [0, 2]}
    """
    unique_values, counts = np.unique(values, return_counts=True)
    parts = np.split(np.argsort(values, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(unique_values.tolist(), parts, strict=False))


def check_counts(**counts: int) -> None:
    """Check that numbers of clients or images are at least 1.

    Raises:
        UsageError: one of them is not; names it.
    """
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} must be at least 1, not {count}")


def _count_shards(counts: Positions, shards: int) -> Positions:
    """Compute the number of shards of each class; their sum is ``shards``."""
    if shards < len(counts):
        raise UsageError(
            f"{shards} shards are too few for {len(counts)} classes; take more clients or more shards each"
        )
    if shards % len(counts) == 0:
        return np.full_like(counts, shards // len(counts))
    exact = shards * counts / counts.sum()
    shard_counts: Positions = np.maximum(1, np.floor(exact).astype(np.int64))
    while shard_counts.sum() < shards:
        shard_counts[np.argmax(exact - shard_counts)] += 1
    while shard_counts.sum() > shards:
        shard_counts[np.argmin(np.where(shard_counts > 1, exact - shard_counts, np.inf))] -= 1
    return shard_counts


def _cut_class(
    positions: Positions, groups: NDArray[Any], number: int, name: str, random: Generator
) -> list[Positions]:
    """Cut the positions of a class into ``number`` parts of about the same size, without splitting groups."""
    _, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < number:
        raise UsageError(
            f"{name} has {len(sizes)} images or groups of images, too few for {number} shards; take fewer clients, or "
            "fewer shards a client"
        )
    rank = random.permutation(len(sizes))
    totals = np.zeros(len(sizes), np.int64)
    totals[rank] = sizes
    totals = totals.cumsum()
    cuts = [0]
    for part in range(1, number):
        nearest = int(np.abs(totals - part * len(positions) / number).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - number + part))
    owner = np.searchsorted(cuts, rank[inverse], side="right") - 1
    return [positions[owner == part] for part in range(number)]


def _deal_distinct(classes: Positions, clients: int, per_client: int, random: Generator) -> Positions:
    """Draw an order of the shards in which each client's shards are of different classes."""
    shards_by_class = [list(random.permutation(np.flatnonzero(classes == label))) for label in range(classes.max() + 1)]
    remaining = np.array([len(shards) for shards in shards_by_class])
    if remaining.max() > clients:
        raise UsageError(
            f"a class of {remaining.max()} shards cannot be dealt to {clients} clients without one of them having two"
        )
    order = []
    for clients_left in range(clients, 0, -1):
        # A class with a shard for each remaining client must go to each of them; this way the deal always works out.
        due = np.flatnonzero(remaining == clients_left)
        candidates = np.flatnonzero((remaining > 0) & (remaining < clients_left))
        count = per_client - len(due)
        chosen = (
            random.choice(candidates, count, replace=False, p=remaining[candidates] / remaining[candidates].sum())
            if count
            else candidates[:0]
        )
        for label in (*due, *chosen):
            order.append(shards_by_class[label].pop())
            remaining[label] -= 1
    return np.array(order)
