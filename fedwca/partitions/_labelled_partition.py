"""What partitions of labelled clients and new ones have in common; they differ in how they deal images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import field_validator

from fedwca.errors import UsageError
from fedwca.partitions import Partition

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data import FederatedDataset, Federation
    from fedwca.data.dataset import Integers


class LabelledPartition(Partition):
    """Unlabeled personalised federated learning (UPFL): labelled clients train, new ones without labels come after.

    Source: FedTTA, sec. 3.
    """

    public: float = 0.0
    """Share of the images that everybody has, without labels; they are drawn first and are no client's own."""

    setting = "upfl"
    usual = "fedavg"
    whole = True
    newcomers = True

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
        """See `fedwca.data.labelled_clients.labelled_clients`."""
        from fedwca.data.labelled_clients import labelled_clients

        if published:
            raise UsageError(
                f"--split published: partition {self.name} pools training and test parts and deals them anew; leave "
                "it out"
            )
        return labelled_clients(
            dataset,
            self.deal,
            clients=clients,
            new_clients=new_clients,
            samples=samples,
            seed=seed,
            validation=validation,
            public=self.public,
        )

    @property
    def has_public_images(self) -> bool:
        """Where their share is above 0."""
        return self.public > 0

    @field_validator("public")
    @classmethod
    def _leaves_images(cls, value: float) -> float:
        if not 0 <= value < 1:
            raise ValueError("is a share of the images that leaves some to clients: from 0 to below 1, such as 0.1")
        return value

    @abstractmethod
    def deal(self, labels: Integers, clients: int, random: Generator, groups: Integers) -> Sequence[Integers]:
        """Positions of each client's images; see `fedwca.data.labelled_clients.Deal`."""

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Who trains, and on what."""
        images = sum(map(len, dataset.domains.values()))
        said = f", {self.public:.0%} of them public" if self.public else ""
        return (
            f"partition {self.name} of {images:,} images{said}; {clients} labelled clients train, new ones come after"
        )
