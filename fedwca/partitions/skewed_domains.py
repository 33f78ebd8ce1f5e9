"""Unlabeled clients, and domains, whose classes or sizes are skewed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedwca.errors import DataError
from fedwca.functional import dirichlet_partition, long_tail
from fedwca.partitions import Alpha, register
from fedwca.partitions._domain_partition import DomainPartition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data import FederatedDataset
    from fedwca.data.dataset import Domain, Integers

MOST_DRAWS = 100
"""Deals of which one has to give every client its least."""

Ratio = Annotated[float, Field(ge=1)]


@register("skewed_domains")
class SkewedDomains(DomainPartition):
    """As domains, with label or quantity skew among a target's clients, and long-tailed classes of the domains.

    Only who has which images depends on labels; clients have none.

    Source: ``class``: Yurochkin et al., ICML 2019; ``client``: Hsu et al. 2019 (arXiv 1909.06335); ``size``: Li et al.,
    ICDE 2022 (NIID-Bench); long tails: Tan et al. 2020 (arXiv 1910.10320), RSUT, counts by Cui et al., CVPR 2019.
    """

    label = "unlabeled clients, skewed classes or sizes"
    paper = "Yurochkin et al. 2019; Hsu et al. 2019; Li et al. 2022; Tan et al. 2020"
    uneven = True

    alpha: Alpha = 0.3
    """Of the Dirichlet distribution: towards 0 one client gets all that is dealt, towards infinity all are alike."""
    by: Literal["class", "client", "size"] = "class"
    """What a draw belongs to: class, shares of each class over clients, so that sizes differ too; client, classes of
    each client, all of one size; size, shares of the images over clients, whose classes are alike."""
    least: PositiveInt = 10
    """Images of each client, before samples are taken; it is dealt anew until all have as many."""
    source_ratio: Ratio = 1.0
    """So many times as many images of the source's first class as of its last one; 1: as they are."""
    target_ratio: Ratio = 1.0
    """So many times as many images of a target's last class as of its first one; 1: as they are."""

    def choose_images(self, dataset: FederatedDataset, domain: str | None) -> FederatedDataset:
        """Long-tailed domains: what is common in the source is rare in the targets; drawn once for all runs."""
        from fedwca.data import FederatedDataset

        if self.source_ratio == self.target_ratio == 1:
            return dataset
        chosen = {}
        for index, (name, own) in enumerate(dataset.domains.items()):
            ratio = self.source_ratio if name == domain else self.target_ratio
            random = np.random.default_rng([index])
            kept = long_tail(own.labels, len(dataset.classes), ratio, random, reverse=name != domain)
            groups, part, units = (None if held is None else held[kept] for held in (own.groups, own.part, own.units))
            chosen[name] = replace(
                own, images=own.images[kept], labels=own.labels[kept], groups=groups, part=part, units=units
            )
        return FederatedDataset(dataset.name, dataset.classes, chosen)

    def deal(self, domain: Domain, clients: int, random: Generator) -> Sequence[Integers]:
        """See `fedwca.functional.dirichlet_partition`; variants of one image go with the first of them.

        Raises:
            UsageError: more clients than images.
            DataError: a client has too few images in every deal that was tried.
        """
        from fedwca.data.partition import check_enough_images

        check_enough_images(domain, clients)
        groups = np.arange(len(domain)) if domain.groups is None else domain.groups
        _, first, member = np.unique(groups, return_index=True, return_inverse=True)
        # Of one class alone, shares of a class are shares of all images.
        labels = np.zeros_like(first) if self.by == "size" else domain.labels[first]
        rule: Literal["class", "client"] = "client" if self.by == "client" else "class"
        for _ in range(MOST_DRAWS):
            dealt = dirichlet_partition(labels, clients, self.alpha, random, rule)
            runs = [np.flatnonzero(np.isin(member, own)) for own in dealt]
            if min(map(len, runs)) >= self.least:
                return runs
        raise DataError(
            f"domain {domain.name!r}: a client would have fewer than {self.least} of its {len(domain)} images, in "
            f"{MOST_DRAWS} deals to {clients} clients; take fewer --clients, a larger partition.alpha or a smaller "
            "partition.least"
        )

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Source and targets, and what is skewed."""
        what = {"class": "classes over clients", "client": "classes of clients", "size": "sizes of clients"}[self.by]
        ratios = (("source", self.source_ratio), ("targets", self.target_ratio))
        tails = "".join(f"; long-tailed {who}, {ratio:g} to 1" for who, ratio in ratios if ratio > 1)
        return f"{super().describe(dataset, domain, clients)}; {what} by Dirichlet({self.alpha:g}){tails}"
