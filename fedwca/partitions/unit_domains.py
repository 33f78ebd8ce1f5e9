"""Unlabeled clients that are units of the data, such as writers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedwca.errors import UsageError
from fedwca.functional.shard_partition import positions_by_value
from fedwca.partitions import register
from fedwca.partitions._domain_partition import DomainPartition
from fedwca.partitions._unit_partition import WHERE_UNITS_ARE

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data import FederatedDataset
    from fedwca.data.dataset import Domain, Integers


@register("unit_domains")
class UnitDomains(DomainPartition):
    """As domains, with a client for each unit of a target, such as a writer: the data say who has which image.

    Source: Caldas et al. (LEAF), arXiv 1812.01097.
    """

    label = "unlabeled clients, one for each unit"
    paper = "Caldas et al. 2018"
    has_skewed_clients = True

    every: bool = False
    """Whether every unit is a client, in the order of their numbers; else as many are drawn as a target has clients."""

    @property
    def decides_client_count(self) -> bool:
        """Whether every unit is a client."""
        return self.every

    def deal(self, domain: Domain, clients: int, random: Generator) -> Sequence[Integers]:
        """The images of each unit that is a client.

        Raises:
            UsageError: the data have no units or too few of them, or variants of one image are in two units.
        """
        if domain.units is None:
            raise UsageError(f"partition {self.name}: domain {domain.name!r} does not say units; {WHERE_UNITS_ARE}")
        images = positions_by_value(domain.units)
        units = np.array(list(images))
        if domain.groups is not None:
            pairs = np.unique(np.stack([domain.groups, domain.units]), axis=1)
            if pairs.shape[1] > len(np.unique(domain.groups)):
                raise UsageError(
                    f"partition {self.name}: domain {domain.name!r} has variants of one image in two units, and no "
                    "split separates variants"
                )
        if not self.every:
            if len(units) < clients:
                raise UsageError(
                    f"partition {self.name}: domain {domain.name!r} has {len(units)} units, too few for {clients} "
                    f"clients; --clients {len(units)} is the most, and partition.every=true takes all of each domain"
                )
            units = random.permutation(units)[:clients]
        return [images[unit] for unit in units.tolist()]

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe source and targets with their clients."""
        if not self.every:
            return f"{super().describe(dataset, domain, clients)}, a unit of the data each"
        targets = [
            f"{name} ({'no' if data.units is None else len(np.unique(data.units))} clients)"
            for name, data in dataset.domains.items()
            if name != domain
        ]
        return f"source {domain}; targets {', '.join(targets)}, a client for each unit of the data"
