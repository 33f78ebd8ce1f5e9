"""One labelled domain at the server; every other one is spread over clients that have images alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.partitions import Partition, register

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset, Federation


@register("domains")
class Domains(Partition):
    """Federated source-free domain adaptation (FFREEDA): a source model at the server, clients without labels.

    Source: FedWCA, sec. 3; Shenaj et al. (LADD), WACV 2023.
    """

    label = "unlabeled clients"
    paper = "FedWCA sec. 3; Shenaj et al. 2023"
    setting = "ffreeda"
    usual = "fedwca"
    named = "source"

    def __call__(
        self,
        dataset: FederatedDataset,
        domain: str | None,
        *,
        clients: int,
        samples: int | None,
        seed: int,
        published: bool = False,
        new_clients: int | None = None,
        validation: float | None = None,
    ) -> Federation:
        """See `fedwca.data.partition.partition`."""
        from fedwca.data.partition import partition

        assert domain is not None
        return partition(dataset, domain, clients=clients, samples=samples, seed=seed, published=published)

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Source and targets."""
        targets = ", ".join(name for name in dataset.domains if name != domain)
        return f"source {domain}; targets {targets}; {clients} client{'' if clients == 1 else 's'} each"
