"""Checks of a deal: whether a domain has enough images, and which images each client is given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager

import numpy as np

from fedwca.core.component_answers import describe_value
from fedwca.core.count_of import count_of
from fedwca.data.dataset import Domain, Integers
from fedwca.errors import UsageError


def check_enough_images(domain: Domain, clients: int) -> None:
    """Refuse more clients than a domain has images, or groups of images that stay together.

    Raises:
        UsageError: there are more clients; the message says how many are possible.
    """
    total = len(domain) if domain.groups is None else len(np.unique(domain.groups))
    if clients > total:
        images = count_of(total, "image" if domain.groups is None else "group of images")
        raise UsageError(
            f"domain {domain.name!r} has {images}, too few for {clients} clients; --clients {total} is the most"
        )


def check_deal(name: str, images: int, groups: Integers | None, dealt: Sequence[Integers]) -> list[Integers]:
    """Check the positions of each client's images in a domain or pool, and return them as int64.

    Args:
        name: of the domain or data set.
        images: number of its images.
        groups: see `Domain.groups`.
        dealt: of each client.

    Raises:
        UsageError: positions are not whole numbers, not in the domain, or dealt twice, or a group is dealt to two
            clients.
    """
    prefix = f"the partition's deal of {name!r}"
    if not isinstance(dealt, Iterable):
        raise UsageError(f"{prefix} gave {describe_value(dealt)}; right is a list of each client's positions")
    arrays = [np.asarray(positions) for positions in dealt]
    for client, positions in enumerate(arrays):
        if positions.ndim != 1 or (len(positions) and positions.dtype.kind not in "iu"):
            raise UsageError(
                f"{prefix} gave client {client} {positions.dtype} of shape {positions.shape}; right are positions of "
                "images, whole numbers [n]"
            )
        if len(positions) and not 0 <= positions.min() <= positions.max() < images:
            raise UsageError(
                f"{prefix} gave client {client} positions from {positions.min()} to {positions.max()}; there are "
                f"images 0 to {images - 1}"
            )
    arrays = [positions.astype(np.int64) for positions in arrays]
    if repeated := _find_repeated(arrays):
        raise UsageError(f"{prefix} gave image {repeated[0]} twice")
    if groups is not None and (divided := _find_repeated([np.unique(groups[positions]) for positions in arrays])):
        raise UsageError(f"{prefix} gave images of group {divided[0]}, variants of one image, to several clients")
    return arrays


@contextmanager
def only_reads_arrays(name: str, *given: Integers | None) -> Iterator[None]:
    """Check that a deal in the body leaves the arrays it is given unchanged; images are too large for a copy.

    Args:
        name: of the domain or data set.
        given: its labels and other numbers of images.

    Raises:
        UsageError: it changed one in place.
    """
    before = [(numbers, numbers.copy()) for numbers in given if numbers is not None]
    yield
    for numbers, copied in before:
        if not np.array_equal(numbers, copied):
            raise UsageError(
                f"the partition's deal of {name!r} changed what it was given in place; it may only read that"
            )


def check_dealt_clients(name: str, dealt: object, clients: int) -> None:
    """Refuse a deal to another number of clients than there are.

    Raises:
        UsageError: the deal has another number.
    """
    if isinstance(dealt, Sized) and len(dealt) != clients:
        raise UsageError(
            f"the partition's deal of {name!r} to {clients} clients gave positions for {len(dealt)}; right are some "
            "for each, or a property decides_client_count that is true"
        )


def _find_repeated(arrays: Sequence[Integers]) -> list[int]:
    """The numbers that occur more than once, ascending."""
    numbers, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *arrays]), return_counts=True)
    return [int(number) for number in numbers[counts > 1]]
