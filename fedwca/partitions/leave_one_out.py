"""All domains are labelled but one, whose clients are unlabeled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.core.count_of import count_of
from fedwca.partitions import ClientSettings, Partition, register

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset, Federation


@register("leave_one_out")
class LeaveOneOut(Partition):
    """Several labelled sources and one target without labels (SFDA): sources train one model together for the target.

    Source: Self-supervised federated domain adaptation with MDMGB, sec. 3.
    """

    label = "labelled sources, one unlabeled target"
    paper = "SFDA with MDMGB, sec. 3"
    setting = "sfda"
    default_baseline = "sfda"
    domain_role = "target"
    trains_classifier = True
    some_unlabeled = True

    def __call__(self, dataset: FederatedDataset, domain: str | None, settings: ClientSettings) -> Federation:
        """See `fedwca.data.partition.leave_one_out`."""
        from fedwca.data.partition import leave_one_out

        assert domain is not None
        return leave_one_out(
            dataset,
            domain,
            clients=settings.clients,
            samples=settings.samples,
            seed=settings.seed,
            published_split=settings.published_split,
        )

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe target and sources."""
        sources = ", ".join(name for name in dataset.domains if name != domain)
        clients_each = f"{count_of(clients, 'client')} each"
        return f"target {domain}, without labels; labelled sources {sources}; {clients_each}"
