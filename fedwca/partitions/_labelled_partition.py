"""Base class of partitions with labelled clients and new ones; they differ in how they deal images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt

from fedwca.errors import UsageError
from fedwca.partitions import ClientSettings, Partition
from fedwca.user_values import split_numbers

if TYPE_CHECKING:
    from numpy.random import Generator

    from fedwca.data import FederatedDataset, Federation
    from fedwca.data.dataset import Integers
    from fedwca.data.image_pool import ImagePool
    from fedwca.data.labelled_clients import Dealt


def check_distinct(values: tuple[float, ...]) -> tuple[float, ...]:
    """Check that no value is repeated, since each is a group of clients, which is named after it."""
    names = [f"{value:g}" for value in values]
    if repeated := [name for index, name in enumerate(names) if name in names[:index]]:
        raise ValueError(f"has {repeated[0]} twice; each value is a group of clients")
    return values


Shares = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1)], ...],
    Field(min_length=1),
    BeforeValidator(split_numbers),
    AfterValidator(check_distinct),
]


class LabelledPartition(Partition):
    """Unlabeled personalised federated learning (UPFL): labelled clients train, new ones without labels come after.

    Source: FedTTA, sec. 3.
    """

    public: float = Field(0.0, ge=0, lt=1)
    """Share of public images, which all clients have without labels; they are drawn first and are no client's own."""

    seed: NonNegativeInt | None = None
    """Seed of one deal for all source models and trials; unset: each has its own deal, by the run's seed."""

    setting = "upfl"
    default_baseline = "fedavg"
    trains_classifier = True
    has_newcomers = True

    kept: Shares = (1.0,)
    """Share of its images that a new client keeps; several, as 0.1+0.5+1, make a group each, of the same clients."""

    def __call__(self, dataset: FederatedDataset, domain: str | None, settings: ClientSettings) -> Federation:
        """See `fedwca.data.labelled_clients.labelled_clients`."""
        from fedwca.data.labelled_clients import labelled_clients

        if settings.published_split:
            raise UsageError(
                f"--split published: partition {self.name} pools training and test parts and deals them anew; leave "
                "it out"
            )
        return labelled_clients(
            dataset,
            self.deal,
            clients=settings.clients,
            new_clients=settings.new_clients,
            samples=settings.samples,
            seed=settings.seed if self.seed is None else self.seed,
            validation=settings.validation,
            public=self.public,
            kept=self.kept,
        )

    @property
    def has_public_images(self) -> bool:
        """Whether their share is above 0."""
        return self.public > 0

    def deal(self, pool: ImagePool, clients: int, new: int, random: Generator) -> Dealt:
        """Deal images to all clients alike, and draw which of them train; see `fedwca.data.labelled_clients.Deal`.

        Raises:
            UsageError: the images do not suffice.
        """
        from fedwca.data.labelled_clients import NEW, Dealt, DealtImages

        dealt: object = self.share_out(pool, clients + new, random)
        if not isinstance(dealt, Sequence | np.ndarray):
            raise UsageError(
                f"partition {self.name}: share_out gave a {type(dealt).__name__}; right is a list of each client's "
                "positions"
            )
        if len(dealt) < clients + new:
            raise UsageError(
                f"partition {self.name}: {pool.name} makes {len(dealt)} clients, too few for {clients} that train and "
                f"{new} new ones; lower --clients or --new-clients"
            )
        order = random.permutation(len(dealt))[: clients + new]
        drawn = [DealtImages(dealt[index]) for index in order]
        return Dealt(drawn[:clients], {NEW: drawn[clients:]})

    @abstractmethod
    def share_out(self, pool: ImagePool, clients: int, random: Generator) -> Sequence[Integers]:
        """Positions of each client's images, for ``clients`` clients or more; for fewer if the data have no more."""

    def describe(self, dataset: FederatedDataset, domain: str | None, clients: int) -> str:
        """Describe how many clients train, and on what."""
        images = sum(map(len, dataset.domains.values()))
        public = f", {self.public:.0%} of them public" if self.public else ""
        return (
            f"partition {self.name} of {images:,} images{public}; {clients} labelled clients train, new ones come after"
        )
