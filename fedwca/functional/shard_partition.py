"""How images are dealt to clients: by shards of one class, or by units such as writers."""

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
    """Cut the images into shards of one class each, and deal every client as many shards.

    Classes have alike many shards where the number of shards divides by that of classes; else shards go by the class
    counts, at least one each, by largest remainder. A class is cut evenly, at borders of groups.

    Source: McMahan et al. (FedAvg), AISTATS 2017, sec. 3; FedTTA, sec. 4.1.

    Args:
        labels: ``[N]`` int64.
        clients: number of clients, at least 1.
        per_client: shards of each, at least 1.
        random: draws the order of images and the deal.
        distinct: whether a client's shards are of different classes; else they are dealt at random.
        groups: ``[N]`` int64: images of one group that have one class stay in one shard; None: each by itself.

    Returns:
        Ascending positions of each client's images; together all N, each once.

    Raises:
        UsageError: there are fewer shards than classes, a class has fewer groups than shards, or shards of one class
            are too many to be dealt to different clients.

    >>> labels = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    >>> [sorted(set(labels[own].tolist())) for own in shard_partition(labels, 2, 2, np.random.default_rng(0), True)]
    [[0, 1], [0, 1]]
    """
    check_counts(clients=clients, per_client=per_client)
    classes, counts = np.unique(labels, return_counts=True)
    numbers = _count_shards(counts, clients * per_client)
    shards: list[Positions] = []
    for one, number in zip(classes, numbers, strict=True):
        here = np.flatnonzero(labels == one)
        shards += _cut_class(here, here if groups is None else groups[here], int(number), f"class {one}", random)
    kinds = np.repeat(np.arange(len(classes)), numbers)
    deal = _deal_distinct(kinds, clients, per_client, random) if distinct else random.permutation(len(kinds))
    return [np.sort(np.concatenate([shards[i] for i in some])) for some in deal.reshape(clients, per_client)]


def unit_partition(units: NDArray[Any], per_unit: int, random: Generator) -> list[Positions]:
    """Deal the images of each unit (a writer, a superclass) at random to clients of its own.

    Source: FedTTA, sec. 4.1: five clients for each superclass of CIFAR-100.

    Args:
        units: ``[N]`` int64.
        per_unit: clients of each unit, at least 1.
        random: draws who gets which image.

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
        for own in positions_by_value(units).values()
        for part in np.array_split(random.permutation(own), per_unit)
    ]


def positions_by_value(values: NDArray[Any]) -> dict[Any, Positions]:
    """Where each of some values stands ``[N]``, ascending, in one pass over them; the values ascend too.

    >>> {int(value): own.tolist() for value, own in positions_by_value(np.array([7, 3, 7])).items()}
    {3: [1], 7: [0, 2]}
    """
    found, counts = np.unique(values, return_counts=True)
    parts = np.split(np.argsort(values, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(found.tolist(), parts, strict=False))


def check_counts(**counts: int) -> None:
    """See that numbers of clients or images are at least 1.

    Raises:
        UsageError: one is not; names it.
    """
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} must be at least 1, not {count}")


def _count_shards(counts: Positions, shards: int) -> Positions:
    """How many shards each class is cut into; their sum is ``shards``."""
    if shards < len(counts):
        raise UsageError(f"{shards} shards are too few for {len(counts)} classes; give clients more of them")
    if shards % len(counts) == 0:
        return np.full_like(counts, shards // len(counts))
    exact = shards * counts / counts.sum()
    numbers: Positions = np.maximum(1, np.floor(exact).astype(np.int64))
    while numbers.sum() < shards:
        numbers[np.argmax(exact - numbers)] += 1
    while numbers.sum() > shards:
        numbers[np.argmin(np.where(numbers > 1, exact - numbers, np.inf))] -= 1
    return numbers


def _cut_class(here: Positions, groups: NDArray[Any], number: int, name: str, random: Generator) -> list[Positions]:
    """The positions of a class in so many parts of about the same size, groups kept whole."""
    _, inverse, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < number:
        raise UsageError(
            f"{name} has {len(sizes)} images or groups of images, too few for {number} shards; take fewer clients, or "
            "fewer shards a client"
        )
    place = random.permutation(len(sizes))
    totals = np.zeros(len(sizes), np.int64)
    totals[place] = sizes
    totals = totals.cumsum()
    cuts = [0]
    for part in range(1, number):
        nearest = int(np.abs(totals - part * len(here) / number).argmin()) + 1
        cuts.append(min(max(nearest, cuts[-1] + 1), len(sizes) - number + part))
    owner = np.searchsorted(cuts, place[inverse], side="right") - 1
    return [here[owner == part] for part in range(number)]


def _deal_distinct(kinds: Positions, clients: int, per_client: int, random: Generator) -> Positions:
    """An order of the shards in which each client's are of different classes."""
    stock = [list(random.permutation(np.flatnonzero(kinds == kind))) for kind in range(kinds.max() + 1)]
    left = np.array([len(some) for some in stock])
    if left.max() > clients:
        raise UsageError(
            f"a class of {left.max()} shards cannot be dealt to {clients} clients without one of them having two"
        )
    order = []
    for remaining in range(clients, 0, -1):
        # A class with a shard for each client that is left must go to each of them; then it always comes out even.
        due = np.flatnonzero(left == remaining)
        others = np.flatnonzero((left > 0) & (left < remaining))
        more = per_client - len(due)
        chosen = random.choice(others, more, replace=False, p=left[others] / left[others].sum()) if more else others[:0]
        for kind in (*due, *chosen):
            order.append(stock[kind].pop())
            left[kind] -= 1
    return np.array(order)
