"""Every domain is labelled, and none is held out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedwca.core.count_of import count_of
from fedwca.partitions import ClientSettings, Partition, register

if TYPE_CHECKING:
    from fedwca.data import FederatedDataset, Federation


@register("all_labelled")
class AllLabelled(Partition):
    """Several labelled sources and no target: they train one model together, which is tested on their own test images.

    Source: Self-supervised federated domain adaptation with MDMGB, sec. 3.3 (domain generalisation).
    """

    label = "labelled sources, no target"
    paper = "SFDA with MDMGB, sec. 3.3"
    setting = "sfda"
    default_baseline = "sfda_dg"
    preset_table = "sfda_dg"
    trains_classifier = True

    def __call__(self, dataset: FederatedDataset, domain: str | None, settings: ClientSettings) -> Federation:
        """See `fedwca.data.partition.leave_one_out`."""
        from fedwca.data.partition import leave_one_out

        return leave_one_out(
            dataset,
            None,
            clients=settings.clients,
            samples=settings.samples,
            seed=settings.seed,
            published_split=settings.published_split,
        )

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe the sources."""
        clients_each = f"{count_of(clients, 'client')} each"
        return f"labelled sources {', '.join(dataset.domains)}, no target; {clients_each}"
