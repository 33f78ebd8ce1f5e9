"""Partition of images over clients with class shares drawn from a Dirichlet distribution."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedwca.errors import UsageError
from fedwca.functional.shard_partition import Positions, check_counts


def dirichlet_partition(
    labels: NDArray[Any],
    clients: int,
    alpha: float,
    random: Generator,
    by: Literal["class", "client"] = "class",
) -> list[Positions]:
    """Deal images to clients, with class shares drawn from a Dirichlet distribution.

    ``class``: each class is cut among the clients in shares from Dir(alpha), so that sizes differ and a client may be
    empty. ``client``: each client has N // clients images, its classes drawn from Dir(alpha · shares of the classes);
    where a class is used up, the other classes of the draw take its place.

    Source: ``class``: Yurochkin et al., ICML 2019, and FedTTA's released code; ``client``: Hsu et al. 2019 (arXiv
    1909.06335).

    Args:
        labels: ``[N]`` int64.
        clients: number of clients, at least 1.
        alpha: above 0; towards 0 a class goes to one client (``class``) or a client has one class (``client``); towards
            infinity all clients are alike.
        random: draws shares and images.
        by: whether a draw is for a class or for a client.

    Returns:
        Ascending positions of each client's images, each at most once; with ``class`` all of them.

    Raises:
        UsageError: a number is out of its range, or there is no such rule.

    >>> labels = np.arange(12) % 3
    >>> [len(own) for own in dirichlet_partition(labels, 4, 100.0, np.random.default_rng(0), by="client")]
    [3, 3, 3, 3]
    """
    check_counts(clients=clients)
    if not alpha > 0:
        raise UsageError(f"alpha must be above 0, not {alpha}")
    if by not in ("class", "client"):
        raise UsageError(f"no rule '{by}'; there are 'class' and 'client'")
    if not len(labels):
        return [np.zeros(0, np.int64) for _ in range(clients)]
    classes, counts = np.unique(labels, return_counts=True)
    pools = [random.permutation(np.flatnonzero(labels == label)) for label in classes]
    if by == "class":
        shares = random.dirichlet(np.full(clients, alpha), len(classes))
        ends = np.rint(shares.cumsum(1) * counts[:, None]).astype(np.int64)[:, :-1]
        splits = [np.split(pool, cuts) for pool, cuts in zip(pools, ends, strict=True)]
        return [np.sort(np.concatenate([split[k] for split in splits])) for k in range(clients)]
    remaining, dealt = counts.copy(), []
    for _ in range(clients):
        probabilities = random.dirichlet(alpha * counts / counts.sum())
        taken = _draw_classes(probabilities, remaining, len(labels) // clients, random)
        remaining -= taken
        dealt.append(
            np.sort(np.concatenate([pool[n : n + t] for pool, n, t in zip(pools, remaining, taken, strict=True)]))
        )
    return dealt


def _draw_classes(probabilities: NDArray[Any], remaining: Positions, images: int, random: Generator) -> Positions:
    """Draw how many images of each class a client gets, by ``probabilities`` and of the images that remain."""
    taken = np.zeros_like(remaining)
    while (missing := images - taken.sum()) > 0:
        available = probabilities * (taken < remaining)
        if available.sum() <= 0:
            available = (remaining - taken).astype(float)
        taken = np.minimum(taken + random.multinomial(missing, available / available.sum()), remaining)
    return taken
