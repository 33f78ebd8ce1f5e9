"""Classes skewed by draws from a Dirichlet distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat

from fedwca.functional import dirichlet_partition
from fedwca.partitions import register
from fedwca.partitions._labelled_partition import LabelledPartition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data.dataset import Integers


@register("dirichlet")
class Dirichlet(LabelledPartition):
    """Clients' classes are skewed alike, those of training and of new ones.

    Source: Hsu et al. 2019 (arXiv 1909.06335); FedTTA, sec. 5.2.
    """

    label = "labelled clients and new ones, Dirichlet classes"
    paper = "Hsu et al. 2019; FedTTA sec. 5.2"

    alpha: PositiveFloat = 0.1
    """Towards 0 a class goes to one client, towards infinity all clients are alike."""
    by: Literal["class", "client"] = "class"
    """What a draw belongs to: class, shares of each class over clients, so that sizes differ; client, classes of each
    client, all of one size."""

    def deal(self, labels: Integers, clients: int, random: Generator, groups: Integers) -> Sequence[Integers]:
        """See `fedwca.functional.dirichlet_partition`; variants of one image go with the first of them."""
        import numpy as np

        _, first, member = np.unique(groups, return_index=True, return_inverse=True)
        dealt = dirichlet_partition(labels[first], clients, self.alpha, random, self.by)
        owner = np.full(len(first), -1)
        for client, own in enumerate(dealt):
            owner[own] = client
        return [np.flatnonzero(owner[member] == client) for client in range(clients)]
