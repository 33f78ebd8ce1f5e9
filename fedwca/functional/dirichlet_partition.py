"""Images dealt to clients whose classes are skewed by draws from a Dirichlet distribution."""

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
    """Deal images so that clients' classes are skewed by draws from a Dirichlet distribution.

    ``class``: each class is cut among the clients in shares from Dir(alpha), so that sizes differ and a client may be
    empty. ``client``: each client has N // clients images, its classes drawn from Dir(alpha · shares of the classes);
    where a class is used up, the others of the draw take its place.

    Source: ``class``: Yurochkin et al., ICML 2019, and FedTTA's released code; ``client``: Hsu et al. 2019 (arXiv
    1909.06335).

    Args:
        labels: ``[N]`` int64.
        clients: number of clients, at least 1.
        alpha: above 0; towards 0 a class goes to one client, towards infinity all clients are alike.
        random: draws shares and images.
        by: what a draw belongs to.

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
    classes, counts = np.unique(labels, return_counts=True)
    stock = [random.permutation(np.flatnonzero(labels == one)) for one in classes]
    if by == "class":
        shares = random.dirichlet(np.full(clients, alpha), len(classes))
        ends = np.rint(shares.cumsum(1) * counts[:, None]).astype(np.int64)[:, :-1]
        parts = [np.split(some, cut) for some, cut in zip(stock, ends, strict=True)]
        return [np.sort(np.concatenate([own[k] for own in parts] or [np.zeros(0, np.int64)])) for k in range(clients)]
    left, given = counts.copy(), []
    for _ in range(clients):
        wishes = random.dirichlet(alpha * counts / counts.sum())
        taken = _draw_classes(wishes, left, len(labels) // clients, random)
        left -= taken
        given.append(np.sort(np.concatenate([some[n : n + t] for some, n, t in zip(stock, left, taken, strict=True)])))
    return given


def _draw_classes(wishes: NDArray[Any], left: Positions, images: int, random: Generator) -> Positions:
    """How many images of each class a client gets that draws classes from ``wishes``, of those that are left."""
    taken = np.zeros_like(left)
    while (missing := images - taken.sum()) > 0:
        open_ = wishes * (taken < left)
        if open_.sum() <= 0:
            open_ = (left - taken).astype(float)
        taken = np.minimum(taken + random.multinomial(missing, open_ / open_.sum()), left)
    return taken
