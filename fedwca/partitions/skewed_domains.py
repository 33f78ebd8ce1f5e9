"""Unlabeled clients with skewed classes or sizes, and long-tailed domains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from fedwca.core.count_of import count_of
from fedwca.errors import DataError
from fedwca.functional import dirichlet_partition, long_tail
from fedwca.partitions import Alpha, register
from fedwca.partitions._domain_partition import DomainPartition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data import FederatedDataset
    from fedwca.data.dataset import Domain, Integers

MOST_DRAWS = 100
"""Most deals that are tried for one in which every client has enough images."""

Ratio = Annotated[float, Field(ge=1)]


@register("skewed_domains")
class SkewedDomains(DomainPartition):
    """As domains, with label or quantity skew among a target's clients, and long-tailed classes of the domains.

    Labels decide only which client has which images; clients have none.

    Source: ``class``: Yurochkin et al., ICML 2019; ``client``: Hsu et al. 2019 (arXiv 1909.06335); ``size``: Li et al.,
    ICDE 2022 (NIID-Bench); long tails: Tan et al. 2020 (arXiv 1910.10320), RSUT, counts by Cui et al., CVPR 2019.
    """

    label = "unlabeled clients, skewed classes or sizes"
    paper = "Yurochkin et al. 2019; Hsu et al. 2019; Li et al. 2022; Tan et al. 2020"
    has_skewed_clients = True

    alpha: Alpha = 0.3
    """Concentration: towards 0 one client gets a whole class (by class) or nearly all images (by size), or a client has
    one class (by client); towards infinity all clients are alike."""
    by: Literal["class", "client", "size"] = "class"
    """What is drawn: class, the shares of each class over clients, so that sizes differ too; client, the classes of
    each client, all of one size; size, the shares of all images over clients, whose classes are alike."""
    least: PositiveInt = 10
    """Fewest images of a client, before samples are taken; images are dealt anew until all clients have as many."""
    source_ratio: Ratio = 1.0
    """How many times as many images the source's first class has as its last one; 1: all images are used."""
    target_ratio: Ratio = 1.0
    """How many times as many images a target's last class has as its first one; 1: all images are used."""

    def choose_images(self, dataset: FederatedDataset, domain: str | None) -> FederatedDataset:
        """Long-tailed domains: what is common in the source is rare in the targets; drawn once for all runs."""
        from fedwca.data import FederatedDataset

        if self.source_ratio == self.target_ratio == 1:
            return dataset
        domains = {}
        for index, (name, data) in enumerate(dataset.domains.items()):
            ratio = self.source_ratio if name == domain else self.target_ratio
            random = np.random.default_rng([index])
            positions = long_tail(data.labels, len(dataset.classes), ratio, random, reverse=name != domain)
            domains[name] = data if ratio == 1 else data.subset(positions)  # which would read all images of a file
        return FederatedDataset(dataset.name, dataset.classes, domains)

    def deal(self, domain: Domain, clients: int, random: Generator) -> Sequence[Integers]:
        """See `fedwca.functional.dirichlet_partition`; all variants of an image go to the client of the first one.

        Raises:
            UsageError: more clients than images.
            DataError: a client has too few images in every deal that was tried.
        """
        from fedwca.data.check_deal import check_enough_images

        check_enough_images(domain, clients)
        if clients * self.least > len(domain):
            images = count_of(len(domain), "image")
            raise DataError(
                f"domain {domain.name!r} has {images}, too few for {clients} clients with {self.least} or more each; "
                "take fewer --clients or a smaller partition.least"
            )
        groups = np.arange(len(domain)) if domain.groups is None else domain.groups
        _, first, member = np.unique(groups, return_index=True, return_inverse=True)
        # With a single class, shares of the class are shares of all images.
        labels = np.zeros_like(first) if self.by == "size" else domain.labels[first]
        rule: Literal["class", "client"] = "client" if self.by == "client" else "class"
        for _ in range(MOST_DRAWS):
            dealt = dirichlet_partition(labels, clients, self.alpha, random, rule)
            runs = [np.flatnonzero(np.isin(member, client_groups)) for client_groups in dealt]
            if min(map(len, runs)) >= self.least:
                return runs
        raise DataError(
            f"domain {domain.name!r}: a client would have fewer than {self.least} of its {len(domain)} images, in "
            f"{MOST_DRAWS} deals to {clients} clients; take fewer --clients, a larger partition.alpha or a smaller "
            "partition.least"
        )

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe source and targets, and what is skewed."""
        skew = {"class": "classes over clients", "client": "classes of clients", "size": "sizes of clients"}[self.by]
        ratios = (("source", self.source_ratio), ("targets", self.target_ratio))
        tails = "".join(f"; long-tailed {role}, {ratio:g} to 1" for role, ratio in ratios if ratio > 1)
        return f"{super().describe(dataset, domain, clients)}; {skew} by Dirichlet({self.alpha:g}){tails}"
