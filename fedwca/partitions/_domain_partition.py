"""Base class of partitions with a labelled domain at the server and unlabeled clients; they differ in the deal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedwca.core.count_of import count_of
from fedwca.partitions import ClientSettings, Partition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data import FederatedDataset, Federation
    from fedwca.data.dataset import Domain, Integers


class DomainPartition(Partition):
    """Federated source-free domain adaptation (FFREEDA): a source model at the server, clients without labels.

    Source: FedWCA, sec. 3; Shenaj et al. (LADD), WACV 2023.
    """

    setting = "ffreeda"
    default_baseline = "fedwca"
    domain_role = "source"

    def __call__(self, dataset: FederatedDataset, domain: str | None, settings: ClientSettings) -> Federation:
        """See `fedwca.data.partition.partition`."""
        from fedwca.data.partition import partition

        assert domain is not None
        return partition(
            dataset,
            domain,
            clients=settings.clients,
            samples=settings.samples,
            seed=settings.seed,
            published_split=settings.published_split,
            deal=None if type(self).deal is DomainPartition.deal else self._deal_to_clients,
        )

    @property
    def decides_client_count(self) -> bool:
        """Whether `deal` decides how many clients a target has; else they are as many as it is asked for."""
        return False

    def _deal_to_clients(self, domain: Domain, clients: int, random: Generator) -> Sequence[Integers]:
        from fedwca.data.check_deal import check_dealt_clients

        dealt = self.deal(domain, clients, random)
        if not self.decides_client_count:
            check_dealt_clients(domain.name, dealt, clients)
        return dealt

    def deal(self, domain: Domain, clients: int, random: Generator) -> Sequence[Integers]:
        """Decide which client has which images of a target; see `fedwca.data.split_domain.DealDomain`.

        Partitions that do not override this method deal images i.i.d.
        """
        raise NotImplementedError

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe source and targets."""
        targets = ", ".join(name for name in dataset.domains if name != domain)
        return f"source {domain}; targets {targets}; {count_of(clients, 'client')} each"
